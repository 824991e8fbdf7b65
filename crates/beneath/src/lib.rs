//! Opening what others may have written, beneath a directory and nowhere else.
//!
//! A box can put anything into its directories: links that lead out, pipes that block whoever opens them, devices, names
//! without end, and it can exchange one for another at any moment. So the kernel resolves each path in one go
//! (`openat2` with `RESOLVE_BENEATH`), a file is looked at before it is opened for reading, and every list and every
//! read has a cap.

mod count;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, chmod, fstat, open, openat2, statat,
};
use rustix::io::Errno;

pub use count::Count;

/// Longer than any path the kernel takes.
const LONGEST: usize = 4096;
/// `openat2` gives up when something is renamed at that very moment; a box that renames without end gets no further.
const TRIES: u32 = 32;
/// What a walk remembers of places it has yet to go to, in bytes: a box decides how many there are.
const MOST_HELD: usize = 16 << 20;
/// What is looked at to tell text from other things.
const GLANCE: usize = 8 << 10;

#[derive(Debug, thiserror::Error)]
pub enum BeneathError {
    /// Absolute, empty, with `..`, a NUL or without end; or it leads out by a link.
    #[error("the path leads out of the directory")]
    Outside,
    #[error("there is no such file")]
    NotFound,
    #[error("it is no regular file")]
    NotRegular,
    #[error("somebody holds the file and does not let it be read now")]
    Held,
    #[error("could not open what lies beneath the directory")]
    System(#[source] io::Error),
}

/// A directory beneath which things are opened. Follows it when it is renamed.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    pub size: u64,
    pub modified: SystemTime,
}

/// The beginning of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    pub data: Data,
    /// Of the whole file.
    pub size: u64,
    pub truncated: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Data {
    /// Cut at a character where it was cut.
    Text(String),
    Binary(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root; what [`Root::file`] takes.
    pub path: PathBuf,
    pub size: u64,
    pub modified: SystemTime,
    /// When the file or what is known of it last changed. Unlike `modified`, nobody sets this.
    pub changed: SystemTime,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Regular files, by path.
    pub files: Vec<Entry>,
    /// Whether there was more than the caps allow.
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Files that are listed.
    pub files: usize,
    /// Entries of any kind that are looked at.
    pub entries: usize,
    pub depth: usize,
}

impl Root {
    /// `path` is the caller's own and trusted, but its last component is not followed if it is a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    pub fn file(&self, path: &Path) -> Result<Opened, BeneathError> {
        // A descriptor that only names the file: opening a pipe or a device outright would wait or act.
        let named = self.resolve(path, OFlags::PATH, ResolveFlags::empty())?;
        let stat = fstat(&named).map_err(system)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(BeneathError::NotRegular);
        }
        let again = format!("/proc/self/fd/{}", named.as_raw_fd());
        // Whoever has a lease on the file would make us wait for as long as the kernel lets it.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = match open(again, flags, Mode::empty()) {
            Err(Errno::AGAIN) => return Err(BeneathError::Held),
            other => File::from(other.map_err(system)?),
        };
        Ok(Opened { file, size: size(&stat), modified: modified(&stat) })
    }

    /// The first `most` bytes.
    pub fn read(&self, path: &Path, most: usize) -> Result<Content, BeneathError> {
        let Opened { file, size, .. } = self.file(path)?;
        let mut bytes = Vec::new();
        let cap = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        file.take(cap).read_to_end(&mut bytes).map_err(BeneathError::System)?;
        // By what was read, not by the size: a file may grow meanwhile.
        let truncated = bytes.len() > most;
        bytes.truncate(most);
        let size = size.max(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(Content { data: told_apart(bytes, truncated), size, truncated })
    }

    /// Regular files, recursively. Links are neither followed nor listed; what cannot be read is left out.
    pub fn list(&self, caps: Caps) -> io::Result<Listing> {
        let mut listing = Listing::default();
        let mut walk = Walk::new(self.try_clone()?, caps.depth);
        for _ in 0..caps.entries {
            match walk.next() {
                None => {
                    listing.truncated |= walk.cut();
                    listing.files.sort_by(|one, other| one.path.cmp(&other.path));
                    return Ok(listing);
                }
                Some(Found { path, stat })
                    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile =>
                {
                    if listing.files.len() == caps.files {
                        break;
                    }
                    let (modified, changed) = (modified(&stat), changed(&stat));
                    listing.files.push(Entry { path, size: size(&stat), modified, changed });
                }
                Some(_) => {}
            }
        }
        listing.truncated = true;
        listing.files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(listing)
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// A directory that no link leads to.
    fn directory(&self, path: &Path) -> Result<OwnedFd, BeneathError> {
        if path.as_os_str().is_empty() {
            return openat2(
                &self.0,
                ".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::BENEATH,
            )
            .map_err(system);
        }
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, ResolveFlags::NO_SYMLINKS)
    }

    /// For its owner. Where that does not work, it stays as it is.
    fn make_readable(&self, path: &Path) {
        let Ok(named) = self.resolve(path, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::NO_SYMLINKS)
        else {
            return;
        };
        let by_number = format!("/proc/self/fd/{}", named.as_raw_fd());
        let _as_it_was = chmod(by_number, Mode::RWXU);
    }

    fn resolve(&self, path: &Path, flags: OFlags, further: ResolveFlags) -> Result<OwnedFd, BeneathError> {
        let bytes = path.as_os_str().as_bytes();
        let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if bytes.is_empty() || bytes.len() >= LONGEST || bytes.contains(&0) || !plain {
            return Err(BeneathError::Outside);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | further;
        let mut tries = 0;
        loop {
            match openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if tries < TRIES => tries += 1,
                Err(Errno::XDEV | Errno::LOOP) => return Err(BeneathError::Outside),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Err(BeneathError::NotFound),
                other => return other.map_err(system),
            }
        }
    }
}

