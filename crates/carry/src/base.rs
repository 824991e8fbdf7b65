//! The baseline: how the workspace was when it was imported, contents included. It lies where the box sees nothing of it.
//!
//! ```text
//! base/manifest.json   path → (digest, size, executable | link), digest → (pack, offset, size); replaced whole
//! base/N.pack          contents; written before a manifest names it, removed when none does any more
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{CarryError, text};
use crate::ignored::Rules;
use crate::node::{Digest, Node};
use crate::pack::{Pack, slice};
use crate::path::Rel;
use crate::place::Lock;

const MANIFEST: &str = "manifest.json";
const VERSION: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    /// Where git said what is wanted; else what is never wanted is ignored.
    pub(crate) rules: Option<Rules>,
    pub(crate) entries: BTreeMap<Rel, Node>,
    contents: BTreeMap<Digest, Where>,
    /// Number of the next pack.
    next: u32,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Where {
    pack: u32,
    offset: u64,
    size: u64,
}

impl Manifest {
    pub(crate) fn new(rules: Option<Rules>, entries: BTreeMap<Rel, Node>) -> Self {
        Self { version: VERSION, rules, entries, ..Self::default() }
    }
}

/// As long as this lives, nobody else works on the baseline.
#[derive(Debug)]
pub(crate) struct Base {
    at: PathBuf,
    _lock: Lock,
    pub(crate) manifest: Manifest,
    /// False before the first import.
    pub(crate) found: bool,
}

impl Base {
    pub(crate) fn open(at: &Path) -> Result<Self, CarryError> {
        let (base, damaged) = Self::open_anyway(at)?;
        damaged.map_or(Ok(base), |why| Err(CarryError::Damaged(why)))
    }

    /// One whose manifest cannot be read is as good as none: for an import that replaces everything.
    pub(crate) fn open_or_forget(at: &Path) -> Result<Self, CarryError> {
        let (mut base, damaged) = Self::open_anyway(at)?;
        if damaged.is_some() {
            // Behind all packs there are, so that they go once nothing names them.
            base.manifest.next = last_pack(at).map_or(0, |last| last.saturating_add(1));
        }
        Ok(base)
    }

    fn open_anyway(at: &Path) -> Result<(Self, Option<io::Error>), CarryError> {
        let failed = |source| CarryError::system("open the baseline of the session", source);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(at).map_err(failed)?;
        let directory = File::open(at).map_err(failed)?;
        let lock = match Lock::take(directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(lock) => lock,
            Err(Errno::WOULDBLOCK) => {
                return Err(CarryError::Busy { path: "this session's workspace".into() });
            }
            Err(other) => return Err(failed(other.into())),
        };
        let mut damaged = None;
        let found = match fs::read(at.join(MANIFEST)) {
            Ok(bytes) => parse(&bytes).map_err(|why| damaged = Some(why)).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let (found, manifest) = (found.is_some(), found.unwrap_or_default());
        Ok((Self { at: at.to_owned(), _lock: lock, manifest, found }, damaged))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.at
    }

    /// For contents of the import that is under way.
    pub(crate) fn new_pack(&self) -> Result<Pack, CarryError> {
        Pack::create(&self.pack(self.manifest.next))
            .map_err(|source| CarryError::system("write the baseline", source))
    }

    pub(crate) fn drop_pack(&self) {
        let _gone_or_written_over = fs::remove_file(self.pack(self.manifest.next));
    }

    pub(crate) fn content(&self, digest: &Digest) -> Result<Vec<u8>, CarryError> {
        let place = self.manifest.contents.get(digest).ok_or_else(|| missing(digest))?;
        let bytes = File::open(self.pack(place.pack))
            .and_then(|file| slice(&file, place.offset, place.size))
            .map_err(CarryError::Damaged)?;
        if Digest::of(&bytes) == *digest { Ok(bytes) } else { Err(missing(digest)) }
    }

    /// Whole or not at all: until the rename, the old manifest holds, with all that it names.
    pub(crate) fn commit(&mut self, mut manifest: Manifest, pack: &Pack) -> Result<(), CarryError> {
        let failed = |source| CarryError::system(format!("write the baseline in {}", text(&self.at)), source);
        let number = self.manifest.next;
        pack.settle().map_err(failed)?;
        manifest.next = number + 1;
        let mut known = std::mem::take(&mut self.manifest.contents);
        // The newest is known to be sound.
        for (digest, offset, size) in pack.held() {
            known.insert(digest, Where { pack: number, offset, size });
        }
        manifest.contents = manifest
            .entries
            .values()
            .filter_map(|node| match node {
                Node::File { digest, .. } => Some((*digest, *known.get(digest)?)),
                Node::Link { .. } => None,
            })
            .collect();
        let bytes = serde_json::to_vec(&manifest).map_err(|error| failed(error.into()))?;
        replace(&self.at, MANIFEST, &bytes).map_err(failed)?;
        self.manifest = manifest;
        self.found = true;
        self.prune();
        Ok(())
    }

    fn prune(&self) {
        for number in 0..self.manifest.next {
            if !self.manifest.contents.values().any(|place| place.pack == number) {
                let _gone_already = fs::remove_file(self.pack(number));
            }
        }
    }

    fn pack(&self, number: u32) -> PathBuf {
        self.at.join(format!("{number}.pack"))
    }
}

fn last_pack(at: &Path) -> Option<u32> {
    let numbers = fs::read_dir(at)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".pack")?.parse().ok());
    numbers.max()
}

fn missing(digest: &Digest) -> CarryError {
    CarryError::Damaged(io::Error::other(format!("content {digest} is missing or was changed")))
}

fn parse(bytes: &[u8]) -> io::Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(bytes)?;
    if manifest.version == VERSION {
        Ok(manifest)
    } else {
        Err(io::Error::other(format!("it has version {}", manifest.version)))
    }
}

/// A file of ours, replaced whole and on disk when this returns.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = directory.join(format!("{name}.new"));
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, directory.join(name))?;
    File::open(directory)?.sync_all()
}
