//! Back to how it was, from the journal and what lies on disk. Can be cut off itself, and done again.

use rustix::fs::{Mode, RenameFlags, fchmod, syncfs};
use rustix::io::Errno;
use std::path::Path;

use super::journal::{Journal, State, Step};
use super::staged;
use crate::error::{CarryError, Listed, text};
use crate::node::Node;
use crate::path::Rel;
use crate::place::{Owner, Place, Seen};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The directory of the host.
    pub to: String,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The directory is as it was before.
    Undone,
    /// All was in place already.
    Finished,
    /// These were changed by somebody else meanwhile and are as that left them; what they were is kept in the stage.
    Unsettled(Listed<Rel>),
}

/// The directory is locked by the caller.
pub(super) fn recover_one(place: &Place, at: &Path, journal: &Journal) -> Result<Recovered, CarryError> {
    let to = text(&journal.to);
    let failed = |errno: Errno| CarryError::system(format!("undo an export to {to}"), errno);
    let stage = match place.sub(&journal.stage) {
        Ok(stage) => Some(stage),
        // Never made, or gone already.
        Err(Errno::NOENT) => None,
        Err(other) => return Err(failed(other)),
    };
    let mut kept = Listed::default();
    if let (State::Moving, Some(stage)) = (journal.state, &stage) {
        for (number, step) in journal.steps.iter().enumerate().rev() {
            if undo(place, stage, &number.to_string(), step).map_err(failed)? == Undone::No {
                kept.add(step.path().clone());
            }
        }
    }
    if !kept.is_empty() {
        return Ok(Recovered { to, outcome: Outcome::Unsettled(kept) });
    }
    if journal.state == State::Done {
        remove_empty(place, journal);
    }
    if stage.is_some() {
        if journal.state == State::Moving {
            // What was undone is on disk before that which it was undone with is gone.
            syncfs(place.as_fd()).map_err(failed)?;
        }
        place.remove_flat(&journal.stage).map_err(failed)?;
    }
    Journal::remove(at)?;
    let outcome = if journal.state == State::Done { Outcome::Finished } else { Outcome::Undone };
    Ok(Recovered { to, outcome })
}

/// Directories in which the last file was removed, as git does it.
fn remove_empty(place: &Place, journal: &Journal) {
    for step in &journal.steps {
        let Step::Remove { path, .. } = step else { continue };
        for directory in path.ancestors().rev() {
            if place.remove_directory(&directory).is_err() {
                break;
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Undone {
    Yes,
    /// Somebody else was there since.
    No,
}

fn undo(place: &Place, stage: &Place, name: &str, step: &Step) -> Result<Undone, Errno> {
    match step {
        Step::Mode { path, from, to, inode } => {
            let Ok((file, stat)) = place.read(path) else { return Ok(Undone::Yes) };
            if stat.st_ino == *inode && stat.st_mode & 0o777 == *to {
                fchmod(file, Mode::from_raw_mode(*from))?;
            }
            Ok(Undone::Yes)
        }
        Step::Create { path, node, inode, .. } => undo_create(place, stage, name, (path, node, *inode)),
        Step::Replace { path, after, inode, .. } => undo_replace(place, stage, name, (path, after, *inode)),
        Step::Remove { path, .. } => match stage.move_to(name, (place, path), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Undone::Yes),
            // Not moved yet; or it was put back by somebody.
            Err(Errno::NOENT) if matches!(stage.look_here(name)?, Seen::Absent) => {
                Ok(if matches!(place.look(path)?, Seen::Absent) { Undone::No } else { Undone::Yes })
            }
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(Undone::No),
            Err(other) => Err(other),
        },
        Step::MakeDirectory { path, .. } => match place.remove_directory(path) {
            // Somebody put something there, or it was never made.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Undone::Yes),
            Err(other) => Err(other),
        },
        Step::RemoveDirectory { path, mode, owner } => make_again(place, path, (*mode, *owner)),
    }
}

fn undo_create(
    place: &Place,
    stage: &Place,
    name: &str,
    (path, node, inode): (&Rel, &Node, u64),
) -> Result<Undone, Errno> {
    if !matches!(stage.look_here(name)?, Seen::Absent) {
        return Ok(Undone::Yes);
    }
    match place.look(path)? {
        Seen::File(stat) if stat.st_ino == inode => {}
        // Removed since.
        Seen::Absent => return Ok(Undone::Yes),
        Seen::File(_) | Seen::Link(_) | Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => {
            return Ok(Undone::No);
        }
    }
    stage.move_from((place, path), name)?;
    // Looked at after it was moved: before, it could still change.
    if is_ours(stage, name, (node, inode)) {
        return Ok(Undone::Yes);
    }
    stage.move_to(name, (place, path), RenameFlags::NOREPLACE)?;
    Ok(Undone::No)
}

fn undo_replace(
    place: &Place,
    stage: &Place,
    name: &str,
    (path, after, inode): (&Rel, &Node, u64),
) -> Result<Undone, Errno> {
    match stage.look_here(name)? {
        Seen::File(stat) if stat.st_ino == inode => return Ok(Undone::Yes),
        Seen::File(_) | Seen::Link(_) => {}
        Seen::Absent | Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => return Ok(Undone::No),
    }
    match stage.move_to(name, (place, path), RenameFlags::EXCHANGE) {
        Ok(()) if is_ours(stage, name, (after, inode)) => Ok(Undone::Yes),
        Ok(()) => {
            stage.move_to(name, (place, path), RenameFlags::EXCHANGE)?;
            Ok(Undone::No)
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(Undone::No),
        Err(other) => Err(other),
    }
}

fn is_ours(stage: &Place, name: &str, (node, inode): (&Node, u64)) -> bool {
    let content = |node: &Node| match node {
        Node::File { digest, .. } => Some(*digest),
        Node::Link { .. } => None,
    };
    matches!(staged(stage, name), Ok(Some((there, number))) if number == inode && content(&there) == content(node))
}

fn make_again(place: &Place, path: &Rel, (mode, owner): (u32, Option<Owner>)) -> Result<Undone, Errno> {
    match place.make_directory(path, owner) {
        Ok(true) => {
            let (parent, name) = place.parent(path)?;
            rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())?;
            Ok(Undone::Yes)
        }
        Ok(false) => Ok(Undone::Yes),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Undone::No),
        Err(other) => Err(other),
    }
}
