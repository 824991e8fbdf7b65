//! A session's box: found again, or made, with an agent in it that answers.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::ports::agent::{Agent as _, AgentError};
use model::ports::sandbox::{
    BoxInfo, BoxName, BoxState, Cause, Ending, Exit, Hits, How, Sandbox, SandboxError, Started,
};
use model::session::{Session, SessionId};
use model::settings::SessionSettings;
use tokio::time::{Instant, sleep};

use crate::extras::Unfit;
use crate::layout::SessionDirs;
use crate::world::{Access, Fitting, Rooms};

/// How often is looked whether a box that should run does.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// How often is looked whether an agent says that it listens, and how far into its log.
const LISTEN: Duration = Duration::from_millis(20);
const MOST_HEARD: u64 = 64 << 10;
/// Models besides the configured ones that an agent is told of.
const MOST_MODELS: usize = 16;
/// How long an agent has to end by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// How long a box that was found may take to answer: it runs, so it is not starting any more.
const FOUND: Duration = Duration::from_secs(90);
/// How often a box is made anew that ended while it started: its port may have been taken meanwhile.
const TRIES: u32 = 2;

/// A box with an agent that answers.
#[derive(Debug)]
pub(crate) struct Ready<A> {
    pub(crate) agent: A,
    pub(crate) info: BoxInfo,
    pub(crate) how: How,
    pub(crate) version: String,
}

/// Whoever keeps the box does not answer: it may run, and nothing is said by that.
pub(crate) const AWAY: &str = "engine_away";

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoBox {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Another attempt may do better at once.
    again: bool,
}

impl NoBox {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), again: false }
    }

    /// It ended while it started: mostly because somebody took its port meanwhile.
    fn ended(message: impl Into<String>) -> Self {
        Self { again: true, ..Self::new("box_ended", message) }
    }
}

pub(crate) fn name_of(session: &SessionId) -> Result<BoxName, NoBox> {
    BoxName::new(session.as_str()).map_err(|error| NoBox::new("box_failed", error.to_string()))
}

/// All that is known of a session, to make its box from.
pub(crate) struct Plans<'a, R> {
    pub(crate) rooms: &'a Arc<R>,
    pub(crate) session: &'a Session,
    pub(crate) settings: &'a SessionSettings,
    pub(crate) dirs: &'a SessionDirs,
    /// A model that the agent has to know besides the configured ones.
    pub(crate) model: Option<&'a str>,
    /// Nothing is under way in it: a box that was made under another policy is made anew.
    pub(crate) fresh: bool,
    /// Told what takes long.
    pub(crate) tell: &'a (dyn Fn(&str) + Send + Sync),
}

impl<R: fmt::Debug> fmt::Debug for Plans<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").field("session", &self.session.id).finish_non_exhaustive()
    }
}

