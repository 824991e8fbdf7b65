//! One run, from its claim to its end: intent, effect, outcome.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::ports::agent::{
    Agent as _, AgentError, Origin, Progress, PromptId, PromptIntent, SessionRef, Spent, WantedSession,
};
use model::ports::sandbox::{BoxState, Ending as BoxEnding, How, Sandbox as _};
use model::ports::store::{AdvanceOutcome, Lease, Store, StoreForScheduler, Written};
use model::session::{Phase, Run, RunState, Session, UnixMillis};
use model::settings::SessionSettings;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Gone, Shared, Worker, persist};
use crate::boxes::{self, AWAY, NoBox, Plans, Ready, told};
use crate::live::Temper;
use crate::record::{self, RunLog};
use crate::turn::{Drive, Failed, Follow, Outcome};
use crate::world::Rooms;

/// How long a container engine may be away that is to start a box …
const BACK: Duration = Duration::from_mins(2);
/// … and one that has a box with a turn in it: that goes on meanwhile, where the engine lets it.
const BACK_TO_WORK: Duration = Duration::from_mins(10);
const ASK_AGAIN: Duration = Duration::from_secs(1);
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// How long is sought for the box of a turn that somebody has canceled.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// A run that this worker has.
#[derive(Debug)]
pub(super) struct Claimed<'a, S, R> {
    pub(super) worker: &'a Worker<S, R>,
    pub(super) lease: &'a Lease,
    pub(super) session: &'a Session,
    pub(super) run: Run,
    /// Somebody else had begun it.
    pub(super) adopted: bool,
}

/// What a run came to, before it is written down.
pub(super) struct Came {
    pub(super) outcome: Outcome,
    /// Where the agent was asked.
    pub(super) asked: Option<SessionRef>,
}

/// The log, by whoever has something to say.
pub(super) type Log = Arc<Mutex<Option<RunLog>>>;

