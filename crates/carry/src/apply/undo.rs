//! Back to how it was, from the journal and what lies on disk. Can be cut off itself, on any line, and done again.
//!
//! ```text
//! in the stage        on the host       what happened                       what is done
//! Create   ours       anything          not done, or undone                 nothing
//!          nothing    ours              done                                taken out; no longer ours by then: put back
//!          nothing    nothing           somebody removed it                 nothing
//!          nothing    another           somebody wrote there                kept
//!          another    anything          an undo was cut off: see above      put back if nothing is there; kept
//! Replace  ours       anything          not done, or undone                 nothing
//!          another    ours              done                                exchanged; no longer ours by then: and back
//!          another    as it was before  an undo was cut off: see above      exchanged; kept
//!          another    another, nothing  somebody was there                  kept
//!          nothing    as it was before  somebody put it back                nothing
//! Remove   nothing    anything          not done, undone, or both removed it  nothing
//!          anything   nothing           done                                put back
//!          anything   another           somebody was there                  kept
//! ```
//!
//! "Ours" is the file that was written into the stage, with what was written. What is kept is told, nothing of it is
//! removed, and a person settles it. Once nothing is left to undo, that is noted before the first file of the stage goes:
//! a stage with holes would be read as something else.

use rustix::fs::{Mode, RenameFlags, fchmod, fsync, syncfs};
use rustix::io::Errno;
use std::path::Path;

use super::journal::{Journal, State, Step};
use super::read_whole;
use crate::error::{CarryError, Listed, text};
use crate::node::Node;
use crate::path::Rel;
use crate::place::{Place, Seen};

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
    let Journal { to: path, stage: name, state, steps } = journal;
    let to = text(path);
    let failed = |errno: Errno| CarryError::system(format!("undo an export to {to}"), errno);
    let stage = match place.sub(name) {
        Ok(stage) => Some(stage),
        // Never made, or gone already.
        Err(Errno::NOENT) => None,
        Err(other) => return Err(failed(other)),
    };
    if let (State::Moving, Some(stage)) = (state, &stage) {
        let kept = undo_all(place, stage, steps).map_err(failed)?;
        if !kept.is_empty() {
            return Ok(Recovered { to, outcome: Outcome::Unsettled(kept) });
        }
        // What was undone is on disk before that which it was undone with is gone.
        syncfs(place.as_fd()).map_err(failed)?;
        let undone =
            Journal { to: path.clone(), stage: name.clone(), state: State::Undone, steps: Vec::new() };
        undone.write(at)?;
    }
    if *state == State::Done {
        remove_empty(place, journal);
    }
    if stage.is_some() {
        place.remove_flat(name).map_err(failed)?;
        // Nobody would know of a stage that comes back after the journal is gone.
        fsync(place.as_fd()).map_err(failed)?;
    }
    Journal::remove(at)?;
    let outcome = if *state == State::Done { Outcome::Finished } else { Outcome::Undone };
    Ok(Recovered { to, outcome })
}

/// Those that somebody else was at. One that fails is tried again by the next; it keeps no other from being undone.
fn undo_all(place: &Place, stage: &Place, steps: &[Step]) -> Result<Listed<Rel>, Errno> {
    let (mut kept, mut failed) = (Listed::default(), None);
    for (number, step) in steps.iter().enumerate().rev() {
        let name = Rel::new(number.to_string().as_bytes()).map_err(|_| Errno::INVAL)?;
        match (Undoing { place, stage, name: &name, path: step.path() }).undo(step) {
            Ok(Undone::Yes) => {}
            Ok(Undone::No) => kept.add(step.path().clone()),
            Err(errno) => failed = failed.or(Some(errno)),
        }
    }
    failed.map_or(Ok(kept), Err)
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undone {
    Yes,
    /// Somebody else was there since.
    No,
}

/// What lies in the stage or on the host, by what the step knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    Nothing,
    Ours,
    Before,
    Another,
}

/// What a step put there, and what was there before.
#[derive(Clone, Copy)]
struct Known<'a> {
    ours: (&'a Node, u64),
    before: Option<&'a Node>,
}

struct Undoing<'a> {
    place: &'a Place,
    stage: &'a Place,
    /// In the stage.
    name: &'a Rel,
    /// On the host.
    path: &'a Rel,
}

