//! What a principal can ask for. What is another's is not there.
//!
//! Everything here is the store's own answer, with what is live beside it. Nothing waits for a box but
//! [`Desk::cancel`], and that not for long.

mod exchange;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use model::Principal;
use model::ports::store::{
    CancelOutcome, CreateOutcome, ImageChoice, Listed, ListedSession, NewRun, NewSession, Page, Store,
    StoreError, SubmitOutcome, TerminateOutcome,
};
use model::session::{
    Artifact, CanceledBy, Keep, Run, RunId, RunUsage, Session, SessionId, SessionStatus, UnixMillis,
};
use model::settings::Secret;
use tokio::time::{Instant, timeout_at};

use crate::layout::Layout;
use crate::live::{Following, Hot, Live, Progress, Temper};
use crate::record::{self, ReadError, Tail};
use crate::warm::Recipe;
use crate::world::World;
use exchange::Exchanges;
pub use exchange::{Became, Exported, Terms, Wish};

/// How long a task may be, in bytes.
const LONGEST_TASK: usize = 1 << 20;
/// How long a name, a key or a model may be, in characters.
const LONGEST_NAME: usize = 256;
/// How long a schema may be, in bytes.
const LONGEST_SCHEMA: usize = 64 << 10;
/// How long `cancel` waits for the end that it asked for.
const CANCEL: Duration = Duration::from_secs(10);

/// Why a principal did not get what it asked for, in words for a model: what happened and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error(
        "there is no session `{0}`; list_sessions shows those there are, create_or_reuse_session makes one"
    )]
    NoSession(String),
    #[error("there is no run `{0}`; get_status with the session_id alone shows the latest run of a session")]
    NoRun(String),
    #[error(
        "the run `{run}` is not of session `{session}`; leave run_id out for the latest run of the session"
    )]
    OtherSession { run: RunId, session: SessionId },
    #[error(
        "the session `{0}` was terminated and takes no tasks; make another one with create_or_reuse_session"
    )]
    Terminated(SessionId),
    #[error(
        "the live session `{session}` with this reuse_key has the image `{has}`, and `{asked}` was asked for; leave \
         `image` out to reuse it, use another reuse_key, or terminate_session it first"
    )]
    OtherImage { session: SessionId, has: String, asked: String },
    #[error(
        "the idempotency_key was used in this session for another task, which is run `{run}`; use a new key for a new \
         task"
    )]
    Conflict { run: RunId },
    #[error("{most} tasks wait in this session already; wait for some to end, or cancel_run them")]
    QueueFull { most: u64 },
    #[error("`{name}` {problem}")]
    BadArgument { name: &'static str, problem: String },
    #[error("there is no artifact `{0}`; list_artifacts shows the paths there are")]
    NoArtifact(String),
    #[error(
        "a run of session `{0}` is at work in its workspace; wait for its end with get_status, or cancel_run it, then \
         import again"
    )]
    AtWork(SessionId),
    #[error("another import or export of session `{0}` is under way; wait for its end")]
    Exchanging(SessionId),
    #[error("{error}{because}", error = .0, because = source_of(.0))]
    Carry(#[from] carry::CarryError),
    #[error("no session can be run here: {0}")]
    Unable(String),
    #[error("{0}; the request was not accepted, nothing of it was kept")]
    StorageFull(StoreError),
    #[error("{0}; try again")]
    Store(StoreError),
    #[error("could not {doing}: {source}")]
    Files { doing: &'static str, source: io::Error },
}

impl DeskError {
    /// Stable; for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSession(_) => "no_session",
            Self::NoRun(_) => "no_run",
            Self::OtherSession { .. } => "no_run",
            Self::Terminated(_) => "session_terminated",
            Self::OtherImage { .. } => "other_image",
            Self::Conflict { .. } => "idempotency_conflict",
            Self::QueueFull { .. } => "queue_full",
            Self::BadArgument { .. } => "bad_argument",
            Self::NoArtifact(_) => "no_artifact",
            Self::AtWork(_) | Self::Exchanging(_) => "busy",
            Self::Carry(error) => code_of(error),
            Self::Unable(_) => "unable",
            Self::StorageFull(_) => "storage_full",
            Self::Store(_) => "store_failed",
            Self::Files { .. } => "files_failed",
        }
    }
}

