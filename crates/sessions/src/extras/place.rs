//! From the stage into the session. What a box wrote there before may be anything, so each name is resolved by the
//! kernel, beneath the workspace and through no link.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use beneath::{Root, Walk};
use rustix::fs::{
    CWD, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid, fchown, mkdirat, open, openat2,
    renameat_with,
};
use rustix::io::Errno;

use super::bundle::SKILLS;
use super::{Extras, Owner, PACKAGES, RECORD, Standing, sync};
use crate::layout::SessionDirs;

/// As deep as a bundle goes, and what is above it.
const DEEPEST: usize = 64;

pub(super) fn place(dirs: &SessionDirs, mut extras: Extras, owner: Owner) -> Result<Extras, String> {
    packages(dirs)?;
    let kept = skills(dirs, owner).map_err(|error| format!("skills cannot be placed: {error}"))?;
    extras.kept.extend(kept);
    extras.kept.sort();
    extras.kept.dedup();
    extras.state = Standing::Done;
    let recorded = sync(&dirs.workspace()).and_then(|()| sync(&dirs.meta()));
    let recorded = recorded.and_then(|()| dirs.keep_extras(&extras));
    recorded.map_err(|error| format!("that the extras are installed cannot be written down: {error}"))?;
    if let Err(error) = copy(dirs, &extras) {
        tracing::warn!(%error, "a box cannot read which extras it has");
    }
    if let Err(error) = dirs.stage().remove() {
        tracing::warn!(%error, "where extras were prepared cannot be removed");
    }
    Ok(extras)
}

fn packages(dirs: &SessionDirs) -> Result<(), String> {
    let (from, to) = (dirs.stage().meta().join(PACKAGES), dirs.meta().join(PACKAGES));
    let unplaced = |error: io::Error| format!("the packages cannot be placed: {error}");
    match fs::symlink_metadata(&from) {
        // There are none, or whoever was cut off had placed them.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unplaced(error)),
        Ok(found) if !found.is_dir() => return Err("what pip made is no directory".to_owned()),
        Ok(_) => {}
    }
    // One that its owner may not write to could not be moved.
    fs::set_permissions(&from, Permissions::from_mode(0o755)).map_err(unplaced)?;
    match renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(format!(
            "the session has {} already, from before it had extras; remove it, or make a new session",
            to.display()
        )),
        Err(errno) => Err(unplaced(errno.into())),
    }
}

/// Gives back what was in the way.
fn skills(dirs: &SessionDirs, owner: Owner) -> io::Result<Vec<String>> {
    let staged = dirs.stage().skills();
    match fs::symlink_metadata(&staged) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let workspace = open(dirs.workspace(), flags, Mode::empty())?;
    let mut kept = Vec::new();
    let found: Vec<_> = Walk::new(Root::open(&staged)?, DEEPEST).collect();
    let top = directory(&workspace, Path::new(SKILLS), owner)?;
    if top.is_none() {
        kept.push(SKILLS.to_owned());
        return Ok(kept);
    }
    for entry in found {
        let at = Path::new(SKILLS).join(&entry.path);
        let placed = match FileType::from_raw_mode(entry.stat.st_mode) {
            FileType::Directory => directory(&workspace, &at, owner)?.is_some(),
            // The walk says what lies in a directory after the directory itself; where one is in the way, all beneath is.
            FileType::RegularFile
            | FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => file(&workspace, &staged.join(&entry.path), &at, owner)?,
        };
        if !placed {
            kept.push(at.to_string_lossy().into_owned());
        }
    }
    Ok(kept)
}

/// False: something lies there.
fn file(workspace: &OwnedFd, from: &Path, at: &Path, owner: Owner) -> io::Result<bool> {
    let (Some(above), Some(name)) = (at.parent(), at.file_name()) else { return Ok(false) };
    let Some(above) = directory(workspace, above, owner)? else { return Ok(false) };
    match renameat_with(CWD, from, &above, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// A directory of the workspace, made where there is none. None: something else lies there, or on the way.
fn directory(workspace: &OwnedFd, at: &Path, owner: Owner) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut held = rustix::io::fcntl_dupfd_cloexec(workspace.as_fd(), 0)?;
    for name in at.iter().map(PathBuf::from) {
        let made = match mkdirat(&held, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        held = match openat2(&held, &name, flags, Mode::empty(), resolve) {
            Ok(held) => held,
            Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if made {
            rustix::fs::fchmod(&held, Mode::from_raw_mode(0o755))?;
            if let Some((uid, gid)) = owner {
                fchown(&held, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
        }
    }
    Ok(Some(held))
}

/// For whoever is in the box. A link that lies there is replaced, not followed.
fn copy(dirs: &SessionDirs, extras: &Extras) -> io::Result<()> {
    let new = dirs.root().join(format!(".{RECORD}.copy"));
    fs::write(&new, serde_json::to_vec_pretty(extras)?)?;
    fs::set_permissions(&new, Permissions::from_mode(0o644))?;
    fs::rename(&new, dirs.meta().join(RECORD))
}
