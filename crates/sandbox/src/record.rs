//! What is known of one box, on disk. The crate's documentation says which file is whose.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::ports::sandbox::{BoxInfo, BoxName, BoxSpec, Cause, Ending, Exit, Hits, Holds, Level};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Plan as GroupPlan;
use crate::lock::{Lock, is_held};
use crate::process::Process;

/// How a keeper is started: this program, these arguments, then ours. The program hands them to `keeper::main`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperCommand {
    pub program: PathBuf,
    pub args: Vec<String>,
}

/// The intent: everything a keeper needs, decided by whoever starts the box.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) owner: String,
    pub(crate) keeper: KeeperCommand,
    pub(crate) spec: BoxSpec,
    pub(crate) plan: Plan,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) level: Level,
    pub(crate) holds: Holds,
    /// None at level `Nothing`.
    pub(crate) bwrap: Option<Bwrap>,
    pub(crate) groups: Option<GroupPlan>,
    /// The kernel counts the processes of a user namespace by themselves, so a resource limit can hold them.
    pub(crate) nproc: bool,
    /// Whether the stage is root, makes the mounts readable and then becomes the spec's user.
    pub(crate) root: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bwrap {
    pub(crate) program: PathBuf,
    /// Whether it can keep the box from making user namespaces.
    pub(crate) disables_userns: bool,
}

/// What the keeper says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Status {
    Running(Running),
    Ended(Ending),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// The first process of the box, as seen from outside.
    pub(crate) init: Process,
    pub(crate) info: BoxInfo,
    /// Bytes, as of the last look.
    pub(crate) disk: Option<u64>,
}

/// One look at a box.
#[derive(Debug)]
pub(crate) enum Look {
    Absent,
    Starting,
    Running(Box<Running>),
    Ended(Ending),
}

#[derive(Debug, Clone)]
pub(crate) struct Record {
    directory: PathBuf,
}

impl Record {
    pub(crate) fn new(root: &Path, name: &BoxName) -> Self {
        Self { directory: root.join(name.as_str()) }
    }

    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("box.log")
    }

    /// The lock that the owner of all boxes holds.
    pub(crate) fn owner_lock(&self) -> PathBuf {
        self.directory.parent().unwrap_or(&self.directory).join("owner.lock")
    }

    pub(crate) fn keeper_lock(&self) -> PathBuf {
        self.directory.join("keeper.lock")
    }

    fn start_lock(&self) -> PathBuf {
        self.directory.join("start.lock")
    }

    /// Makes the directory if need be. None if somebody else starts the box at this moment.
    pub(crate) fn try_start_lock(&self) -> io::Result<Option<Lock>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.start_lock();
        let lock = match Lock::try_take(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // Somebody may have removed the directory since: then this is a lock on a file that nobody else will find.
        let Some(lock) = lock else { return Ok(None) };
        let ours = lock.file().metadata()?;
        let found =
            fs::metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == (ours.dev(), ours.ino()));
        Ok(found.then_some(lock))
    }

    pub(crate) fn job(&self) -> io::Result<Option<Job>> {
        read(&self.directory.join("job.json"))
    }

    pub(crate) fn write_job(&self, job: &Job) -> io::Result<()> {
        match fs::remove_file(self.directory.join("status.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        write(&self.directory.join("job.json"), job)
    }

    pub(crate) fn write_status(&self, status: &Status) -> io::Result<()> {
        write(&self.directory.join("status.json"), status)
    }

    pub(crate) fn has_keeper(&self) -> io::Result<bool> {
        is_held(&self.keeper_lock())
    }

    /// The keeper writes itself into its lock as soon as it has it.
    pub(crate) fn keeper(&self) -> Option<Process> {
        let mut text = String::new();
        File::open(self.keeper_lock()).ok()?.take(1024).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn look(&self) -> io::Result<Look> {
        // Asked first: a keeper that has gone by now has written all it will.
        let starting = is_held(&self.start_lock())?;
        let kept = self.has_keeper()?;
        let status = read(&self.directory.join("status.json"))?;
        Ok(match (kept, status) {
            (_, Some(Status::Ended(ending))) => Look::Ended(ending),
            (true, Some(Status::Running(running))) => Look::Running(Box::new(running)),
            (true, None) => Look::Starting,
            (false, Some(Status::Running(running))) => Look::Ended(lost(running.info.hits)),
            (false, None) if starting => Look::Starting,
            (false, None) if self.job()?.is_some() => Look::Ended(lost(Hits::default())),
            (false, None) => Look::Absent,
        })
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn lost(hits: Hits) -> Ending {
    Ending { cause: Cause::Lost, exit: Exit::Unknown, hits, message: None }
}

/// None if it is not there, or was cut off when the machine went down: nothing runs then.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whoever reads sees the old text or the new one. Not synced: what it tells of ends with the machine.
fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    fs::rename(&fresh, path)
}
