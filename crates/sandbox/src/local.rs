//! Boxes on this machine without any engine: the port's side, which talks to keepers by files, locks and signals.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use model::ports::sandbox::{
    Ability, BoxName, BoxSpec, BoxState, Cause, Ending, Exit, Gravity, Hold, How, Level, Sandbox,
    SandboxError, Started, Strictness, Usage,
};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::time::sleep;

use crate::bwrap::refusal;
use crate::lock::Lock;
use crate::process::{sum, tree};
use crate::record::{Job, KeeperCommand, Look, Plan, Record, Running};

mod probe;

use probe::{Probed, probe};

/// How long a start may take. The keeper gives up before.
const START: Duration = Duration::from_mins(1);
/// How long a keeper has to end what it keeps, once it was told to kill.
const END: Duration = Duration::from_secs(10);
/// How long to try for the owner's lock: a daemon that was killed may take a moment to go.
const OWN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(3);

#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// A directory of ours alone, absolute. Made if it is not there.
    pub root: PathBuf,
    /// Whose boxes these are: letters and digits.
    pub owner: String,
    pub keeper: KeeperCommand,
    /// Directories in which bubblewrap is sought.
    pub path: Vec<PathBuf>,
    /// [`Level::Bubblewrap`], or [`Level::Nothing`] where that was written out.
    pub level: Level,
    pub groups: Groups,
}

/// Whether control groups are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// Where the daemon may make some.
    Found,
    Never,
}

/// As long as this lives, boxes beneath its root have an owner.
#[derive(Debug)]
pub struct Ownership {
    _lock: Lock,
}

#[derive(Debug)]
pub struct LocalSandbox {
    options: LocalOptions,
}

impl LocalSandbox {
    pub fn new(options: LocalOptions) -> Self {
        Self { options }
    }

    /// None if another process owns the boxes. To look at them one need not own them.
    pub async fn own(&self) -> Result<Option<Ownership>, SandboxError> {
        fs::create_dir_all(&self.options.root).map_err(|error| system("make the boxes' directory", error))?;
        let until = Instant::now() + OWN;
        loop {
            let lock = Lock::try_take(&self.options.root.join("owner.lock"));
            match lock.map_err(|error| system("own the boxes", error))? {
                Some(lock) => return Ok(Some(Ownership { _lock: lock })),
                None if Instant::now() > until => return Ok(None),
                None => sleep(LOOK * 10).await,
            }
        }
    }

    fn record(&self, name: &BoxName) -> Record {
        Record::new(&self.options.root, name)
    }

    async fn probed(&self) -> Result<Probed, SandboxError> {
        probe(&self.options).await.map_err(|error| system("find out what boxes are held by here", error))
    }

    /// What to start, if it may be started.
    async fn job(&self, spec: BoxSpec) -> Result<Job, SandboxError> {
        if let Some(reason) = refusal(&spec) {
            return Err(SandboxError::BadSpec(reason));
        }
        let Probed { ability, plan } = self.probed().await?;
        if !ability.can_start() {
            let missing = ability.missing.into_iter().filter(|missing| missing.gravity == Gravity::Refuses);
            return Err(SandboxError::Unable(missing.collect()));
        }
        let lax = not_enforced(&spec, &plan);
        if spec.strictness == Strictness::Strict && !lax.is_empty() {
            return Err(SandboxError::NotEnforced(lax));
        }
        let groups = plan.groups.map(|groups| groups.of_box(&self.options.owner, &spec.name));
        let plan = Plan { groups, ..plan };
        Ok(Job { owner: self.options.owner.clone(), keeper: self.options.keeper.clone(), spec, plan })
    }

    /// Waits for `start.lock`, and for a keeper that is about to go. None if the box runs.
    async fn turn(&self, record: &Record) -> Result<Result<Lock, Running>, SandboxError> {
        let until = Instant::now() + START;
        let mut lock = None;
        while Instant::now() < until {
            if let Look::Running(running) = look(record)? {
                return Ok(Err(*running));
            }
            if lock.is_none() {
                lock = record.try_start_lock().map_err(|error| system("take the box's lock", error))?;
            }
            // Looked at again with the lock: from here on nobody else can begin.
            if lock.is_some() && !kept(record)? {
                break;
            }
            sleep(LOOK).await;
        }
        lock.map(Ok).ok_or(SandboxError::TooSlow(START))
    }

    /// Waits until a keeper says that the box runs, or how it ended.
    async fn running(&self, record: &Record) -> Result<Running, SandboxError> {
        let until = Instant::now() + START;
        while Instant::now() < until {
            match look(record)? {
                Look::Running(running) => return Ok(*running),
                Look::Ended(Ending { cause: Cause::NotStarted, message, .. }) => {
                    return Err(SandboxError::NotStarted(message.unwrap_or_default()));
                }
                Look::Ended(Ending { cause: Cause::Lost, .. }) | Look::Absent => {
                    return Err(SandboxError::NotStarted("its keeper ended without a word".to_owned()));
                }
                Look::Ended(ending) => return Err(SandboxError::NotStarted(at_once(&ending))),
                Look::Starting => sleep(LOOK).await,
            }
        }
        Err(SandboxError::TooSlow(START))
    }

