//! The agent program in a box: it has conversations, takes prompts and works on them for as long as that takes.
//!
//! ```text
//! ready ─▶ ensure_session ─▶ prompt ─▶ watch ─▶ Turn | FailedTurn
//!                              ▲         ▲ │
//!            was_delivered ────┘   again ┘ └─▶ Progress …      answer, abort: at any time
//! ```
//!
//! The agent keeps its conversations itself, over restarts of its own and of ours. Everything here can therefore be asked
//! again by a process that knows no more than a session's and a message's id.
//!
//! **Invariant:** no policy is in an implementation. How long a provider may be retried, when a question has waited
//! enough, what becomes of a session after a failure: whoever calls decides, by what it is told.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::session::{MessageId, RunUsage, UnixMillis};

/// Drives one agent program. Every future may be dropped at any time: that stops the waiting, not the agent.
pub trait Agent: Send + Sync {
    /// Waits until the agent answers. A program that has just been started may take seconds.
    fn ready(&self, within: Duration) -> impl Future<Output = Result<Ready, AgentError>> + Send;

    /// The conversation that `known` names, if the agent still has it; else a new one, and the answer says which.
    fn ensure_session(
        &self,
        wanted: &WantedSession,
    ) -> impl Future<Output = Result<AgentSession, AgentError>> + Send;

    /// Delivers a prompt, once: a message id that the agent has already is not delivered again, whatever became of it.
    /// Returns when the agent has taken it, not when it has worked on it. One prompt at a time for a session.
    ///
    /// After [`AgentError::Uncertain`] nobody knows whether it arrived. The same call may be repeated.
    fn prompt(&self, intent: &PromptIntent) -> impl Future<Output = Result<Delivery, AgentError>> + Send;

    /// Whether the agent has this message. A prompt that was on its way a moment ago may need that moment: only the
    /// answer `true` stays true.
    fn was_delivered(&self, prompt: &PromptId) -> impl Future<Output = Result<bool, AgentError>> + Send;

    /// Waits for the end of the turn that a prompt began, and tells `sink` what happens until then.
    ///
    /// May be begun before the prompt is delivered, in the middle, after the end, and again by another process: the
    /// result is the same. What can still be learnt of the time before is told then, so a second watch repeats what the
    /// first one told; each piece has an id. `sink` must not block.
    fn watch(
        &self,
        prompt: &PromptId,
        policy: &Policy,
        sink: &mut (dyn FnMut(Progress) + Send),
    ) -> impl Future<Output = Result<Turn, Box<FailedTurn>>> + Send;

    /// Answers a question that [`Progress::Asked`] showed.
    fn answer(
        &self,
        question: &QuestionId,
        answer: &Answer,
    ) -> impl Future<Output = Result<Answered, AgentError>> + Send;

    /// Ends the turn, wherever it is, and returns when the agent does not work on it any more. The turn's own result,
    /// which `watch` has, says whether the end came first.
    fn abort(&self, prompt: &PromptId) -> impl Future<Output = Result<(), AgentError>> + Send;
}

/// An agent that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub version: String,
}

/// What [`Agent::ensure_session`] is to find or make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSession {
    /// The id that an earlier call gave.
    pub known: Option<String>,
    /// For a new one.
    pub title: String,
    /// Where the agent works, as the agent sees it.
    pub directory: String,
}

/// A conversation of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionRef {
    /// The agent's own name for it.
    pub id: String,
    pub directory: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    pub session: SessionRef,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    New,
    Reused,
    /// The agent does not know the one that was named: what was said in it is lost, and a person should be told.
    Replaced {
        lost: String,
    },
}

/// One prompt in one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PromptId {
    pub session: SessionRef,
    pub message: MessageId,
}

/// All that a delivery needs: written down before it is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptIntent {
    pub prompt: PromptId,
    pub text: String,
    /// `provider/model`; none: the configured one.
    pub model: Option<String>,
    /// A JSON schema that the answer must fit, as JSON.
    pub output_schema: Option<String>,
    /// Instructions besides the agent's own.
    pub system: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    Delivered,
    /// The agent had it before this call.
    Already,
}

/// What the agent does with questions that nobody is there to answer. Asked by the name of what needs a permission
/// (`bash`, `edit`, `doom_loop` …), and by `question` where the model itself asks something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub otherwise: Decision,
    /// The first that fits decides.
    pub rules: Vec<(String, Decision)>,
}

/// The name under which a [`Policy`] is asked about questions of the model.
pub const QUESTION: &str = "question";

