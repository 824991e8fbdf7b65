//! Changes back onto the host: all or nothing.
//!
//! ```text
//! lock ─▶ recover what was cut off ─▶ plan: each file as it was imported, or already as wanted? else refused, untouched
//!   ─▶ journal `staging` ─▶ new contents into a stage beside ─▶ journal `moving`
//!   ─▶ each step is one rename: in from the stage, out to the stage, or exchanged with it
//!   ─▶ what came out is looked at again: is it what was planned for?  no: undone
//!   ─▶ journal `done` ─▶ the stage goes ─▶ no journal
//! ```
//!
//! The stage is a directory of its own at the top of the host's directory, on the same file system: so what is replaced
//! or removed is kept as it is, with owner, times and attributes, and comes back by another rename. The journal lies
//! elsewhere, says what is planned, and is never behind: how far the steps went is read from the disk (`undo.rs`).

mod journal;
mod plan;
mod undo;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, Mode, RenameFlags, fchmod, syncfs};
use rustix::io::Errno;

use crate::changes::Changes;
use crate::error::{Against, CarryError, Conflict, text};
use crate::node::Node;
use crate::pack::{Pack, Taken, digest_of};
use crate::path::{APPLY_STAGE, Rel};
use crate::place::{Lock, Owner, Place, Seen, is_executable, random_name};
use journal::{Journal, State, Step};
pub use undo::{Outcome, Recovered};

#[derive(Debug)]
pub struct Apply<'a> {
    pub changes: &'a Changes,
    /// Resolved, and allowed already.
    pub to: PathBuf,
    /// Where it is noted what is under way, outside of any box; the same for [`recover`].
    pub journal: PathBuf,
    /// Heeded until the first file is moved.
    pub stop: &'a AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub changed: usize,
    /// Were as wanted before.
    pub already: usize,
}

pub fn apply(apply: &Apply<'_>) -> Result<Applied, CarryError> {
    let Apply { changes, to, journal, stop } = apply;
    let (place, _lock) = open(to)?;
    let at = Journal::path(journal, to).map_err(|source| CarryError::system("open the journal", source))?;
    if let Some(left) = Journal::read(&at)?
        && let Recovered { outcome: Outcome::Unsettled(kept), .. } = undo::recover_one(&place, &at, &left)?
    {
        return Err(unsettled(to, &left.stage, kept.count));
    }
    let (steps, already) = plan::plan(&place, changes)?;
    if steps.is_empty() {
        return Ok(Applied { changed: 0, already });
    }
    let stage = random_name(APPLY_STAGE).map_err(|source| CarryError::system("name the stage", source))?;
    let journal = Journal { to: to.clone(), stage, state: State::Staging, steps };
    let changed = changes.files.len() - already;
    Applying { place, to, at, journal, pack: &changes.pack, stop }.run()?;
    Ok(Applied { changed, already })
}

/// What was cut off when its process ended: undone, or finished where all was in place already. To be called before
/// the first apply after a start.
pub fn recover(journal: &Path) -> Result<Vec<Recovered>, CarryError> {
    let (mut recovered, mut failed) = (Vec::new(), None);
    for (at, left) in Journal::all(journal)? {
        let one = open(&left.to).and_then(|(place, _lock)| {
            // As it is now that nobody else is at it: until a moment ago, it may have been applied.
            match Journal::read(&at)? {
                Some(left) => undo::recover_one(&place, &at, &left).map(Some),
                None => Ok(None),
            }
        });
        match one {
            Ok(one) => recovered.extend(one),
            // It is being applied now, or the directory is gone.
            Err(CarryError::Busy { .. } | CarryError::NoDirectory { .. }) => {}
            // One directory that cannot be written keeps no other from being recovered.
            Err(other) => failed = failed.or(Some(other)),
        }
    }
    failed.map_or(Ok(recovered), Err)
}

