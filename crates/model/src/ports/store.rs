//! Where sessions and runs are kept.
//!
//! Two ports, by who asks. [`Store`] is for whoever acts for a principal: each method takes it, and what is another's is
//! not there. [`StoreForScheduler`] is for the one who runs them all; it writes under a [`Lease`], and a lease that was
//! taken over writes nothing any more.
//!
//! Every method is one transaction. It is on the disk when the method returns; where the future is dropped before, it is
//! done whole or not at all. Each method has its own outcomes: what a caller can be told is no error. After an error
//! nothing is seen of what was asked for, and it may be asked for again.
//!
//! There is no clock in here: whoever calls says what time it is.

use std::future::Future;

use crate::Principal;
use crate::session::{
    Artifact, CanceledBy, Ending, Keep, MessageId, OwnerId, Phase, Run, RunId, RunUsage, Session, SessionId,
    UnixMillis,
};

/// Queued runs that a session may have.
pub const MOST_QUEUED: u64 = 1_000;
/// Rows of one page.
pub const MOST_LISTED: u32 = 1_000;
/// Artifacts that are kept of one run.
pub const MOST_ARTIFACTS: usize = 10_000;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reads go on. The same write succeeds once there is room.
    #[error("there is no space left for sessions and runs: make room")]
    StorageFull,
    /// Somebody else keeps the database from being written. To be tried again.
    #[error("the store is held by another process")]
    Busy,
    /// What is there cannot be what was written. It is left as it is.
    #[error("the store is damaged while {doing}: {reason}")]
    Damaged { doing: &'static str, reason: String },
    #[error("the store failed while {doing}")]
    Failed {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the store is closed")]
    Closed,
}

/// Which image a session is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageChoice {
    /// Named in the request: a live session with another image is not what was meant.
    Asked(String),
    /// Nobody named one: a live session keeps its own.
    Default(String),
}

impl ImageChoice {
    pub fn name(&self) -> &str {
        match self {
            Self::Asked(image) | Self::Default(image) => image,
        }
    }
}

/// A session that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its id, if it is made.
    pub id: SessionId,
    pub name: Option<String>,
    pub reuse_key: Option<String>,
    pub image: ImageChoice,
    pub runtime: String,
    pub settings: String,
    pub workspace: String,
    pub made_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateOutcome {
    Created(Session),
    /// The live session with this reuse key, as it is.
    Reused(Session),
    /// There is one, with another image than the one asked for.
    OtherImage {
        session: Session,
        asked: String,
    },
}

/// A task that is submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Its id, if it is made.
    pub id: RunId,
    pub session: SessionId,
    pub task: String,
    /// Names one task of this session: a client that did not hear the answer may submit it again. In another session the
    /// same key is another task.
    pub idempotency_key: Option<String>,
    pub output_schema: Option<String>,
    pub model: Option<String>,
    pub asked_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    Submitted(Run),
    /// It was submitted before, under this idempotency key: also where the session has ended since.
    Same(Run),
    /// Something else was submitted under this idempotency key: this.
    Conflict(Run),
    NoSession,
    /// The session takes no tasks any more.
    Terminated(Session),
    /// [`MOST_QUEUED`] wait already.
    QueueFull,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It was queued, and is canceled.
    Canceled(Run),
    /// It runs; its owner was asked, by this call or by one before.
    Requested(Run),
    /// It had ended, and is as it was.
    Ended(Run),
    NoRun,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminateOutcome {
    /// By this call or one before: it takes no tasks, queued runs are canceled, a running one is asked to end. With it,
    /// the run that still runs.
    Terminating {
        session: Session,
        running: Option<RunId>,
    },
    /// It had ended, and is as it was.
    Terminated(Session),
    NoSession,
}

/// Which sessions are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listed {
    #[default]
    Live,
    All,
}

/// A part of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<Key> {
    /// The last one of the page before.
    pub after: Option<Key>,
    /// At most [`MOST_LISTED`] count.
    pub limit: u32,
}

