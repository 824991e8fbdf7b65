//! The workspace as an import writes it, while a box may be writing there as well.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::Root;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::{Over, open};
use crate::error::{CarryError, text};
use crate::node::Node;
use crate::pack::{Pack, Taken, digest_of};
use crate::path::{IMPORT_STAGE, Rel};
use crate::place::{Owner, Place, Seen, is_executable, random_name, size};
use crate::repository::Prepared;

/// Where a repository waits in the stage.
const GIT: &str = "git";

/// What lies at a path.
pub(super) enum There {
    Absent,
    Node(Node),
    /// Bigger than anything that is carried, so it is nobody's.
    BigFile,
    Blocked,
}

pub(super) struct Workspace<'a> {
    pub(super) place: Place,
    root: Root,
    owner: Option<Owner>,
    stop: &'a AtomicBool,
}

impl<'a> Workspace<'a> {
    pub(super) fn open(path: &Path, owner: Option<Owner>, stop: &'a AtomicBool) -> Result<Self, CarryError> {
        let failed = |source| CarryError::NoDirectory { path: text(path), source };
        Ok(Self { place: open(path)?, root: Root::open(path).map_err(failed)?, owner, stop })
    }

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

    pub(super) fn node(&self, path: &Rel, most: u64) -> Result<There, CarryError> {
        let failed =
            |source: io::Error| CarryError::system(format!("look at {path} in the workspace"), source);
        Ok(match self.place.look(path).map_err(|errno| failed(errno.into()))? {
            Seen::Absent => There::Absent,
            Seen::Link(target) => There::Node(Node::Link { target }),
            Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => There::Blocked,
            Seen::File(stat) if size(&stat) > most => There::BigFile,
            Seen::File(stat) => {
                let Ok(mut opened) = self.root.file(path.as_path()) else { return Ok(There::BigFile) };
                match digest_of(&mut opened.file, most, self.stop).map_err(failed)? {
                    Taken::Whole { digest, size } => {
                        There::Node(Node::File { digest, size, executable: is_executable(&stat) })
                    }
                    Taken::TooBig => There::BigFile,
                    Taken::Stopped => return Err(CarryError::Stopped),
                }
            }
        })
    }

    /// First everything beside, then everything in place; what is in place is taken back if one cannot be.
    pub(super) fn write(
        &self,
        files: &[(Rel, Node, Over)],
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
            for (number, (path, _, over)) in files.iter().enumerate() {
                self.place_one(&stage, (number, path), *over)?;
                moved = number + 1;
            }
            match repository {
                Some(_) => self.place_repository(&stage),
                None => Ok(()),
            }
        });
        if result.is_err() {
            for (number, (path, _, over)) in files.iter().enumerate().take(moved).rev() {
                self.take_back(&stage, (number, path), *over);
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
        files: &[(Rel, Node, Over)],
        pack: &Pack,
        repository: Option<&Prepared>,
    ) -> Result<(), CarryError> {
        for (number, (path, node, _)) in files.iter().enumerate() {
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

    fn place_one(&self, stage: &Place, (number, path): (usize, &Rel), over: Over) -> Result<(), CarryError> {
        let failed = |errno: Errno| match errno {
            // The box made it since we looked.
            Errno::EXIST | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR => {
                CarryError::Different([path.clone()].into_iter().collect())
            }
            errno => CarryError::system(format!("write {path} into the workspace"), errno),
        };
        for directory in path.ancestors() {
            self.place.make_directory(&directory, self.owner).map_err(failed)?;
        }
        let how = match over {
            Over::Nothing => RenameFlags::NOREPLACE,
            Over::File => RenameFlags::EXCHANGE,
        };
        match stage.move_to(&number.to_string(), (&self.place, path), how) {
            // It was removed since we looked.
            Err(Errno::NOENT) if over == Over::File => stage
                .move_to(&number.to_string(), (&self.place, path), RenameFlags::NOREPLACE)
                .map_err(failed),
            other => other.map_err(failed),
        }
    }

    fn place_repository(&self, stage: &Place) -> Result<(), CarryError> {
        match stage.rename_here(GIT, &self.place, ".git") {
            Ok(()) => Ok(()),
            Err(source) => Err(CarryError::system("put a repository into the workspace", source)),
        }
    }

    /// As far as the box lets us: it may have changed things again.
    fn take_back(&self, stage: &Place, (number, path): (usize, &Rel), over: Over) {
        let name = number.to_string();
        let _as_the_box_wants = match over {
            Over::Nothing => stage.move_from((&self.place, path), &name),
            Over::File => stage.move_to(&name, (&self.place, path), RenameFlags::EXCHANGE),
        };
    }
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
