//! Sessions and runs: the words for them, and which of their states are facts.
//!
//! ```text
//! session   Live ──terminate──▶ Terminating ──box and directories seen to──▶ Terminated
//!                                    ▲                                           │
//!                                    └────────── terminate, keep nothing ────────┘
//! run       Queued ──claim──▶ Running: Starting ⇄ Prompting ─▶ Finishing ──finish──▶ Completed | Failed | Canceled
//!             └───────────────────────── cancel, terminate ─────────────────────────────────────────────▶ Canceled
//! ```
//!
//! Whether a session's box is cold, starting, ready or stopping is not here. It is what a daemon sees when it looks, and
//! a stored copy would be wrong the moment that daemon is killed. What is here stays true without anybody running.

mod ids;
#[cfg(test)]
mod tests;

use crate::Principal;

pub use ids::{BadSessionId, MessageId, OwnerId, RunId, SessionId, Stamp};

/// Milliseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub u64);

/// Whether a session's directories outlive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keep {
    Directories,
    Nothing,
}

impl Keep {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Directories => "directories",
            Self::Nothing => "nothing",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Directories, Self::Nothing].into_iter().find(|keep| keep.as_str() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionStatus {
    Live,
    /// It takes no task and its reuse key is free. What is left to do: end its run, its box, perhaps its directories.
    Terminating {
        keep: Keep,
        since: UnixMillis,
    },
    Terminated {
        keep: Keep,
        at: UnixMillis,
    },
}

impl SessionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Terminating { .. } => "terminating",
            Self::Terminated { .. } => "terminated",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub principal: Principal,
    pub name: Option<String>,
    /// Among live sessions of a principal there is at most one with this.
    pub reuse_key: Option<String>,
    pub image: String,
    /// As the settings name it.
    pub runtime: String,
    /// The settings it was made with, as JSON. No key is in them.
    pub settings: String,
    /// Where a person places files, on the host.
    pub workspace: String,
    /// Who asked for it, as JSON. Nothing is decided by it.
    pub made_by: Option<String>,
    /// The agent's own name of the conversation, once there is one. Only the session's owner sets it.
    pub agent_session: Option<String>,
    pub status: SessionStatus,
    pub created_at: UnixMillis,
    /// When a task was last submitted to it or ended in it, or its owner last touched it.
    pub used_at: UnixMillis,
}

/// Where a run is while it runs. Written before what it names is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The box and the agent are made ready. The prompt was not sent.
    Starting,
    /// The prompt may have been sent: whoever takes over asks the agent about its message id.
    Prompting,
    /// The turn is over. What is left is to keep what came of it.
    Finishing,
}

impl Phase {
    pub const ALL: [Self; 3] = [Self::Starting, Self::Prompting, Self::Finishing];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Prompting => "prompting",
            Self::Finishing => "finishing",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }

    /// What may follow. Back to the start goes whoever knows that the prompt did not arrive. What was said already may
    /// be said again.
    pub fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Starting, Self::Starting | Self::Prompting) => true,
            (Self::Starting, Self::Finishing) => false,
            (Self::Prompting, Self::Starting | Self::Prompting | Self::Finishing) => true,
            (Self::Finishing, Self::Finishing) => true,
            (Self::Finishing, Self::Starting | Self::Prompting) => false,
        }
    }
}

/// Who wanted a run to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CanceledBy {
    /// `cancel_run`.
    Caller,
    /// `terminate_session`.
    Termination,
    /// The daemon, by its own rules.
    Daemon,
}

impl CanceledBy {
    pub const ALL: [Self; 3] = [Self::Caller, Self::Termination, Self::Daemon];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Termination => "termination",
            Self::Daemon => "daemon",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == text)
    }
}

/// How a run ended. It ends once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Completed {
        final_output: String,
        /// JSON.
        structured_output: Option<String>,
        result_summary: String,
    },
    Failed {
        /// One of a fixed set of words.
        code: String,
        /// For people, and for models: what happened and what to do next.
        message: String,
    },
    Canceled {
        by: CanceledBy,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    Queued,
    Running {
        phase: Phase,
        /// 1 at first; one more each time that another owner takes it over or that it starts again.
        attempt: u32,
    },
    Ended(Ending),
}

impl RunState {
    /// The five words that clients see.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running { .. } => "running",
            Self::Ended(Ending::Completed { .. }) => "completed",
            Self::Ended(Ending::Failed { .. }) => "failed",
            Self::Ended(Ending::Canceled { .. }) => "canceled",
        }
    }

    pub fn is_ended(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } => false,
            Self::Ended(_) => true,
        }
    }
}

/// What a run used, as far as the agent said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct RunUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// Millionths of a dollar.
    pub cost_micros: u64,
}

impl RunUsage {
    /// Both together. What an agent says is not trusted to fit.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(more.reasoning_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(more.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(more.cache_write_tokens),
            cost_micros: self.cost_micros.saturating_add(more.cost_micros),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub session: SessionId,
    pub principal: Principal,
    /// Its place among the runs of its session, from 1.
    pub seq: u64,
    pub task: String,
    /// A JSON schema.
    pub output_schema: Option<String>,
    pub model: Option<String>,
    pub idempotency_key: Option<String>,
    /// Who asked for it, as JSON. Nothing is decided by it.
    pub asked_by: Option<String>,
    /// Under which name the prompt is sent, whoever sends it. Set when the run is first claimed, and never again.
    pub message_id: Option<MessageId>,
    pub state: RunState,
    /// Set by others while it runs. Its owner sees to it.
    pub cancel_requested: Option<CanceledBy>,
    pub created_at: UnixMillis,
    pub started_at: Option<UnixMillis>,
    pub ended_at: Option<UnixMillis>,
    pub usage: Option<RunUsage>,
}

/// What an artifact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArtifactKind {
    /// Written by us about a run: the answer, the context, the log.
    Record,
    /// A file of the workspace that the run made or changed.
    Changed,
}

impl ArtifactKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Changed => "changed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Record, Self::Changed].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A file that a run left, as it was when the run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Beneath the session's own directories. A name to look it up by, not one to open.
    pub path: String,
    pub kind: ArtifactKind,
    pub size: u64,
    pub modified: UnixMillis,
}
