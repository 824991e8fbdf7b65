//! The port's side: looks at what the engine has, decides, and acts on containers of ours alone.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::models::{ContainerInspectResponse, ContainerStatsResponse};
use bollard::query_parameters::{CreateContainerOptions, ListContainersOptions, StatsOptions};
use futures_util::StreamExt as _;
use model::ports::sandbox::{
    Ability, BoxName, BoxSpec, BoxState, Cause, Hold, Holds, How, Level, Missing, Sandbox, SandboxError,
    Started, Strictness, Usage, User,
};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use tokio::time::{sleep, timeout};

use crate::body::{BOX, OWNER, Plan, Us, body, container_name, not_enforced, refusal};
use crate::engine::{CALL, Engine, Facts, Fault, Kind, Places, Trouble, WORK};
use crate::engines::Engines;
use crate::fetch::{Fetches, absent, volumes};
use crate::follow::{Follow, Followers, Sights, write};
use crate::image::{self, Build, Built, ImageError};
use crate::properties::{Properties, properties};
use crate::record::{Lock, Made, Record};
use crate::runtimes::Keeps;
use crate::shared::{Look, Shared};
use crate::states::{Life, Mine, at_once, mine};

/// How long a start may take, the fetching of an image aside.
const START: Duration = Duration::from_mins(1);
/// How long a container may take to end, once it was killed.
const END: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// Of a box that is about to end.
const GLANCE: Duration = Duration::from_millis(10);

/// For an engine to say which boxes it has, when a daemon starts. Nobody waits longer for it; see [`BoxState::Unknown`].
const FIND: Duration = Duration::from_secs(2);

/// Told of what is going on while an image is fetched for a box: a line every few seconds.
pub type Progress = Arc<dyn Fn(&BoxName, &str) + Send + Sync>;

#[derive(Clone)]
pub struct ContainerOptions {
    /// A directory of ours alone, absolute. Made if it is not there.
    pub root: PathBuf,
    /// Whose boxes these are: letters and digits.
    pub owner: String,
    pub places: Places,
    pub pull: Pull,
    pub progress: Progress,
}

impl fmt::Debug for ContainerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, owner, places, pull, progress: _ } = self;
        f.debug_struct("ContainerOptions")
            .field("root", root)
            .field("owner", owner)
            .field("places", places)
            .field("pull", pull)
            .finish_non_exhaustive()
    }
}

/// What becomes of an image that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    Missing,
    Never,
}

#[derive(Debug)]
pub struct Containers {
    shared: Arc<Shared>,
    followers: Followers,
}

impl Containers {
    pub fn new(options: ContainerOptions) -> Self {
        let (engines, fetches, sights) = (Engines::default(), Fetches::default(), Sights::default());
        let shared = Shared { options, engines, fetches, sights };
        Self { shared: Arc::new(shared), followers: Followers::default() }
    }

    /// Which engine this is, and what it says of itself.
    pub async fn facts(&self) -> Result<Facts, Trouble> {
        // Asked anew: whoever wants to know has perhaps just changed it.
        let socket = self.shared.options.places.socket()?;
        self.shared.engines.anew(&socket).await.map(|engine| engine.facts.clone())
    }

    /// Whether the engine can run containers with this, and what to do where it cannot.
    pub async fn missing_runtime(&self, runtime: &str) -> Result<Option<Missing>, Trouble> {
        let known = self.shared.at_hand().await?.facts.lacks(runtime);
        // It may have been told of it since.
        if known.is_none() { Ok(None) } else { self.facts().await.map(|facts| facts.lacks(runtime)) }
    }

    /// Whether the engine has this image, and what to do where it does not.
    pub async fn missing_image(&self, image: &str) -> Result<Option<Missing>, Trouble> {
        let engine = self.shared.at_hand().await?;
        match image::find(&engine, image).await {
            Ok(Some(_)) => Ok(None),
            Ok(None) => Ok(Some(absent(image))),
            Err(Fault::Trouble(trouble)) => Err(trouble),
            Err(Fault::NotFound(_) | Fault::Conflict(_) | Fault::Refused(_)) => Ok(Some(absent(image))),
        }
    }

