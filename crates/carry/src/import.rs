//! Into the workspace.
//!
//! ```text
//! host directory ─ host.rs: what is wanted, within the caps
//!       │ read once, hashed            H: the host now   B: the baseline   W: the workspace
//!       ▼
//!   N.pack ──▶ for each path    W = H  fine                    H = B  the box's change stays
//!       │                       W = B  H is written            else   refused, with the list; `replace`: H is written
//!       ▼
//!   stage in the workspace ──▶ moved into place ──▶ manifest.json
//! ```
//!
//! What is replaced is exchanged, and looked at again once it is out of the box's reach by name: if it is not what the
//! table was asked for, all is put back and refused.
//!
//! The manifest comes last: cut off before, the workspace has files that no baseline knows, and the next import finds
//! them as they should be. The other way round they would look as if the box had removed them.

mod workspace;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::base::{Base, Manifest};
use crate::error::{Cap, CarryError, LeftOut, Listed, TooMuch, Why, text};
use crate::git::Git;
use crate::host::{Gather, Gathered, Wanted};
use crate::limits::Limits;
use crate::node::Node;
use crate::pack::{Pack, Taken};
use crate::path::Rel;
use crate::place::{Lock, Owner, Place};
use crate::repository::{Commit, Prepared};
use workspace::{There, Workspace};

pub struct Import<'a> {
    /// Resolved, and allowed already.
    pub from: PathBuf,
    /// The workspace of the session; a box may be writing there.
    pub into: PathBuf,
    /// Where the baseline lies, outside of the box.
    pub base: PathBuf,
    pub limits: Limits,
    pub git: Git,
    /// Of what is made in the workspace; None: whoever runs this.
    pub owner: Option<Owner>,
    pub existing: Existing,
    pub stop: &'a AtomicBool,
    pub progress: &'a mut dyn FnMut(Progress),
}

impl std::fmt::Debug for Import<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Import")
            .field("from", &self.from)
            .field("into", &self.into)
            .finish_non_exhaustive()
    }
}

/// What to do with files of the workspace that are neither as on the host nor as they were imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub files: usize,
    pub bytes: u64,
    pub of_files: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Files and links of the host, and their bytes.
    pub files: usize,
    pub bytes: u64,
    /// How many of them were written; the others were there already.
    pub written: usize,
    /// Changed in the session and not on the host since the last import: as the session has them.
    pub kept: Listed<Rel>,
    /// Imported earlier, and no longer on the host. They stay in the session.
    pub gone: Listed<Rel>,
    pub left_out: Listed<LeftOut>,
    pub repository: Repository,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repository {
    /// The workspace has a repository with one commit now.
    Made,
    /// There was one, and it was not touched.
    There,
    /// The directory is not under git.
    None,
}

pub fn import(import: Import<'_>) -> Result<Imported, CarryError> {
    let Import { from, into, base, limits, git, owner, existing, stop, progress } = import;
    let mut base = match existing {
        Existing::Refuse => Base::open(&base)?,
        Existing::Replace => Base::open_or_forget(&base)?,
    };
    let host = open(&from)?;
    // Not in the middle of an export. A file system that knows no locks knows no exports either.
    let lock = Lock::take(host.as_fd(), FlockOperation::NonBlockingLockShared);
    if matches!(lock, Err(Errno::WOULDBLOCK)) {
        return Err(CarryError::Busy { path: text(&from) });
    }
    let workspace = Workspace { place: open(&into)?, owner, existing, most: limits.one_file, stop };
    workspace.sweep();
    let mut gathered = Gather { from: &from, git: &git, limits: &limits, stop }.run(&host)?;

    let mut pack = base.new_pack()?;
    let result = take(&host, &mut gathered, &mut pack, &mut Reading { limits: &limits, stop, progress })
        .and_then(|files| {
            let decided = decide(&workspace, &base.manifest, &files)?;
            let wanted = gathered.git.is_some() && Prepared::is_wanted(&workspace.place)?;
            let commit = Commit {
                git: &git,
                within: base.directory(),
                files: &files,
                pack: &pack,
                seconds: gathered.newest,
            };
            let prepared = if wanted { Some(commit.prepare()?) } else { None };
            workspace.write(&decided.write, &pack, prepared.as_ref())?;
            Ok((files, decided, prepared.is_some()))
        });
    drop(lock);
    let (files, decided, made) = match result {
        Ok(done) => done,
        Err(error) => {
            base.drop_pack();
            return Err(error);
        }
    };
    let repository = match (made, &gathered.git) {
        (true, _) => Repository::Made,
        (false, Some(_)) => Repository::There,
        (false, None) => Repository::None,
    };
    let mut entries = std::mem::take(&mut base.manifest.entries);
    let present: HashSet<&Rel> = files.iter().map(|(path, _)| path).collect();
    if existing == Existing::Replace {
        // Begun anew where it was damaged: what cannot be told any more is not asked for again.
        let sound = |node: &Node| match node {
            Node::File { digest, .. } => base.content(digest).is_ok(),
            Node::Link { .. } => true,
        };
        entries.retain(|path, node| present.contains(path) || sound(node));
    }
    let gone = entries.keys().filter(|path| !present.contains(path)).cloned().collect();
    let imported = Imported {
        files: files.len(),
        bytes: files.iter().map(|(_, node)| bytes(node)).sum(),
        written: decided.write.len(),
        kept: decided.kept.iter().cloned().collect(),
        gone,
        left_out: gathered.left_out,
        repository,
    };
    entries.extend(files);
    base.commit(Manifest::new(gathered.git, entries), &pack)?;
    Ok(imported)
}

