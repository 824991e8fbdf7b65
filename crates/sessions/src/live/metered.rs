//! What a run has asked its provider for, written down as it goes: a daemon that is killed does not begin to count anew.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use model::session::RunUsage;

/// What a run has asked its provider for, as far as it passed by here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Metered {
    pub requests: u64,
    /// Of those that the provider told the tokens of.
    pub usage: RunUsage,
    /// All tokens, the others' estimated.
    pub tokens: u64,
}

/// The file of one run. Whoever writes has asked for the latest count under the lock, so that no older one stays.
#[derive(Debug, Clone)]
pub(super) struct Tally(Arc<Mutex<PathBuf>>);

impl Tally {
    /// Where its directory is not there, nothing is kept.
    pub(super) fn open(file: PathBuf) -> (Self, Metered) {
        let before = match read(&file) {
            Ok(before) => before,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "what a run has used so far cannot be read");
                Metered::default()
            }
        };
        (Self(Arc::new(Mutex::new(file))), before)
    }

    /// To the cache of the system, not to the disk: it is for daemons that are killed, not for machines. A hundred
    /// bytes beside a request that takes seconds.
    pub(super) fn write(&self, latest: impl FnOnce() -> Option<Metered>) {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(metered) = latest() else { return };
        if let Err(error) = replace(&file, &metered) {
            tracing::debug!(file = %file.display(), %error, "what a run has used so far is not written down");
        }
    }
}

fn read(file: &Path) -> io::Result<Metered> {
    match fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Metered::default()),
        bytes => Ok(serde_json::from_slice(&bytes?)?),
    }
}

fn replace(file: &Path, metered: &Metered) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(metered)?)?;
    fs::rename(&new, file)
}
