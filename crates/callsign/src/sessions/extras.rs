//! The extras of a session: skills are copied, and pip installs packages in a box of its own.
//!
//! ```text
//! fit ─▶ extras.json says done? ─▶ nothing
//!   └──▶ a task that ends with whoever waits:  snapshot ─▶ pip.rs: box, proxy to the index ─▶ placing ─▶ done
//! ```
//!
//! **Invariants:** pip runs in no other place; that box has ended before anything is placed, and whatever becomes of the
//! install; one install of a session at a time; who goes away ends it.

mod index;
mod pip;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gateway::redact::Redactor;
use model::ports::sandbox::{BoxName, Sandbox as _};
use model::session::{Session, SessionId};
use model::settings::SessionSettings;
use sessions::extras::{Extras, Owner, Package, Stage, Standing, Unfit, snapshot};
use sessions::{Fitting, SessionDirs, World as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rooms::{Boxes, RealWorld};
use crate::config::Environment;
use index::Wanted;
use pip::Pip;

/// Lines about an install that nobody has taken yet.
const LINES: usize = 8;

/// What the session's box has where packages were installed for it: they are found, and so are their programs.
pub(super) fn environment(meta: &str, path: &str) -> [(String, String); 2] {
    let base = format!("{meta}/python");
    let path = format!("{base}/bin:{path}");
    [("PYTHONUSERBASE".to_owned(), base), ("PATH".to_owned(), path)]
}

/// Whoever installs.
#[derive(Debug)]
pub(super) struct Outfitter {
    pub(super) sandbox: Arc<Boxes>,
    pub(super) bridge: PathBuf,
    pub(super) tasks: TaskTracker,
    pub(super) redactor: Arc<Redactor>,
    pub(super) owner: Owner,
    /// One at a time for each session. Those of nobody are gone.
    pub(super) turns: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Outfitter {
    pub(super) async fn fit(self: &Arc<Self>, fitting: Fitting<'_>, is_bare: bool) -> Result<(), Unfit> {
        let Fitting { session, settings, directories, tell } = fitting;
        let bundle = settings.extras_dir.clone();
        match (known(directories)?, &bundle) {
            (None, None) => return Ok(()),
            (Some(extras), bundle) if extras.state == Standing::Done => {
                if let Some(bundle) = bundle {
                    self.compare(&session.id, extras, bundle.clone());
                }
                return Ok(());
            }
            (Some(_), _) | (None, Some(_)) => {}
        }
        let (said, mut heard) = mpsc::channel(LINES);
        let end = CancellationToken::new();
        // Whoever lets go of this future ends the install.
        let _ends = end.clone().drop_guard();
        let install = Install {
            outfitter: Arc::clone(self),
            session: session.clone(),
            settings: settings.clone(),
            directories: directories.clone(),
            bundle,
            is_bare,
            said,
            end,
        };
        let mut done = self.tasks.spawn(install.run());
        loop {
            tokio::select! {
                Some(line) = heard.recv() => tell(&line),
                done = &mut done => {
                    while let Ok(line) = heard.try_recv() {
                        tell(&line);
                    }
                    return done.unwrap_or_else(|error| Err(refused(format!("the install was cut off: {error}"))));
                }
            }
        }
    }

    /// Returns when nobody installs for this session.
    pub(super) async fn unfit(&self, session: &SessionId) {
        drop(self.turn(session).lock_owned().await);
    }

    fn turn(&self, session: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(session).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(session.clone(), Arc::downgrade(&turn));
        turn
    }

    /// Nobody waits for it: a session keeps what it has.
    fn compare(&self, session: &SessionId, extras: Extras, bundle: PathBuf) {
        let session = session.clone();
        drop(self.tasks.spawn_blocking(move || match snapshot(&bundle, None, None) {
            Ok(now) if extras.is_of(&now) => {}
            Ok(_) => {
                tracing::info!(%session, "the extras have changed since they were installed; a new session gets those of now");
            }
            Err(why) => tracing::info!(%session, "the extras of the session are not there any more: {why}"),
        }));
    }
}

/// One install, to its end.
struct Install {
    outfitter: Arc<Outfitter>,
    session: Session,
    settings: SessionSettings,
    directories: SessionDirs,
    bundle: Option<PathBuf>,
    is_bare: bool,
    said: mpsc::Sender<String>,
    end: CancellationToken,
}

impl Install {
    async fn run(self) -> Result<(), Unfit> {
        let turn = self.outfitter.turn(&self.session.id);
        let _turn = turn.lock_owned().await;
        let done = self.once().await;
        if done.is_err() {
            let stage = self.directories.stage();
            let removed = blocking(move || stage.remove().map_err(|error| error.to_string())).await;
            if let Err(why) = removed {
                tracing::warn!(session = %self.session.id, "where extras were prepared cannot be removed: {why:?}");
            }
        }
        done
    }

    async fn once(&self) -> Result<(), Unfit> {
        let name = name_of(&self.session.id)?;
        // Whatever was left of one that was cut off.
        self.end_box(&name).await?;
        let extras = match known(&self.directories)? {
            Some(extras) if extras.state == Standing::Done => return Ok(()),
            Some(extras) => extras,
            None => {
                let Some(bundle) = &self.bundle else { return Ok(()) };
                let extras = self.prepare(bundle, &name).await?;
                let (directories, kept) = (self.directories.clone(), extras.clone());
                let unkept = |error| format!("the extras cannot be written down: {error}");
                blocking(move || directories.keep_extras(&kept).map_err(unkept)).await?;
                extras
            }
        };
        let (directories, owner) = (self.directories.clone(), self.outfitter.owner);
        let placed = blocking(move || directories.place_extras(extras, owner)).await?;
        self.tell(summary(&placed)).await;
        Ok(())
    }

    /// Everything up to where something of the session is changed.
    async fn prepare(&self, bundle: &Path, name: &BoxName) -> Result<Extras, Unfit> {
        self.tell(format!("installing extras: reading {}", bundle.display())).await;
        let (from, stage, owner) = (bundle.to_owned(), self.directories.stage(), self.outfitter.owner);
        let to = stage.clone();
        let bundle = blocking(move || snapshot(&from, Some(&to), owner)).await?;
        let (mut packages, mut hosts) = (Vec::new(), Vec::new());
        if bundle.requirements.is_some() {
            hosts = self.packages(&stage, name).await?;
            let at = stage.clone();
            packages = blocking(move || at.packages()).await?;
        }
        Ok(Extras::new(bundle, packages, hosts, sessions::record::written(RealWorld.now())))
    }

    /// Which hosts could be reached for it.
    async fn packages(&self, stage: &Stage, name: &BoxName) -> Result<Vec<String>, Unfit> {
        if self.is_bare {
            let problem = "requirements.txt of the extras is installed in a box only, and `isolation` is \"none\"; take it out, \
                           or set `isolation` of [sessions] to \"bwrap\"";
            return Err(refused(problem));
        }
        let file = stage.work().join("requirements.txt");
        let read =
            move || std::fs::read(&file).map_err(|error| format!("requirements.txt cannot be read: {error}"));
        let text = blocking(read).await?;
        let text =
            String::from_utf8(text).map_err(|_| refused("requirements.txt of the extras is no UTF-8"))?;
        let wanted = Wanted::new(Environment::of_process(), &text).map_err(Unfit::Refused)?;
        let pip = Pip { install: self, stage, name, wanted };
        let installed = tokio::select! {
            installed = pip.run() => installed,
            () = self.end.cancelled() => Err(refused("nobody waits for the extras any more")),
        };
        // Also where it went well: nothing of it is there when the session's own box begins.
        self.end_box(name).await?;
        installed
    }

    async fn end_box(&self, name: &BoxName) -> Result<(), Unfit> {
        let sandbox = &self.outfitter.sandbox;
        sandbox.kill(name).await.map_err(Unfit::Box)?;
        sandbox.forget(name).await.map_err(Unfit::Box)
    }

    /// To whoever waits, if anybody does.
    async fn tell(&self, line: String) {
        let _nobody_waits = self.said.send(line).await;
    }
}

fn summary(extras: &Extras) -> String {
    let named = |package: &Package| format!("{}=={}", package.name, package.version);
    let packages = match extras.packages.len() {
        0 => "no packages".to_owned(),
        count @ 1..=8 => {
            let names: Vec<String> = extras.packages.iter().map(named).collect();
            format!("{count} packages ({})", names.join(", "))
        }
        count => format!("{count} packages"),
    };
    let kept = match extras.kept.as_slice() {
        [] => String::new(),
        [one] => format!("; {one} was there already and is as it was"),
        [first, ..] => {
            format!("; {first} and {} others were there already and are as they were", extras.kept.len() - 1)
        }
    };
    format!("extras installed: {packages}, {} files of skills{kept}", extras.skills.len())
}

fn known(directories: &SessionDirs) -> Result<Option<Extras>, Unfit> {
    let unread = |error| refused(format!("what is known of the session's extras cannot be read: {error}"));
    directories.extras().map_err(unread)
}

/// No session is called so: a daemon that finds such a box at its start ends it.
fn name_of(session: &SessionId) -> Result<BoxName, Unfit> {
    BoxName::new(format!("extras-{session}")).map_err(|error| refused(error.to_string()))
}

fn refused(why: impl Into<String>) -> Unfit {
    Unfit::Refused(why.into())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Unfit> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| refused(format!("the extras: {error}")))?.map_err(Unfit::Refused)
}