fn source_of(error: &carry::CarryError) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}

fn code_of(error: &carry::CarryError) -> &'static str {
    use carry::CarryError as Carry;
    match error {
        Carry::TooMuch(_) => "too_much",
        Carry::Different(_) => "workspace_differs",
        Carry::Conflicts(_) => "conflict",
        Carry::NoBaseline => "nothing_imported",
        Carry::Busy { .. } => "busy",
        Carry::Stopped => "stopped",
        Carry::NotTrusted { .. }
        | Carry::NoWorkTree { .. }
        | Carry::NoGit { .. }
        | Carry::Git { .. }
        | Carry::GitTooSlow { .. } => "git_failed",
        Carry::Unsettled { .. } => "unsettled",
        Carry::Damaged(_)
        | Carry::NoDirectory { .. }
        | Carry::CannotExchange { .. }
        | Carry::System { .. } => "files_failed",
    }
}

impl From<StoreError> for DeskError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::StorageFull => Self::StorageFull(error),
            StoreError::Busy
            | StoreError::Damaged { .. }
            | StoreError::Failed { .. }
            | StoreError::Closed => Self::Store(error),
        }
    }
}

/// A session that is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub name: Option<String>,
    pub reuse_key: Option<String>,
    pub image: ImageChoice,
    pub runtime: String,
    /// Without any key.
    pub settings: String,
    /// Kept apart.
    pub key: Option<Secret>,
    /// As JSON.
    pub made_by: Option<String>,
}

/// A task that is submitted.
#[derive(Debug, Clone, Default)]
pub struct NewTask {
    pub task: String,
    pub idempotency_key: Option<String>,
    pub output_schema: Option<String>,
    pub model: Option<String>,
    /// As JSON.
    pub asked_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    pub session: Session,
    /// None: it has no box.
    pub hot: Option<Hot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    pub run: Run,
    /// While it runs here.
    pub progress: Option<Progress>,
}

/// An artifact that was read.
pub type Read = beneath::Content;

type Checked = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Whether sessions can be run here at all: a box, an agent. The text says what to do.
pub type Check = Arc<dyn Fn() -> Checked + Send + Sync>;

pub struct Desk<S> {
    store: Arc<S>,
    live: Arc<Live>,
    layout: Layout,
    world: Arc<dyn World>,
    check: Check,
    terms: Terms,
    exchanges: Exchanges,
}

impl<S> fmt::Debug for Desk<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl<S> Clone for Desk<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            live: Arc::clone(&self.live),
            layout: self.layout.clone(),
            world: Arc::clone(&self.world),
            check: Arc::clone(&self.check),
            terms: self.terms.clone(),
            exchanges: self.exchanges.clone(),
        }
    }
}

impl<S: Store> Desk<S> {
    pub fn new(
        store: Arc<S>,
        live: Arc<Live>,
        (layout, terms): (Layout, Terms),
        world: Arc<dyn World>,
        check: Check,
    ) -> Self {
        Self { store, live, layout, world, check, terms, exchanges: Exchanges::default() }
    }

    pub fn now(&self) -> UnixMillis {
        self.world.now()
    }

