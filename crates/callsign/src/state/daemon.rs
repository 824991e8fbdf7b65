//! `daemon.json`: which daemon runs on a state directory.
//!
//! The lock says whether one runs; the file says which. A daemon that was killed leaves the file and not the lock.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{StateDir, StateError};

const INFO: &str = "daemon.json";
const LOCK: &str = "daemon.lock";

/// How often the lock is tried. A command that asks whether a daemon runs holds it for a moment, too.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// What `daemon.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub pid: u32,
    /// None: it listens on its socket only.
    pub url: Option<String>,
    pub socket: Option<PathBuf>,
    pub version: String,
    pub token_file: PathBuf,
}

/// Held by the daemon while it runs. Dropped, it takes `daemon.json` away.
#[derive(Debug)]
pub struct DaemonLock {
    state: StateDir,
    /// Locked for as long as it is open; the kernel unlocks it whatever way we end.
    _file: File,
}

impl StateDir {
    /// Waits at most 200 ms. `AlreadyRuns` names the daemon that has the lock.
    pub fn lock_daemon(&self) -> Result<DaemonLock, StateError> {
        let mut file = self.lock_file(LOCK)?;
        let failed = |source| StateError::Lock { path: self.file(LOCK), source };
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < TRIES => std::thread::sleep(BETWEEN_TRIES),
                Err(TryLockError::WouldBlock) => return Err(self.already_runs()),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        // The pid stands here from the first moment; `daemon.json` comes when the daemon listens.
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
        self.remove(INFO)?;
        Ok(DaemonLock { state: self.clone(), _file: file })
    }

    /// None: no daemon runs, or it does not listen yet.
    pub fn running_daemon(&self) -> Result<Option<DaemonInfo>, StateError> {
        let file = self.lock_file(LOCK)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => self.daemon_info(),
            Err(TryLockError::Error(source)) => Err(StateError::Lock { path: self.file(LOCK), source }),
        }
    }

    /// Whether a daemon runs, also one that does not listen yet or not any more.
    pub fn is_daemon_locked(&self) -> Result<bool, StateError> {
        let file = self.lock_file(LOCK)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(StateError::Lock { path: self.file(LOCK), source }),
        }
    }

    fn daemon_info(&self) -> Result<Option<DaemonInfo>, StateError> {
        let Some(text) = self.read(INFO)? else {
            return Ok(None);
        };
        let garbled = |source| StateError::Garbled { path: self.file(INFO), source };
        serde_json::from_str(&text).map(Some).map_err(garbled)
    }

    fn already_runs(&self) -> StateError {
        let info = self.daemon_info().ok().flatten();
        let pid_of_lock = || self.read(LOCK).ok()??.trim().parse().ok();
        let pid = info.as_ref().map(|info| info.pid).or_else(pid_of_lock);
        StateError::AlreadyRuns { path: self.path().to_owned(), pid, url: info.and_then(|info| info.url) }
    }
}

impl DaemonLock {
    pub fn publish(&self, info: &DaemonInfo) -> Result<(), StateError> {
        let garbled = |source| StateError::Garbled { path: self.state.file(INFO), source };
        let mut text = serde_json::to_vec_pretty(info).map_err(garbled)?;
        text.push(b'\n');
        self.state.write(INFO, &text)
    }
}

impl Drop for DaemonLock {
    fn drop(&mut self) {
        // Nobody is misled if it stays: without the lock it counts for nothing.
        drop(self.state.remove(INFO));
    }
}

pub(super) fn describe(pid: Option<&u32>, url: Option<&str>) -> String {
    match (pid, url) {
        (Some(pid), Some(url)) => format!(": pid {pid}, {url}"),
        (Some(pid), None) => format!(": pid {pid}"),
        (None, _) => String::new(),
    }
}