    /// Makes an image of a base and files of the host. Lines of the engine as they come.
    pub async fn build(
        &self,
        build: Build,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Built, ImageError> {
        let engine = self.shared.at_hand().await?;
        image::build(&engine, build, tell).await
    }

    /// The twelve properties of a box's container, as the engine tells them. None if there is none of ours.
    pub async fn properties(&self, name: &BoxName) -> Result<Option<Properties>, SandboxError> {
        let doing = "read the properties of a box";
        let engine = self.shared.keeper(name).await.map_err(|trouble| Fault::from(trouble).doing(doing))?;
        let Look::Mine(mine) = self.shared.look(name).await.map_err(|fault| fault.doing(doing))? else {
            return Ok(None);
        };
        match engine.call(CALL, engine.docker.inspect_container(&mine.id, None)).await {
            Ok(found) => Ok(Some(properties(&found))),
            Err(Fault::NotFound(_)) => Ok(None),
            Err(fault) => Err(fault.doing(doing)),
        }
    }

    async fn look(&self, name: &BoxName) -> Result<Look, SandboxError> {
        self.shared.look(name).await.map_err(|fault| fault.doing("look at a box"))
    }

    /// Waits for `start.lock`. The box if it runs.
    async fn turn(&self, name: &BoxName) -> Result<Result<Lock, Box<Mine>>, SandboxError> {
        let record = self.shared.record(name);
        let until = Instant::now() + START;
        loop {
            let lock = record.try_lock().map_err(|error| system("take the box's lock", error))?;
            // Looked at with the lock, where there is one: from then on nobody else can begin.
            if let Look::Mine(mine) = self.look(name).await?
                && mine.life == Life::Running
            {
                return Ok(Err(mine));
            }
            match lock {
                Some(lock) => return Ok(Ok(lock)),
                None if Instant::now() > until => return Err(SandboxError::TooSlow(START)),
                None => sleep(LOOK).await,
            }
        }
    }

    /// With the lock: away with what was left, by us or by a starter who died.
    async fn clear(&self, name: &BoxName) -> Result<(), SandboxError> {
        let until = Instant::now() + START;
        loop {
            match self.look(name).await? {
                Look::Nothing => return Ok(()),
                Look::Stranger => {
                    let called = container_name(&self.shared.options.owner, name);
                    return Err(SandboxError::BadSpec(format!(
                        "there is a container named {called} that is not ours; rename or remove it"
                    )));
                }
                Look::Mine(mine) => {
                    self.shared
                        .remove(name, &mine)
                        .await
                        .map_err(|fault| fault.doing("remove an ended box"))?;
                }
            }
            if Instant::now() > until {
                return Err(SandboxError::TooSlow(START));
            }
            sleep(GLANCE).await;
        }
    }

    /// With the lock: a new container, compared and started.
    async fn make(&self, engine: &Engine, spec: &BoxSpec) -> Result<Mine, SandboxError> {
        let options = &self.shared.options;
        let image = spec.image.as_deref().unwrap_or_default();
        let volumes = volumes(&self.shared, engine, &spec.name, image).await?;
        let facts = &engine.facts;
        let us = Us::beside(facts);
        if us.user.uid == 0 && !facts.rootless {
            give(spec).map_err(|error| system("give the box its directories", error))?;
        }
        let plan = Plan { owner: &options.owner, facts, us, volumes: &volumes };
        let wanted = Properties::wanted(spec, &plan);
        let made = Made {
            socket: facts.socket.clone(),
            id: facts.id.clone(),
            called: format!("{:?} {}", facts.kind, facts.version),
        };
        let kept = self.shared.record(&spec.name).keep_made(&made);
        kept.map_err(|error| system("note which engine makes a box", error))?;
        let called = container_name(&options.owner, &spec.name);
        let create = CreateContainerOptions { name: Some(called), platform: String::new() };
        let created = engine.docker.create_container(Some(create), body(spec, image, &plan));
        let created = self.shared.fault(engine, engine.call(WORK, created).await).await.map_err(unmade)?;
        let inspected = engine.call(CALL, engine.docker.inspect_container(&created.id, None)).await;
        let inspected = inspected.map_err(|fault| fault.doing("look at a new box"))?;
        let Some(made) = mine(&options.owner, &spec.name, &inspected) else {
            return Err(SandboxError::NotStarted("the engine did not keep its labels".to_owned()));
        };
        let mut differences = properties(&inspected).differences(&wanted);
        differences.extend(other_runtime(spec, facts, &inspected));
        if !differences.is_empty() {
            self.shared
                .remove(&spec.name, &made)
                .await
                .map_err(|fault| fault.doing("remove a box that was not made as asked for"))?;
            let words = differences.join("; ");
            return Err(SandboxError::NotStarted(format!(
                "the engine did not make it as it was asked to: {words}"
            )));
        }
        let started = engine.call(WORK, engine.docker.start_container(&made.id, None)).await;
        if let Err(fault) = self.shared.fault(engine, started).await {
            return Err(match fault {
                // Nobody knows whether it did. The next start finds it, or clears it.
                Fault::Trouble(_) => fault.doing("start a box"),
                Fault::NotFound(words) | Fault::Conflict(words) | Fault::Refused(words) => {
                    self.shared
                        .remove(&spec.name, &made)
                        .await
                        .map_err(|fault| fault.doing("remove a box that did not start"))?;
                    SandboxError::NotStarted(words)
                }
            });
        }
        Ok(made)
    }

    async fn end(&self, name: &BoxName, grace: Option<Duration>) -> Result<BoxState, SandboxError> {
        let doing = "end a box";
        let mine = match self.begun(name).await? {
            Some(mine) if mine.life == Life::Running => mine,
            Some(_) | None => return self.state(name).await,
        };
        let record = self.shared.record(name);
        record.note(&mine.id, Cause::Asked).map_err(|error| system("note that a box was stopped", error))?;
        let mut gone = false;
        if let Some(grace) = grace {
            self.shared.signal(name, &mine, "SIGTERM").await.map_err(|fault| fault.doing(doing))?;
            gone = self.gone(name, &mine, grace).await?;
        }
        if !gone {
            self.shared.signal(name, &mine, "SIGKILL").await.map_err(|fault| fault.doing(doing))?;
            gone = self.gone(name, &mine, END).await?;
        }
        if !gone {
            return Err(SandboxError::TooSlow(END));
        }
        // Its follower may lag behind; from here on the log is whole.
        self.followers.leave(&mine.id).await;
        if let Ok(engine) = self.shared.keeper(name).await {
            let _late = timeout(CALL, write(&engine, &record.log(), &mine.id, Follow::No)).await;
        }
        self.state(name).await
    }

    /// The container, once nobody is about to start it any more.
    async fn begun(&self, name: &BoxName) -> Result<Option<Box<Mine>>, SandboxError> {
        let until = Instant::now() + START;
        loop {
            let starting = self.starting(name)?;
            let found = match self.look(name).await? {
                Look::Mine(mine) => Some(mine),
                Look::Stranger | Look::Nothing => None,
            };
            if !starting || found.as_ref().is_some_and(|mine| mine.life == Life::Running) {
                return Ok(found);
            }
            if Instant::now() > until {
                return Err(SandboxError::TooSlow(START));
            }
            sleep(LOOK).await;
        }
    }

    /// Whether the container has ended after at most so long. Engines say so when its last process is gone.
    async fn gone(&self, name: &BoxName, mine: &Mine, within: Duration) -> Result<bool, SandboxError> {
        let until = Instant::now() + within;
        loop {
            let now = self
                .shared
                .look_at(name, &mine.id)
                .await
                .map_err(|fault| fault.doing("wait for a box to end"))?;
            if now.is_none_or(|now| now.life != Life::Running) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            sleep(GLANCE).await;
        }
    }

    fn starting(&self, name: &BoxName) -> Result<bool, SandboxError> {
        self.shared.record(name).is_starting().map_err(|error| system("look for who starts a box", error))
    }

    /// Those that the engine at hand has, and those that were made elsewhere.
    async fn found(&self) -> Result<Vec<(BoxName, BoxState)>, SandboxError> {
        let doing = "list the boxes";
        let engine = self.shared.at_hand().await.map_err(|trouble| Fault::from(trouble).doing(doing))?;
        let label = format!("{OWNER}={}", self.shared.options.owner);
        let filters = Some([("label".to_owned(), vec![label])].into());
        let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        let listed = engine.call(CALL, engine.docker.list_containers(Some(options))).await;
        let listed = self.shared.fault(&engine, listed).await.map_err(|fault| fault.doing(doing))?;
        let labels = listed.iter().filter_map(|container| container.labels.as_ref()?.get(BOX));
        let mut names: Vec<BoxName> = labels.filter_map(|name| BoxName::new(name.as_str()).ok()).collect();
        names.extend(Record::all(&self.shared.options.root));
        names.sort();
        names.dedup();
        let mut found = Vec::new();
        for name in names {
            // By name: one that only has our labels is not there.
            let state = match self.look(&name).await {
                Ok(look) => self.state_of(&name, look).await?,
                Err(error @ SandboxError::Elsewhere(_)) => {
                    tracing::warn!(%name, "a box cannot be found: {error}");
                    continue;
                }
                Err(SandboxError::Away { .. }) => BoxState::Unknown,
                Err(error) => return Err(error),
            };
            if state != BoxState::Absent {
                found.push((name, state));
            }
        }
        Ok(found)
    }

    async fn state_of(&self, name: &BoxName, look: Look) -> Result<BoxState, SandboxError> {
        let starting = self.starting(name)?;
        let mine = match look {
            Look::Mine(mine) if mine.life != Life::Going => mine,
            Look::Mine(_) | Look::Stranger | Look::Nothing => {
                return Ok(if starting { BoxState::Starting } else { BoxState::Absent });
            }
        };
        match mine.life {
            Life::Running => {
                self.followers.follow(&self.shared, name, &mine);
                Ok(BoxState::Running(self.shared.info(name, &mine)))
            }
            Life::Made | Life::Ended | Life::Going if starting => Ok(BoxState::Starting),
            Life::Made | Life::Ended | Life::Going => {
                let ending = self.shared.ending(name, &mine).await;
                ending.map(BoxState::Ended).map_err(|fault| fault.doing("look at how a box ended"))
            }
        }
    }
}

impl Keeps for Containers {
    fn keeps(&self, name: &BoxName) -> bool {
        self.shared.record(name).exists()
    }