impl<S: Store + StoreForScheduler, R: Rooms> Claimed<'_, S, R> {
    pub(super) async fn to_its_end(&self) -> Result<Written, Gone> {
        let Shared { live, world, .. } = &*self.worker.shared;
        let tally = self.worker.dirs().run(&self.run.id).join(record::TALLY);
        let cancel = live.begin(&self.session.id, &self.run.id, tally);
        // Looked at anew: whoever asked a moment ago found nobody to tell.
        if self.canceled_by().await?.is_some() {
            cancel.cancel();
        }
        live.set(&self.session.id, Temper::Starting, world.now());
        let log = self.open_log();
        let result = self.outcome(&cancel, &log).await?;
        let written = match result {
            None => Written::Fenced,
            Some(result) => self.finish(result, &log).await?,
        };
        live.end(&self.run.id);
        Ok(written)
    }

    pub(super) fn now(&self) -> UnixMillis {
        self.worker.shared.world.now()
    }

    pub(super) fn note(&self, log: &Log, line: &str) {
        let now = self.now();
        if let Some(log) = &mut *log.lock().unwrap_or_else(PoisonError::into_inner) {
            log.note(now, line);
        }
        self.worker.shared.live.tell(&self.run.id, |progress| line.clone_into(&mut progress.last));
    }

    /// A log that cannot be written keeps no run from running.
    fn open_log(&self) -> Log {
        let dirs = self.worker.dirs();
        let opened = dirs.make().and_then(|()| dirs.make_run(&self.run.id)).and_then(|directory| {
            let began = self.run.started_at.unwrap_or(self.run.created_at);
            RunLog::open(&directory.join(record::LOG), began)
        });
        let log =
            opened.map_err(|error| tracing::warn!(run = %self.run.id, %error, "there is no log of the run"));
        let log: Log = Arc::new(Mutex::new(log.ok()));
        match (&self.run.state, self.adopted) {
            (RunState::Running { phase, attempt }, true) => {
                self.note(&log, &format!("taken over while {}, attempt {attempt}", phase.as_str()));
            }
            (RunState::Running { .. } | RunState::Queued | RunState::Ended(_), _) => {
                let waited = self.run.started_at.map_or(0, |at| at.0.saturating_sub(self.run.created_at.0));
                self.note(
                    &log,
                    &format!("run {} begins, after {} in the queue", self.run.seq, seconds(waited)),
                );
            }
        }
        log
    }

    /// None: somebody else has the session now.
    async fn outcome(&self, cancel: &CancellationToken, log: &Log) -> Result<Option<Came>, Gone> {
        let phase = match self.run.state {
            RunState::Running { phase, .. } => phase,
            RunState::Queued | RunState::Ended(_) => Phase::Starting,
        };
        let unasked = |outcome| Ok(Some(Came { outcome, asked: None }));
        if phase == Phase::Starting && cancel.is_cancelled() {
            return unasked(canceled());
        }
        // Where the prompt may be out, nobody is to go on working on it once the run has ended.
        let unready = |code, why| Failed { ends_box: phase != Phase::Starting, ..failed(code, why) };
        let settings = match self.settings() {
            Ok(settings) => settings,
            Err(why) => return unasked(Outcome::Failed(unready("bad_settings", why))),
        };
        // Before a new box makes it forgotten: how the one ended in which the turn was.
        let ended = self.ended_before().await;
        let ready = tokio::select! {
            biased;
            ready = self.ready(&settings, log) => ready,
            // Where the prompt may be out, the agent has to be asked what became of it.
            () = cancel.cancelled(), if phase == Phase::Starting => return unasked(canceled()),
            // Nobody may be there to ask. What it still does, it does without a model: the run is over.
            () = async { cancel.cancelled().await; sleep(LAST_LOOK).await } => return unasked(canceled()),
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(NoBox { code, message, .. }) => return unasked(Outcome::Failed(unready(code, message))),
        };
        self.worker.shared.live.set(&self.session.id, Temper::Busy, self.now());
        self.worker.shared.live.set_holds(&self.session.id, ready.info.holds);
        let session = match self.conversation(&ready, phase, log).await? {
            Ok(Some(session)) => session,
            Ok(None) => return Ok(None),
            Err(failed) => return unasked(Outcome::Failed(failed)),
        };
        self.keep_context(&ready);
        let done = |outcome| Ok(Some(Came { outcome, asked: Some(session.clone()) }));
        if phase != Phase::Finishing {
            match self.advance(Phase::Prompting).await? {
                AdvanceOutcome::Advanced(_) => {}
                AdvanceOutcome::CancelRequested(_) if phase == Phase::Starting => return done(canceled()),
                // It may be out already: its turn is looked at, and ended.
                AdvanceOutcome::CancelRequested(_) => cancel.cancel(),
                AdvanceOutcome::OutOfOrder(_) | AdvanceOutcome::NotRunning(_) | AdvanceOutcome::Fenced => {
                    return Ok(None);
                }
            }
        }
        let Some(message) = self.run.message_id.clone() else { return Ok(None) };
        let prompt = PromptId { session: session.clone(), message };
        let patience = settings.request_timeout;
        let mut outcome = self.drive(&ready, prompt, (cancel, patience), log).await;
        if let (Outcome::Failed(failed), Some(ending), How::Made) = (&mut outcome, &ended, ready.how) {
            failed.message = format!("{}; {}", failed.message, told(ending));
        }
        done(outcome)
    }

    fn settings(&self) -> Result<SessionSettings, String> {
        let key = self.worker.dirs().key();
        let key = key.map_err(|error| format!("the session's key cannot be read: {error}"))?;
        self.worker.shared.rooms.settings(&self.session.settings, key)
    }

    async fn ended_before(&self) -> Option<BoxEnding> {
        if !self.adopted {
            return None;
        }
        let name = boxes::name_of(&self.session.id).ok()?;
        match self.worker.shared.rooms.sandbox().state(&name).await.ok()? {
            BoxState::Ended(ending) => Some(ending),
            BoxState::Absent | BoxState::Starting | BoxState::Running(_) | BoxState::Unknown => None,
        }
    }

    async fn ready(&self, settings: &SessionSettings, log: &Log) -> Result<Ready<R::Agent>, NoBox> {
        let began = Instant::now();
        let dirs = self.worker.dirs();
        let rooms = &self.worker.shared.rooms;
        let fresh = !self.is_out();
        let plans = Plans {
            rooms,
            session: self.session,
            settings,
            dirs: &dirs,
            model: self.run.model.as_deref(),
            fresh,
            tell: &|line| self.note(log, line),
        };
        let patience = if fresh { BACK } else { BACK_TO_WORK };
        let mut said = None::<Instant>;
        let ready = loop {
            match plans.ready().await {
                Err(NoBox { code: AWAY, message, .. }) if began.elapsed() < patience => {
                    if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                        said = Some(Instant::now());
                        let most = patience.as_secs();
                        self.note(
                            log,
                            &format!("waits for the container engine, {most} s at most: {message}"),
                        );
                    }
                    sleep(ASK_AGAIN).await;
                }
                done => break done?,
            }
        };
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let how = match ready.how {
            How::Made => "box started",
            How::Found => "box found",
        };
        self.note(log, &format!("{how} in {}, agent {}", seconds(took), ready.version));
        Ok(ready)
    }

    /// The agent's own conversation of this session.
    async fn conversation(
        &self,
        ready: &Ready<R::Agent>,
        phase: Phase,
        log: &Log,
    ) -> Result<Result<Option<SessionRef>, Failed>, Gone> {
        let wanted = WantedSession {
            known: self.session.agent_session.clone(),
            title: self.session.name.clone().unwrap_or_else(|| self.session.id.to_string()),
            directory: ready.info.inside.workspace.to_string_lossy().into_owned(),
        };
        let mut tries = 0;
        let found = loop {
            tries += 1;
            match ready.agent.ensure_session(&wanted).await {
                Err(AgentError::Unreachable { .. } | AgentError::NoAnswer { .. }) if tries < 3 => {}
                done => break done,
            }
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let message = format!("the agent gives no conversation: {error}");
                return Ok(Err(Failed { ends_box: true, ..failed(error.code(), message) }));
            }
        };
        match &found.origin {
            Origin::Reused => {}
            Origin::Replaced { .. } if phase != Phase::Starting => {
                let message =
                    "the agent has lost the conversation in which this run was; nothing is known of it";
                return Ok(Err(failed("agent_lost", message.to_owned())));
            }
            Origin::Replaced { lost } => {
                self.note(
                    log,
                    &format!("the agent does not know {lost} any more; it begins a new conversation"),
                );
            }
            Origin::New => {}
        }
        if !self.worker.shared.rooms.converses(&self.session.id, &found.session.id) {
            let message = "the agent names a conversation that is another session's".to_owned();
            return Ok(Err(Failed { ends_box: true, ..failed("agent_protocol", message) }));
        }
        if self.session.agent_session.as_deref() != Some(found.session.id.as_str()) {
            let Shared { store, .. } = &*self.worker.shared;
            let write = || store.set_agent_session(self.lease, &found.session.id);
            if persist("keep the conversation", write).await? == Written::Fenced {
                return Ok(Ok(None));
            }
        }
        Ok(Ok(Some(found.session)))
    }

    pub(super) async fn advance(&self, phase: Phase) -> Result<AdvanceOutcome, Gone> {
        let Shared { store, .. } = &*self.worker.shared;
        persist("advance", || store.advance(self.lease, &self.run.id, phase)).await
    }

    async fn drive(
        &self,
        ready: &Ready<R::Agent>,
        prompt: PromptId,
        (cancel, patience): (&CancellationToken, Duration),
        log: &Log,
    ) -> Outcome {
        let intent = PromptIntent {
            prompt,
            text: self.run.task.clone(),
            model: self.run.model.clone(),
            output_schema: self.run.output_schema.clone(),
            system: None,
        };
        let Ok(name) = boxes::name_of(&self.session.id) else {
            return Outcome::Failed(failed("box_failed", "the box cannot be named".to_owned()));
        };
        let follow = Follow::new(self.teller(log));
        let drive = Drive {
            agent: &ready.agent,
            sandbox: self.worker.shared.rooms.sandbox(),
            name: &name,
            cancel,
            follow: &follow,
            patience,
        };
        drive.run(&intent, self.is_out()).await
    }

    /// Whether the prompt may have been sent when the run was claimed.
    fn is_out(&self) -> bool {
        match self.run.state {
            RunState::Running { phase: Phase::Prompting | Phase::Finishing, .. } => true,
            RunState::Running { phase: Phase::Starting, .. } | RunState::Queued | RunState::Ended(_) => false,
        }
    }

    /// Into the log, and to whoever follows.
    fn teller(&self, log: &Log) -> impl Fn(&Progress) + Send + Sync + 'static {
        let (shared, run, log) = (Arc::clone(&self.worker.shared), self.run.id.clone(), Arc::clone(log));
        let (live, world) = (Arc::clone(&shared.live), Arc::clone(&shared.world));
        move |progress| {
            let told = {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.as_mut().map(|log| {
                    log.progress(world.now(), progress);
                    let totals = log.totals();
                    (totals.steps, totals.tools.values().sum::<u32>(), totals.last.clone())
                })
            };
            live.tell(&run, |progress| {
                if let Some((steps, tools, last)) = told {
                    (progress.steps, progress.tools, progress.last) = (steps, tools, last);
                }
            });
        }
    }
}

fn canceled() -> Outcome {
    Outcome::Canceled { partial: String::new(), spent: Spent::default() }
}

fn failed(code: &'static str, message: String) -> Failed {
    Failed { code, message, partial: String::new(), spent: Spent::default(), ends_box: false }
}

fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}
