//! The lock file: writers wait for each other here, since the waiting that `SQLite` does is guessing.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::file::{Inode, LedgerError};

pub(crate) struct Lock {
    file: Arc<File>,
    inode: Option<Inode>,
}

impl Lock {
    pub(crate) fn open(path: &Path) -> Result<Self, LedgerError> {
        let file = File::options().create(true).append(true).mode(0o600).open(path);
        let file = file.map_err(|error| LedgerError::from_io("locked", path, &error))?;
        let inode = file.metadata().ok().map(|metadata| Inode::from(&metadata));
        Ok(Self { file: Arc::new(file), inode })
    }

    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.inode == Inode::of(path)
    }

    /// None: somebody else has it.
    pub(crate) fn try_hold(&self) -> Result<Option<Held>, LedgerError> {
        match self.file.try_lock() {
            Ok(()) => Ok(Some(Held(Arc::clone(&self.file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }

    /// Waits as long as it takes.
    pub(crate) fn hold(&self) -> Result<Held, LedgerError> {
        self.file.lock().map_err(|error| failed(&error))?;
        Ok(Held(Arc::clone(&self.file)))
    }
}

fn failed(error: &std::io::Error) -> LedgerError {
    LedgerError::Failed { what: "locked", reason: error.to_string() }
}

/// The lock file, held. It is free again when this is gone, or the process is.
pub(crate) struct Held(Arc<File>);

impl Drop for Held {
    fn drop(&mut self) {
        // Where this fails the file is closed, and the lock with it.
        let _gone = self.0.unlock();
    }
}
