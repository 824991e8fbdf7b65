//! What a box prints, on disk within a cap. The box never has the file itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::read;

/// Two files of this size at most: the current one and the one before.
const LARGEST: u64 = 4 << 20;
/// What is remembered for a message.
const TAIL: usize = 2 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Closed,
}

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    tail: Vec<u8>,
}

impl Log {
    /// The box before this one is in `box.log.1`.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        match fs::rename(&path, path.with_extension("log.1")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = fresh(&path)?;
        Ok(Self { path, file, size: 0, tail: Vec::new() })
    }

    /// Takes what there is, without waiting; a little at a time, so that a box that prints without end stops nobody.
    pub(super) fn take_from(&mut self, pipe: &OwnedFd) -> End {
        let mut bytes = [0; 16 << 10];
        for _ in 0..8 {
            match read(pipe, &mut bytes) {
                Ok(0) => return End::Closed,
                Ok(length) => self.write(bytes.get(..length).unwrap_or_default()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return End::Open,
                Err(_) => return End::Closed,
            }
        }
        End::Open
    }

    /// A full disk costs the log, not the box.
    fn write(&mut self, bytes: &[u8]) {
        self.tail.extend(bytes);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        let length = u64::try_from(bytes.len()).unwrap_or(0);
        if self.size + length > LARGEST && fs::rename(&self.path, self.path.with_extension("log.1")).is_ok() {
            if let Ok(file) = fresh(&self.path) {
                self.file = file;
            }
            self.size = 0;
        }
        if self.file.write_all(bytes).is_ok() {
            self.size += length;
        }
    }

    /// The last lines, if there are any.
    pub(super) fn tail(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.tail);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

fn fresh(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Reads from this pipe do not wait.
pub(super) fn without_waiting(pipe: &OwnedFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, write};

    use super::*;

    #[test]
    fn a_flood_is_capped_and_its_end_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("box.log");
        let mut log = Log::open(path.clone()).unwrap();
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        for _ in 0..300 {
            write(&writer, &vec![b'x'; 60 << 10]).unwrap();
            assert_eq!(log.take_from(&reader), End::Open);
        }
        write(&writer, b"the end\n").unwrap();
        log.take_from(&reader);
        drop(writer);
        assert_eq!(log.take_from(&reader), End::Closed);
        assert!(log.tail().unwrap().ends_with("the end"));
        let size = |path: &std::path::Path| fs::metadata(path).unwrap().len();
        assert!(size(&path) <= LARGEST && size(&path.with_extension("log.1")) <= LARGEST);
    }
}
