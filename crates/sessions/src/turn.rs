//! One turn of one run: the prompt delivered, watched to its end, aborted where somebody asks for that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::ports::agent::{
    About, Agent, AgentError, Answer, Decision, Delivery, FailedTurn, Failure, Policy, Progress,
    PromptIntent, QUESTION, Question, Spent, Status, Turn,
};
use model::ports::sandbox::{BoxName, BoxState, Sandbox};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::boxes::{code_of, ended, told};

/// How long an agent that does not answer is asked again whether it takes the prompt.
const DELIVERY: Duration = Duration::from_secs(75);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an agent may take to end a turn that was aborted.
const ABORT: Duration = Duration::from_secs(15);
/// How long a prompt that is on its way may take to arrive, where it is not wanted any more.
const LAST_CALL: Duration = Duration::from_secs(5);
/// How long an agent that works may take to say so.
const HEALTHY: Duration = Duration::from_secs(2);
/// How many questions wait at most. An agent that asks more without an answer is not one that can be helped.
const MOST_QUESTIONS: usize = 4096;
/// The tool that starts a subagent.
const SUBAGENT: &str = "task";

/// What becomes of a permission that nobody is there to give: the box is what holds the agent, not a question.
pub(crate) fn policy() -> Policy {
    Policy::all(Decision::Allow).with(QUESTION, Decision::Surface)
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed(Turn),
    Canceled { partial: String, spent: Spent },
    Failed(Failed),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) partial: String,
    pub(crate) spent: Spent,
    /// The agent cannot be trusted to go on.
    pub(crate) ends_box: bool,
}

impl Failed {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        let (partial, spent) = (String::new(), Spent::default());
        Self { code, message: message.into(), partial, spent, ends_box: true }
    }
}

/// What is seen of a turn, by whoever looks. Shared with the sink, so it is never held for long.
pub(crate) struct Follow {
    seen: Mutex<Seen>,
    asked: Notify,
    tell: Box<dyn Fn(&Progress) + Send + Sync>,
}

struct Seen {
    last: Instant,
    tools: usize,
    retry: Option<(u32, String)>,
    questions: VecDeque<Question>,
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follow").finish_non_exhaustive()
    }
}

impl Follow {
    /// `tell` is called with all that happens, and must not block.
    pub(crate) fn new(tell: impl Fn(&Progress) + Send + Sync + 'static) -> Arc<Self> {
        let seen = Seen { last: Instant::now(), tools: 0, retry: None, questions: VecDeque::new() };
        Arc::new(Self { seen: Mutex::new(seen), asked: Notify::new(), tell: Box::new(tell) })
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, progress: &Progress) {
        {
            let mut seen = self.lock();
            match progress {
                // Trying again is not getting on.
                Progress::Status(Status::Retry { attempt, message, .. }) => {
                    seen.retry = Some((*attempt, message.clone()));
                }
                Progress::Status(Status::Busy) => {}
                // A subagent's own requests are requests, and its tools count by themselves.
                Progress::ToolStarted { tool, .. } | Progress::ToolFinished { tool, .. }
                    if tool == SUBAGENT =>
                {
                    seen.got_on();
                }
                Progress::ToolStarted { .. } => {
                    seen.tools += 1;
                    seen.got_on();
                }
                Progress::ToolFinished { .. } => {
                    seen.tools = seen.tools.saturating_sub(1);
                    seen.got_on();
                }
                Progress::StepStarted { .. }
                | Progress::StepFinished { .. }
                | Progress::Text { .. }
                | Progress::Subagent { .. }
                | Progress::Decided { .. } => seen.got_on(),
                Progress::Asked(question) => {
                    seen.got_on();
                    if seen.questions.len() < MOST_QUESTIONS {
                        seen.questions.push_back(question.clone());
                    }
                    self.asked.notify_one();
                }
            }
        }
        (self.tell)(progress);
    }

