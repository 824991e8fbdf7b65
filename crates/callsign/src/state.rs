//! The state directory: ours alone, one daemon at a time.
//!
//! **Invariant:** every file in it is readable by its owner only, and is either the old one or the new one,
//! never half of one.

mod daemon;

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::{self, Environment};

pub use daemon::{DaemonInfo, DaemonLock};

/// Cheap to clone; holds nothing open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("there is no place for the state directory: neither HOME nor XDG_STATE_HOME is set")]
    Nowhere,
    #[error("could not create the state directory {path}")]
    Create { path: PathBuf, source: io::Error },
    #[error("the state directory {path} belongs to another user")]
    NotOurs { path: PathBuf },
    #[error("other users may write to the state directory {path}")]
    TooOpen { path: PathBuf },
    #[error("could not read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("could not make sense of {path}")]
    Garbled { path: PathBuf, source: serde_json::Error },
    #[error("could not write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("could not lock {path}")]
    Lock { path: PathBuf, source: io::Error },
    #[error("a daemon already runs on the state directory {path}{}", daemon::describe(.pid.as_ref(), .url.as_deref()))]
    AlreadyRuns { path: PathBuf, pid: Option<u32>, url: Option<String> },
}

impl StateDir {
    /// Where it is: `--state-dir`, `CALLSIGN_STATE_DIR`, the user's state directory. `current_dir` is what a
    /// relative one is relative to.
    pub fn locate(
        flag: Option<&Path>,
        environment: Environment<'_>,
        current_dir: &Path,
    ) -> Result<PathBuf, StateError> {
        let chosen = chosen(flag, environment).or_else(|| environment.state_home());
        Ok(current_dir.join(chosen.ok_or(StateError::Nowhere)?))
    }

    /// The same for the commands that are about sessions: they also go by `MCP_STATE_DIR`, where nobody has said it in
    /// a word of ours.
    pub fn locate_for_sessions(
        flag: Option<&Path>,
        environment: Environment<'_>,
        current_dir: &Path,
    ) -> Result<PathBuf, StateError> {
        let theirs = || config::sessions::state_dir(environment);
        let chosen = chosen(flag, environment).or_else(theirs).or_else(|| environment.state_home());
        Ok(current_dir.join(chosen.ok_or(StateError::Nowhere)?))
    }

    /// Makes it where it is not there. One that is there is not changed: it may be somebody's home.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StateError> {
        let path = path.into();
        let create = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        let metadata = create.and_then(|()| fs::metadata(&path));
        let metadata = metadata.map_err(|source| StateError::Create { path: path.clone(), source })?;
        if metadata.uid() != nix::unistd::geteuid().as_raw() {
            return Err(StateError::NotOurs { path });
        }
        // Who may write here could put another token in the place of ours.
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err(StateError::TooOpen { path });
        }
        Ok(Self { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// None: there is no such file.
    pub fn read(&self, name: &str) -> Result<Option<String>, StateError> {
        let path = self.file(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Read { path, source }),
        }
    }

    /// Replaces a file as a whole, mode 0600. It is on disk when this returns.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.file(name);
        self.replace(&path, bytes).map_err(|source| StateError::Write { path, source })
    }

    /// Idempotent.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(StateError::Write { path, source }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// An open file to lock, made where it is not there. It is never removed: a lock on a removed file
    /// keeps nobody out.
    pub(crate) fn lock_file(&self, name: &str) -> Result<File, StateError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.file(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(|source| StateError::Lock { path, source })
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // In the same directory, since a rename does not cross file systems. Its mode is 0600 from the start.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.path)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        // The rename itself is on disk only when the directory is.
        File::open(&self.path)?.sync_all()
    }
}

fn chosen(flag: Option<&Path>, environment: Environment<'_>) -> Option<PathBuf> {
    flag.map(Path::to_owned).or_else(|| environment.path("CALLSIGN_STATE_DIR"))
}

#[cfg(test)]
mod tests;
