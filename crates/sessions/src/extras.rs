//! What a session gets besides its agent, once: a bundle of the host, looked at as a whole, then placed.
//!
//! ```text
//! extras_dir ──snapshot──▶ SESSION/extras/   work/requirements.txt ─▶ a box of its own ─▶ meta/python/
//!  (bundle.rs)                               skills/                                          │
//!                          SESSION/extras.json: placing ──place (place.rs)──▶ workspace/skills/, meta/python/ ─▶ done
//! ```
//!
//! Whoever is cut off before `placing` is on disk has changed nothing of the session, and the next begins anew. Whoever
//! is cut off after it is followed by one that finishes.
//!
//! **Invariants:** nothing is placed that is not recorded; what was recorded is what was read, in one pass; no link is
//! followed, in the bundle or in the session; nothing that lies in the workspace is overwritten.

mod bundle;
mod place;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use beneath::{Root, Walk};
use model::ports::sandbox::{Ending, SandboxError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::layout::{self, SessionDirs};

pub use bundle::{Bundle, snapshot};

/// Who owns what is placed: user and group.
pub type Owner = Option<(u32, u32)>;

const RECORD: &str = "extras.json";
const STAGE: &str = "extras";
/// Beneath `/session-meta`: where packages are, and where a box reads what was installed.
const PACKAGES: &str = "python";
/// Entries that are looked at to see what was installed.
const MOST_ENTRIES: usize = 200_000;
const MOST_PACKAGES: usize = 2_000;
/// Of the list of files that a package has.
const LARGEST_LIST: u64 = 16 << 20;
const LONGEST_NAME: usize = 128;

/// Why a session does not get its extras.
#[derive(Debug)]
pub enum Unfit {
    /// For a person: what is wrong, and what to do about it.
    Refused(String),
    /// The box in which they are installed did not start.
    Box(SandboxError),
    /// It ended with this, and said that.
    Ended(Ending, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// All is there, and is being put where it belongs.
    Placing,
    Done,
}

/// A file of the bundle as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digested {
    /// Relative to the bundle.
    pub path: String,
    pub sha256: String,
    pub bytes: u64,
}

/// What pip left, as its own directories say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Of the list of its files with their digests, where there is one.
    pub sha256: Option<String>,
}

/// What was installed, written down once. No box can write it; one can read a copy of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    pub state: Standing,
    pub bundle: String,
    pub installed_at: String,
    pub requirements: Option<Digested>,
    pub skills: Vec<Digested>,
    pub packages: Vec<Package>,
    /// Where packages came from: hosts that could be reached.
    pub hosts: Vec<String>,
    /// Skills in whose place something lay already. That was left as it was.
    pub kept: Vec<String>,
}

impl Extras {
    pub fn new(bundle: Bundle, packages: Vec<Package>, hosts: Vec<String>, at: String) -> Self {
        let Bundle { path, requirements, skills } = bundle;
        let (state, kept) = (Standing::Placing, Vec::new());
        Self { state, bundle: path, installed_at: at, requirements, skills, packages, hosts, kept }
    }

    /// Whether another bundle is the one that was installed, wherever it lies.
    pub fn is_of(&self, bundle: &Bundle) -> bool {
        self.requirements == bundle.requirements && self.skills == bundle.skills
    }
}

/// Where extras are prepared. No box of the session sees it; the one in which pip runs sees `work`, `meta` and `sockets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub fn meta(&self) -> PathBuf {
        self.root.join("meta")
    }

    pub fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    fn skills(&self) -> PathBuf {
        self.root.join(bundle::SKILLS)
    }

    /// Idempotent. Nobody may write to it meanwhile. Blocks.
    pub fn remove(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => layout::remove(&self.root),
        }
    }

    /// What lies where pip puts packages. Blocks; nobody may write to it meanwhile.
    pub fn packages(&self) -> Result<Vec<Package>, String> {
        let packages = self.meta().join(PACKAGES);
        let unread = |error: &dyn std::fmt::Display| format!("what was installed cannot be read: {error}");
        match fs::symlink_metadata(&packages) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unread(&error)),
            Ok(found) if !found.is_dir() => return Err(unread(&"it is no directory")),
            Ok(_) => {}
        }
        let root = Root::open(&packages).map_err(|error| unread(&error))?;
        let mut found = Vec::new();
        // lib/python3.NN/site-packages/NAME-VERSION.dist-info
        let walk = Walk::new(root.try_clone().map_err(|error| unread(&error))?, 3).insisting();
        for (seen, entry) in walk.enumerate() {
            if seen >= MOST_ENTRIES || found.len() >= MOST_PACKAGES {
                return Err(format!(
                    "more than {MOST_PACKAGES} packages or {MOST_ENTRIES} files were installed"
                ));
            }
            if let Some((name, version)) = package(&entry.path) {
                let sha256 = list_of(&root, &entry.path);
                found.push(Package { name, version, sha256 });
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Whoever built it could give it any name: one that is no name of a package is not written down.
fn package(path: &Path) -> Option<(String, String)> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let [lib, _, "site-packages", last] = parts.as_slice() else { return None };
    let stem = last.strip_suffix(".dist-info").or_else(|| last.strip_suffix(".egg-info"))?;
    let mut words = stem.splitn(3, '-');
    let (name, version) = (words.next()?, words.next()?);
    let plain = |word: &str| {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._+!".contains(&byte);
        !word.is_empty() && word.len() <= LONGEST_NAME && word.bytes().all(fine)
    };
    (lib.starts_with("lib") && plain(name) && plain(version)).then(|| (name.to_owned(), version.to_owned()))
}

fn list_of(root: &Root, package: &Path) -> Option<String> {
    let list = root.file(&package.join("RECORD")).ok()?;
    let mut hash = Sha256::new();
    let read = io::copy(&mut list.file.take(LARGEST_LIST), &mut Hashing(&mut hash)).ok()?;
    (read < LARGEST_LIST).then(|| hex(&hash.finalize()))
}

impl SessionDirs {
    pub fn stage(&self) -> Stage {
        Stage { root: self.root().join(STAGE) }
    }

    /// What is written down of the session's extras. None: nothing was installed.
    pub fn extras(&self) -> io::Result<Option<Extras>> {
        match fs::read(self.root().join(RECORD)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn keep_extras(&self, extras: &Extras) -> io::Result<()> {
        self.keep(RECORD, &serde_json::to_vec_pretty(extras)?)
    }

    /// Puts what was prepared where it belongs, and writes down that it is there. Idempotent, also over a kill on any
    /// line. No box of the session runs. Blocks.
    pub fn place_extras(&self, extras: Extras, owner: Owner) -> Result<Extras, String> {
        place::place(self, extras, owner)
    }

    /// Whether there are packages of its own for the session's box.
    pub fn has_packages(&self) -> bool {
        let done = |extras: Extras| extras.state == Standing::Done && extras.requirements.is_some();
        self.extras().ok().flatten().is_some_and(done)
    }
}

/// Bytes that pass into a digest.
struct Hashing<'a>(&'a mut Sha256);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// On the disk, not in its memory alone.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