    /// The second: whether it was there before.
    pub async fn create(
        &self,
        principal: &Principal,
        wanted: Wanted,
    ) -> Result<(SessionView, bool), DeskError> {
        let recipe = Recipe::of(principal, &wanted);
        let Wanted { name, reuse_key, image, runtime, settings, key, made_by } = wanted;
        check_name("name", name.as_deref())?;
        check_name("reuse_key", reuse_key.as_deref())?;
        (self.check)().await.map_err(DeskError::Unable)?;
        let asked = settings.clone();
        // Where one is ready, the session has its id.
        let lent = self.live.pool.lend(&recipe);
        let id = lent.as_ref().map_or_else(|| SessionId::new(self.world.stamp()), |lent| lent.id().clone());
        let workspace = self.layout.of(&id).workspace();
        let workspace = workspace.to_str().ok_or_else(|| {
            DeskError::Unable(format!("{} is no UTF-8; use another state directory", workspace.display()))
        })?;
        let wanted = NewSession {
            id,
            name,
            reuse_key,
            image,
            runtime,
            settings,
            workspace: workspace.to_owned(),
            made_by,
        };
        let (session, reused) = match self.store.create_or_reuse(principal, wanted, self.now()).await? {
            CreateOutcome::Created(session) => (session, false),
            CreateOutcome::Reused(session) => (session, true),
            CreateOutcome::OtherImage { session, asked } => {
                if let Some(lent) = lent {
                    lent.give_back();
                }
                return Err(DeskError::OtherImage { session: session.id, has: session.image, asked });
            }
        };
        // After the row: a directory without one is nobody's. Whoever was cut off here comes again with its reuse key.
        let dirs = self.layout.of(&session.id);
        let files = |doing| move |source| DeskError::Files { doing, source };
        dirs.make().map_err(files("make the session's directories"))?;
        // A key belongs to the settings that it came with, and to no others.
        if let Some(key) = key
            && session.settings == asked
            && dirs.key().map_err(files("read the session's key"))?.is_none()
        {
            dirs.keep_key(&key).map_err(files("keep the session's key"))?;
        }
        match (lent, reused) {
            (None, _) => {}
            (Some(lent), true) => lent.give_back(),
            (Some(lent), false) => {
                // Last: whoever sees to it from now on needs all of the above.
                lent.taken(|| self.live.set(&session.id, Temper::Ready, self.now()));
            }
        }
        if !reused {
            self.live.pool.expect(recipe);
            self.live.bell.notify_one();
        }
        Ok((self.view(session), reused))
    }

    /// Sessions like this one will be asked for. Boxes for them are made ready, as many as are to be.
    pub fn expect(&self, principal: &Principal, wanted: &Wanted) {
        self.live.pool.expect(Recipe::of(principal, wanted));
        self.live.bell.notify_one();
    }

    pub async fn session(&self, principal: &Principal, id: &str) -> Result<SessionView, DeskError> {
        let known = match SessionId::parse(id) {
            Ok(session) => self.store.session(principal, &session).await?,
            Err(_) => None,
        };
        known.map(|session| self.view(session)).ok_or_else(|| DeskError::NoSession(id.to_owned()))
    }

    /// Newest first.
    pub async fn list(
        &self,
        principal: &Principal,
        listed: Listed,
        page: Page<SessionId>,
    ) -> Result<Vec<(SessionView, u64)>, DeskError> {
        let rows = self.store.list_sessions(principal, listed, page).await?;
        let view = |row: ListedSession| (self.view(row.session), row.unfinished);
        Ok(rows.into_iter().map(view).collect())
    }

    /// It is on disk when this returns. The second: whether it was submitted before.
    pub async fn submit(
        &self,
        principal: &Principal,
        session: &str,
        task: NewTask,
    ) -> Result<(RunView, bool), DeskError> {
        let id = SessionId::parse(session).map_err(|_| DeskError::NoSession(session.to_owned()))?;
        check_task(&task)?;
        let NewTask { task, idempotency_key, output_schema, model, asked_by } = task;
        let run = RunId::new(self.world.stamp());
        let new = NewRun { id: run, session: id, task, idempotency_key, output_schema, model, asked_by };
        match self.store.submit(principal, new, self.now()).await? {
            SubmitOutcome::Submitted(run) => {
                self.live.call(&run.session);
                Ok((RunView { run, progress: None }, false))
            }
            SubmitOutcome::Same(run) => Ok((self.run_view(run), true)),
            SubmitOutcome::Conflict(run) => Err(DeskError::Conflict { run: run.id }),
            SubmitOutcome::NoSession => Err(DeskError::NoSession(session.to_owned())),
            SubmitOutcome::Terminated(session) => Err(DeskError::Terminated(session.id)),
            SubmitOutcome::QueueFull => Err(DeskError::QueueFull { most: model::ports::store::MOST_QUEUED }),
        }
    }