    /// Returns when the model's provider has said nothing for so long, with what is known of it.
    async fn silent(&self, patience: Duration) -> Failed {
        loop {
            let (quiet, tools, retry) = {
                let seen = self.lock();
                (seen.last.elapsed(), seen.tools, seen.retry.clone())
            };
            // A tool may take as long as it likes.
            if tools == 0 && quiet >= patience {
                let seconds = patience.as_secs();
                return match retry {
                    Some((attempt, message)) => Failed::new(
                        "provider_failed",
                        format!("the model's provider failed {attempt} times in {seconds} s: {message}"),
                    ),
                    None => Failed::new(
                        "provider_silent",
                        format!(
                            "the model's provider has sent nothing for {seconds} s; see whether it works, or raise \
                             request_timeout (MCP_OPENCODE_REQUEST_TIMEOUT)"
                        ),
                    ),
                };
            }
            let left = if tools == 0 { patience.saturating_sub(quiet) } else { PAUSE };
            sleep(left.clamp(Duration::from_millis(50), PAUSE)).await;
        }
    }

    /// Answers what the model asks. Never returns.
    async fn answer(&self, agent: &impl Agent) -> std::convert::Infallible {
        loop {
            let next = self.lock().questions.pop_front();
            let Some(question) = next else {
                self.asked.notified().await;
                continue;
            };
            let answer = match &question.about {
                About::Question { texts } => {
                    let say = "Nobody is there to answer. Choose what fits the task best, say what you chose, and go on.";
                    Answer::Say { texts: vec![say.to_owned(); texts.len()] }
                }
                About::Permission { .. } => {
                    Answer::Deny { reason: "Nobody is there to allow it.".to_owned() }
                }
            };
            while let Err(error) = agent.answer(&question.id, &answer).await {
                tracing::debug!(%error, "a question could not be answered");
                if !matches!(error, AgentError::Unreachable { .. } | AgentError::NoAnswer { .. }) {
                    // The same would be refused again. Turned down, the turn goes on or ends.
                    let deny = Answer::Deny { reason: "Nobody is there to answer.".to_owned() };
                    let _gone = agent.answer(&question.id, &deny).await;
                    break;
                }
                sleep(PAUSE).await;
            }
        }
    }
}

impl Seen {
    fn got_on(&mut self) {
        self.last = Instant::now();
        self.retry = None;
    }
}

/// All that one turn needs.
#[derive(Debug)]
pub(crate) struct Drive<'a, A, B> {
    pub(crate) agent: &'a A,
    pub(crate) sandbox: &'a B,
    pub(crate) name: &'a BoxName,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) follow: &'a Arc<Follow>,
    /// How long a provider may say nothing.
    pub(crate) patience: Duration,
}