impl<Key> Default for Page<Key> {
    fn default() -> Self {
        Self { after: None, limit: 100 }
    }
}

/// A session in a list, with what a list says about its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    pub session: Session,
    /// Runs that have not ended.
    pub unfinished: u64,
}

/// For whoever acts for a principal. What belongs to another is not there.
pub trait Store: Send + Sync {
    /// At any number of calls at once, one live session has a reuse key.
    fn create_or_reuse(
        &self,
        principal: &Principal,
        wanted: NewSession,
        now: UnixMillis,
    ) -> impl Future<Output = Result<CreateOutcome, StoreError>> + Send;

    fn session(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> impl Future<Output = Result<Option<Session>, StoreError>> + Send;

    /// Newest first. Full pages have another one behind them, perhaps an empty one.
    fn list_sessions(
        &self,
        principal: &Principal,
        listed: Listed,
        page: Page<SessionId>,
    ) -> impl Future<Output = Result<Vec<ListedSession>, StoreError>> + Send;

    /// Frees the reuse key. Idempotent; `Keep::Nothing` after `Keep::Directories` counts, the other way round is too late.
    fn terminate(
        &self,
        principal: &Principal,
        session: &SessionId,
        keep: Keep,
        now: UnixMillis,
    ) -> impl Future<Output = Result<TerminateOutcome, StoreError>> + Send;

    /// Behind all that was submitted to its session before.
    fn submit(
        &self,
        principal: &Principal,
        run: NewRun,
        now: UnixMillis,
    ) -> impl Future<Output = Result<SubmitOutcome, StoreError>> + Send;

    fn run(
        &self,
        principal: &Principal,
        run: &RunId,
    ) -> impl Future<Output = Result<Option<Run>, StoreError>> + Send;

    /// The one submitted last.
    fn latest_run(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> impl Future<Output = Result<Option<Run>, StoreError>> + Send;

    /// Newest first.
    fn list_runs(
        &self,
        principal: &Principal,
        session: &SessionId,
        page: Page<u64>,
    ) -> impl Future<Output = Result<Vec<Run>, StoreError>> + Send;

    fn request_cancel(
        &self,
        principal: &Principal,
        run: &RunId,
        by: CanceledBy,
        now: UnixMillis,
    ) -> impl Future<Output = Result<CancelOutcome, StoreError>> + Send;

    /// Of all runs of a session, or of one; the latest run first, then by path. At most [`MOST_ARTIFACTS`].
    fn artifacts(
        &self,
        principal: &Principal,
        session: &SessionId,
        run: Option<&RunId>,
    ) -> impl Future<Output = Result<Vec<(RunId, Artifact)>, StoreError>> + Send;
}

/// The right to act for a session until somebody else is given it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    pub session: SessionId,
    pub owner: OwnerId,
    /// Larger with each lease of the session. Writes under a smaller one are refused.
    pub fence: u64,
}

/// Whose sessions an owner that begins may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeOver {
    /// Everybody's: the caller has made sure that nobody else is alive, by a lock of its own.
    Everybody,
    /// Of those who were not heard of in time.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOutcome {
    Leased(Lease),
    /// Another owner has it, and was heard of.
    Held(OwnerId),
    /// The session has ended, and nothing is left to do for it.
    Ended,
    NoSession,
    /// Whoever asks was not heard of in time, or never.
    NotAlive,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The oldest queued run. It is starting now.
    Next(Run),
    /// A run that an earlier lease left running, in the phase in which it was left.
    Adopted(Run),
    /// This lease has a run already.
    Busy(Run),
    Nothing,
    Fenced,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvanceOutcome {
    Advanced(Run),
    /// It is asked to end, so the prompt is not to be sent. Nothing was written.
    CancelRequested(Run),
    /// The phase it is in does not lead there. Nothing was written.
    OutOfOrder(Run),
    /// It is queued or has ended.
    NotRunning(Run),
    Fenced,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    pub ending: Ending,
    pub usage: Option<RunUsage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishOutcome {
    Finished(Run),
    /// It had ended: like this, and not as this call says.
    Already(Run),
    /// It was never claimed. Only who runs a run ends it.
    NotRunning(Run),
    Fenced,
}

/// How a write under a lease went that has nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Written {
    Done,
    Fenced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TerminatedOutcome {
    Done,
    /// Nobody asked for it.
    NotTerminating,
    /// A run of it has not ended.
    StillRunning,
    Fenced,
}

/// What nobody sees to: of sessions whose owner is none or was not heard of in time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// With the phase in which each was left. The oldest first.
    pub running: Vec<Run>,
    pub terminating: Vec<Session>,
}

/// A session whose next run may be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub session: SessionId,
    pub principal: Principal,
    /// When its next run was submitted.
    pub since: UnixMillis,
}

