//! Names that come from people: of servers and of principals.

use std::fmt;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to 64 of the characters a-z A-Z 0-9 . _ - and starts with a letter or digit")]
pub struct BadName;

/// The name of a server: `[servers.NAME]`, `/mcp/NAME`. Safe in a path and in a file name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(String);

/// Who holds the token a request came in with. Not a session: one principal has many.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(String);

impl ServerName {
    pub fn new(name: impl Into<String>) -> Result<Self, BadName> {
        checked(name.into()).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Principal {
    pub fn new(name: impl Into<String>) -> Result<Self, BadName> {
        checked(name.into()).map(Self)
    }

    /// The person at this machine: the host that started `wrap`, or the daemon's own first token.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn checked(name: String) -> Result<String, BadName> {
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let all_well = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if starts_well && all_well && name.len() <= 64 { Ok(name) } else { Err(BadName) }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_are_refused() {
        for bad in ["", ".", "..", "../x", "a/b", "-a", "a b", "ü", &"a".repeat(65)] {
            assert_eq!(ServerName::new(bad), Err(BadName), "{bad:?}");
        }
        for good in ["a", "my-server", "0.x_y", &"a".repeat(64)] {
            assert!(ServerName::new(good).is_ok(), "{good:?}");
        }
    }
}
