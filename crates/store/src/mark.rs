//! How many transactions there were, remembered outside of the database.
//!
//! A database whose log was removed, or an older copy of it, is sound by itself: nothing in it says that runs are missing
//! which somebody was told of. The mark does. It is written after each commit and not synced: after a kill it is exact,
//! after a loss of power it may be behind, and it is never ahead.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

const DIGITS: usize = 20;

#[derive(Debug)]
pub(crate) struct Mark(File);

/// What is remembered. None: nothing, or nothing that could be read as a number.
pub(crate) fn read(path: &Path) -> std::io::Result<Option<u64>> {
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(64).read_to_string(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(text.trim().parse().ok())
}

impl Mark {
    /// Its place on the disk is taken now, so that a full one does not matter later.
    pub(crate) fn make(path: &Path, count: u64) -> std::io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let mark = Self(file);
        mark.write(count)?;
        mark.0.sync_all()?;
        Ok(mark)
    }

    /// To be called in the order of the commits.
    pub(crate) fn set(&self, count: u64) {
        if let Err(error) = self.write(count) {
            tracing::warn!(%error, "the mark beside the sessions' database could not be written; it is behind now");
        }
    }

    fn write(&self, count: u64) -> std::io::Result<()> {
        self.0.write_all_at(format!("{count:0DIGITS$}\n").as_bytes(), 0)
    }
}