/// A session in which nothing happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    pub session: SessionId,
    pub used_at: UnixMillis,
}

/// For the one who runs the sessions of all principals.
pub trait StoreForScheduler: Send + Sync {
    /// Begins a life, which lasts until `until` unless [`Self::heartbeat`] prolongs it.
    fn enroll(
        &self,
        owner: &OwnerId,
        take_over: TakeOver,
        until: UnixMillis,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// For all sessions of an owner at once. An owner that comes late is alive again; sessions that others have leased
    /// meanwhile stay theirs. `Fenced`: somebody took over everything.
    fn heartbeat(
        &self,
        owner: &OwnerId,
        until: UnixMillis,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// One owner per session. A second lease of the same owner ends its first.
    fn lease(
        &self,
        session: &SessionId,
        owner: &OwnerId,
        now: UnixMillis,
    ) -> impl Future<Output = Result<LeaseOutcome, StoreError>> + Send;

    /// Idempotent. A run that is left running can be adopted by the next lease.
    fn release(&self, lease: &Lease) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// First what was left running, then what was queued first. `message_id` becomes the run's, unless it has one.
    fn claim(
        &self,
        lease: &Lease,
        message_id: MessageId,
        now: UnixMillis,
    ) -> impl Future<Output = Result<ClaimOutcome, StoreError>> + Send;

    /// To be called before what the phase names is done.
    fn advance(
        &self,
        lease: &Lease,
        run: &RunId,
        phase: Phase,
    ) -> impl Future<Output = Result<AdvanceOutcome, StoreError>> + Send;

    /// Of any number of endings, from anybody, the first counts.
    fn finish(
        &self,
        lease: &Lease,
        run: &RunId,
        result: RunResult,
        now: UnixMillis,
    ) -> impl Future<Output = Result<FinishOutcome, StoreError>> + Send;

    fn set_agent_session(
        &self,
        lease: &Lease,
        agent_session: &str,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// In the place of what was recorded of this run before. What is past [`MOST_ARTIFACTS`] is left out.
    fn record_artifacts(
        &self,
        lease: &Lease,
        run: &RunId,
        artifacts: Vec<Artifact>,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// The session was used.
    fn touch(
        &self,
        lease: &Lease,
        now: UnixMillis,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Its box is gone, and its directories if they were to go.
    fn terminated(
        &self,
        lease: &Lease,
        now: UnixMillis,
    ) -> impl Future<Output = Result<TerminatedOutcome, StoreError>> + Send;

    fn recover(&self, now: UnixMillis) -> impl Future<Output = Result<Recovery, StoreError>> + Send;

    /// Sessions with a queued run and no running one, whoever owns them; who waits longest first.
    fn waiting(&self, limit: u32) -> impl Future<Output = Result<Vec<Waiting>, StoreError>> + Send;

    /// Those among these that have no unfinished run and were last used before; least recently used first.
    fn idle(
        &self,
        among: &[SessionId],
        before: UnixMillis,
    ) -> impl Future<Output = Result<Vec<Idle>, StoreError>> + Send;

    /// Those among these that there are, or were, whoever's.
    fn known(&self, among: &[SessionId]) -> impl Future<Output = Result<Vec<Session>, StoreError>> + Send;
}
