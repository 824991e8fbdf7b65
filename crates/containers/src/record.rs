//! What we keep of a box beside the engine: a lock, a note, a log.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::ports::sandbox::{BoxName, Cause};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone)]
pub(crate) struct Record(PathBuf);

/// Held until it is dropped, or its process dies.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "open as long as the lock is held")] File);

/// Which engine was told to make the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) socket: PathBuf,
    /// As in `Facts`.
    pub(crate) id: String,
    /// For a person.
    pub(crate) called: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    container: String,
    cause: Cause,
}

impl Record {
    pub(crate) fn new(root: &Path, name: &BoxName) -> Self {
        Self(root.join(name.as_str()))
    }

    /// Whether anything was begun under this name. Never later than the engine: a start takes its lock first, and what
    /// is forgotten goes from the engine first.
    pub(crate) fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// The boxes of which there is one.
    pub(crate) fn all(root: &Path) -> Vec<BoxName> {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| BoxName::new(entry.file_name().to_str()?).ok()).collect();
        names.sort();
        names
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("box.log")
    }

    /// None if somebody else has it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<Lock>> {
        self.make()?;
        let path = self.0.join("start.lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match file.try_lock() {
            // Somebody may have forgotten the box between our two steps: then this is the lock of nothing.
            Ok(()) => Ok(same(&file, &path)?.then_some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether somebody starts the box right now.
    pub(crate) fn is_starting(&self) -> io::Result<bool> {
        let file = match File::open(self.0.join("start.lock")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        // Shared, so that two who ask do not take each other for a starter.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Written before the container is made: whoever is killed in between leaves none, and whoever looks looks there.
    pub(crate) fn keep_made(&self, made: &Made) -> io::Result<()> {
        self.write("engine.json", made)
    }

    /// None of a box that was never made, or before this was written down: then it is at the engine at hand.
    pub(crate) fn made(&self) -> Option<Made> {
        serde_json::from_slice(&fs::read(self.0.join("engine.json")).ok()?).ok()
    }

    /// Written before the container is ended: whoever is killed in between leaves a box that runs, with a note.
    pub(crate) fn note(&self, container: &str, cause: Cause) -> io::Result<()> {
        self.write("note.json", &Note { container: container.to_owned(), cause })
    }

    fn write(&self, name: &str, what: &impl Serialize) -> io::Result<()> {
        self.make()?;
        let path = self.0.join(name);
        let next = path.with_extension("next");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(&serde_json::to_vec(what)?)?;
        fs::rename(next, path)
    }

    pub(crate) fn noted(&self, container: &str) -> Option<Cause> {
        let note: Note = serde_json::from_slice(&fs::read(self.0.join("note.json")).ok()?).ok()?;
        (note.container == container).then_some(note.cause)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn same(file: &File, path: &Path) -> io::Result<bool> {
    let mine = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (mine.dev(), mine.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_and_two_who_look_do_not_see_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record::new(directory.path(), &BoxName::new("one").unwrap());
        assert!(!record.is_starting().unwrap());
        let lock = record.try_lock().unwrap().unwrap();
        assert!(record.is_starting().unwrap() && record.try_lock().unwrap().is_none());
        drop(lock);
        let looking = File::open(directory.path().join("one/start.lock")).unwrap();
        looking.try_lock_shared().unwrap();
        assert!(!record.is_starting().unwrap());
    }

    #[test]
    fn a_note_is_for_one_container() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record::new(directory.path(), &BoxName::new("one").unwrap());
        record.note("abc", Cause::Disk).unwrap();
        assert_eq!((record.noted("abc"), record.noted("other")), (Some(Cause::Disk), None));
        record.remove().unwrap();
        record.remove().unwrap();
        assert_eq!(record.noted("abc"), None);
    }
}
