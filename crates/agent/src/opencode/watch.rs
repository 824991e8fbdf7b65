//! One turn, from wherever it is to its end.
//!
//! ```text
//!        ┌──────────────── listen: events, until one says that something ended, or it is time ◀─┐
//!        ▼                                                                                       │
//! look: attach a stream ─▶ status ─┬─ busy, retry ─▶ answer what waits ──────────────────────────┤
//!                                  └─ idle ─▶ history ─▶ verdict ─┬─ open, not for long ─────────┘
//!                                                                 └─ ended, failed, settled ─▶ result
//! ```
//!
//! Events only make it quick. A watch that never gets one comes to the same result.

use std::collections::HashSet;
use std::time::Duration;

use model::ports::agent::{
    AgentError, FailedTurn, Failure, Policy, Progress, PromptId, Question, Spent, Turn,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout};

use super::client::Events;
use super::history::{Depth, Found, Stored};
use super::life::Life;
use super::questions::{self, Asked};
use super::tracker::Tracker;
use super::verdict::{self, Open, Verdict, judge};
use super::wire::{self, Entry, OfSession};
use super::{OpenCode, Path, Since, is_name};

/// Before a stream is tried again that could not be had.
const REATTACH: Duration = Duration::from_secs(1);
/// Between two looks that the stream asks for. A look costs more than what asks for it.
const PAUSE: Duration = Duration::from_millis(250);
/// Sessions of one turn that are listened to.
const FAMILY: usize = 1024;
/// Looks at an idle session, at least, before what it does not say is believed.
const LOOKS: u32 = 3;

type Ended = Result<Turn, Box<FailedTurn>>;

pub(super) struct Watch<'a> {
    opencode: &'a OpenCode,
    prompt: &'a PromptId,
    policy: &'a Policy,
    sink: &'a mut (dyn FnMut(Progress) + Send),
    events: Option<Events>,
    attach_at: Instant,
    /// From when on events are wanted: those that are kept of a turn before say nothing about this one.
    since: Since,
    /// Some of what the stream tells may be of a turn before.
    hearsay: bool,
    /// What happened before the stream was there is to be caught up with.
    behind: bool,
    /// This session and those of its subagents.
    family: HashSet<String>,
    tracker: Tracker,
    asked: Asked,
    life: Life,
    /// The first error that an event told. Where no answer could be begun, nothing else tells it.
    error: Option<Failure>,
    idle: Option<Idle>,
    /// An event said so, and nobody has looked since.
    told_idle: bool,
    /// How long the stream has to wait where it asks for the next look. Some, where it asked for the one before.
    pause: Duration,
    /// When the first answer of this turn began, as far as it was seen.
    begun: Option<wire::Millis>,
}

/// A session that is idle, although its turn has no end.
#[derive(Debug, Clone, Copy)]
struct Idle {
    since: Instant,
    looks: u32,
}