impl<A: Agent, B: Sandbox> Drive<'_, A, B> {
    /// `sent`: somebody before may have sent it already.
    pub(crate) async fn run(&self, intent: &PromptIntent, sent: bool) -> Outcome {
        let delivered = tokio::select! {
            biased;
            delivered = self.deliver(intent, sent) => delivered,
            ending = ended(self.sandbox, self.name) => {
                Err(Outcome::Failed(Failed::new(code_of(&ending), format!("the agent is gone: {}", told(&ending)))))
            }
        };
        match delivered {
            Ok(Delivery::Delivered | Delivery::Already) => self.watch(intent).await,
            Err(outcome) => outcome,
        }
    }

    async fn deliver(&self, intent: &PromptIntent, sent: bool) -> Result<Delivery, Outcome> {
        if sent && self.cancel.is_cancelled() {
            return self.withdrawn(intent).await;
        }
        let mut until = Instant::now() + DELIVERY;
        loop {
            let error = match self.agent.prompt(intent).await {
                Ok(delivery) => return Ok(delivery),
                Err(error) => error,
            };
            match error {
                AgentError::Unreachable { .. }
                | AgentError::NoAnswer { .. }
                | AgentError::Uncertain { .. } => {}
                AgentError::Refused { .. } => {
                    let failed = Failed::new(error.code(), error.to_string());
                    return Err(Outcome::Failed(Failed { ends_box: false, ..failed }));
                }
                AgentError::Unauthorized | AgentError::Unknown { .. } | AgentError::Protocol { .. } => {
                    return Err(Outcome::Failed(Failed::new(error.code(), error.to_string())));
                }
            }
            if self.cancel.is_cancelled() {
                until = until.min(Instant::now() + LAST_CALL);
            }
            if Instant::now() >= until {
                if self.cancel.is_cancelled() {
                    return self.withdrawn(intent).await;
                }
                let message = format!("the agent did not take the prompt: {error}");
                return Err(Outcome::Failed(Failed::new("agent_stalled", message)));
            }
            sleep(PAUSE).await;
        }
    }

    /// It is not wanted any more, and nobody knows whether it has arrived. Where it has, its turn says how it ended.
    async fn withdrawn(&self, intent: &PromptIntent) -> Result<Delivery, Outcome> {
        let canceled = || Outcome::Canceled { partial: String::new(), spent: Spent::default() };
        let until = Instant::now() + LAST_CALL;
        loop {
            match self.agent.was_delivered(&intent.prompt).await {
                Ok(true) => return Ok(Delivery::Already),
                Ok(false) if Instant::now() >= until => {
                    // Should it arrive after all, nobody works on it.
                    let _as_good_as = timeout(ABORT, self.agent.abort(&intent.prompt)).await;
                    return Err(canceled());
                }
                Err(error) if Instant::now() >= until => {
                    tracing::debug!(%error, "the agent does not say whether a withdrawn prompt arrived");
                    let _gone = self.sandbox.kill(self.name).await;
                    return Err(canceled());
                }
                Ok(false) | Err(_) => sleep(PAUSE / 4).await,
            }
        }
    }

    async fn watch(&self, intent: &PromptIntent) -> Outcome {
        let policy = policy();
        let mut sink = |progress: Progress| self.follow.see(&progress);
        let watch = self.agent.watch(&intent.prompt, &policy, &mut sink);
        tokio::select! {
            biased;
            result = watch => match result {
                Ok(turn) => Outcome::Completed(turn),
                Err(failed) => self.failed(*failed).await,
            },
            never = self.follow.answer(self.agent) => match never {},
            () = self.aborted(intent) => {
                // It was told to end and does not: its box ends it.
                let _gone = self.sandbox.kill(self.name).await;
                Outcome::Canceled { partial: String::new(), spent: Spent::default() }
            }
            ending = ended(self.sandbox, self.name) => {
                let message = format!("the agent ended in the middle of the turn: {}", told(&ending));
                Outcome::Failed(Failed::new(code_of(&ending), message))
            }
            failed = self.follow.silent(self.patience) => {
                let ended = timeout(ABORT, self.agent.abort(&intent.prompt)).await;
                Outcome::Failed(Failed { ends_box: !matches!(ended, Ok(Ok(()))), ..failed })
            }
        }
    }

    /// Aborts when somebody asks for it. Returns if that does not end the turn in time.
    async fn aborted(&self, intent: &PromptIntent) {
        self.cancel.cancelled().await;
        let until = Instant::now() + ABORT;
        while Instant::now() < until {
            match timeout(ABORT, self.agent.abort(&intent.prompt)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::debug!(%error, "a turn could not be aborted"),
                Err(_late) => {}
            }
            sleep(PAUSE).await;
        }
        // The watch sees the end, and has the last word.
        sleep(ABORT).await;
    }

    async fn failed(&self, failed: FailedTurn) -> Outcome {
        let FailedTurn { failure, partial_text: partial, spent } = failed;
        let mut message = failure.to_string();
        let mut code = failure.code();
        let ends_box = match &failure {
            Failure::Aborted => return Outcome::Canceled { partial, spent },
            // After an abort between two steps, a driver that did not abort itself cannot tell the difference.
            Failure::Crashed { .. } if self.cancel.is_cancelled() => {
                return Outcome::Canceled { partial, spent };
            }
            Failure::Crashed { .. } => {
                if let Ok(BoxState::Ended(ending)) = self.sandbox.state(self.name).await {
                    code = code_of(&ending);
                    message = format!("{message}; {}", told(&ending));
                }
                // One that answers was started since: the turn was its predecessor's.
                self.agent.ready(HEALTHY).await.is_err()
            }
            Failure::Provider { .. } | Failure::Model { .. } => false,
            Failure::Stalled { .. } | Failure::Lost { .. } | Failure::Protocol { .. } => true,
        };
        Outcome::Failed(Failed { code, message, partial, spent, ends_box })
    }
}
