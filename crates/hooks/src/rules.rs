//! What a hook may name. The names that are taken are their owners' business: they say so when hooks are loaded.

/// Why a name cannot be used, in a sentence; `Ok` where it can.
pub type Check = fn(&str) -> Result<(), String>;

#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub header: Check,
    pub variable: Check,
    /// A key of `params._meta`.
    pub meta: Check,
    pub argument: Check,
    /// What lies within a member of `_meta` or of the arguments: its name, and its value as JSON.
    pub within: fn(Inside, &str, &str) -> Result<(), String>,
}

/// Where a member lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    Meta,
    Arguments,
}

impl Default for Rules {
    /// Everything goes. For scripts that are only looked at.
    fn default() -> Self {
        let all: Check = |_| Ok(());
        Self { header: all, variable: all, meta: all, argument: all, within: |_, _, _| Ok(()) }
    }
}

/// What is named. The numbers are those of the prelude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Header,
    Variable,
    Meta,
    Argument,
    Result,
}

impl Kind {
    /// What it is called.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Variable => "variable",
            Self::Meta => "key of `_meta`",
            Self::Argument => "argument",
            Self::Result => "member of a result",
        }
    }

    /// Two names with one key are the same name.
    pub(crate) fn key(self, name: &str) -> String {
        match self {
            Self::Header => name.to_ascii_lowercase(),
            Self::Variable | Self::Meta | Self::Argument | Self::Result => name.to_owned(),
        }
    }

    pub(crate) fn from(number: u8) -> Option<Self> {
        [Self::Header, Self::Variable, Self::Meta, Self::Argument, Self::Result]
            .get(usize::from(number))
            .copied()
    }
}

/// Longer than this is no header and no variable.
const LONGEST_NAME: usize = 1 << 10;
const LONGEST_VALUE: usize = 64 << 10;

impl Rules {
    pub(crate) fn check(&self, kind: Kind, name: &str, value: Option<&str>) -> Result<(), String> {
        let (what, check) = match kind {
            Kind::Header => ("header", self.header),
            Kind::Variable => ("variable", self.variable),
            Kind::Meta => {
                (self.meta)(name)?;
                return value.map_or(Ok(()), |value| (self.within)(Inside::Meta, name, value));
            }
            Kind::Argument => {
                (self.argument)(name)?;
                return value.map_or(Ok(()), |value| (self.within)(Inside::Arguments, name, value));
            }
            Kind::Result => return Ok(()),
        };
        if name.len() > LONGEST_NAME {
            return Err(format!("the name of a {what} can have at most {LONGEST_NAME} bytes"));
        }
        check(name)?;
        check_value(what, value.unwrap_or_default(), || name.to_owned())
    }
}

/// Whether a header or variable can have this value.
pub(crate) fn check_value(what: &str, value: &str, name: impl FnOnce() -> String) -> Result<(), String> {
    if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(format!("the value of the {what} `{}` has a line break or a zero byte in it", name()));
    }
    if value.len() > LONGEST_VALUE {
        return Err(format!("the value of the {what} `{}` is longer than {LONGEST_VALUE} bytes", name()));
    }
    Ok(())
}
