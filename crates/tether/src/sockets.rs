//! The sockets of one session, in a directory that its box sees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use bridge::file_name;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The user of a box, who is another one where the daemon is root, may pass and not look around.
const DIRECTORY: u32 = 0o711;
/// … and connect. Nobody else comes this far: the directory above is the daemon's alone.
const SOCKET: u32 = 0o666;

/// Listening sockets, by name. They go on listening until they are taken and dropped; the files stay.
#[derive(Debug)]
pub struct Sockets {
    listeners: BTreeMap<&'static str, UnixListener>,
}

impl Sockets {
    /// Makes the directory, in one that is there and nobody else's, and a socket in it for each name. What another
    /// daemon left is replaced, in one step each: a bridge finds the old one or the new one.
    ///
    /// Idempotent, of any length of path, and without following a link from the directory on.
    pub fn make(directory: &Path, names: &[&'static str]) -> io::Result<Self> {
        let held = hold(directory)?;
        let mut listeners = BTreeMap::new();
        for &name in names {
            listeners.insert(name, bind(&held, &file_name(name))?);
        }
        Ok(Self { listeners })
    }

    /// The listener of a name, once. It does not block.
    pub fn take(&mut self, name: &str) -> Option<UnixListener> {
        self.listeners.remove(name)
    }
}

fn hold(directory: &Path) -> io::Result<OwnedFd> {
    let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let above = if above == Path::new("") { Path::new(".") } else { above };
    let above = openat(CWD, above, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match mkdirat(&above, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let held = openat(&above, name, flags, Mode::empty())?;
    if fstat(&held)?.st_uid != geteuid().as_raw() {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "the directory of the sockets is another user's",
        ));
    }
    fchmod(&held, Mode::from_raw_mode(DIRECTORY))?;
    Ok(held)
}

/// It has its mode before it has its name.
fn bind(directory: &OwnedFd, name: &str) -> io::Result<UnixListener> {
    let new = format!(".new-{name}");
    match unlinkat(directory, &new, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // Through the open directory: so short that the kernel takes it, and never led elsewhere. It is made or it fails,
    // also where a link lies in its place.
    let listener = UnixListener::bind(by_number(directory).join(&new))?;
    let made = openat(directory, &new, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&made)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(ErrorKind::InvalidData, "something took the place of a socket"));
    }
    fs::set_permissions(by_number(&made), Permissions::from_mode(SOCKET))?;
    listener.set_nonblocking(true)?;
    renameat(directory, &new, directory, OsStr::new(name))?;
    Ok(listener)
}

fn by_number(open: &impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(open.as_fd().as_raw_fd().to_string())
}
