//! What has to be done on the host, or what stands against it. Looks, and changes nothing.

use std::collections::{BTreeSet, HashSet};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::journal::Step;
use super::read_whole;
use crate::changes::{Change, Changes};
use crate::error::{Against, CarryError, Conflict, Listed};
use crate::node::Node;
use crate::path::Rel;
use crate::place::{Blocked, Owner, Place, Seen, size};

/// Most entries in a directory that must make way for a file.
const MOST_IN_THE_WAY: usize = 100_000;

/// The steps, and how many changes are there already.
pub(super) fn plan(place: &Place, changes: &Changes) -> Result<(Vec<Step>, usize), CarryError> {
    let removed =
        changes.files.iter().filter(|change| change.after.is_none()).map(|change| &change.path).collect();
    let root = rustix::process::geteuid().is_root();
    let mut planning =
        Planning { place, removed, root, already: 0, made: HashSet::new(), steps: Steps::default() };
    let mut conflicts = Listed::default();
    for change in &changes.files {
        match planning.one(change) {
            Ok(()) => {}
            Err(Trouble::Against(why)) => conflicts.add(Conflict { path: change.path.clone(), why }),
            Err(Trouble::System(Errno::ACCESS | Errno::PERM)) => {
                conflicts.add(Conflict { path: change.path.clone(), why: Against::Unreadable });
            }
            Err(Trouble::System(errno)) => {
                return Err(CarryError::system(format!("look at {}", change.path), errno));
            }
        }
    }
    if !conflicts.is_empty() {
        return Err(CarryError::Conflicts(conflicts));
    }
    let Steps { remove, mut remove_directories, make_directories, put } = planning.steps;
    remove_directories.sort_by(|one, other| other.path().cmp(one.path()));
    let steps = remove.into_iter().chain(remove_directories).chain(make_directories).chain(put).collect();
    Ok((steps, planning.already))
}

enum Trouble {
    Against(Against),
    System(Errno),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// In the order in which they are done.
#[derive(Default)]
struct Steps {
    remove: Vec<Step>,
    remove_directories: Vec<Step>,
    make_directories: Vec<Step>,
    put: Vec<Step>,
}

struct Planning<'a> {
    place: &'a Place,
    /// Paths at which there is nothing afterwards.
    removed: BTreeSet<&'a Rel>,
    /// Whether files can be given to whom they should belong.
    root: bool,
    already: usize,
    made: HashSet<Rel>,
    steps: Steps,
}