    pub async fn run(&self, principal: &Principal, id: &str) -> Result<RunView, DeskError> {
        let known = match RunId::parse(id) {
            Ok(run) => self.store.run(principal, &run).await?,
            Err(_) => None,
        };
        known.map(|run| self.run_view(run)).ok_or_else(|| DeskError::NoRun(id.to_owned()))
    }

    /// Newest first.
    pub async fn runs(
        &self,
        principal: &Principal,
        session: &str,
        page: Page<u64>,
    ) -> Result<Vec<RunView>, DeskError> {
        let session = self.session(principal, session).await?.session;
        let runs = self.store.list_runs(principal, &session.id, page).await?;
        Ok(runs.into_iter().map(|run| self.run_view(run)).collect())
    }

    /// Without a run: the latest one, if there is any.
    pub async fn status(
        &self,
        principal: &Principal,
        session: &str,
        run: Option<&str>,
    ) -> Result<(SessionView, Option<RunView>), DeskError> {
        let view = self.session(principal, session).await?;
        let Some(run) = run else {
            let latest = self.store.latest_run(principal, &view.session.id).await?;
            return Ok((view, latest.map(|run| self.run_view(run))));
        };
        let run = self.run(principal, run).await?;
        if run.run.session != view.session.id {
            return Err(DeskError::OtherSession { run: run.run.id, session: view.session.id });
        }
        Ok((view, Some(run)))
    }

    /// To be asked for before the run is looked at.
    pub fn follow(&self, run: &RunId) -> Following {
        self.live.follow(run)
    }

    /// A run that had ended is as it was. One that runs is asked to end, and given a moment for that.
    pub async fn cancel(&self, principal: &Principal, id: &str) -> Result<RunView, DeskError> {
        let run = RunId::parse(id).map_err(|_| DeskError::NoRun(id.to_owned()))?;
        let mut following = self.live.follow(&run);
        let outcome = self.store.request_cancel(principal, &run, CanceledBy::Caller, self.now()).await?;
        let until = Instant::now() + CANCEL;
        match outcome {
            CancelOutcome::NoRun => Err(DeskError::NoRun(id.to_owned())),
            CancelOutcome::Canceled(run) => {
                self.live.end(&run.id);
                Ok(RunView { run, progress: None })
            }
            CancelOutcome::Ended(run) => Ok(RunView { run, progress: None }),
            CancelOutcome::Requested(run) => {
                self.live.cancel(&run.id);
                loop {
                    let view = self.run(principal, id).await?;
                    let late = Instant::now() >= until;
                    if view.run.state.is_ended() || late {
                        return Ok(view);
                    }
                    // Looked at now and then as well: the run may be another process's.
                    let soon = until.min(Instant::now() + Duration::from_millis(500));
                    let _late = timeout_at(soon, following.changed()).await;
                }
            }
        }
    }

    pub async fn terminate(
        &self,
        principal: &Principal,
        id: &str,
        keep: Keep,
    ) -> Result<SessionView, DeskError> {
        let session = SessionId::parse(id).map_err(|_| DeskError::NoSession(id.to_owned()))?;
        let session = match self.store.terminate(principal, &session, keep, self.now()).await? {
            TerminateOutcome::Terminating { session, running } => {
                if let Some(run) = running {
                    self.live.cancel(&run);
                }
                self.live.call(&session.id);
                session
            }
            TerminateOutcome::Terminated(session) => session,
            TerminateOutcome::NoSession => return Err(DeskError::NoSession(id.to_owned())),
        };
        Ok(self.view(session))
    }

    pub async fn logs(
        &self,
        principal: &Principal,
        run: &str,
        lines: usize,
    ) -> Result<(RunId, Tail), DeskError> {
        let run = self.run(principal, run).await?.run;
        let path = self.layout.of(&run.session).log(&run.id);
        let tail = blocking(move || record::tail(&path, lines)).await;
        let tail = tail.map_err(|source| DeskError::Files { doing: "read the run's log", source })?;
        Ok((run.id, tail))
    }

