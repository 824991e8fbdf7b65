//! Who calls: the words for it. How it is found out is the crate `callsign-identity`'s.

use std::fmt;

/// How an identity was learnt, weakest first, so that the order of the values is the order of trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Trust {
    #[default]
    None,
    /// Said by the client: `initialize._meta`, a header, inherited environment.
    Declared,
    /// The host's own per-call metadata on a channel it owns, its hook's announcement, or our plugin's seal.
    Host,
    /// The channel is ours.
    Bound,
}

impl Trust {
    pub const ALL: [Self; 4] = [Self::None, Self::Declared, Self::Host, Self::Bound];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Declared => "declared",
            Self::Host => "host",
            Self::Bound => "bound",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trust| trust.as_str() == text)
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where an identity was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Source {
    #[default]
    None,
    /// Inherited environment.
    Environment,
    /// `initialize.params._meta`.
    Initialize,
    Header,
    /// `params._meta` of the call.
    Meta,
    /// A host's hook announced the call.
    Hook,
    /// Our plugin's sealed token.
    Seal,
    /// The channel the call came in on.
    Channel,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Environment => "environment",
            Self::Initialize => "initialize",
            Self::Header => "header",
            Self::Meta => "meta",
            Self::Hook => "hook",
            Self::Seal => "seal",
            Self::Channel => "channel",
        }
    }
}

/// An id as the host wrote it: 1 to 256 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is 1 to 256 visible ASCII characters")]
pub struct BadId;

impl Id {
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, BadId> {
        let text = text.into();
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (1..=256).contains(&text.len()) { Ok(Self(text)) } else { Err(BadId) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Who makes a call, and how well that is known. At trust `none` there is nobody in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    pub host: Option<Id>,
    /// The root conversation.
    pub session: Option<Id>,
    /// The conversation that makes the call; the session itself where there is no subagent.
    pub thread: Option<Id>,
    /// The thread that started this one.
    pub parent: Option<Id>,
    pub run: Option<Id>,
    pub turn: Option<Id>,
    /// The host's own id of the call.
    pub call: Option<Id>,
    /// Printable text of at most [`MAX_TITLE`] bytes.
    pub title: Option<Box<str>>,
    pub trust: Trust,
    pub source: Source,
}

/// What a title may weigh.
pub const MAX_TITLE: usize = 1024;

/// A title that can stand in an environment and in a header: no control characters, not empty, not too long.
pub fn check_title(title: &str) -> Option<&str> {
    let title = title.trim();
    let fine = !title.is_empty() && title.len() <= MAX_TITLE && !title.chars().any(char::is_control);
    fine.then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_every_channel_can_carry() {
        for bad in ["", " ", "a b", "a\n", "ü", "a\0", &"x".repeat(257)] {
            assert_eq!(Id::new(bad), Err(BadId), "{bad:?}");
        }
        for good in ["a", "ses_1", "01a1-b2", &"x".repeat(256)] {
            assert!(Id::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn trust_is_ordered_and_comes_back_from_its_name() {
        assert!(Trust::ALL.is_sorted());
        for trust in Trust::ALL {
            assert_eq!(Trust::parse(trust.as_str()), Some(trust));
        }
        assert_eq!(Trust::parse("Host"), None);
    }
}
