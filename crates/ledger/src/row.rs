//! What is written down of a call: one row when it begins, one when it ends.

use std::fmt;

/// A call that is about to go out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begin {
    /// Unix milliseconds.
    pub at: u64,
    pub host: Option<Box<str>>,
    pub session: Option<Box<str>>,
    pub thread: Option<Box<str>>,
    pub parent: Option<Box<str>>,
    pub run: Option<Box<str>>,
    pub turn: Option<Box<str>>,
    pub call: Box<str>,
    pub server: Box<str>,
    /// The tool's or prompt's name, or the uri.
    pub tool: Option<Box<str>>,
    pub method: Box<str>,
    pub workspace: Option<Box<str>>,
    pub trust: &'static str,
    pub source: Option<&'static str>,
    /// SHA-256 of the arguments as they are sent.
    pub digest: Option<[u8; 32]>,
    pub size: u64,
    /// The arguments themselves, where the configuration says so.
    pub arguments: Option<Box<str>>,
    /// What was forged and removed, separated by commas.
    pub spoof: Option<Box<str>>,
    /// The `traceparent` that it goes out with.
    pub trace: Option<Box<str>>,
}

fn length(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

impl Begin {
    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let Self { at: _, host, session, thread, parent, run, turn, .. } = self;
        let Self { call, server, tool, method, workspace, arguments, spoof, trace, .. } = self;
        let optional = [host, session, thread, parent, run, turn, tool, workspace, arguments, spoof, trace];
        let texts: usize = optional.map(|text| length(text.as_deref())).iter().sum();
        size_of::<Self>() + texts + call.len() + server.len() + method.len()
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Unix milliseconds.
    pub at: u64,
    pub outcome: Outcome,
    /// By what it was refused, or how it failed.
    pub reason: Option<Box<str>>,
    /// The process or address that was asked.
    pub target: Option<Box<str>>,
    pub micros: u64,
    pub size: u64,
    /// The result itself, where the configuration says so.
    pub result: Option<Box<str>>,
}

impl End {
    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.reason, &self.target, &self.result];
        size_of::<Self>() + texts.map(|text| length(text.as_deref())).iter().sum::<usize>()
    }

    /// Of a call that did not go out.
    pub fn refused(reason: &str) -> Self {
        Self {
            at: crate::batch::now().unsigned_abs(),
            outcome: Outcome::Refused,
            reason: Some(reason.into()),
            target: None,
            micros: 0,
            size: 0,
            result: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Ok,
    ToolError,
    Refused,
    Timeout,
    Canceled,
    Failed,
    /// Whoever made the call is gone, and nobody knows.
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