    fn keeps_any(&self) -> bool {
        !Record::all(&self.shared.options.root).is_empty()
    }
}

/// Where both are root, the box is somebody else. The directories themselves, not what lies in them.
fn give(spec: &BoxSpec) -> io::Result<()> {
    let User { uid, gid } = spec.user;
    for directory in [&spec.workspace, &spec.meta] {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let given = rustix::fs::open(directory, flags, Mode::empty()).and_then(|opened| {
            rustix::fs::fchown(&opened, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        });
        given.map_err(|error| {
            io::Error::other(format!("{}: {}", directory.display(), io::Error::from(error)))
        })?;
    }
    Ok(())
}

impl Sandbox for Containers {
    async fn probe(&self) -> Result<Ability, SandboxError> {
        let (holds, missing) = match self.facts().await {
            Ok(facts) => (facts.holds, facts.missing()),
            Err(trouble) => (NOTHING, vec![trouble.missing()]),
        };
        Ok(Ability { level: Level::Container, holds, missing })
    }

    async fn start(&self, spec: BoxSpec) -> Result<Started, SandboxError> {
        if let Some(reason) = refusal(&spec) {
            return Err(SandboxError::BadSpec(reason));
        }
        let engine = match self.shared.at_hand().await {
            Ok(engine) => engine,
            Err(trouble) if trouble.lasts() => return Err(SandboxError::Unable(vec![trouble.missing()])),
            Err(trouble) => return Err(Fault::from(trouble).doing("reach the container engine")),
        };
        let name = spec.name.clone();
        let found = |mine: &Mine| Started { info: self.shared.info(&name, mine), how: How::Found };
        let _lock = match self.turn(&name).await? {
            Ok(lock) => lock,
            Err(mine) => {
                self.followers.follow(&self.shared, &name, &mine);
                return Ok(found(&mine));
            }
        };
        if let Some(runtime) = &spec.oci_runtime
            && let Some(missing) = self
                .missing_runtime(runtime)
                .await
                .map_err(|trouble| Fault::from(trouble).doing("ask for a runtime"))?
        {
            return Err(SandboxError::Unable(vec![missing]));
        }
        let lax = not_enforced(&spec.limits, engine.facts.holds);
        if spec.strictness == Strictness::Strict && !lax.is_empty() {
            return Err(SandboxError::NotEnforced(lax));
        }
        self.clear(&name).await?;
        let made = self.make(&engine, &spec).await?;
        match self.shared.look_at(&name, &made.id).await.map_err(|fault| fault.doing("look at a new box"))? {
            Some(mine) if mine.life == Life::Running => {
                self.followers.follow(&self.shared, &name, &mine);
                Ok(Started { how: How::Made, ..found(&mine) })
            }
            Some(mine) => {
                write(&engine, &self.shared.record(&name).log(), &mine.id, Follow::No).await;
                let ending = self
                    .shared
                    .ending(&name, &mine)
                    .await
                    .map_err(|fault| fault.doing("look at how a box ended"))?;
                Err(SandboxError::NotStarted(at_once(&ending)))
            }
            None => Err(SandboxError::NotStarted("somebody removed its container".to_owned())),
        }
    }

    async fn find_all(&self) -> Result<Vec<(BoxName, BoxState)>, SandboxError> {
        let why = match timeout(FIND, self.found()).await {
            Ok(Err(error @ SandboxError::Away { .. })) => told(&error),
            Ok(done) => return done,
            Err(_) => format!("it did not answer within {} s", FIND.as_secs()),
        };
        let all = Record::all(&self.shared.options.root);
        tracing::warn!(boxes = all.len(), "the container engine does not say which boxes it has: {why}");
        Ok(all.into_iter().map(|name| (name, BoxState::Unknown)).collect())
    }

    async fn state(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        let look = self.look(name).await?;
        self.state_of(name, look).await
    }

    async fn stop(&self, name: &BoxName, grace: Duration) -> Result<BoxState, SandboxError> {
        self.end(name, Some(grace)).await
    }

    async fn kill(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        self.end(name, None).await
    }

    async fn usage(&self, name: &BoxName) -> Result<Option<Usage>, SandboxError> {
        let Look::Mine(mine) = self.look(name).await? else { return Ok(None) };
        if mine.life != Life::Running {
            return Ok(None);
        }
        let doing = "ask what a box uses";
        let engine = self.shared.keeper(name).await.map_err(|trouble| Fault::from(trouble).doing(doing))?;
        let options = StatsOptions { stream: false, one_shot: true };
        let first = async { engine.docker.stats(&mine.id, Some(options)).next().await.transpose() };
        let stats = match self.shared.fault(&engine, engine.call(CALL, first).await).await {
            Ok(stats) => stats,
            // It has ended meanwhile.
            Err(Fault::NotFound(_) | Fault::Conflict(_)) => None,
            Err(fault) => return Err(fault.doing(doing)),
        };
        Ok(stats.map(|stats| Usage { disk: self.shared.sights.of(&mine).disk, ..usage(&stats) }))
    }

    async fn forget(&self, name: &BoxName) -> Result<(), SandboxError> {
        let record = self.shared.record(name);
        let Ok(_lock) = self.turn(name).await? else { return Err(SandboxError::Runs) };
        if let Look::Mine(mine) = self.look(name).await? {
            self.shared.remove(name, &mine).await.map_err(|fault| fault.doing("remove an ended box"))?;
        }
        record.remove().map_err(|error| system("forget the box", error))
    }
}

const NOTHING: Holds = Holds {
    memory: Hold::Absent,
    pids: Hold::Absent,
    cpus: Hold::Absent,
    disk: Hold::Watched,
    syscalls: Hold::Absent,
};

/// An engine may take the name of a runtime and do as it always does.
fn other_runtime(spec: &BoxSpec, facts: &Facts, inspect: &ContainerInspectResponse) -> Option<String> {
    let wanted = spec.oci_runtime.as_deref().filter(|_| facts.kind == Kind::Docker)?;
    let found = inspect.host_config.as_ref().and_then(|host| host.runtime.as_deref()).unwrap_or_default();
    (found != wanted).then(|| format!("runtime is {found:?}, not {wanted:?}"))
}

fn told(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn unmade(fault: Fault) -> SandboxError {
    match fault {
        Fault::Trouble(_) => fault.doing("make a box"),
        Fault::NotFound(words) | Fault::Conflict(words) | Fault::Refused(words) => {
            SandboxError::NotStarted(words)
        }
    }
}

fn usage(stats: &ContainerStatsResponse) -> Usage {
    let memory = stats.memory_stats.as_ref();
    let inactive = memory.and_then(|memory| {
        let stats = memory.stats.as_ref()?;
        stats.get("total_inactive_file").or_else(|| stats.get("inactive_file")).copied()
    });
    let cpu = stats.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref()?.total_usage);
    Usage {
        // What the kernel gives up at once is not in use.
        memory: memory.and_then(|memory| memory.usage).unwrap_or(0).saturating_sub(inactive.unwrap_or(0)),
        pids: stats.pids_stats.as_ref().and_then(|pids| pids.current).unwrap_or(0),
        cpu: Duration::from_nanos(cpu.unwrap_or(0)),
        disk: None,
    }
}

fn system(doing: &str, error: io::Error) -> SandboxError {
    SandboxError::System { doing: doing.to_owned(), source: Box::new(error) }
}
