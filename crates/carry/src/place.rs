//! A directory in which nothing is reached through a link: not the last name of a path, and none before it.
//!
//! `beneath` reads; here is what else carrying needs: looking without opening, making, moving and removing. Each path is
//! resolved by the kernel in one go, so that a name that is exchanged meanwhile leads nowhere.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid, chownat,
    flock, fstat, mkdirat, open, openat2, readlinkat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::path::Rel;

/// `openat2` gives up when something is renamed at that very moment.
const TRIES: u32 = 32;

/// Who owns what is made: user and group.
pub type Owner = (u32, u32);

#[derive(Debug)]
pub(crate) struct Place {
    root: OwnedFd,
    resolve: ResolveFlags,
}

/// Whoever works on a directory holds it. Let go in so many words: a process that is started at that very moment has the
/// descriptor as well until it becomes another program, and closing ours alone would not do.
#[derive(Debug)]
pub(crate) struct Lock(OwnedFd);

impl Lock {
    pub(crate) fn take(directory: impl AsFd, how: FlockOperation) -> Result<Self, Errno> {
        let directory = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
        flock(&directory, how)?;
        Ok(Self(directory))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _closed_in_a_moment = flock(&self.0, FlockOperation::Unlock);
    }
}

/// What lies at a path.
#[derive(Debug)]
pub(crate) enum Seen {
    Absent,
    File(Box<Stat>),
    Link(Vec<u8>),
    Directory(Box<Stat>),
    /// A device, a socket, a pipe.
    Other,
    /// One of the directories on the way is none, but this.
    Blocked(Blocked),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    File,
    Link,
    /// Another file system is mounted on the way.
    Mount,
}