struct Reading<'a> {
    limits: &'a Limits,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(Progress),
}

/// Reads what is wanted, each file once. What cannot be read or went away is left out.
fn take(
    host: &Place,
    gathered: &mut Gathered,
    pack: &mut Pack,
    reading: &mut Reading<'_>,
) -> Result<Vec<(Rel, Node)>, CarryError> {
    let mut files = Vec::with_capacity(gathered.files.len());
    let (of_files, mut total) = (gathered.files.len(), 0_u64);
    for (path, wanted) in std::mem::take(&mut gathered.files) {
        let executable = match wanted {
            Wanted::File { executable, .. } => executable,
            Wanted::Link { target } => {
                files.push((path, Node::Link { target }));
                continue;
            }
        };
        let mut file = match host.read(&path) {
            Ok((file, _)) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::INVAL | Errno::AGAIN) => {
                gathered.left_out.add(LeftOut::new(path.as_bytes(), Why::Unreadable));
                continue;
            }
            Err(error) => return Err(CarryError::system(format!("read {path}"), error)),
        };
        let limits = reading.limits;
        match pack.take(&mut file, limits.one_file, reading.stop) {
            Ok(Taken::Whole { digest, size }) => {
                total = total.saturating_add(size);
                files.push((path, Node::File { digest, size, executable }));
            }
            Ok(Taken::TooBig) => {
                let (found, allowed) = (limits.one_file + 1, limits.one_file);
                let culprits = vec![(path.to_string(), found)];
                return Err(CarryError::TooMuch(TooMuch { cap: Cap::OneFile, found, allowed, culprits }));
            }
            Ok(Taken::Stopped) => return Err(CarryError::Stopped),
            Err(error) => return Err(CarryError::system(format!("read {path}"), error)),
        }
        if total > limits.bytes {
            let culprits = vec![];
            let (cap, found, allowed) = (Cap::Bytes, total, limits.bytes);
            return Err(CarryError::TooMuch(TooMuch { cap, found, allowed, culprits }));
        }
        (reading.progress)(Progress { files: files.len(), bytes: total, of_files });
    }
    Ok(files)
}

#[derive(Default)]
struct Decided {
    write: Vec<Write>,
    kept: Vec<Rel>,
}

struct Write {
    path: Rel,
    node: Node,
    over: Over,
}

enum Over {
    Nothing,
    /// This and nothing else: what the box writes after we looked is not overwritten.
    Checked(There),
}

/// The table above. Looks, and changes nothing.
fn decide(
    workspace: &Workspace<'_>,
    manifest: &Manifest,
    files: &[(Rel, Node)],
) -> Result<Decided, CarryError> {
    let mut decided = Decided::default();
    let mut different = Listed::default();
    for (path, node) in files {
        let before = manifest.entries.get(path);
        let over = match workspace.node(path)? {
            There::Absent => Over::Nothing,
            there @ (There::Node(_) | There::Unread(_)) => Over::Checked(there),
            // Nothing can be put there, whoever wins.
            There::Blocked => {
                different.add(path.clone());
                continue;
            }
        };
        let as_imported = match &over {
            Over::Nothing => before.is_none(),
            Over::Checked(There::Node(now)) if now == node => continue,
            Over::Checked(There::Node(now)) => before == Some(now),
            Over::Checked(There::Unread(_) | There::Absent | There::Blocked) => false,
        };
        if workspace.existing == Existing::Replace || as_imported {
            decided.write.push(Write { path: path.clone(), node: node.clone(), over });
        } else if before == Some(node) {
            decided.kept.push(path.clone());
        } else {
            different.add(path.clone());
        }
    }
    if different.is_empty() { Ok(decided) } else { Err(CarryError::Different(different)) }
}

fn open(path: &Path) -> Result<Place, CarryError> {
    Place::open(path).map_err(|source| CarryError::NoDirectory { path: text(path), source })
}

fn bytes(node: &Node) -> u64 {
    match node {
        Node::File { size, .. } => *size,
        Node::Link { .. } => 0,
    }
}
