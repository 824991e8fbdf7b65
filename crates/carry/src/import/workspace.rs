//! The workspace as an import writes it, while a box may be writing there as well.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{RenameFlags, Stat};
use rustix::io::Errno;

use super::{Existing, Over, Write};
use crate::error::CarryError;
use crate::node::Node;
use crate::pack::{Pack, Taken, digest_of};
use crate::path::{IMPORT_STAGE, Rel};
use crate::place::{Owner, Place, Seen, is_executable, random_name, size};
use crate::repository::Prepared;

/// Where a repository waits in the stage.
const GIT: &str = "git";

/// What lies at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum There {
    Absent,
    Node(Node),
    /// Bigger than anything that is carried, so it is nobody's; or it cannot be read.
    Unread(Stamp),
    Blocked,
}

/// Tells a file from another without reading it, and from itself after somebody wrote to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    written: (i64, i64),
}

impl Stamp {
    fn new(stat: &Stat) -> Self {
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
        Self { inode: stat.st_ino, size: size(stat), written: (stat.st_mtime, nanoseconds) }
    }
}

pub(super) struct Workspace<'a> {
    pub(super) place: Place,
    pub(super) owner: Option<Owner>,
    /// What to do with files that are neither as on the host nor as they were imported.
    pub(super) existing: Existing,
    /// Most bytes of a file that is read.
    pub(super) most: u64,
    pub(super) stop: &'a AtomicBool,
}

impl Workspace<'_> {
    /// What imports that were cut off left behind.
    pub(super) fn sweep(&self) {
        for name in self.place.names(None).unwrap_or_default() {
            if let Ok(name) = str::from_utf8(&name)
                && name.starts_with(IMPORT_STAGE)
            {
                let _stays_and_is_ignored = self.place.remove_flat(name);
            }
        }
    }

    pub(super) fn node(&self, path: &Rel) -> Result<There, CarryError> {
        there(&self.place, path, (self.most, self.stop)).map_err(|source| match source {
            Failed::Stopped => CarryError::Stopped,
            Failed::System(source) => CarryError::system(format!("look at {path} in the workspace"), source),
        })
    }

    /// First everything beside, then everything in place; what is in place is taken back if one cannot be.
    pub(super) fn write(
        &self,
        files: &[Write],
        pack: &Pack,
        repository: Option<&Prepared>,
    ) -> Result<(), CarryError> {
        if files.is_empty() && repository.is_none() {
            return Ok(());
        }
        let failed = |source: io::Error| CarryError::system("write into the workspace", source);
        let name = random_name(IMPORT_STAGE).map_err(failed)?;
        let stage = self.place.make_sub(&name, 0o700, self.owner).map_err(|errno| failed(errno.into()))?;
        let mut moved = 0;
        let result = self.stage(&stage, files, pack, repository).and_then(|()| {
            for (number, write) in files.iter().enumerate() {
                self.place_one(&stage, &name_of(number)?, write)?;
                moved = number + 1;
            }
            match repository {
                Some(_) => self.place_repository(&stage),
                None => Ok(()),
            }
        });
        if result.is_err() {
            for (number, write) in files.iter().enumerate().take(moved).rev() {
                if let Ok(name) = name_of(number) {
                    let _as_the_box_wants = self.take_back(&stage, &name, write);
                }
            }
            if let (Some(repository), Ok(copy)) = (repository, stage.sub(GIT)) {
                repository.remove_copy(&copy);
                let _stays = stage.remove_directory_here(GIT);
            }
        }
        let _stays_and_is_ignored = self.place.remove_flat(&name);
        result
    }

    fn stage(
        &self,
        stage: &Place,
        files: &[Write],
        pack: &Pack,
        repository: Option<&Prepared>,
    ) -> Result<(), CarryError> {
        for (number, Write { path, node, .. }) in files.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CarryError::Stopped);
            }
            let failed = |source| CarryError::system(format!("write {path} into the workspace"), source);
            stage_one(stage, &number.to_string(), node, (pack, self.owner)).map_err(failed)?;
        }
        if let Some(repository) = repository {
            let failed = |source| CarryError::system("write a repository into the workspace", source);
            let at = stage.make_sub(GIT, 0o755, self.owner).map_err(|errno| failed(errno.into()))?;
            repository.copy(&at, self.owner).map_err(failed)?;
        }
        Ok(())
    }

    fn place_one(&self, stage: &Place, name: &Rel, write: &Write) -> Result<(), CarryError> {
        let Write { path, over, .. } = write;
        let failed = |errno: Errno| match errno {
            // The box made it since we looked, or removed it.
            Errno::EXIST | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR | Errno::NOENT => different(path),
            errno => CarryError::system(format!("write {path} into the workspace"), errno),
        };
        for directory in path.ancestors() {
            self.place.make_directory(&directory, self.owner).map_err(failed)?;
        }
        let Over::Checked(checked) = over else {
            return self.put(stage, name, (path, RenameFlags::NOREPLACE)).map_err(failed);
        };
        match self.put(stage, name, (path, RenameFlags::EXCHANGE)) {
            // It was removed since we looked.
            Err(Errno::NOENT) if self.existing == Existing::Replace => {
                return self.put(stage, name, (path, RenameFlags::NOREPLACE)).map_err(failed);
            }
            other => other.map_err(failed)?,
        }
        // What came out is looked at again: until then the box could write to it.
        let out = there(stage, name, (self.most, self.stop));
        if matches!(&out, Ok(out) if out == checked) {
            return Ok(());
        }
        match self.put(stage, name, (path, RenameFlags::EXCHANGE)) {
            // The box removed ours at once.
            Err(Errno::NOENT) => self.put(stage, name, (path, RenameFlags::NOREPLACE)),
            other => other,
        }
        .map_err(failed)?;
        match out {
            Ok(_) => Err(different(path)),
            Err(Failed::Stopped) => Err(CarryError::Stopped),
            Err(Failed::System(source)) => {
                Err(CarryError::system(format!("look at {path} in the workspace"), source))
            }
        }
    }

    fn put(&self, stage: &Place, name: &Rel, (path, how): (&Rel, RenameFlags)) -> Result<(), Errno> {
        let name = name.as_path().to_str().ok_or(Errno::INVAL)?;
        stage.move_to(name, (&self.place, path), how)
    }

    fn place_repository(&self, stage: &Place) -> Result<(), CarryError> {
        match stage.rename_here(GIT, &self.place, ".git") {
            Ok(()) => Ok(()),
            Err(source) => Err(CarryError::system("put a repository into the workspace", source)),
        }
    }

    /// What the box has changed again since is the box's, and stays.
    fn take_back(&self, stage: &Place, name: &Rel, write: &Write) -> Result<(), Errno> {
        let Write { path, node, .. } = write;
        let is_ours = |place: &Place, path: &Rel| {
            // Whoever wants it to stop wants this above all.
            let there = there(place, path, (self.most, &AtomicBool::new(false)));
            matches!(there, Ok(There::Node(there)) if there == *node)
        };
        if !is_ours(&self.place, path) {
            return Ok(());
        }
        if matches!(stage.look(name)?, Seen::Absent) {
            let as_name = name.as_path().to_str().ok_or(Errno::INVAL)?;
            stage.move_from((&self.place, path), as_name)?;
            if !is_ours(stage, name) {
                self.put(stage, name, (path, RenameFlags::NOREPLACE))?;
            }
        } else {
            self.put(stage, name, (path, RenameFlags::EXCHANGE))?;
            if !is_ours(stage, name) {
                self.put(stage, name, (path, RenameFlags::EXCHANGE))?;
            }
        }
        Ok(())
    }
}

