//! Runs of our own sessions.

use crate::text::Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunStatus {
    Queued,
    Running,
    Completed,
    Failed,
    Canceled,
}

impl RunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    pub fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Completed | Self::Failed | Self::Canceled => true,
        }
    }
}

#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: Text,
    pub session: Text,
    pub session_name: Option<Text>,
    /// As it was submitted; lists show its beginning.
    pub task: Text,
    pub status: RunStatus,
    pub created_at: u64,
    pub started_at: Option<u64>,
    pub ended_at: Option<u64>,
    /// What happened last, while it runs.
    pub last: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub row: RunRow,
    pub phase: Option<Text>,
    pub model: Option<Text>,
    /// Somebody wants it to end.
    pub cancel_requested: bool,
    pub steps: u64,
    pub tools: u64,
    pub usage: Option<Usage>,
    pub ended: Option<Ended>,
    pub log: Log,
    pub artifacts: Vec<Artifact>,
    /// None: nothing was changed, or nobody knows yet.
    pub diff: Option<Diff>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Millionths of a dollar.
    pub cost_micros: u64,
}

#[derive(Debug, Clone)]
pub enum Ended {
    Completed { output: Text, structured: Option<Text> },
    Failed { code: Text, message: Text },
    Canceled { by: Text },
}

/// The end of a log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub text: Text,
    /// There is more before it.
    pub truncated: bool,
}

#[derive(Debug, Clone)]
pub struct Artifact {
    pub path: Text,
    pub kind: Text,
    pub size: u64,
    pub modified: u64,
}

/// Changed files, as git writes it.
#[derive(Debug, Clone)]
pub struct Diff {
    pub text: Text,
    pub truncated: bool,
}