    /// Each path is what [`Self::read`] takes.
    pub async fn artifacts(
        &self,
        principal: &Principal,
        session: &str,
        run: Option<&str>,
    ) -> Result<Vec<(RunId, Artifact)>, DeskError> {
        let run = match run {
            Some(run) => Some(self.run(principal, run).await?.run),
            None => None,
        };
        let session = self.session(principal, session).await?.session;
        if let Some(run) = run.as_ref().filter(|run| run.session != session.id) {
            return Err(DeskError::OtherSession { run: run.id.clone(), session: session.id });
        }
        let kept = self.store.artifacts(principal, &session.id, run.as_ref().map(|run| &run.id)).await?;
        let routed = |(run, artifact): (RunId, Artifact)| {
            let path = format!("{}/{}", session.id, artifact.path);
            (run, Artifact { path, ..artifact })
        };
        Ok(kept.into_iter().map(routed).collect())
    }

    pub async fn read(&self, principal: &Principal, path: &str, most: usize) -> Result<Read, DeskError> {
        let missing = || DeskError::NoArtifact(path.to_owned());
        let (session, rest) = path.split_once('/').ok_or_else(missing)?;
        let session = SessionId::parse(session).map_err(|_| missing())?;
        if self.store.session(principal, &session).await?.is_none() {
            return Err(missing());
        }
        let (root, rest) = (self.layout.of(&session), rest.to_owned());
        let read = move || match record::read(root.root(), &rest, most) {
            Ok(read) => Ok(Some(read)),
            Err(ReadError::NotFound) => Ok(None),
            Err(ReadError::System(source)) => Err(source),
        };
        let read = blocking(read).await;
        read.map_err(|source| DeskError::Files { doing: "read the artifact", source })?.ok_or_else(missing)
    }

    fn view(&self, session: Session) -> SessionView {
        let hot = match session.status {
            SessionStatus::Terminated { .. } => None,
            SessionStatus::Live | SessionStatus::Terminating { .. } => self.live.hot(&session.id),
        };
        SessionView { session, hot }
    }

    fn run_view(&self, mut run: Run) -> RunView {
        let progress = if run.state.is_ended() { None } else { self.live.progress(&run.id) };
        if progress.is_some() && run.usage.is_none() {
            let so_far = self.live.metered(&run.id).usage;
            run.usage = (so_far != RunUsage::default()).then_some(so_far);
        }
        RunView { run, progress }
    }
}

/// On a thread of its own: what a box has written may take long to read.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other).flatten()
}

fn check_name(name: &'static str, text: Option<&str>) -> Result<(), DeskError> {
    let Some(text) = text else { return Ok(()) };
    let problem = if text.trim().is_empty() {
        "is empty; leave it out or say something"
    } else if text.chars().count() > LONGEST_NAME {
        "is longer than 256 characters; use a shorter one"
    } else if text.chars().any(char::is_control) {
        "holds a control character; use plain text on one line"
    } else {
        return Ok(());
    };
    Err(DeskError::BadArgument { name, problem: problem.to_owned() })
}

fn check_task(task: &NewTask) -> Result<(), DeskError> {
    let NewTask { task, idempotency_key, output_schema, model, asked_by: _ } = task;
    let bad = |name, problem: &str| Err(DeskError::BadArgument { name, problem: problem.to_owned() });
    if task.trim().is_empty() {
        return bad("task", "is empty; say what is to be done");
    }
    if task.len() > LONGEST_TASK {
        return bad(
            "task",
            "is longer than 1 MiB; put the material into a file of the workspace and name that",
        );
    }
    check_name("idempotency_key", idempotency_key.as_deref())?;
    check_name("model", model.as_deref())?;
    if output_schema.as_ref().is_some_and(|schema| schema.len() > LONGEST_SCHEMA) {
        return bad("output_schema", "is longer than 64 KiB; use a smaller schema");
    }
    Ok(())
}