impl Planning<'_> {
    fn one(&mut self, change: &Change) -> Result<(), Trouble> {
        let Change { path, before, after } = change;
        let against = |why| Err(Trouble::Against(why));
        let mut stat = None;
        let there = match self.place.look(path)? {
            Seen::Absent => None,
            Seen::File(seen) => {
                let there = self.file(path, &seen, change)?;
                stat = Some(seen);
                Some(there)
            }
            Seen::Link(target) => Some(Some(Node::Link { target })),
            // The file is gone, whatever came instead.
            Seen::Directory(_) if after.is_none() => None,
            Seen::Directory(_) if before.is_none() => {
                self.make_way(path)?;
                None
            }
            Seen::Directory(_) | Seen::Other => return against(Against::NotRegular),
            Seen::Blocked(by) => {
                let goes = path.ancestors().any(|ancestor| self.removed.contains(&ancestor));
                match by {
                    Blocked::Mount => return against(Against::OtherFileSystem),
                    Blocked::File if goes || after.is_none() => None,
                    Blocked::Link if goes && before.is_none() => None,
                    Blocked::File => return against(Against::FileInTheWay),
                    Blocked::Link => return against(Against::ThroughLink),
                }
            }
        };
        // `Some(None)`: a file, but of another size than either.
        match (there, before, after) {
            (None, _, None) => self.already += 1,
            (None, None, Some(after)) => self.create(path, after)?,
            (None, Some(_), Some(_)) => return against(Against::Removed),
            (Some(there), _, Some(after)) if there.as_ref() == Some(after) => self.already += 1,
            (Some(there), Some(before), _) if there.as_ref() == Some(before) => {
                self.replace(path, before, after.as_ref(), stat.as_deref());
            }
            (Some(_), None, _) => return against(Against::Another),
            (Some(_), Some(_), _) => return against(Against::Changed),
        }
        Ok(())
    }

    /// Read only where its size leaves a doubt.
    fn file(&self, path: &Rel, stat: &Stat, change: &Change) -> Result<Option<Node>, Trouble> {
        let fits =
            |node: &Option<Node>| matches!(node, Some(Node::File { size: it, .. }) if *it == size(stat));
        if !fits(&change.before) && !fits(&change.after) {
            return Ok(None);
        }
        Ok(read_whole(self.place, path)?.map(|(node, _)| node))
    }

    fn create(&mut self, path: &Rel, node: &Node) -> Result<(), Trouble> {
        let mut above = self.place.stat()?;
        for directory in path.ancestors() {
            if self.made.contains(&directory) {
                continue;
            }
            if let Seen::Directory(stat) = self.place.look(&directory)? {
                above = *stat;
                continue;
            }
            // Nothing, or a file or link that goes before: `one` has seen to that.
            let owner = self.owner(&above);
            self.steps.make_directories.push(Step::MakeDirectory { path: directory.clone(), owner });
            self.made.insert(directory);
        }
        let wide = if executable(node) { 0o755 } else { 0o644 };
        // As open as the directory, not more.
        let mode = wide & (above.st_mode | 0o700);
        let (path, node, owner) = (path.clone(), node.clone(), self.owner(&above));
        self.steps.put.push(Step::Create { path, node, mode, owner, inode: 0 });
        Ok(())
    }

    fn replace(&mut self, path: &Rel, before: &Node, after: Option<&Node>, stat: Option<&Stat>) {
        let (path, before) = (path.clone(), before.clone());
        let Some(after) = after.cloned() else {
            self.steps.remove.push(Step::Remove { path, before });
            return;
        };
        let old = stat.map_or(0o644, |stat| stat.st_mode & 0o777);
        let mode = if executable(&after) {
            // For whom it is readable.
            old | 0o100 | (old & 0o444) >> 2
        } else {
            old & 0o666
        };
        let step = match (&before, &after, stat) {
            (Node::File { digest: old_digest, .. }, Node::File { digest, .. }, Some(stat))
                if old_digest == digest =>
            {
                Step::Mode { path, from: old, to: mode, inode: stat.st_ino }
            }
            _ => {
                let owner = stat.and_then(|stat| self.owner(stat));
                Step::Replace { path, before, after, mode, owner, inode: 0 }
            }
        };
        self.steps.put.push(step);
    }

    /// A directory is there where a file will be: nothing may be in it but what goes.
    fn make_way(&mut self, path: &Rel) -> Result<(), Trouble> {
        let (mut waiting, mut seen) = (vec![path.clone()], 0);
        while let Some(directory) = waiting.pop() {
            let Seen::Directory(_) = self.place.look(&directory)? else { continue };
            for name in self.place.names(Some(&directory))? {
                seen += 1;
                let inner = Rel::new(&[directory.as_bytes(), b"/", &name].concat());
                let Ok(inner) = inner else { return Err(Trouble::Against(Against::Directory)) };
                if seen > MOST_IN_THE_WAY {
                    return Err(Trouble::Against(Against::Directory));
                }
                if self.removed.contains(&inner) {
                    continue;
                }
                match self.place.look(&inner)? {
                    Seen::Directory(_) => waiting.push(inner),
                    Seen::Absent => {}
                    Seen::File(_) | Seen::Link(_) | Seen::Other | Seen::Blocked(_) => {
                        return Err(Trouble::Against(Against::Directory));
                    }
                }
            }
            self.steps.remove_directories.push(Step::RemoveDirectory { path: directory });
        }
        Ok(())
    }

    fn owner(&self, stat: &Stat) -> Option<Owner> {
        self.root.then_some((stat.st_uid, stat.st_gid))
    }
}

fn executable(node: &Node) -> bool {
    matches!(node, Node::File { executable: true, .. })
}