fn open(to: &Path) -> Result<(Place, Lock), CarryError> {
    let place = Place::open(to).map_err(|source| CarryError::NoDirectory { path: text(to), source })?;
    match Lock::take(place.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(lock) => Ok((place.on_one_device(), lock)),
        Err(Errno::WOULDBLOCK) => Err(CarryError::Busy { path: text(to) }),
        Err(other) => Err(CarryError::system(format!("lock {}", text(to)), other)),
    }
}

fn unsettled(to: &Path, stage: &str, count: usize) -> CarryError {
    CarryError::Unsettled { path: text(to), kept: text(to.join(stage)), count }
}

struct Applying<'a> {
    place: Place,
    to: &'a Path,
    at: PathBuf,
    journal: Journal,
    pack: &'a Pack,
    stop: &'a AtomicBool,
}

impl Applying<'_> {
    fn run(mut self) -> Result<(), CarryError> {
        self.journal.write(&self.at)?;
        let result = self.stage().and_then(|stage| {
            self.sync()?;
            self.journal.state = State::Moving;
            self.journal.write(&self.at)?;
            for (number, step) in self.journal.steps.iter().enumerate() {
                self.step(&stage, &number.to_string(), step)?;
            }
            self.check(&stage)?;
            self.sync()?;
            self.journal.state = State::Done;
            self.journal.write(&self.at)
        });
        let Err(error) = result else {
            undo::recover_one(&self.place, &self.at, &self.journal)?;
            return Ok(());
        };
        // By what is on disk: the last write of the journal may be what failed.
        let journal = Journal::read(&self.at)?.unwrap_or(self.journal);
        match undo::recover_one(&self.place, &self.at, &journal)?.outcome {
            Outcome::Undone => Err(error),
            // The last write failed after it was on disk.
            Outcome::Finished => Ok(()),
            Outcome::Unsettled(kept) => Err(unsettled(self.to, &journal.stage, kept.count)),
        }
    }

    /// Everything new, beside what is there. Up to here nothing of the host's is touched.
    fn stage(&mut self) -> Result<Place, CarryError> {
        let failed = |errno: Errno| CarryError::system(format!("make a stage in {}", text(self.to)), errno);
        let root = self.place.stat().map_err(failed)?;
        let owner = rustix::process::geteuid().is_root().then_some((root.st_uid, root.st_gid));
        let stage = self.place.make_sub(&self.journal.stage, 0o700, owner).map_err(failed)?;
        exchanges(&stage).map_err(|errno| match errno {
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
                CarryError::CannotExchange { path: text(self.to) }
            }
            other => failed(other),
        })?;
        for (number, step) in self.journal.steps.iter_mut().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CarryError::Stopped);
            }
            let (Step::Create { path, node, mode, owner, inode }
            | Step::Replace { path, after: node, mode, owner, inode, .. }) = step
            else {
                continue;
            };
            let failed = |source| CarryError::system(format!("write {path} beside"), source);
            *inode =
                write_one(&stage, &number.to_string(), node, (self.pack, *mode, *owner)).map_err(failed)?;
        }
        Ok(stage)
    }

    fn step(&self, stage: &Place, name: &str, step: &Step) -> Result<(), CarryError> {
        let place = &self.place;
        let done = match step {
            Step::Remove { path, .. } | Step::RemoveDirectory { path } => {
                stage.move_from((place, path), name)
            }
            // Where it belongs, not in the stage: so it gets the group and the access list that are usual there.
            Step::MakeDirectory { path, owner } => place.make_directory(path, *owner).map(|_| ()),
            Step::Create { path, .. } => stage.move_to(name, (place, path), RenameFlags::NOREPLACE),
            Step::Replace { path, .. } => stage.move_to(name, (place, path), RenameFlags::EXCHANGE),
            Step::Mode { path, to, inode, .. } => match place.read(path) {
                // Another file of this name, which nobody would give its mode back.
                Ok((_, stat)) if stat.st_ino != *inode => return Err(conflict(path, Against::Changed)),
                Ok((file, _)) => fchmod(file, Mode::from_raw_mode(*to)),
                Err(Errno::INVAL) => return Err(conflict(path, Against::NotRegular)),
                Err(other) => Err(other),
            },
        };
        done.map_err(|errno| {
            let path = step.path();
            // The host changed since the plan was made.
            let why = match errno {
                Errno::NOENT => Against::Removed,
                Errno::EXIST => Against::Another,
                Errno::NOTDIR => Against::FileInTheWay,
                Errno::NOTEMPTY | Errno::ISDIR => Against::Directory,
                Errno::LOOP => Against::ThroughLink,
                Errno::XDEV => Against::OtherFileSystem,
                other => return CarryError::system(format!("write {path}"), other),
            };
            conflict(path, why)
        })
    }

    /// What was moved aside must be what the plan saw: a change of the last moment is put back, not lost.
    fn check(&self, stage: &Place) -> Result<(), CarryError> {
        for (number, step) in self.journal.steps.iter().enumerate() {
            let name = Rel::new(number.to_string().as_bytes());
            let name = name.map_err(|_| CarryError::system("look at the stage", Errno::INVAL))?;
            match step {
                Step::Remove { path, before } | Step::Replace { path, before, .. } => {
                    let there = read_whole(stage, &name);
                    if there.ok().flatten().map(|(node, _)| node).as_ref() != Some(before) {
                        return Err(conflict(path, Against::Changed));
                    }
                }
                Step::RemoveDirectory { path } => {
                    if !stage.names(Some(&name)).is_ok_and(|names| names.is_empty()) {
                        return Err(conflict(path, Against::Directory));
                    }
                }
                Step::MakeDirectory { .. } | Step::Create { .. } | Step::Mode { .. } => {}
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), CarryError> {
        syncfs(self.place.as_fd()).map_err(|errno| CarryError::system("write to disk", errno))
    }
}

fn conflict(path: &Rel, why: Against) -> CarryError {
    CarryError::Conflicts([Conflict { path: path.clone(), why }].into_iter().collect())
}

/// Some network file systems cannot exchange two names. It is found out before anything depends on it.
fn exchanges(stage: &Place) -> Result<(), Errno> {
    let one = Rel::new(b".one").map_err(|_| Errno::INVAL)?;
    drop(stage.create(".one", 0o600, None)?);
    // Keeps the stage out of the sight of git.
    let mut file = stage.create(".gitignore", 0o600, None)?;
    std::io::Write::write_all(&mut file, b"*\n").map_err(|_| Errno::IO)?;
    stage.move_to(".gitignore", (stage, &one), RenameFlags::EXCHANGE)?;
    stage.move_to(".gitignore", (stage, &one), RenameFlags::EXCHANGE)?;
    stage.remove_here(".one")
}

fn write_one(
    stage: &Place,
    name: &str,
    node: &Node,
    (pack, mode, owner): (&Pack, u32, Option<Owner>),
) -> std::io::Result<u64> {
    match node {
        Node::File { digest, .. } => {
            let mut file = stage.create(name, mode, owner)?;
            pack.copy(digest, &mut file)?;
            Ok(rustix::fs::fstat(&file)?.st_ino)
        }
        Node::Link { .. } => Err(std::io::Error::other("links are not carried back")),
    }
}

/// A regular file, read whole, or a link; with the inode of the file.
fn read_whole(place: &Place, path: &Rel) -> Result<Option<(Node, u64)>, Errno> {
    match place.look(path)? {
        Seen::File(_) => {}
        Seen::Link(target) => return Ok(Some((Node::Link { target }, 0))),
        Seen::Absent | Seen::Directory(_) | Seen::Other | Seen::Blocked(_) => return Ok(None),
    }
    let (mut file, stat) = place.read(path)?;
    let executable = is_executable(&stat);
    match digest_of(&mut file, u64::MAX, &AtomicBool::new(false)) {
        Ok(Taken::Whole { digest, size }) => Ok(Some((Node::File { digest, size, executable }, stat.st_ino))),
        Ok(Taken::TooBig | Taken::Stopped) => Ok(None),
        Err(_) => Err(Errno::IO),
    }
}