impl Place {
    /// `path` is trusted; its last name is not followed if it is a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(Self { root, resolve })
    }

    /// Other file systems that are mounted beneath it are no part of it: nothing can be moved there in one go.
    pub(crate) fn on_one_device(mut self) -> Self {
        self.resolve |= ResolveFlags::NO_XDEV;
        self
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.root)
    }

    pub(crate) fn sub(&self, name: &str) -> Result<Self, Errno> {
        let root = self.resolve(Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { root, resolve: self.resolve })
    }

    pub(crate) fn look(&self, path: &Rel) -> Result<Seen, Errno> {
        let (parent, name) = match self.parent(path) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(Seen::Absent),
            Err(Errno::NOTDIR) => return Ok(Seen::Blocked(Blocked::File)),
            Err(Errno::LOOP) => return Ok(Seen::Blocked(Blocked::Link)),
            Err(Errno::XDEV) => return Ok(Seen::Blocked(Blocked::Mount)),
            Err(other) => return Err(other),
        };
        look_at(&parent, name)
    }

    /// A regular file, open for reading. Nothing else is opened: a pipe would wait, a device would act.
    pub(crate) fn read(&self, path: &Rel) -> Result<(File, Stat), Errno> {
        let named = self.resolve(path.as_path(), OFlags::PATH | OFlags::NOFOLLOW)?;
        let stat = fstat(&named)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = open(format!("/proc/self/fd/{}", named.as_raw_fd()), flags, Mode::empty())?;
        Ok((File::from(file), stat))
    }

    /// The directory in which `path` lies, and its name there.
    pub(crate) fn parent<'a>(&self, path: &'a Rel) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let (parent, name) = path.split();
        let directory = self.resolve(parent.unwrap_or(Path::new(".")), OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((directory, name))
    }

    /// What lies in a directory, the root itself if None.
    pub(crate) fn names(&self, path: Option<&Rel>) -> Result<Vec<Vec<u8>>, Errno> {
        let path = path.map_or(Path::new("."), Rel::as_path);
        let directory = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// True where it was made, false where it was there.
    pub(crate) fn make_directory(&self, path: &Rel, owner: Option<Owner>) -> Result<bool, Errno> {
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                own(parent.as_fd(), name, owner)?;
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(other) => Err(other),
        }
    }

    pub(crate) fn remove_directory(&self, path: &Rel) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        unlinkat(parent, name, AtFlags::REMOVEDIR)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A new file beneath the root itself.
    pub(crate) fn create(&self, name: &str, mode: u32, owner: Option<Owner>) -> Result<File, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, name, flags, Mode::from_raw_mode(0o600))?;
        if let Some((user, group)) = owner {
            rustix::fs::fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
        // After the owner, which may take bits away; and whatever the umask of this process is.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(File::from(file))
    }

    pub(crate) fn create_link(&self, name: &str, target: &[u8], owner: Option<Owner>) -> Result<(), Errno> {
        symlinkat(target, &self.root, name)?;
        own(self.root.as_fd(), OsStr::new(name), owner)
    }

    pub(crate) fn make_sub(&self, name: &str, mode: u32, owner: Option<Owner>) -> Result<Self, Errno> {
        mkdirat(&self.root, name, Mode::from_raw_mode(mode))?;
        own(self.root.as_fd(), OsStr::new(name), owner)?;
        self.sub(name)
    }

    /// Moves one of our own files to where it belongs, as `how` says.
    pub(crate) fn move_to(&self, name: &str, to: (&Self, &Rel), how: RenameFlags) -> Result<(), Errno> {
        let (parent, last) = to.0.parent(to.1)?;
        renameat_with(&self.root, name, parent, last, how)
    }

    /// The other way, onto no other.
    pub(crate) fn move_from(&self, from: (&Self, &Rel), name: &str) -> Result<(), Errno> {
        let (parent, last) = from.0.parent(from.1)?;
        renameat_with(parent, last, &self.root, name, RenameFlags::NOREPLACE)
    }

    /// What lies beneath the root itself.
    pub(crate) fn look_here(&self, name: &str) -> Result<Seen, Errno> {
        look_at(&self.root, OsStr::new(name))
    }

    pub(crate) fn remove_here(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.root, name, AtFlags::empty())
    }

    pub(crate) fn remove_directory_here(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.root, name, AtFlags::REMOVEDIR)
    }

    /// Onto nothing that is there.
    pub(crate) fn rename_here(&self, name: &str, to: &Self, as_name: &str) -> Result<(), Errno> {
        renameat_with(&self.root, name, &to.root, as_name, RenameFlags::NOREPLACE)
    }

    /// Removes a directory of ours in which there are only files and empty directories. One in which somebody put more
    /// stays.
    pub(crate) fn remove_flat(&self, name: &str) -> Result<(), Errno> {
        let directory = self.sub(name)?;
        for inner in directory.names(None)? {
            let gone = match unlinkat(&directory.root, &inner, AtFlags::empty()) {
                Err(Errno::ISDIR) => unlinkat(&directory.root, inner, AtFlags::REMOVEDIR),
                other => other,
            };
            match gone {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(other) => return Err(other),
            }
        }
        unlinkat(&self.root, name, AtFlags::REMOVEDIR)
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut tries = 0;
        loop {
            match openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), self.resolve) {
                Err(Errno::AGAIN) if tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }
}

fn look_at(directory: impl AsFd, name: &OsStr) -> Result<Seen, Errno> {
    let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Seen::Absent),
        Err(other) => return Err(other),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Seen::File(Box::new(stat)),
        FileType::Directory => Seen::Directory(Box::new(stat)),
        FileType::Symlink => Seen::Link(readlinkat(directory, name, Vec::new())?.into_bytes()),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Seen::Other,
    })
}

fn own(directory: BorrowedFd<'_>, name: &OsStr, owner: Option<Owner>) -> Result<(), Errno> {
    let Some((user, group)) = owner else { return Ok(()) };
    chownat(directory, name, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o100 != 0
}

pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(crate) fn random_name(prefix: &str) -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{prefix}{}", crate::node::hex(&bytes)))
}