impl<R: Rooms> Plans<'_, R> {
    /// May be called again after any failure, by anybody who has the session's lease.
    pub(crate) async fn ready(&self) -> Result<Ready<R::Agent>, NoBox> {
        let mut tries = 1;
        loop {
            match self.attempt().await {
                Err(NoBox { again: true, .. }) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn attempt(&self) -> Result<Ready<R::Agent>, NoBox> {
        self.dirs.make().map_err(|error| unusable(&error))?;
        let name = name_of(&self.session.id)?;
        let sandbox = self.rooms.sandbox();
        let state = sandbox.state(&name).await.map_err(|error| unstarted(&error))?;
        let mut running = None;
        let access = match (state, self.dirs.access()) {
            // The one it was started with, or is being started with by somebody who was cut off.
            (BoxState::Running(info), Some(access)) if self.fits(&access) => {
                running = Some(info);
                access
            }
            (BoxState::Starting, Some(access)) if self.fits(&access) => access,
            (BoxState::Running(_) | BoxState::Starting, Some(access)) => {
                sandbox.stop(&name, GRACE).await.map_err(|error| unstarted(&error))?;
                self.new_access(access.models)?
            }
            (BoxState::Running(_) | BoxState::Starting, None) => {
                // Nobody can get in any more.
                sandbox.kill(&name).await.map_err(|error| unstarted(&error))?;
                self.new_access(Vec::new())?
            }
            (BoxState::Unknown, _) => return Err(NoBox::new(AWAY, "nobody says whether the box runs")),
            (BoxState::Absent | BoxState::Ended(_), before) => {
                self.new_access(before.map(|access| access.models).unwrap_or_default())?
            }
        };
        if running.is_none() {
            let Self { session, settings, dirs, tell, .. } = *self;
            let fitted = self.rooms.fit(Fitting { session, settings, directories: dirs, tell }).await;
            fitted.map_err(|why| unfit(&why))?;
        }
        let moored = self.rooms.moor(self.session, self.settings, &access, self.dirs);
        moored.map_err(|why| NoBox::new("box_failed", why))?;
        let started = if let Some(info) = running {
            // What it would be made with today does not matter to it.
            Started { info, how: How::Found }
        } else {
            let spec = self.rooms.spec(self.session, self.settings, &access, self.dirs);
            let started = sandbox.start(spec.map_err(|why| NoBox::new("box_refused", why))?).await;
            started.map_err(|error| unstarted(&error))?
        };
        let agent = self.rooms.agent(&self.session.id, &access, self.settings);
        let agent = agent.map_err(|why| NoBox::new("box_failed", why))?;
        let within = match started.how {
            How::Made => self.settings.start_timeout,
            How::Found => FOUND,
        };
        let ready = tokio::select! {
            ready = async {
                self.heard(access, &started.info.log, within).await?;
                agent.ready(within).await
            } => ready,
            ending = ended(sandbox, &name) => {
                return Err(NoBox::ended(format!("the agent ended while it started: {}", told(&ending))));
            }
        };
        match ready {
            Ok(ready) => Ok(Ready { agent, info: started.info, how: started.how, version: ready.version }),
            Err(error) => {
                // It listens and does not answer, or nobody knows how to get in: the next attempt begins anew.
                let _gone = sandbox.kill(&name).await;
                // One that was found says nothing about one that is made.
                Err(NoBox { again: started.how == How::Found, ..not_ready(&error, within) })
            }
        }
    }

    /// Only the box can say this, and only once the port is its own: whoever took it meanwhile is sent nothing.
    async fn heard(&self, access: Access, log: &Path, within: Duration) -> Result<(), AgentError> {
        let Some(words) = self.rooms.announcement(&access).filter(|_| !access.heard) else { return Ok(()) };
        let until = Instant::now() + within;
        while !says(log, &words) {
            if Instant::now() >= until {
                return Err(AgentError::NoAnswer { seconds: within.as_secs() });
            }
            sleep(LISTEN).await;
        }
        // Later its log may have been cut.
        let kept = self.dirs.keep_access(&Access { heard: true, ..access });
        kept.map_err(|error| AgentError::Unreachable {
            reason: format!("its password cannot be kept: {error}"),
        })
    }

    fn fits(&self, access: &Access) -> bool {
        let is_current = || access.policy == self.rooms.policy(self.settings) && !self.dirs.is_outdated();
        self.knows(access) && (!self.fresh || is_current())
    }

    fn knows(&self, access: &Access) -> bool {
        let configured = [&self.settings.model, self.settings.small_model()];
        self.model.is_none_or(|model| {
            access.models.iter().any(|known| known == model)
                || configured.iter().any(|known| known.to_string() == model)
        })
    }

    fn new_access(&self, models: Vec<String>) -> Result<Access, NoBox> {
        let access = self.rooms.access(self.settings).map_err(|why| NoBox::new("box_failed", why))?;
        let mut access = Access { models, ..access };
        if let Some(model) = self.model
            && !self.knows(&access)
        {
            // They are in its environment, and that has an end.
            if access.models.len() >= MOST_MODELS {
                access.models.remove(0);
            }
            access.models.push(model.to_owned());
        }
        self.dirs
            .clear_outdated()
            .and_then(|()| self.dirs.keep_access(&access))
            .map_err(|error| unusable(&error))?;
        Ok(access)
    }
}

/// Among the first things in a log.
fn says(log: &Path, words: &str) -> bool {
    let mut first = Vec::new();
    let read = File::open(log).and_then(|file| file.take(MOST_HEARD).read_to_end(&mut first));
    read.is_ok() && String::from_utf8_lossy(&first).contains(words)
}

fn unusable(error: &io::Error) -> NoBox {
    NoBox::new("files_failed", format!("the session's directories cannot be used: {error}"))
}

/// Waits until a box does not run. A look that fails says nothing.
pub(crate) async fn ended(sandbox: &impl Sandbox, name: &BoxName) -> Ending {
    loop {
        sleep(LOOK).await;
        match sandbox.state(name).await {
            Ok(BoxState::Ended(ending)) => return ending,
            Ok(BoxState::Absent) => {
                let (cause, exit) = (Cause::Lost, Exit::Unknown);
                return Ending { cause, exit, hits: Hits::default(), message: None };
            }
            Ok(BoxState::Running(_) | BoxState::Starting | BoxState::Unknown) | Err(_) => {}
        }
    }
}

/// How a box ended, for a person.
pub(crate) fn told(ending: &Ending) -> String {
    let cause = match ending.cause {
        Cause::Exited => "it ended by itself",
        Cause::Asked => "it was stopped",
        Cause::Orphaned => "there was no daemon for longer than orphan_grace",
        Cause::Memory => "it used more memory than its limit (limits.memory)",
        Cause::Pids => "it had more processes than its limit (limits.pids)",
        Cause::Disk => "it used more disk than its limit (limits.disk)",
        Cause::NotStarted => "it did not start",
        Cause::Lost => "its box was killed",
    };
    let exit = match ending.exit {
        Exit::Code(code) => format!(", exit code {code}"),
        Exit::Signal(signal) => format!(", signal {signal}"),
        Exit::Unknown => String::new(),
    };
    let full = match ending.hits.pids {
        0 => String::new(),
        hits => format!("; it was refused {hits} more processes than its limit (limits.pids)"),
    };
    let said = ending.message.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let said = said.map(|said| format!("; it said last: {said}")).unwrap_or_default();
    format!("{cause}{exit}{full}{said}")
}

/// The code of a run whose box ended.
pub(crate) fn code_of(ending: &Ending) -> &'static str {
    match ending.cause {
        Cause::Memory => "out_of_memory",
        Cause::Pids => "too_many_processes",
        Cause::Disk => "disk_full",
        Cause::Exited | Cause::Asked | Cause::Orphaned | Cause::NotStarted | Cause::Lost => "agent_crashed",
    }
}

fn unstarted(error: &SandboxError) -> NoBox {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    let message = format!("{error}{source}");
    let code = match error {
        SandboxError::Unable(_) => "no_box",
        SandboxError::NotEnforced(_) => "limits_not_enforced",
        SandboxError::BadSpec(_) => "box_refused",
        SandboxError::NotStarted(_) => return NoBox::ended(message),
        SandboxError::Away { .. } => AWAY,
        SandboxError::Elsewhere(_) => "engine_changed",
        SandboxError::TooSlow(_) | SandboxError::Runs | SandboxError::System { .. } => "box_failed",
    };
    NoBox::new(code, message)
}

fn unfit(why: &Unfit) -> NoBox {
    match why {
        Unfit::Refused(why) => NoBox::new("extras_failed", why),
        Unfit::Box(error) => unstarted(error),
        Unfit::Ended(ending, said) => {
            // What it said last is in what was said.
            let ending = Ending { message: None, ..ending.clone() };
            NoBox::new("extras_failed", format!("the extras were not installed: {}; {said}", told(&ending)))
        }
    }
}

fn not_ready(error: &AgentError, within: Duration) -> NoBox {
    match error {
        AgentError::NoAnswer { .. } | AgentError::Unreachable { .. } => NoBox::new(
            "agent_start_timeout",
            format!(
                "the agent did not answer within {} s of its start: {error}; a slow machine needs a longer start_timeout",
                within.as_secs()
            ),
        ),
        AgentError::Unauthorized
        | AgentError::Unknown { .. }
        | AgentError::Refused { .. }
        | AgentError::Uncertain { .. }
        | AgentError::Protocol { .. } => NoBox::new(error.code(), error.to_string()),
    }
}

/// Ends a session's box, whatever it does. False: it is still there after a minute.
pub(crate) async fn stop(sandbox: &impl Sandbox, session: &SessionId, grace: Duration) -> bool {
    let Ok(name) = name_of(session) else { return true };
    let until = Instant::now() + Duration::from_mins(1);
    // It must not be left without an owner: what fails is tried again.
    while let Err(error) = sandbox.stop(&name, grace).await {
        if let SandboxError::Elsewhere(_) = error {
            // Nobody here can end it: it ends itself, once it has been without a daemon for its `orphan_grace`.
            tracing::warn!(%session, %error, "the box is left to itself");
            return true;
        }
        tracing::warn!(%session, %error, "the box did not stop");
        if Instant::now() > until {
            return false;
        }
        sleep(Duration::from_secs(1)).await;
    }
    true
}
