//! Which hosts there are, and which scopes they have.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host {
    Opencode,
    Codex,
    ClaudeCode,
    Goose,
    Vscode,
    Cursor,
    Gemini,
}

/// Whose configuration: the user's own, or the directory's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    User,
    Project,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host that can be installed into")]
pub struct UnknownHost(String);

impl Host {
    pub const ALL: [Self; 7] = [
        Self::Opencode,
        Self::Codex,
        Self::ClaudeCode,
        Self::Goose,
        Self::Vscode,
        Self::Cursor,
        Self::Gemini,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Opencode => "opencode",
            Self::Codex => "codex",
            Self::ClaudeCode => "claude-code",
            Self::Goose => "goose",
            Self::Vscode => "vscode",
            Self::Cursor => "cursor",
            Self::Gemini => "gemini",
        }
    }

    /// What it is called on the command line.
    pub fn program(self) -> &'static str {
        match self {
            Self::Opencode => "opencode",
            Self::Codex => "codex",
            Self::ClaudeCode => "claude",
            Self::Goose => "goose",
            Self::Vscode => "code",
            Self::Cursor => "cursor",
            Self::Gemini => "gemini",
        }
    }
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

impl FromStr for Host {
    type Err = UnknownHost;

    fn from_str(name: &str) -> Result<Self, UnknownHost> {
        Self::ALL.into_iter().find(|host| host.name() == name).ok_or_else(|| UnknownHost(name.to_owned()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