impl Undoing<'_> {
    fn undo(&self, step: &Step) -> Result<Undone, Errno> {
        match step {
            Step::Mode { from, to, inode, .. } => self.mode((*from, *to), *inode),
            Step::Create { node, inode, .. } => self.create(Known { ours: (node, *inode), before: None }),
            Step::Replace { before, after, inode, .. } => {
                self.replace(Known { ours: (after, *inode), before: Some(before) })
            }
            Step::Remove { .. } => match self.stage.look(self.name)? {
                Seen::Absent => Ok(Undone::Yes),
                Seen::File(_) | Seen::Link(_) | Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => {
                    self.put_back()
                }
            },
            Step::RemoveDirectory { .. } => match self.stage.look(self.name)? {
                Seen::Absent => Ok(Undone::Yes),
                Seen::File(_) | Seen::Link(_) | Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => {
                    // Where something else is by now, nothing is lost with one that is empty.
                    Ok(match self.put_back()? {
                        Undone::No if self.stage.remove_directory(self.name).is_err() => Undone::No,
                        Undone::No | Undone::Yes => Undone::Yes,
                    })
                }
            },
            Step::MakeDirectory { .. } => self.made_directory(),
        }
    }

    fn mode(&self, (from, to): (u32, u32), inode: u64) -> Result<Undone, Errno> {
        let (file, stat) = match self.place.read(self.path) {
            Ok(found) => found,
            // Another thing by now, or nothing.
            Err(errno) if is_elsewhere(errno) || errno == Errno::INVAL => return Ok(Undone::Yes),
            Err(other) => return Err(other),
        };
        if stat.st_ino == inode && stat.st_mode & 0o777 == to {
            fchmod(file, Mode::from_raw_mode(from))?;
        }
        Ok(Undone::Yes)
    }

    /// One that is not empty is somebody's by now. An empty one that somebody made is not told from ours.
    fn made_directory(&self) -> Result<Undone, Errno> {
        match self.place.remove_directory(self.path) {
            Ok(()) | Err(Errno::NOTEMPTY | Errno::BUSY) => Ok(Undone::Yes),
            Err(errno) if is_elsewhere(errno) => Ok(Undone::Yes),
            Err(other) => Err(other),
        }
    }

    fn create(&self, known: Known<'_>) -> Result<Undone, Errno> {
        match lies(self.stage, self.name, known)? {
            Lies::Ours => return Ok(Undone::Yes),
            Lies::Before | Lies::Another => return self.put_back().map(|_| Undone::No),
            Lies::Nothing => {}
        }
        match lies(self.place, self.path, known)? {
            Lies::Ours => {}
            Lies::Nothing => return Ok(Undone::Yes),
            Lies::Before | Lies::Another => return Ok(Undone::No),
        }
        let name = self.name.as_path().to_str().ok_or(Errno::INVAL)?;
        match self.stage.move_from((self.place, self.path), name) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Undone::Yes),
            Err(errno) if is_elsewhere(errno) => return Ok(Undone::No),
            Err(other) => return Err(other),
        }
        // Looked at again: until it was moved, it could change.
        let taken = lies(self.stage, self.name, known);
        if matches!(taken, Ok(Lies::Ours)) {
            return Ok(Undone::Yes);
        }
        self.put_back()?;
        taken.map(|_| Undone::No)
    }

    fn replace(&self, known: Known<'_>) -> Result<Undone, Errno> {
        match (lies(self.stage, self.name, known)?, lies(self.place, self.path, known)?) {
            (Lies::Ours, _) | (Lies::Nothing, Lies::Before) => Ok(Undone::Yes),
            (Lies::Before | Lies::Another, Lies::Ours) => self.exchange(known, Lies::Ours),
            (Lies::Another, Lies::Before) => self.exchange(known, Lies::Before).map(|_| Undone::No),
            (Lies::Nothing, Lies::Nothing | Lies::Ours | Lies::Another)
            | (Lies::Before, Lies::Nothing | Lies::Before | Lies::Another)
            | (Lies::Another, Lies::Nothing | Lies::Another) => Ok(Undone::No),
        }
    }

    /// Only for what was seen on the host a moment ago. If it is something else by now, both stay as they were.
    fn exchange(&self, known: Known<'_>, seen: Lies) -> Result<Undone, Errno> {
        if self.to_host(RenameFlags::EXCHANGE)? == Undone::No {
            return Ok(Undone::No);
        }
        let taken = lies(self.stage, self.name, known);
        if matches!(taken, Ok(taken) if taken == seen) {
            return Ok(Undone::Yes);
        }
        self.to_host(RenameFlags::EXCHANGE)?;
        taken.map(|_| Undone::No)
    }

    /// Onto nothing that is there.
    fn put_back(&self) -> Result<Undone, Errno> {
        self.to_host(RenameFlags::NOREPLACE)
    }

    fn to_host(&self, how: RenameFlags) -> Result<Undone, Errno> {
        let name = self.name.as_path().to_str().ok_or(Errno::INVAL)?;
        match self.stage.move_to(name, (self.place, self.path), how) {
            Ok(()) => Ok(Undone::Yes),
            Err(errno) if is_elsewhere(errno) || errno == Errno::EXIST => Ok(Undone::No),
            Err(other) => Err(other),
        }
    }
}

/// The way to it is not what it was.
fn is_elsewhere(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
}

fn lies(place: &Place, path: &Rel, known: Known<'_>) -> Result<Lies, Errno> {
    match place.look(path)? {
        Seen::Absent => return Ok(Lies::Nothing),
        Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => return Ok(Lies::Another),
        Seen::File(_) | Seen::Link(_) => {}
    }
    let (node, number) = match read_whole(place, path) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Lies::Another),
        Err(errno) if is_elsewhere(errno) || errno == Errno::INVAL => return Ok(Lies::Another),
        Err(other) => return Err(other),
    };
    let (ours, inode) = known.ours;
    Ok(if number == inode && content(&node) == content(ours) {
        Lies::Ours
    } else if known.before == Some(&node) {
        Lies::Before
    } else {
        Lies::Another
    })
}

fn content(node: &Node) -> Option<crate::node::Digest> {
    match node {
        Node::File { digest, .. } => Some(*digest),
        Node::Link { .. } => None,
    }
}

#[cfg(test)]
mod tests;