impl Policy {
    pub fn all(otherwise: Decision) -> Self {
        Self { otherwise, rules: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<String>, decision: Decision) -> Self {
        self.rules.push((name.into(), decision));
        self
    }

    pub fn decide(&self, name: &str) -> Decision {
        let rule = self.rules.iter().find(|(other, _)| other == name);
        rule.map_or(self.otherwise, |(_, decision)| *decision)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    Allow,
    /// The model is told so and goes on.
    Deny,
    /// The turn waits until somebody answers; [`Progress::Asked`] shows it.
    Surface,
}

/// A question of the agent, as long as it waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuestionId {
    /// Of the conversation that is watched, also where a subagent of it asks.
    pub directory: String,
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: QuestionId,
    /// The conversation that asks: the watched one, or a subagent's.
    pub thread: String,
    pub about: About,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Permission {
        /// What needs it: `bash`, `edit`, `doom_loop` …
        permission: String,
        /// What exactly: a command line, a path.
        patterns: Vec<String>,
    },
    /// The model wants to know something.
    Question { texts: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Allow,
    /// With a reason for the model.
    Deny {
        reason: String,
    },
    /// To a question of the model: one text for each.
    Say {
        texts: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answered {
    Taken,
    /// Nobody waits for it any more.
    Gone,
}

/// What happens in a turn. Ids and texts are the agent's own, cut to a length that can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Status(Status),
    /// The model is asked: the first time, or again after tools.
    StepStarted {
        thread: String,
        message: String,
    },
    StepFinished {
        thread: String,
        message: String,
        /// As the provider said: `stop`, `tool-calls`, `length` …
        finish: String,
        usage: RunUsage,
    },
    ToolStarted {
        thread: String,
        call: String,
        tool: String,
        at: UnixMillis,
    },
    ToolFinished {
        thread: String,
        call: String,
        tool: String,
        /// What it was about, in the tool's own words.
        title: String,
        /// None: it did what it was asked.
        error: Option<String>,
        started_at: UnixMillis,
        at: UnixMillis,
    },
    /// So many bytes of an answer more.
    Text {
        thread: String,
        bytes: usize,
    },
    /// A subagent was started.
    Subagent {
        thread: String,
        parent: String,
        title: String,
    },
    /// It waits for [`Agent::answer`].
    Asked(Question),
    /// The policy has answered.
    Decided {
        question: Question,
        decision: Decision,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Busy,
    /// The provider failed in a way that may pass. The agent tries again by itself.
    Retry {
        attempt: u32,
        message: String,
        next_at: UnixMillis,
    },
}

/// A turn that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What the last answer says.
    pub final_text: String,
    /// As JSON, where the prompt had an `output_schema`.
    pub structured: Option<String>,
    /// As the provider said: `stop`, `length` …
    pub finish: String,
    pub spent: Spent,
}

/// What a turn took, as far as the agent reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// How often the model was asked.
    pub steps: u32,
    pub usage: RunUsage,
    /// Of subagents that were started in this turn, on top.
    pub subagents: RunUsage,
}

/// A turn that ended otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTurn {
    pub failure: Failure,
    /// What the model had said until then.
    pub partial_text: String,
    pub spent: Spent,
}

impl fmt::Display for FailedTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl Error for FailedTurn {}

/// Why a turn failed, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It answered with an error, or with nothing that can be used, or not at all.
    #[error("the model's provider failed{}: {message}", with_status(*.status))]
    Provider { status: Option<u16>, message: String, retryable: bool },
    /// Another prompt or another model is needed.
    #[error("the model could not do it: {message}")]
    Model { message: String },
    #[error("the turn was aborted")]
    Aborted,
    /// The agent is gone, or was gone in the middle of the turn. Whether its process lives is not known here.
    #[error("the agent ended in the middle of the turn: {reason}")]
    Crashed { reason: String },
    /// It takes connections and answers none.
    #[error("the agent has answered nothing for {seconds} s")]
    Stalled { seconds: u64 },
    /// The agent has no such session or message: there is nothing to wait for.
    #[error("the agent does not know {what}")]
    Lost { what: String },
    #[error("the agent answered with something that is not understood: {what}")]
    Protocol { what: String },
}

impl Failure {
    /// Stable; for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Provider { status: Some(401 | 403), .. } => "provider_refused_key",
            Self::Provider { status: Some(429), .. } => "provider_rate_limited",
            Self::Provider { .. } => "provider_failed",
            Self::Model { .. } => "model_failed",
            Self::Aborted => "aborted",
            Self::Crashed { .. } => "agent_crashed",
            Self::Stalled { .. } => "agent_stalled",
            Self::Lost { .. } => "agent_lost",
            Self::Protocol { .. } => "agent_protocol",
        }
    }
}

fn with_status(status: Option<u16>) -> String {
    status.map(|status| format!(" with status {status}")).unwrap_or_default()
}

/// Why the agent did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// Nobody listens, or the connection broke before an answer. What was asked did not arrive, or did.
    #[error("the agent cannot be reached: {reason}")]
    Unreachable { reason: String },
    #[error("the agent did not answer within {seconds} s")]
    NoAnswer { seconds: u64 },
    #[error("the agent does not take our password")]
    Unauthorized,
    /// No session, message or question of this name.
    #[error("the agent does not know {what}")]
    Unknown { what: String },
    /// The same request would be refused again.
    #[error("the agent refused with status {status}: {message}")]
    Refused { status: u16, message: String },
    /// The prompt may have arrived and may not.
    #[error("the agent cannot be asked whether the prompt arrived: {reason}")]
    Uncertain { reason: String },
    #[error("the agent answered with something that is not understood: {what}")]
    Protocol { what: String },
}

impl AgentError {
    /// Stable; for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "agent_unreachable",
            Self::NoAnswer { .. } => "agent_silent",
            Self::Unauthorized => "agent_unauthorized",
            Self::Unknown { .. } => "agent_lost",
            Self::Refused { .. } => "agent_refused",
            Self::Uncertain { .. } => "agent_uncertain",
            Self::Protocol { .. } => "agent_protocol",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy =
            Policy::all(Decision::Allow).with("bash", Decision::Surface).with("bash", Decision::Deny);
        assert_eq!(policy.decide("bash"), Decision::Surface);
        assert_eq!(policy.decide(QUESTION), Decision::Allow);
    }

    #[test]
    fn a_failure_says_what_a_person_needs() {
        let failure = Failure::Provider { status: Some(429), message: "slow down".into(), retryable: true };
        assert_eq!(failure.to_string(), "the model's provider failed with status 429: slow down");
        assert_eq!(failure.code(), "provider_rate_limited");
        let failure = Failure::Provider { status: None, message: "refused".into(), retryable: true };
        assert_eq!(failure.to_string(), "the model's provider failed: refused");
    }
}
