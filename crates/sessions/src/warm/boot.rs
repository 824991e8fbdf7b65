//! One box that is kept ready, from its start until somebody has it or its place is needed.

use std::sync::Arc;
use std::time::Duration;

use model::ports::sandbox::Sandbox as _;
use model::ports::store::{Store, StoreForScheduler};
use model::session::{Session, SessionId, SessionStatus};
use model::settings::SessionSettings;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{Recipe, Warmth};
use crate::boxes::{self, Plans};
use crate::layout::SessionDirs;
use crate::worker::{Left, Shared, persist};
use crate::world::Rooms;

/// How often is looked whether a box is still what its settings want.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Warming<S, R> {
    pub(crate) shared: Arc<Shared<S, R>>,
    pub(crate) id: SessionId,
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) changed: Arc<Notify>,
}

impl<S: Store + StoreForScheduler, R: Rooms> Warming<S, R> {
    pub(crate) async fn keep(self) -> Left {
        let pool = &self.shared.live.pool;
        let booted = tokio::select! {
            booted = self.boot() => booted,
            () = self.left() => Ok(None),
        };
        let died = match booted {
            Ok(Some(policy)) => {
                pool.ready(&self.id);
                self.shared.live.bell.notify_one();
                self.wait(&policy).await
            }
            Ok(None) => false,
            Err(why) => {
                tracing::warn!(runtime = self.recipe.runtime, "no box can be kept ready: {why}");
                true
            }
        };
        if pool.warmth(&self.id) == Warmth::Taken {
            return Left::Done;
        }
        pool.leave(&self.id);
        self.clear_away().await;
        if died { Left::Trouble } else { Left::Done }
    }

    /// A box with an agent that answers: under which policy it was made.
    async fn boot(&self) -> Result<Option<String>, String> {
        let settings = self.settings()?;
        if settings.extras_dir.is_some() {
            // What is in it may change until there is a session.
            return Ok(None);
        }
        let policy = self.shared.rooms.policy(&settings);
        let (session, dirs) = (self.session(), self.dirs());
        let plans = Plans {
            rooms: &self.shared.rooms,
            session: &session,
            settings: &settings,
            dirs: &dirs,
            model: None,
            fresh: true,
            tell: &|_| (),
        };
        // Nothing of the workspace is loaded yet: what is placed there before the first task is found by it.
        plans.ready().await.map_err(|no_box| no_box.message)?;
        Ok(Some(policy))
    }

    /// Until it is somebody's, or to end. True: its box ended by itself.
    async fn wait(&self, policy: &str) -> bool {
        let pool = &self.shared.live.pool;
        let Ok(name) = boxes::name_of(&self.id) else { return true };
        let ended = boxes::ended(self.shared.rooms.sandbox(), &name);
        tokio::pin!(ended);
        let mut died = false;
        loop {
            match pool.warmth(&self.id) {
                Warmth::Taken | Warmth::Leaving => return died,
                Warmth::Starting | Warmth::Ready | Warmth::Lent => {}
            }
            tokio::select! {
                _ending = &mut ended, if !died => {
                    died = true;
                    pool.died(&self.id);
                }
                () = self.changed.notified() => {}
                () = sleep(LOOK) => if !self.is_wanted(policy) {
                    pool.leave(&self.id);
                },
            }
        }
    }

    /// The file may have been changed since.
    fn is_wanted(&self, policy: &str) -> bool {
        self.settings().is_ok_and(|settings| self.shared.rooms.policy(&settings) == policy)
    }

    async fn left(&self) {
        while self.shared.live.pool.warmth(&self.id) != Warmth::Leaving {
            self.changed.notified().await;
        }
    }

    /// The box goes, and what there is of it, unless there is a session of this name after all.
    async fn clear_away(&self) {
        let Shared { rooms, store, .. } = &*self.shared;
        // Its place is free when it is gone, not before.
        while !boxes::stop(rooms.sandbox(), &self.id, Duration::ZERO).await {}
        rooms.unmoor(&self.id);
        let ids = [self.id.clone()];
        let known = persist("look for a session", || store.known(&ids)).await;
        let nobodys = known.is_ok_and(|known| known.is_empty());
        if !nobodys {
            // A session's, or nobody can tell. What is nobody's is found at the next start.
            return;
        }
        if let Ok(name) = boxes::name_of(&self.id)
            && let Err(error) = rooms.sandbox().forget(&name).await
        {
            tracing::debug!(session = %self.id, %error, "what is known of the box stays");
        }
        rooms.forget(&self.id);
        let dirs = self.dirs();
        let removed = tokio::task::spawn_blocking(move || dirs.remove()).await;
        if let Err(error) = removed.map_err(std::io::Error::other).flatten() {
            tracing::warn!(session = %self.id, %error, "what was made ready for a session could not be removed");
        }
    }

    fn settings(&self) -> Result<SessionSettings, String> {
        self.shared.rooms.settings(&self.recipe.settings, self.recipe.key.clone())
    }

    fn dirs(&self) -> SessionDirs {
        self.shared.layout.of(&self.id)
    }

    /// As it will be, but for what only its maker knows.
    fn session(&self) -> Session {
        let Recipe { principal, image, runtime, settings, key: _ } = &*self.recipe;
        let now = self.shared.world.now();
        Session {
            id: self.id.clone(),
            principal: principal.clone(),
            name: None,
            reuse_key: None,
            image: image.clone(),
            runtime: runtime.clone(),
            settings: settings.clone(),
            workspace: self.dirs().workspace().to_string_lossy().into_owned(),
            made_by: None,
            agent_session: None,
            status: SessionStatus::Live,
            created_at: now,
            used_at: now,
        }
    }
}
