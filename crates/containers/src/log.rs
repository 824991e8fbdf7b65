//! What a box prints, on disk within a cap. The box never has the file itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Two files of this size at most: the current one and the one before.
const LARGEST: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Log {
    /// Begins anew: the engine has everything from the beginning, as far as it keeps it.
    pub(crate) fn begin(path: PathBuf) -> io::Result<Self> {
        let file = fresh(&path)?;
        Ok(Self { path, file, size: 0 })
    }

    /// A full disk costs the log, not the box.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(0);
        // Somebody may have begun it anew meanwhile: then this one is nobody's any more, and puts nothing aside.
        let full = self.size + length > LARGEST && self.is_current();
        if full && fs::rename(&self.path, self.path.with_extension("log.1")).is_ok() {
            if let Ok(file) = fresh(&self.path) {
                self.file = file;
            }
            self.size = 0;
        }
        if self.size + length <= 2 * LARGEST && self.file.write_all(bytes).is_ok() {
            self.size += length;
        }
    }

    fn is_current(&self) -> bool {
        let (ours, there) = (self.file.metadata(), fs::metadata(&self.path));
        ours.is_ok_and(|ours| there.is_ok_and(|there| (ours.dev(), ours.ino()) == (there.dev(), there.ino())))
    }
}

/// A new file in its place: who reads the old one goes on reading that.
fn fresh(path: &Path) -> io::Result<File> {
    let next = path.with_extension("log.next");
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&next)?;
    fs::rename(&next, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_capped_and_its_end_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("box.log");
        let mut log = Log::begin(path.clone()).unwrap();
        for _ in 0..300 {
            log.write(&vec![b'x'; 60 << 10]);
        }
        log.write(b"the end\n");
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(size(&path) <= LARGEST && size(&path.with_extension("log.1")) <= LARGEST);
        assert!(fs::read(&path).unwrap().ends_with(b"the end\n"));
    }
}