/// Everything beneath a directory, one entry at a time, with one directory open at most.
#[derive(Debug)]
pub struct Walk {
    root: Root,
    depth: usize,
    waiting: Vec<PathBuf>,
    /// Bytes of paths in `waiting`.
    held: usize,
    current: Option<(PathBuf, OwnedFd, Dir)>,
    cut: bool,
    insists: bool,
}

#[derive(Debug)]
pub struct Found {
    pub path: PathBuf,
    pub stat: Stat,
}

impl Walk {
    pub fn new(root: Root, depth: usize) -> Self {
        let waiting = vec![PathBuf::new()];
        Self { root, depth, waiting, held: 0, current: None, cut: false, insists: false }
    }

    /// Directories that their owner may not read are made readable for it, so that nothing is hidden in them.
    #[must_use]
    pub fn insisting(mut self) -> Self {
        self.insists = true;
        self
    }

    /// Whether something lay too deep to be looked at, or could not be opened for want of permission.
    pub fn cut(&self) -> bool {
        self.cut
    }

    fn open_next(&mut self) -> Option<()> {
        let path = self.waiting.pop()?;
        self.held = self.held.saturating_sub(path.as_os_str().len());
        let mut opened = self.root.directory(&path);
        if self.insists && is_denied(&opened) {
            self.root.make_readable(&path);
            opened = self.root.directory(&path);
        }
        self.cut |= is_denied(&opened);
        // What is gone, was exchanged, or may not be read is left out.
        if let Ok(directory) = opened
            && let Ok(entries) = Dir::read_from(&directory)
        {
            self.current = Some((path, directory, entries));
        }
        Some(())
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let Some((parent, directory, entries)) = &mut self.current else {
                self.open_next()?;
                continue;
            };
            let Some(Ok(entry)) = entries.next() else {
                self.current = None;
                continue;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = parent.join(OsStr::from_bytes(name.to_bytes()));
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let length = path.as_os_str().len();
                let fits = length < LONGEST && self.held + length <= MOST_HELD;
                if fits && path.components().count() <= self.depth {
                    self.held += length;
                    self.waiting.push(path.clone());
                } else {
                    self.cut = true;
                }
            }
            return Some(Found { path, stat });
        }
    }
}

/// Text is UTF-8 without NUL. Where bytes were cut off, half a character at the end is cut off as well.
fn told_apart(mut bytes: Vec<u8>, truncated: bool) -> Data {
    if bytes.iter().take(GLANCE).any(|&byte| byte == 0) {
        return Data::Binary(bytes);
    }
    if truncated
        && let Err(error) = str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    String::from_utf8(bytes).map_or_else(|error| Data::Binary(error.into_bytes()), Data::Text)
}

fn is_denied(opened: &Result<OwnedFd, BeneathError>) -> bool {
    matches!(opened, Err(BeneathError::System(error)) if error.kind() == io::ErrorKind::PermissionDenied)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn modified(stat: &Stat) -> SystemTime {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

fn changed(stat: &Stat) -> SystemTime {
    time(stat.st_ctime, stat.st_ctime_nsec)
}

fn time(seconds: i64, nanos: u64) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(nanos)
}

fn system(errno: Errno) -> BeneathError {
    BeneathError::System(errno.into())
}

/// Opens a directory that the caller trusts, for something other than reading it.
pub fn trusted(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests;
