//! What a box changed since its workspace was imported.
//!
//! ```text
//! workspace ─ beneath::Walk ─┬─ in the baseline ─▶ read, hashed: as it was, modified, mode
//!                            ├─ not in it ───────▶ ignored by git? else added
//! baseline ── not met ───────┴─ is it gone? ─────▶ deleted
//! ```
//!
//! What changed is copied as it is read: a patch and an apply see the same bytes, whatever the box does meanwhile.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::{BeneathError, Found, Root, Walk};
use rustix::fs::{FileType, Stat};

use crate::base::{Base, Manifest};
use crate::error::{Cap, CarryError, LeftOut, Listed, TooMuch, Why, text};
use crate::git::Git;
use crate::host::{NEVER, biggest};
use crate::ignored::{IGNORE, Ignoring};
use crate::limits::Limits;
use crate::node::Node;
use crate::pack::{Pack, Taken, digest_of};
use crate::path::{BadPath, DEEPEST, IMPORT_STAGE, Rel};
use crate::place::{Blocked, Place, Seen};

/// What is remembered of paths that the baseline does not know, in bytes: a box decides how many there are.
const MOST_HELD: usize = 64 << 20;

#[derive(Debug)]
pub struct Compare<'a> {
    pub workspace: PathBuf,
    pub base: PathBuf,
    pub limits: Limits,
    pub git: Git,
    pub stop: &'a AtomicBool,
}

/// By path. Holds the contents, before and after, in a file without a name.
#[derive(Debug)]
pub struct Changes {
    pub files: Vec<Change>,
    pub left_out: Listed<LeftOut>,
    /// Files that the box made and git ignores. None: git could not tell, so none were left out for that.
    pub ignored: Option<usize>,
    /// Something lay too deep, or in a directory that could not be read.
    pub incomplete: bool,
    pub(crate) pack: Pack,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: Rel,
    pub before: Option<Node>,
    /// Never a link: those are not carried back.
    pub after: Option<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
    /// The executable bit alone.
    Mode,
}

impl Change {
    pub fn kind(&self) -> Kind {
        match (&self.before, &self.after) {
            (None, _) => Kind::Added,
            (Some(_), None) => Kind::Deleted,
            (Some(Node::File { digest: old, .. }), Some(Node::File { digest: new, .. })) if old == new => {
                Kind::Mode
            }
            (Some(_), Some(_)) => Kind::Modified,
        }
    }

    /// What is written and shown of it: equal contents of several files are, each time.
    fn bytes(&self) -> u64 {
        let size = |node: &Option<Node>| match node {
            Some(Node::File { size, .. }) => *size,
            Some(Node::Link { .. }) | None => 0,
        };
        match self.kind() {
            Kind::Mode => 0,
            Kind::Added | Kind::Modified | Kind::Deleted => {
                size(&self.before).saturating_add(size(&self.after))
            }
        }
    }
}

pub fn changes(compare: &Compare<'_>) -> Result<Changes, CarryError> {
    let Compare { workspace, base, limits, git, stop } = compare;
    let base = Base::open(base)?;
    if !base.found {
        return Err(CarryError::NoBaseline);
    }
    let failed = |source| CarryError::NoDirectory { path: text(workspace), source };
    let root = Root::open(workspace).map_err(failed)?;
    let place = Place::open(workspace).map_err(failed)?;
    let pack =
        Pack::unnamed(base.directory()).map_err(|source| CarryError::system("keep the changes", source))?;
    let changes =
        Changes { files: Vec::new(), left_out: Listed::default(), ignored: Some(0), incomplete: false, pack };
    let mut comparing = Comparing { root, place, base, limits, stop, bytes: 0, changes };
    let mut met = comparing.walk()?;
    comparing.look_for_deleted(&mut met)?;
    comparing.leave_out_ignored(git, &mut met);
    let Met { known, added, .. } = met;
    for path in known.into_iter().chain(added) {
        comparing.read(path)?;
    }
    let mut changes = comparing.changes;
    changes.files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

#[derive(Default)]
struct Met {
    /// Regular files that the baseline knows.
    known: HashSet<Rel>,
    /// Regular files that it does not know.
    added: Vec<Rel>,
    /// Paths of the baseline at which there is something that is not carried, or a link that is as it was.
    settled: HashSet<Rel>,
    /// `.gitignore` files.
    patterns: Vec<Rel>,
}

struct Comparing<'a> {
    root: Root,
    place: Place,
    base: Base,
    limits: &'a Limits,
    stop: &'a AtomicBool,
    /// Of all changes so far.
    bytes: u64,
    changes: Changes,
}

