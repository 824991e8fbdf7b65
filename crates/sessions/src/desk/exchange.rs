//! A directory of the host into a session's workspace, and what came of it back.
//!
//! Both take as long as the files do, on a thread of their own, one at a time in a session. Who does not wait for the
//! end stops them, and nothing is left half done: see `carry`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carry::{
    Applied, Apply, CarryError, Change, Changes, Compare, Existing, Git, Import, Imported, LeftOut, Limits,
    Listed, Owner, Patch, PatchLimits, Progress, Recovered,
};
use model::Principal;
use model::ports::store::Store;
use model::session::{SessionId, SessionStatus};
use tokio::sync::watch;

use super::{Desk, DeskError};
use crate::layout::{Layout, SessionDirs};

/// A patch is read by a model: what is longer is applied.
const LONGEST_PATCH: usize = 1 << 20;

/// How workspaces are exchanged here.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Of what is put into a workspace; None: whoever runs this.
    pub owner: Option<Owner>,
    pub git: Git,
}

/// Sessions whose workspace is being carried.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchanges(Arc<Mutex<HashSet<SessionId>>>);

struct Place {
    exchanges: Exchanges,
    session: SessionId,
}

impl Exchanges {
    fn enter(&self, session: &SessionId) -> Option<Place> {
        let entered = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone());
        entered.then(|| Place { exchanges: self.clone(), session: session.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.exchanges.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}

/// What the box has changed, and what became of it.
#[derive(Debug)]
pub struct Exported {
    pub files: Vec<Change>,
    /// Changes that cannot be carried at all.
    pub left_out: Listed<LeftOut>,
    /// The box has more than is looked at: what is missing counts as unchanged.
    pub incomplete: bool,
    pub became: Became,
}

#[derive(Debug)]
pub enum Became {
    Patch(Patch),
    Applied(Applied),
}

/// What to do with changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Patch,
    /// Into this directory, which was resolved and is allowed.
    Apply(PathBuf),
}

impl<S: Store> Desk<S> {
    /// `from`: resolved, and allowed already.
    pub async fn import(
        &self,
        principal: &Principal,
        session: &str,
        (from, existing): (PathBuf, Existing),
        told: watch::Sender<Option<Progress>>,
    ) -> Result<Imported, DeskError> {
        let session = self.session(principal, session).await?.session;
        match session.status {
            SessionStatus::Live => {}
            SessionStatus::Terminating { .. } | SessionStatus::Terminated { .. } => {
                return Err(DeskError::Terminated(session.id));
            }
        }
        if self.live.at_work(&session.id).is_some() {
            return Err(DeskError::AtWork(session.id));
        }
        let (dirs, terms) = (self.layout.of(&session.id), self.terms.clone());
        // An agent that has worked there has read what configures it, and reads it once.
        let has_worked = session.agent_session.is_some();
        self.carried(&session.id, move |stop| {
            let made = dirs.make();
            made.map_err(|source| CarryError::System { doing: "make the workspace".to_owned(), source })?;
            if has_worked {
                let marked = dirs.mark_outdated();
                marked.map_err(|source| CarryError::System {
                    doing: "note that the agent has to start anew".to_owned(),
                    source,
                })?;
            }
            // Before: changes that go elsewhere must never be taken for carried back.
            let noted = dirs.keep_origin(&from);
            noted.map_err(|source| CarryError::System {
                doing: "note where it comes from".to_owned(),
                source,
            })?;
            carry::import(Import {
                from,
                into: dirs.workspace(),
                base: dirs.base(),
                limits: Limits::default(),
                git: terms.git,
                owner: terms.owner,
                existing,
                stop,
                progress: &mut |progress| {
                    told.send_replace(Some(progress));
                },
            })
        })
        .await
    }

    pub async fn export(
        &self,
        principal: &Principal,
        session: &str,
        wish: Wish,
    ) -> Result<Exported, DeskError> {
        let session = self.session(principal, session).await?.session;
        let (dirs, journal) = (self.layout.of(&session.id), self.layout.journal());
        let git = self.terms.git.clone();
        self.carried(&session.id, move |stop| {
            let changes = changes(&dirs, git, stop)?;
            let became = match wish {
                Wish::Patch => {
                    let limits = PatchLimits { bytes: LONGEST_PATCH, ..PatchLimits::default() };
                    Became::Patch(changes.patch(&limits)?)
                }
                Wish::Apply(to) => Became::Applied(apply(&changes, &dirs, (to, journal), stop)?),
            };
            let Changes { files, left_out, incomplete, .. } = changes;
            Ok(Exported { files, left_out, incomplete, became })
        })
        .await
    }

    async fn carried<T: Send + 'static>(
        &self,
        session: &SessionId,
        carry: impl FnOnce(&AtomicBool) -> Result<T, CarryError> + Send + 'static,
    ) -> Result<T, DeskError> {
        let place = self.exchanges.enter(session).ok_or_else(|| DeskError::Exchanging(session.clone()))?;
        let stop = Arc::new(AtomicBool::new(false));
        // Whoever asked is gone, and this with it.
        let _gone = StopOnDrop(Arc::clone(&stop));
        let carrying = tokio::task::spawn_blocking(move || {
            // Until it has really ended.
            let _place = place;
            carry(&stop)
        });
        let done = carrying.await.map_err(|error| DeskError::Files {
            doing: "carry the workspace",
            source: std::io::Error::other(error),
        })?;
        Ok(done?)
    }
}

fn changes(dirs: &SessionDirs, git: Git, stop: &AtomicBool) -> Result<Changes, CarryError> {
    let (workspace, base) = (dirs.workspace(), dirs.base());
    carry::changes(&Compare { workspace, base, limits: Limits::default(), git, stop })
}

fn apply(
    changes: &Changes,
    dirs: &SessionDirs,
    (to, journal): (PathBuf, PathBuf),
    stop: &AtomicBool,
) -> Result<Applied, CarryError> {
    let is_back = dirs.origin().as_deref() == Some(to.as_path());
    let applied = carry::apply(&Apply { changes, to, journal, stop })?;
    // The directory that was imported has them now. Where that cannot be noted, they are found to be there the next
    // time; and what went elsewhere is still owed to it.
    if is_back && let Err(error) = changes.settle(&dirs.base()) {
        tracing::warn!(%error, "what was applied could not be noted");
    }
    Ok(applied)
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Layout {
    /// Undoes or finishes what was being applied when a daemon before was killed. To be called before anything is
    /// exported. Blocks.
    pub fn recover_exports(&self) -> Result<Vec<Recovered>, CarryError> {
        let journal = self.journal();
        if !Path::new(&journal).exists() {
            return Ok(Vec::new());
        }
        carry::recover(&journal)
    }
}
