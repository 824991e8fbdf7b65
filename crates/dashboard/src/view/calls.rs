//! Calls.

use model::identity::Trust;

use crate::route::Key;
use crate::text::Text;

/// How a call ended. The ledger's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Ok,
    ToolError,
    Refused,
    Timeout,
    Canceled,
    Failed,
    Unknown,
}

impl Outcome {
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::ToolError,
        Self::Refused,
        Self::Timeout,
        Self::Canceled,
        Self::Failed,
        Self::Unknown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Canceled => "canceled",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// A call in a list.
#[derive(Debug, Clone)]
pub struct CallRow {
    pub key: Key,
    /// Unix milliseconds.
    pub at: u64,
    pub host: Option<Text>,
    pub session: Option<Text>,
    pub thread: Option<Text>,
    pub title: Option<Text>,
    pub run: Option<Text>,
    pub server: Text,
    /// The tool's or prompt's name, or the uri.
    pub tool: Option<Text>,
    pub method: Text,
    pub trust: Trust,
    /// Where it was learnt.
    pub source: Text,
    /// None: it is under way.
    pub outcome: Option<Outcome>,
    pub duration_ms: Option<f64>,
    /// What was forged and removed.
    pub spoof: Vec<Text>,
}

/// A call with all that is known of it.
#[derive(Debug, Clone)]
pub struct Call {
    pub row: CallRow,
    pub parent: Option<Text>,
    pub turn: Option<Text>,
    /// The host's own id of it.
    pub call: Text,
    pub workspace: Option<Text>,
    /// By what it was refused, or how it failed.
    pub reason: Option<Text>,
    /// The process or address that was asked.
    pub target: Option<Text>,
    pub trace: Option<Text>,
    /// SHA-256 of the arguments, in hexadecimal.
    pub digest: Option<Text>,
    pub size: u64,
    pub result_size: Option<u64>,
    /// What arrived, strongest first, and what came of each.
    pub evidence: Vec<Evidence>,
    pub kept: Kept,
}

/// One thing that arrived and says who calls.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Where it stood, such as `_meta.threadId`.
    pub place: Text,
    pub said: Text,
    /// Whether the identity is made of it.
    pub taken: bool,
    pub why: Text,
}

/// What is left of the call itself.
#[derive(Debug, Clone)]
pub enum Kept {
    /// It is among the recent ones.
    Whole(Box<Seen>),
    /// It is older than what is kept in memory.
    DigestsOnly,
}

/// A call as its server saw it.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub headers: Vec<Field>,
    /// The keys of `_meta`, each with its value as JSON.
    pub meta: Vec<Field>,
    /// Variables of its process that say who calls.
    pub environment: Vec<Field>,
    pub arguments: Option<Text>,
    pub result: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: Text,
    /// None: a secret. Pages do not get those.
    pub value: Option<Text>,
}
