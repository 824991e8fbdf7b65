//! Sees to one session as long as it is hot: claims its runs one after the other, and takes each to its end.
//!
//! ```text
//! lease ─▶ claim ─┬─ a run ─▶ run.rs: Starting ▶ Prompting ▶ Finishing ▶ finish ─▶ claim
//!                 ├─ nothing ─▶ rest until woken ─▶ claim, or told to go ─▶ box stopped ─▶ released
//!                 ├─ terminating ─▶ box and directories seen to ─▶ terminated
//!                 └─ fenced ─▶ somebody else has it: nothing is touched any more
//! ```

mod kept;
mod run;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use model::Principal;
use model::ports::sandbox::{BoxState, Sandbox as _, SandboxError};
use model::ports::store::{
    ClaimOutcome, Lease, LeaseOutcome, Store, StoreError, StoreForScheduler, TerminatedOutcome, Written,
};
use model::session::{Keep, MessageId, OwnerId, Session, SessionId, SessionStatus};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::boxes::{self, GRACE};
use crate::layout::{Layout, SessionDirs};
use crate::live::{Live, Temper};
use crate::world::{Rooms, World};

/// What all workers share.
pub(crate) struct Shared<S, R> {
    pub(crate) store: Arc<S>,
    pub(crate) rooms: Arc<R>,
    pub(crate) live: Arc<Live>,
    pub(crate) layout: Layout,
    pub(crate) world: Arc<dyn World>,
    pub(crate) owner: OwnerId,
}

impl<S, R> fmt::Debug for Shared<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// What the engine tells a worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders {
    /// There is something to claim, or to see to.
    pub(crate) wake: Arc<Notify>,
    /// Give the place up, once there is nothing at work.
    pub(crate) leave: CancellationToken,
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing is left to do, or somebody else does it.
    Done,
    /// Something failed that may be better later.
    Trouble,
}

/// The store is gone for good, as far as this process is concerned.
#[derive(Debug)]
pub(crate) struct Gone;

/// What a step of a worker leads to.
enum Step {
    On,
    Leave(Left),
}

#[derive(Debug)]
pub(crate) struct Worker<S, R> {
    pub(crate) shared: Arc<Shared<S, R>>,
    pub(crate) session: SessionId,
    pub(crate) principal: Principal,
    pub(crate) orders: Orders,
}

impl<S: Store + StoreForScheduler, R: Rooms> Worker<S, R> {
    pub(crate) async fn work(self) -> Left {
        let left = self.worked().await.unwrap_or(Left::Trouble);
        // However it ended: whoever comes next makes its ways out anew.
        self.shared.rooms.unmoor(&self.session);
        self.shared.live.gone(&self.session);
        left
    }

    async fn worked(&self) -> Result<Left, Gone> {
        let Shared { store, world, owner, .. } = &*self.shared;
        let leased = persist("lease", || store.lease(&self.session, owner, world.now())).await?;
        let lease = match leased {
            LeaseOutcome::Leased(lease) => lease,
            LeaseOutcome::Ended | LeaseOutcome::NoSession => {
                // A box of a session that has ended, or never was, is nobody's.
                let ended = self.end_box(Duration::ZERO).await;
                return Ok(if ended { Left::Done } else { Left::Trouble });
            }
            LeaseOutcome::Held(_) => return Ok(Left::Done),
            LeaseOutcome::NotAlive => return Ok(Left::Trouble),
        };
        loop {
            if let Step::Leave(left) = self.step(&lease).await? {
                return Ok(left);
            }
        }
    }

    async fn step(&self, lease: &Lease) -> Result<Step, Gone> {
        let Shared { store, world, .. } = &*self.shared;
        let message = MessageId::new(world.stamp());
        let (run, adopted) =
            match persist("claim", || store.claim(lease, message.clone(), world.now())).await? {
                ClaimOutcome::Next(run) => (run, false),
                // `Busy`: this lease has begun it and was kept from ending it.
                ClaimOutcome::Adopted(run) | ClaimOutcome::Busy(run) => (run, true),
                ClaimOutcome::Nothing => return self.rest(lease).await,
                ClaimOutcome::Fenced => return Ok(Step::Leave(Left::Done)),
            };
        let Some(session) = self.read().await? else { return Ok(Step::Leave(Left::Done)) };
        let run = run::Claimed { worker: self, lease, session: &session, run, adopted };
        Ok(match run.to_its_end().await? {
            Written::Done if self.orders.leave.is_cancelled() => self.leave(lease).await?,
            Written::Done => Step::On,
            Written::Fenced => Step::Leave(Left::Done),
        })
    }