/// Whether to look at once.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Look,
    Listen,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        opencode: &'a OpenCode,
        prompt: &'a PromptId,
        policy: &'a Policy,
        sink: &'a mut (dyn FnMut(Progress) + Send),
    ) -> Self {
        let since = if opencode.has_delivered(&prompt.message) { Since::Now } else { Since::Taken };
        Self {
            opencode,
            prompt,
            policy,
            sink,
            events: None,
            attach_at: Instant::now(),
            since,
            hearsay: since == Since::Taken && opencode.client.has_kept_events(),
            behind: true,
            family: HashSet::from([prompt.session.id.clone()]),
            tracker: Tracker::default(),
            asked: Asked::default(),
            life: Life::new(opencode.timing),
            error: None,
            idle: None,
            told_idle: false,
            pause: Duration::ZERO,
            begun: None,
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        loop {
            match self.look().await {
                Ok(Some(ended)) => return ended,
                // Only a whole look counts: one that hangs at the history is no better than one that never began.
                Ok(None) => self.life.seen(),
                Err(error) => {
                    tracing::debug!(session = self.prompt.session.id, %error, "a look at a turn failed");
                    if let Some(failure) = self.life.judge(error, Instant::now()) {
                        return Err(bare(failure));
                    }
                }
            }
            if self.tracker.is_spinning() {
                return self.stop_spinning().await;
            }
            self.listen().await;
        }
    }

    /// The state as OpenCode has it. Some: the turn is over.
    async fn look(&mut self) -> Result<Option<Ended>, AgentError> {
        self.life.asked(Instant::now());
        // First the stream, then the state: what happens in between is in one of them.
        self.attach().await;
        if std::mem::take(&mut self.told_idle) && self.events.is_some() && self.error.is_none() {
            // It has just said so: whether the turn is over is in the history.
            return self.look_at_idle().await;
        }
        let directory = &self.prompt.session.directory;
        let patience = self.life.patience(Instant::now());
        let statuses = timeout(patience, self.opencode.statuses(directory)).await;
        let statuses = statuses.unwrap_or(Err(AgentError::NoAnswer { seconds: patience.as_secs() }))?;
        match statuses.get(&self.prompt.session.id) {
            Some(wire::Status::Idle) | None => self.look_at_idle().await,
            Some(status) => {
                self.idle = None;
                let progress = self.tracker.status(status);
                self.tell(progress);
                self.catch_up().await?;
                self.answer_waiting().await?;
                Ok(None)
            }
        }
    }

    async fn look_at_idle(&mut self) -> Result<Option<Ended>, AgentError> {
        let stored = self.opencode.stored(self.prompt, Depth::Whole).await?;
        self.absorb_stored(&stored.answers);
        let verdict = judge(&stored.answers);
        let open = match verdict {
            Verdict::Ended(mut turn) => {
                turn.spent = self.spent(&stored.answers).await;
                return Ok(Some(Ok(turn)));
            }
            Verdict::Failed(failure) => return Ok(Some(Err(self.failed(failure, &stored.answers).await))),
            Verdict::Open(open) => open,
        };
        let idle = self.idle.get_or_insert(Idle { since: Instant::now(), looks: 0 });
        idle.looks += 1;
        let patience = match stored.found {
            Found::No => self.opencode.timing.appear,
            Found::Yes { .. } | Found::Hidden => self.opencode.timing.settled(open),
        };
        let settled = idle.looks >= LOOKS && idle.since.elapsed() >= patience;
        // What an event has told about this turn needs no waiting.
        let told = self.error.is_some() && !self.hearsay && stored.found != Found::No;
        if !settled && !told {
            return Ok(None);
        }
        let failure = self.why_open(open, &stored).await;
        Ok(Some(Err(self.failed(failure, &stored.answers).await)))
    }

    /// Why an idle session has no end of its turn.
    async fn why_open(&mut self, open: Open, stored: &Stored) -> Failure {
        if self.opencode.was_aborted(&self.prompt.message) {
            return Failure::Aborted;
        }
        if let Some(failure) = &self.error {
            return failure.clone();
        }
        match (&stored.found, open) {
            (Found::No, _) => Failure::Lost { what: format!("the prompt {}", self.prompt.message) },
            (Found::Yes { model: Some(model) }, Open::Unanswered) => {
                let directory = &self.prompt.session.directory;
                if self.opencode.has_model(directory, model).await == Some(false) {
                    return Failure::Model { message: format!("Model not found: {model}") };
                }
                Failure::Crashed { reason: "it has the prompt and does not work on it".to_owned() }
            }
            (Found::Yes { .. } | Found::Hidden, Open::Unanswered) => {
                Failure::Crashed { reason: "it has the prompt and does not work on it".to_owned() }
            }
            (Found::Yes { .. } | Found::Hidden, Open::Unfinished) => {
                Failure::Crashed { reason: "it does not work on a turn that has no end".to_owned() }
            }
        }
    }

    async fn failed(&mut self, failure: Failure, answers: &[Entry]) -> Box<FailedTurn> {
        let partial_text = answers.last().map(verdict::text).unwrap_or_default();
        Box::new(FailedTurn { failure, partial_text, spent: self.spent(answers).await })
    }

    /// What subagents took is left out where it cannot be had: the result is worth more than its price.
    async fn spent(&mut self, answers: &[Entry]) -> Spent {
        let subagents = self.opencode.subagents_usage(self.prompt, answers).await.unwrap_or_default();
        Spent { subagents, ..verdict::spent(answers) }
    }

    /// A provider that answers with nothing keeps OpenCode asking for ever.
    async fn stop_spinning(&mut self) -> Ended {
        let ended = self.opencode.end_turn(self.prompt).await;
        let message = match ended {
            Ok(()) => "it answers with nothing, over and over".to_owned(),
            Err(error) => format!("it answers with nothing, over and over; then {error}"),
        };
        let failure = Failure::Provider { status: None, message, retryable: true };
        match self.opencode.stored(self.prompt, Depth::Whole).await {
            Ok(stored) => Err(self.failed(failure, &stored.answers).await),
            Err(_) => Err(bare(failure)),
        }
    }

    /// A stream, unless there is one or it is too early to try again.
    async fn attach(&mut self) {
        if self.events.is_some() || Instant::now() < self.attach_at {
            return;
        }
        let path = Path::of("/event", &self.prompt.session.directory);
        let patience = self.life.patience(Instant::now());
        match self.opencode.client.events(&path.written(), self.since, patience).await {
            Ok(events) => {
                // Another stream of this watch goes on where this one ends.
                self.since = Since::Taken;
                self.events = Some(events);
                self.behind = true;
            }
            Err(trouble) => {
                tracing::debug!(session = self.prompt.session.id, ?trouble, "no stream of events");
                self.attach_at = Instant::now() + REATTACH;
            }
        }
    }

    /// What has happened while nobody listened.
    async fn catch_up(&mut self) -> Result<(), AgentError> {
        if !self.behind && self.events.is_some() {
            return Ok(());
        }
        let depth = if self.behind { Depth::Whole } else { Depth::Newest };
        let stored = self.opencode.stored(self.prompt, depth).await?;
        self.absorb_stored(&stored.answers);
        if self.behind {
            self.meet_family().await?;
        }
        self.behind = false;
        Ok(())
    }

    fn absorb_stored(&mut self, answers: &[Entry]) {
        for entry in answers {
            let created = entry.info.time.created;
            self.begun = self.begun.into_iter().chain(created).min();
            for part in &entry.parts.0 {
                let progress = self.tracker.part(&self.prompt.session.id, part);
                self.tell(progress);
            }
        }
    }

    async fn answer_waiting(&mut self) -> Result<(), AgentError> {
        let waiting = self.opencode.waiting(&self.prompt.session.directory).await?;
        if waiting.iter().any(|question| !self.family.contains(&question.thread)) {
            self.meet_family().await?;
        }
        for question in waiting {
            self.decide(Some(question)).await;
        }
        Ok(())
    }

    async fn decide(&mut self, question: Option<Question>) {
        if let Some(question) = question
            && self.family.contains(&question.thread)
        {
            let progress = self.opencode.decide(question, self.policy, &mut self.asked).await;
            self.tell(progress);
        }
    }

    async fn meet_family(&mut self) -> Result<(), AgentError> {
        for child in self.opencode.descendants(&self.prompt.session).await? {
            // Those of turns before may ask as well, and are no news.
            if self.begun.is_some() && child.time.created >= self.begun {
                self.meet(child);
            } else if self.has_room_for(&child.id) {
                self.family.insert(child.id);
            }
        }
        Ok(())
    }

    fn meet(&mut self, child: wire::Session) {
        let Some(parent) = child.parent else { return };
        let known = self.family.contains(&parent) && self.has_room_for(&child.id);
        if known && self.family.insert(child.id.clone()) {
            self.tell([Progress::Subagent { thread: child.id, parent, title: wire::cut(&child.title, 200) }]);
        }
    }

    /// Others are not met: no agent has as many, or names them so.
    fn has_room_for(&self, child: &str) -> bool {
        self.family.len() < FAMILY && is_name(child)
    }

    fn tell(&mut self, progress: impl IntoIterator<Item = Progress>) {
        progress.into_iter().for_each(&mut *self.sink);
    }

    /// Until it is time to look again.
    async fn listen(&mut self) {
        let timing = &self.opencode.timing;
        let alone = self.events.is_none() || self.idle.is_some() || self.life.is_in_doubt();
        let wait = if alone { timing.poll_alone.min(timing.poll) } else { timing.poll };
        let due = Instant::now() + wait;
        // The first time that something ended is looked at without delay.
        let earliest = Instant::now() + std::mem::take(&mut self.pause).min(wait);
        while let Some(events) = &mut self.events {
            let event = tokio::select! {
                biased;
                () = sleep_until(due) => return,
                event = events.next() => event,
            };
            self.behind |= events.take_gap();
            let Some(event) = event else {
                self.events = None;
                self.attach_at = Instant::now();
                self.pause = PAUSE;
                return sleep_until(earliest).await;
            };
            let next = self.absorb(&event).await;
            if self.tracker.is_spinning() {
                return;
            }
            if next == Next::Look {
                self.pause = PAUSE;
                return sleep_until(earliest).await;
            }
        }
        sleep_until(due).await;
    }

    async fn absorb(&mut self, data: &[u8]) -> Next {
        let Ok(wire::Event { kind, properties: Some(properties) }) = serde_json::from_slice(data) else {
            return Next::Listen;
        };
        match kind.as_str() {
            "session.status" => self.on_status(properties),
            "session.idle" => self.on_idle(properties),
            "session.error" => self.on_error(properties),
            "session.created" => {
                if let Some(made) = read::<wire::SessionMade>(properties) {
                    self.meet(made.info);
                }
                Next::Listen
            }
            "message.part.updated" => {
                if let Some((thread, changed)) = self.of_family::<wire::PartChanged>(properties) {
                    let progress = self.tracker.part(&thread, &changed.part);
                    self.tell(progress);
                }
                Next::Listen
            }
            "message.part.delta" => {
                if let Some((thread, delta)) = self.of_family::<wire::Delta>(properties) {
                    let progress = self.tracker.delta(&thread, &delta);
                    self.tell(progress);
                }
                Next::Listen
            }
            "permission.asked" => {
                let directory = &self.prompt.session.directory;
                let asked = read(properties).and_then(|asked| questions::of_permission(asked, directory));
                self.decide(asked).await;
                Next::Listen
            }
            "question.asked" => {
                let directory = &self.prompt.session.directory;
                let asked = read(properties).and_then(|asked| questions::of_question(asked, directory));
                self.decide(asked).await;
                Next::Listen
            }
            "server.instance.disposed" | "global.disposed" => Next::Look,
            _ => Next::Listen,
        }
    }

    fn on_status(&mut self, properties: &RawValue) -> Next {
        let Some((thread, changed)) = self.of_family::<wire::StatusChanged>(properties) else {
            return Next::Listen;
        };
        if thread != self.prompt.session.id {
            return Next::Listen;
        }
        let progress = self.tracker.status(&changed.status);
        self.tell(progress);
        match changed.status {
            wire::Status::Idle => {
                self.told_idle = true;
                Next::Look
            }
            wire::Status::Busy | wire::Status::Retry { .. } | wire::Status::Other => {
                self.idle = None;
                self.told_idle = false;
                Next::Listen
            }
        }
    }

    fn on_idle(&mut self, properties: &RawValue) -> Next {
        let ours = self.of_family::<wire::Nothing>(properties);
        if ours.is_some_and(|(thread, _)| thread == self.prompt.session.id) {
            self.told_idle = true;
            Next::Look
        } else {
            Next::Listen
        }
    }

    /// The first is the plain one; what follows may be the same with a stack.
    fn on_error(&mut self, properties: &RawValue) -> Next {
        if let Some((thread, raised)) = self.of_family::<wire::ErrorRaised>(properties)
            && thread == self.prompt.session.id
            && let Some(error) = raised.error
        {
            self.error.get_or_insert_with(|| error.failure());
        }
        Next::Listen
    }

    /// None for what happens elsewhere.
    fn of_family<T: DeserializeOwned>(&mut self, properties: &RawValue) -> Option<(String, T)> {
        let OfSession { session } = read(properties)?;
        if !self.family.contains(&session) {
            return None;
        }
        let rest = read(properties)?;
        self.life.seen();
        Some((session, rest))
    }
}

fn read<T: DeserializeOwned>(properties: &RawValue) -> Option<T> {
    serde_json::from_str(properties.get()).ok()
}

/// Where nothing more can be asked.
fn bare(failure: Failure) -> Box<FailedTurn> {
    Box::new(FailedTurn { failure, partial_text: String::new(), spent: Spent::default() })
}
