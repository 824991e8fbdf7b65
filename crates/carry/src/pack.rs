//! Contents one behind the other in one file: ten thousand files cost one, and what was read once stays as it was read.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::{Digest, Hasher};

const CHUNK: usize = 128 << 10;

#[derive(Debug)]
pub(crate) struct Pack {
    file: File,
    end: u64,
    /// Where each content begins, and how long it is.
    held: HashMap<Digest, (u64, u64)>,
}

#[derive(Debug)]
pub(crate) enum Taken {
    Whole {
        digest: Digest,
        size: u64,
    },
    /// There was more than allowed.
    TooBig,
    Stopped,
}

impl Pack {
    /// Replaces what another, which was cut off, left there.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Self { file, end: 0, held: HashMap::new() })
    }

    /// One that nobody else sees and that goes when it is dropped.
    pub(crate) fn unnamed(directory: &Path) -> io::Result<Self> {
        let path = directory.join(crate::place::random_name("taken-")?);
        let pack = Self::create(&path)?;
        std::fs::remove_file(&path)?;
        Ok(pack)
    }

    /// Reads to the end, but not more than `most` bytes. By what was read, not by any size: a file may grow meanwhile.
    pub(crate) fn take(&mut self, from: &mut dyn Read, most: u64, stop: &AtomicBool) -> io::Result<Taken> {
        let (file, start) = (&self.file, self.end);
        let taken = through(from, most, stop, |chunk, at| file.write_all_at(chunk, start + at))?;
        let Taken::Whole { digest, size } = taken else { return Ok(taken) };
        // What is held already is written over by the next.
        if let std::collections::hash_map::Entry::Vacant(place) = self.held.entry(digest) {
            place.insert((self.end, size));
            self.end += size;
        }
        Ok(Taken::Whole { digest, size })
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (Digest, u64, u64)> {
        self.held.iter().map(|(digest, (offset, size))| (*digest, *offset, *size))
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn content(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        let (offset, size) = self.find(digest)?;
        slice(&self.file, offset, size)
    }

    pub(crate) fn copy(&self, digest: &Digest, to: &mut dyn Write) -> io::Result<()> {
        let (offset, size) = self.find(digest)?;
        let mut chunk = vec![0; CHUNK];
        let mut done = 0;
        while done < size {
            let next = usize::try_from(size - done).unwrap_or(CHUNK).min(CHUNK);
            self.file.read_exact_at(&mut chunk[..next], offset + done)?;
            to.write_all(&chunk[..next])?;
            done += next as u64;
        }
        Ok(())
    }

    /// On disk, without what was written last and is not held.
    pub(crate) fn settle(&self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.sync_data()
    }

    fn find(&self, digest: &Digest) -> io::Result<(u64, u64)> {
        self.held.get(digest).copied().ok_or_else(|| io::Error::other("the content is not there"))
    }
}

/// The digest of what comes, which is kept nowhere.
pub(crate) fn digest_of(from: &mut dyn Read, most: u64, stop: &AtomicBool) -> io::Result<Taken> {
    through(from, most, stop, |_, _| Ok(()))
}

fn through(
    from: &mut dyn Read,
    most: u64,
    stop: &AtomicBool,
    mut each: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<Taken> {
    let (mut hasher, mut size) = (Hasher::new(), 0_u64);
    let mut chunk = vec![0; CHUNK];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(Taken::Stopped);
        }
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(Taken::Whole { digest: hasher.finish(), size }),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if size + read as u64 > most {
            return Ok(Taken::TooBig);
        }
        hasher.update(&chunk[..read]);
        each(&chunk[..read], size)?;
        size += read as u64;
    }
}

/// A part of a file.
pub(crate) fn slice(file: &File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
