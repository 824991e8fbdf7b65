//! Locks that the kernel gives up for us when a process dies: on open files, so that they pass on with a descriptor.
//!
//! They can be asked about without being taken, which a lock that is only tried for cannot.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Held until every copy of the descriptor is closed.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// None if somebody else has it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => Ok(Some(Self(file))),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    pub(crate) fn into_file(self) -> File {
        self.0
    }
}

/// False also if there is no such file.
pub(crate) fn is_held(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut question = whole_file(libc::F_WRLCK);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut question))?;
    Ok(i32::from(question.l_type) != libc::F_UNLCK)
}

#[expect(clippy::cast_possible_truncation, reason = "the constants are 0 to 2")]
fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_by_others_and_lasts_as_long_as_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert!(!is_held(&path).unwrap(), "there is no file yet");
        let lock = Lock::try_take(&path).unwrap().unwrap();
        assert!(is_held(&path).unwrap());
        assert!(Lock::try_take(&path).unwrap().is_none());
        let copy = lock.file().try_clone().unwrap();
        drop(lock);
        assert!(is_held(&path).unwrap());
        drop(copy);
        assert!(!is_held(&path).unwrap());
    }
}