fn there(place: &Place, path: &Rel, (most, stop): (u64, &AtomicBool)) -> Result<There, Failed> {
    let stat = match place.look(path)? {
        Seen::Absent => return Ok(There::Absent),
        Seen::Link(target) => return Ok(There::Node(Node::Link { target })),
        Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => return Ok(There::Blocked),
        Seen::File(stat) => stat,
    };
    if size(&stat) > most {
        return Ok(There::Unread(Stamp::new(&stat)));
    }
    let Ok((mut file, stat)) = place.read(path) else { return Ok(There::Unread(Stamp::new(&stat))) };
    match digest_of(&mut file, most, stop)? {
        Taken::Whole { digest, size } => {
            Ok(There::Node(Node::File { digest, size, executable: is_executable(&stat) }))
        }
        Taken::TooBig => Ok(There::Unread(Stamp::new(&stat))),
        Taken::Stopped => Err(Failed::Stopped),
    }
}

enum Failed {
    Stopped,
    System(io::Error),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn different(path: &Rel) -> CarryError {
    CarryError::Different([path.clone()].into_iter().collect())
}

/// In the stage.
fn name_of(number: usize) -> Result<Rel, CarryError> {
    Rel::new(number.to_string().as_bytes())
        .map_err(|_| CarryError::system("write into the workspace", Errno::INVAL))
}

/// One file or link under a name of ours.
fn stage_one(
    stage: &Place,
    name: &str,
    node: &Node,
    (pack, owner): (&Pack, Option<Owner>),
) -> io::Result<()> {
    match node {
        Node::File { digest, executable, .. } => {
            let mode = if *executable { 0o755 } else { 0o644 };
            pack.copy(digest, &mut stage.create(name, mode, owner)?)
        }
        Node::Link { target } => Ok(stage.create_link(name, target, owner)?),
    }
}