    /// Tells the keeper, and waits until it is gone. False if it is still there at the end.
    async fn told(&self, record: &Record, signal: Signal, patience: Duration) -> Result<bool, SandboxError> {
        let until = Instant::now() + patience;
        let mut told = false;
        loop {
            if !kept(record)? && !matches!(look(record)?, Look::Starting) {
                return Ok(true);
            }
            // A keeper that has just begun has not yet written who it is.
            if !told && let Some(keeper) = record.keeper().and_then(crate::process::Process::open) {
                keeper.signal(signal);
                told = true;
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            sleep(LOOK).await;
        }
    }

    async fn end(&self, name: &BoxName, grace: Option<Duration>) -> Result<BoxState, SandboxError> {
        let record = self.record(name);
        let mut gone = false;
        if let Some(grace) = grace {
            gone = self.told(&record, Signal::TERM, grace).await?;
        }
        gone = gone || self.told(&record, Signal::USR1, END).await?;
        // The kernel ends the box with its keeper.
        gone = gone || self.told(&record, Signal::KILL, END).await?;
        if !gone {
            return Err(SandboxError::TooSlow(END));
        }
        self.state(name).await
    }
}

impl Sandbox for LocalSandbox {
    async fn probe(&self) -> Result<Ability, SandboxError> {
        self.probed().await.map(|probed| probed.ability)
    }

    async fn start(&self, spec: BoxSpec) -> Result<Started, SandboxError> {
        let record = self.record(&spec.name);
        let lock = match self.turn(&record).await? {
            Ok(lock) => lock,
            Err(running) => return Ok(Started { info: running.info, how: How::Found }),
        };
        let job = self.job(spec).await?;
        record.write_job(&job).map_err(|error| system("write down what to start", error))?;
        // The lock passes on as standard input: whoever comes next waits until there is a keeper, or none.
        let mut launch = Command::new(&job.keeper.program);
        launch.args(&job.keeper.args).arg("launch").arg(record.directory()).env_clear();
        launch.stdin(lock.into_file()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut launcher = launch.spawn().map_err(|error| system("start the box's keeper", error))?;
        drop(launch);
        launcher.wait().await.map_err(|error| system("start the box's keeper", error))?;
        let running = self.running(&record).await?;
        Ok(Started { info: running.info, how: How::Made })
    }

    async fn find_all(&self) -> Result<Vec<(BoxName, BoxState)>, SandboxError> {
        let entries = match fs::read_dir(&self.options.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| system("list the boxes", error))?,
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Some(name) = entry.file_name().to_str().and_then(|name| BoxName::new(name).ok()) else {
                continue;
            };
            let job = self.record(&name).job().map_err(|error| system("read what was started", error))?;
            if job.is_some_and(|job| job.owner == self.options.owner) {
                let state = self.state(&name).await?;
                found.push((name, state));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    async fn state(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        Ok(match look(&self.record(name))? {
            Look::Absent => BoxState::Absent,
            Look::Starting => BoxState::Starting,
            Look::Running(running) => BoxState::Running(running.info),
            Look::Ended(ending) => BoxState::Ended(ending),
        })
    }

    async fn stop(&self, name: &BoxName, grace: Duration) -> Result<BoxState, SandboxError> {
        self.end(name, Some(grace)).await
    }

    async fn kill(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        self.end(name, None).await
    }

    async fn usage(&self, name: &BoxName) -> Result<Option<Usage>, SandboxError> {
        let record = self.record(name);
        let Look::Running(running) = look(&record)? else { return Ok(None) };
        let job = record.job().map_err(|error| system("read what was started", error))?;
        let groups = job.and_then(|job| job.plan.groups);
        let all = sum(&tree(running.init.pid));
        Ok(Some(Usage {
            memory: groups.as_ref().and_then(crate::cgroup::Plan::memory_in_use).unwrap_or(all.memory),
            pids: groups.as_ref().and_then(crate::cgroup::Plan::pids_in_use).unwrap_or(all.threads),
            cpu: groups.as_ref().and_then(crate::cgroup::Plan::cpu_used).unwrap_or(all.cpu),
            disk: running.disk,
        }))
    }

    async fn forget(&self, name: &BoxName) -> Result<(), SandboxError> {
        let record = self.record(name);
        if matches!(look(&record)?, Look::Absent) {
            return record.remove().map_err(|error| system("forget the box", error));
        }
        let Ok(_lock) = self.turn(&record).await? else { return Err(SandboxError::Runs) };
        // A keeper that was killed left its groups.
        let job = record.job().map_err(|error| system("read what was started", error))?;
        if let Some(groups) = job.and_then(|job| job.plan.groups) {
            groups.remove();
        }
        record.remove().map_err(|error| system("forget the box", error))
    }
}

/// How a command ended that should have gone on.
fn at_once(ending: &Ending) -> String {
    let exit = match ending.exit {
        Exit::Code(code) => format!(" with exit code {code}"),
        Exit::Signal(signal) => format!(" by signal {signal}"),
        Exit::Unknown => String::new(),
    };
    let said = ending.message.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    format!("its command ended at once{exit}{said}")
}

/// Which limits that are asked for are not enforced.
fn not_enforced(spec: &BoxSpec, plan: &Plan) -> Vec<&'static str> {
    let (limits, holds) = (&spec.limits, &plan.holds);
    let asked = [
        ("memory", limits.memory.is_some(), holds.memory),
        ("pids", limits.pids.is_some(), holds.pids),
        ("cpus", limits.cpus.is_some(), holds.cpus),
        ("disk", limits.disk.is_some(), holds.disk),
    ];
    asked
        .into_iter()
        .filter(|(_, asked, hold)| *asked && *hold != Hold::Enforced)
        .map(|(name, ..)| name)
        .collect()
}

fn look(record: &Record) -> Result<Look, SandboxError> {
    record.look().map_err(|error| system("look at the box", error))
}

fn kept(record: &Record) -> Result<bool, SandboxError> {
    record.has_keeper().map_err(|error| system("look for the box's keeper", error))
}

fn system(doing: &str, error: io::Error) -> SandboxError {
    SandboxError::System { doing: doing.to_owned(), source: Box::new(error) }
}