    /// There is nothing to claim.
    async fn rest(&self, lease: &Lease) -> Result<Step, Gone> {
        let Some(session) = self.read().await? else { return Ok(Step::Leave(Left::Done)) };
        match session.status {
            SessionStatus::Live => {}
            SessionStatus::Terminating { keep, .. } => return self.terminate(lease, keep).await,
            SessionStatus::Terminated { .. } => return self.leave(lease).await,
        }
        let Shared { live, world, rooms, .. } = &*self.shared;
        let running = match boxes::name_of(&self.session) {
            // One of which nothing is known may run as well.
            Ok(name) => matches!(
                rooms.sandbox().state(&name).await,
                Ok(BoxState::Running(_) | BoxState::Starting | BoxState::Unknown)
                    | Err(SandboxError::Away { .. })
            ),
            Err(_) => false,
        };
        // Also a box that only waits has its ways out, and one whose ways nobody knows any more is of no use.
        if !running || !self.moored(&session) {
            return self.leave(lease).await;
        }
        live.set(&self.session, Temper::Ready, world.now());
        tokio::select! {
            () = self.orders.wake.notified() => Ok(Step::On),
            () = self.orders.leave.cancelled() => self.leave(lease).await,
        }
    }

    fn moored(&self, session: &Session) -> bool {
        let (dirs, rooms) = (self.dirs(), &self.shared.rooms);
        let settings = dirs.key().map_err(|error| format!("its key cannot be read: {error}"));
        let settings = settings.and_then(|key| rooms.settings(&session.settings, key));
        let moored = match (settings, dirs.access()) {
            (Ok(settings), Some(access)) => rooms.moor(session, &settings, &access, &dirs),
            (Err(why), _) => Err(why),
            (Ok(_), None) => Err("nobody knows how to get into it any more".to_owned()),
        };
        moored.map_err(|why| tracing::warn!(session = %self.session, "a box is given up: {why}")).is_ok()
    }

    /// The box goes, the data stays.
    async fn leave(&self, lease: &Lease) -> Result<Step, Gone> {
        let Shared { store, live, world, .. } = &*self.shared;
        live.set(&self.session, Temper::Stopping, world.now());
        if !self.end_box(GRACE).await {
            // With the lease: it is taken up again, and nobody else begins meanwhile.
            return Ok(Step::Leave(Left::Trouble));
        }
        persist("release", || store.release(lease)).await?;
        Ok(Step::Leave(Left::Done))
    }

    async fn terminate(&self, lease: &Lease, keep: Keep) -> Result<Step, Gone> {
        let Shared { store, live, world, .. } = &*self.shared;
        live.set(&self.session, Temper::Stopping, world.now());
        if !self.end_box(GRACE).await {
            // With the lease: it is taken up again, and nobody else begins meanwhile.
            return Ok(Step::Leave(Left::Trouble));
        }
        let dirs = self.dirs();
        let removed = match keep {
            Keep::Directories => dirs.forget_secrets(),
            // On a thread of its own: there may be very much of it.
            Keep::Nothing => {
                let removing = tokio::task::spawn_blocking(move || dirs.remove());
                removing.await.map_err(std::io::Error::other).flatten()
            }
        };
        if let Err(error) = removed {
            // It stays `terminating`, and is tried again.
            tracing::warn!(session = %self.session, %error, "the session's directories could not be removed");
            persist("release", || store.release(lease)).await?;
            return Ok(Step::Leave(Left::Trouble));
        }
        Ok(match persist("terminate", || store.terminated(lease, world.now())).await? {
            TerminatedOutcome::Done => {
                self.shared.rooms.forget(&self.session);
                Step::Leave(Left::Done)
            }
            TerminatedOutcome::Fenced => Step::Leave(Left::Done),
            // Somebody wants its directories gone as well, or a run came back: looked at anew.
            TerminatedOutcome::NotTerminating | TerminatedOutcome::StillRunning => Step::On,
        })
    }

    /// False: it is still there, and what lies in its directories is in use.
    async fn end_box(&self, grace: Duration) -> bool {
        let sandbox = self.shared.rooms.sandbox();
        self.shared.rooms.unfit(&self.session).await;
        if !boxes::stop(sandbox, &self.session, grace).await {
            return false;
        }
        if let Ok(name) = boxes::name_of(&self.session)
            && let Err(error) = sandbox.forget(&name).await
        {
            tracing::debug!(session = %self.session, %error, "what is known of the box stays");
        }
        true
    }

    async fn read(&self) -> Result<Option<Session>, Gone> {
        let store = &self.shared.store;
        persist("read", || store.session(&self.principal, &self.session)).await
    }

    fn dirs(&self) -> SessionDirs {
        self.shared.layout.of(&self.session)
    }
}

/// Does it until it is done: what is owed to a run is not given up because a disk is full for a while.
pub(crate) async fn persist<T, F>(doing: &str, write: impl Fn() -> F) -> Result<T, Gone>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match write().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        match error {
            StoreError::Busy | StoreError::StorageFull | StoreError::Failed { .. } => {
                tracing::warn!(%error, doing, "the store did not take it; it is tried again");
            }
            StoreError::Damaged { .. } | StoreError::Closed => {
                tracing::error!(%error, doing, "the store takes nothing any more");
                return Err(Gone);
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