impl Comparing<'_> {
    fn walk(&mut self) -> Result<Met, CarryError> {
        let failed = |source| CarryError::system("read the workspace", source);
        let mut walk = Walk::new(self.root.try_clone().map_err(failed)?, DEEPEST);
        let (mut met, mut entries, mut held) = (Met::default(), 0, 0);
        for Found { path, stat } in walk.by_ref() {
            self.go_on()?;
            entries += 1;
            let bytes = path.as_os_str().as_bytes();
            if entries > self.limits.entries || held > MOST_HELD {
                let (found, allowed) = (entries as u64, self.limits.entries as u64);
                return Err(CarryError::TooMuch(TooMuch {
                    cap: Cap::Entries,
                    found,
                    allowed,
                    culprits: vec![],
                }));
            }
            match Rel::new(bytes) {
                Ok(path) => {
                    held += if self.base.manifest.entries.contains_key(&path) { 0 } else { bytes.len() };
                    self.meet(&mut met, path, &stat);
                }
                Err(bad) => self.refuse(bytes, bad),
            }
        }
        self.changes.incomplete = walk.cut();
        Ok(met)
    }

    fn meet(&mut self, met: &mut Met, path: Rel, stat: &Stat) {
        let before = self.base.manifest.entries.get(&path);
        let why = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return,
            FileType::RegularFile => {
                if path.is_named(IGNORE) {
                    met.patterns.push(path.clone());
                }
                if before.is_some() {
                    met.known.insert(path);
                } else {
                    met.added.push(path);
                }
                return;
            }
            FileType::Symlink => {
                let now = match self.place.look(&path) {
                    Ok(Seen::Link(target)) => Some(Node::Link { target }),
                    Ok(_) | Err(_) => None,
                };
                (now.is_none() || before != now.as_ref()).then_some(Why::LinkMade)
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Some(Why::NotRegular),
        };
        if let Some(why) = why {
            self.leave_out(&path, why);
        }
        met.settled.insert(path);
    }

    /// Told where it begins, not for everything beneath it.
    fn refuse(&mut self, bytes: &[u8], bad: BadPath) {
        let top = bytes.split(|&byte| byte == b'/').next().unwrap_or_default();
        let expected = top == b".git" || top.starts_with(IMPORT_STAGE.as_bytes());
        let parent = bytes.iter().rposition(|&byte| byte == b'/').map(|at| &bytes[..at]);
        if !expected && parent.is_none_or(|parent| Rel::new(parent).is_ok()) {
            self.changes.left_out.add(LeftOut::new(bytes, Why::Path(bad)));
        }
    }

    /// Only what is certainly gone: a directory that cannot be read hides files, it does not remove them.
    fn look_for_deleted(&mut self, met: &mut Met) -> Result<(), CarryError> {
        let missing: Vec<Rel> = self
            .base
            .manifest
            .entries
            .keys()
            .filter(|path| !met.known.contains(*path) && !met.settled.contains(*path))
            .cloned()
            .collect();
        for path in missing {
            self.go_on()?;
            match self.place.look(&path) {
                Ok(Seen::Absent | Seen::Directory(_) | Seen::Blocked(Blocked::File)) => {
                    let before = self.base.manifest.entries.get(&path).cloned();
                    self.add(Change { path, before, after: None })?;
                }
                Ok(Seen::File(_)) => {
                    met.known.insert(path);
                }
                Ok(Seen::Blocked(Blocked::Link)) => self.leave_out(&path, Why::LinkMade),
                Ok(Seen::Link(_) | Seen::Other | Seen::Blocked(Blocked::Mount)) | Err(_) => {
                    self.leave_out(&path, Why::Unreadable);
                }
            }
        }
        Ok(())
    }

    fn leave_out_ignored(&mut self, git: &Git, met: &mut Met) {
        let before = met.added.len();
        let manifest = &self.base.manifest;
        if let Some(rules) = &manifest.rules {
            let within = self.base.directory();
            let imported = self.imported_patterns();
            let ignoring = Ignoring { git, within, rules, workspace: &self.root, imported };
            let Some(ignored) = ignoring.among(&met.added, std::mem::take(&mut met.patterns)) else {
                self.changes.ignored = None;
                return;
            };
            met.added.retain(|path| !ignored.contains(path.as_bytes()));
        } else {
            let never = |name: &[u8]| NEVER.iter().any(|never| never.as_bytes() == name);
            met.added.retain(|path| !path.names().any(never));
        }
        self.changes.ignored = Some(before - met.added.len());
    }

    /// `.gitignore` files as they were imported, but for those that are removed. They hold where the workspace has none that
    /// is carried back, because then the host has them still.
    fn imported_patterns(&self) -> Vec<(Rel, Vec<u8>)> {
        let removed: HashSet<&Rel> = self.changes.files.iter().map(|change| &change.path).collect();
        let entries = self.base.manifest.entries.iter();
        entries
            .filter(|(path, _)| path.is_named(IGNORE) && !removed.contains(path))
            .filter_map(|(path, node)| match node {
                Node::File { digest, .. } => Some((path.clone(), self.base.content(digest).ok()?)),
                Node::Link { .. } => None,
            })
            .collect()
    }

    fn read(&mut self, path: Rel) -> Result<(), CarryError> {
        self.go_on()?;
        let before = self.base.manifest.entries.get(&path).cloned();
        let mut opened = match self.root.file(path.as_path()) {
            Ok(opened) => opened,
            // A file that came and went is no change.
            Err(BeneathError::NotFound) if before.is_none() => return Ok(()),
            Err(_) => {
                self.leave_out(&path, Why::Unreadable);
                return Ok(());
            }
        };
        let most = self.limits.one_file;
        if opened.size > most {
            self.leave_out(&path, Why::TooBig(most));
            return Ok(());
        }
        let Ok(metadata) = opened.file.metadata() else {
            self.leave_out(&path, Why::Unreadable);
            return Ok(());
        };
        let executable = metadata.mode() & 0o100 != 0;
        let node = |taken: &Taken| match taken {
            Taken::Whole { digest, size } => Some(Node::File { digest: *digest, size: *size, executable }),
            Taken::TooBig | Taken::Stopped => None,
        };
        let failed = |source| CarryError::system(format!("read {path} in the workspace"), source);
        // Most files are as they were: those are read and not kept.
        if matches!(&before, Some(Node::File { size, .. }) if *size == opened.size) {
            let taken = digest_of(&mut opened.file, most, self.stop).map_err(failed)?;
            if node(&taken) == before {
                return Ok(());
            }
            std::io::Seek::rewind(&mut opened.file).map_err(failed)?;
        }
        let taken = self.changes.pack.take(&mut opened.file, most, self.stop).map_err(failed)?;
        let after = match taken {
            Taken::Stopped => return Err(CarryError::Stopped),
            Taken::TooBig => {
                self.leave_out(&path, Why::TooBig(most));
                return Ok(());
            }
            Taken::Whole { .. } => node(&taken),
        };
        if after == before {
            return Ok(());
        }
        self.add(Change { path, before, after })
    }

    /// With the content that it had, so that a patch can be made of it later.
    fn add(&mut self, change: Change) -> Result<(), CarryError> {
        if let Some(Node::File { digest, .. }) = &change.before {
            let bytes = self.base.content(digest)?;
            let failed = |source| CarryError::system("keep the changes", source);
            self.changes.pack.take(&mut bytes.as_slice(), u64::MAX, self.stop).map_err(failed)?;
        }
        self.bytes = self.bytes.saturating_add(change.bytes());
        self.changes.files.push(change);
        let files = &self.changes.files;
        let too_much = |cap, found, allowed| {
            let sizes = files.iter().filter_map(|change| match &change.after {
                Some(Node::File { size, .. }) => Some((change.path.to_string(), *size)),
                Some(Node::Link { .. }) | None => None,
            });
            Err(CarryError::TooMuch(TooMuch { cap, found, allowed, culprits: biggest(sizes) }))
        };
        if files.len() > self.limits.files {
            return too_much(Cap::Files, files.len() as u64, self.limits.files as u64);
        }
        // Before and after.
        let allowed = self.limits.bytes.saturating_mul(2);
        if self.bytes > allowed {
            return too_much(Cap::Bytes, self.bytes, allowed);
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Rel, why: Why) {
        self.changes.left_out.add(LeftOut::new(path.as_bytes(), why));
    }

    fn go_on(&self) -> Result<(), CarryError> {
        if self.stop.load(Ordering::Relaxed) { Err(CarryError::Stopped) } else { Ok(()) }
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// To be called once they were applied to the directory that was imported: from now on it is these that the box
    /// starts from. Without it, a file that is changed again would look as if the host had changed it.
    pub fn settle(&self, base: &Path) -> Result<(), CarryError> {
        let mut base = Base::open(base)?;
        let failed = |source| CarryError::system("write the baseline", source);
        let mut pack = base.new_pack()?;
        let mut entries = base.manifest.entries.clone();
        for Change { path, before, after } in &self.files {
            // Imported anew meanwhile: that is newer.
            if entries.get(path) != before.as_ref() {
                continue;
            }
            match after {
                Some(node) => {
                    if let Node::File { digest, .. } = node {
                        let bytes = self.pack.content(digest).map_err(failed)?;
                        pack.take(&mut bytes.as_slice(), u64::MAX, &AtomicBool::new(false))
                            .map_err(failed)?;
                    }
                    entries.insert(path.clone(), node.clone());
                }
                None => {
                    entries.remove(path);
                }
            }
        }
        let manifest = Manifest::new(base.manifest.rules.clone(), entries);
        base.commit(manifest, &pack)
    }
}
