//! `keys.json` and `jwks.json` on disk.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::SigningKey as KeyPair;
use serde::{Deserialize, Serialize};

use super::key::{SigningKey, jwk, thumbprint};
use super::{JWKS_FILE, KeyError, OVERLAP};

pub(super) const FILE: &str = "keys.json";
pub(super) const LOCK: &str = "keys.lock";
const FORMAT: u64 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default = "first_format")]
    version: u64,
    /// Names this installation in `iss`.
    pub(super) instance: String,
    /// Oldest first. Exactly one is not retired.
    pub(super) keys: Vec<Row>,
    /// Where it was read; empty where it was made here.
    #[serde(skip)]
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) kid: String,
    /// The private key.
    seed: String,
    pub(super) created_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retired_at: Option<u64>,
}

/// Tells one version of the file from another. The inode does most of it: each version is a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

fn first_format() -> u64 {
    1
}

impl Document {
    pub(super) fn random(now: u64) -> Result<Self, KeyError> {
        let mut instance = [0; 12];
        getrandom::fill(&mut instance).map_err(KeyError::Random)?;
        Ok(Self {
            version: FORMAT,
            instance: BASE64.encode(instance),
            keys: vec![Row::random(now)?],
            path: PathBuf::new(),
        })
    }

    /// Whether it was made here and is not on disk.
    pub(super) fn is_new(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.keys.iter().any(|row| row.has_expired(now))
    }

    /// True where there was one.
    pub(super) fn drop_expired(&mut self, now: u64) -> bool {
        let before = self.keys.len();
        self.keys.retain(|row| !row.has_expired(now));
        self.keys.len() != before
    }

    pub(super) fn retire_all(&mut self, now: u64) {
        for row in &mut self.keys {
            row.retired_at.get_or_insert(now);
        }
    }

    pub(super) fn signing_key(&self) -> Result<SigningKey, KeyError> {
        Ok(SigningKey::new(self.pair(self.signing_row()?)?))
    }

    fn signing_row(&self) -> Result<&Row, KeyError> {
        let mut signing = self.keys.iter().filter(|row| row.retired_at.is_none());
        let (Some(row), None) = (signing.next(), signing.next()) else {
            return Err(self.garbled("there must be exactly one key that is not retired"));
        };
        Ok(row)
    }

    pub(super) fn jwks(&self) -> Result<String, KeyError> {
        let pairs = self.keys.iter().map(|row| self.pair(row));
        let keys: Result<Vec<String>, KeyError> =
            pairs.map(|pair| Ok(jwk(pair?.verifying_key().as_bytes()))).collect();
        Ok(format!("{{\"keys\":[{}]}}\n", keys?.join(",")))
    }

    fn pair(&self, row: &Row) -> Result<KeyPair, KeyError> {
        let seed = BASE64.decode(&row.seed).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
        let pair = seed.map(|seed| KeyPair::from_bytes(&seed));
        let pair = pair.ok_or_else(|| self.garbled("a seed is 32 bytes in base64url"))?;
        if thumbprint(pair.verifying_key().as_bytes()) != row.kid {
            return Err(self.garbled("a kid is not that of its seed"));
        }
        Ok(pair)
    }

    fn check(self) -> Result<Self, KeyError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !(1..=64).contains(&self.instance.len()) || !self.instance.bytes().all(plain) {
            return Err(self.garbled("an instance is 1 to 64 letters, digits, dots, dashes and underscores"));
        }
        self.signing_row()?;
        Ok(self)
    }

    fn garbled(&self, reason: &str) -> KeyError {
        KeyError::Garbled { path: self.path.clone(), reason: reason.to_owned() }
    }
}

impl Row {
    pub(super) fn random(now: u64) -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(KeyError::Random)?;
        let kid = thumbprint(KeyPair::from_bytes(&seed).verifying_key().as_bytes());
        Ok(Self { kid, seed: BASE64.encode(seed), created_at: now, retired_at: None })
    }

    fn has_expired(&self, now: u64) -> bool {
        self.retired_at.is_some_and(|retired_at| retired_at.saturating_add(OVERLAP) <= now)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, seed: _, created_at, retired_at } = self;
        let mut row = f.debug_struct("Row");
        row.field("kid", kid).field("created_at", created_at).field("retired_at", retired_at);
        row.finish_non_exhaustive()
    }
}

/// None: there is no file, or none that we may look at.
pub(super) fn stamp(directory: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(directory.join(FILE)).ok()?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Some(Stamp { inode: metadata.ino(), modified, length: metadata.len() })
}

/// None: there is no file.
pub(super) fn read(directory: &Path) -> Result<Option<Document>, KeyError> {
    let path = directory.join(FILE);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(KeyError::Read { path, source }),
    };
    let metadata = file.metadata().and_then(|file| Ok((file, fs::metadata(directory)?)));
    let (metadata, of_directory) = match metadata {
        Ok(metadata) => metadata,
        Err(source) => return Err(KeyError::Read { path, source }),
    };
    if metadata.uid() != of_directory.uid() {
        return Err(KeyError::NotOurs { path });
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(KeyError::TooOpen { path });
    }
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) => parse(path, &text).map(Some),
        Err(source) => Err(KeyError::Read { path, source }),
    }
}

fn parse(path: PathBuf, text: &str) -> Result<Document, KeyError> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    // First, since the rest of a newer file may not look like anything we know.
    if let Ok(Version { version }) = serde_json::from_str(text)
        && version > FORMAT
    {
        return Err(KeyError::Newer { path, version, known: FORMAT });
    }
    match serde_json::from_str::<Document>(text) {
        Ok(document) => Document { path, ..document }.check(),
        // Its place, and none of its words: they may hold a piece of a key.
        Err(error) => Err(KeyError::Garbled {
            path,
            reason: format!("line {}, column {}", error.line(), error.column()),
        }),
    }
}

pub(super) fn write(directory: &Path, document: &Document) -> Result<(), KeyError> {
    let path = directory.join(FILE);
    let text = serde_json::to_vec_pretty(document);
    let text = text.map_err(|error| KeyError::Garbled { path: path.clone(), reason: error.to_string() })?;
    replace(directory, FILE, &[&text[..], b"\n"].concat(), 0o600)
        .map_err(|source| KeyError::Write { path, source })
}

pub(super) fn is_published(directory: &Path, jwks: &str) -> bool {
    fs::read(directory.join(JWKS_FILE)).is_ok_and(|published| published == jwks.as_bytes())
}

pub(super) fn publish(directory: &Path, jwks: &str) -> Result<(), KeyError> {
    let path = directory.join(JWKS_FILE);
    replace(directory, JWKS_FILE, jwks.as_bytes(), 0o644).map_err(|source| KeyError::Write { path, source })
}

/// The lock's file is never removed: a lock on a removed file keeps nobody out.
pub(super) fn open_lock(directory: &Path) -> Result<File, KeyError> {
    let path = directory.join(LOCK);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(&path).map_err(|source| KeyError::Lock { path, source })
}

/// Replaces a file as a whole, under the lock. It is on disk when this returns.
fn replace(directory: &Path, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let new = directory.join(format!(".new-{name}"));
    // One that a killed process left behind: nobody else is here, since we hold the lock.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&new, directory.join(name))?;
    // The rename itself is on disk only when the directory is.
    File::open(directory)?.sync_all()
}
