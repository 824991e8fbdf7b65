//! The keys that sign assertions, in the state directory.
//!
//! ```text
//! <state>/keys.json  0600  {version, instance, keys: [{kid, seed, created_at, retired_at?}]}
//! <state>/jwks.json  0644  the public halves, for whoever verifies
//! <state>/keys.lock        held while either changes
//! ```
//!
//! One key signs. A rotation retires it: it stays published for [`OVERLAP`], so that what it signed can be verified
//! as long as that is good.
//!
//! **Invariant:** a key is published before it signs. A file that cannot be understood is never written over.
//!
//! # Synchronization
//!
//! Many processes share the directory. Changes are made under a lock on `keys.lock`, on what is read after the lock
//! was taken; so processes that start at once agree on one key. Readers take no lock: both files are replaced as a
//! whole.

mod file;
mod key;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use file::{Document, Row, Stamp};
pub(crate) use key::SigningKey;

/// How long, in seconds, a retired key stays published: an assertion is good for a minute, a verifier may keep the
/// keys it read for longer.
pub const OVERLAP: u64 = 15 * 60;
/// The public keys, for `CALLSIGN_JWKS_FILE`.
pub const JWKS_FILE: &str = "jwks.json";

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("could not read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("could not write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("could not lock {path}")]
    Lock { path: PathBuf, source: io::Error },
    #[error("other users may read {path}")]
    TooOpen { path: PathBuf },
    #[error("{path} belongs to another user than the directory it is in")]
    NotOurs { path: PathBuf },
    #[error(
        "{path} was written by a newer version: its format is {version}, the newest known one is {known}"
    )]
    Newer { path: PathBuf, version: u64, known: u64 },
    #[error("could not make sense of {path}: {reason}")]
    Garbled { path: PathBuf, reason: String },
    #[error("could not get random bytes from the system: {0}")]
    Random(getrandom::Error),
}

/// What can be told about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    pub kid: String,
    /// Unix seconds.
    pub created_at: u64,
    /// Unix seconds; none: this key signs.
    pub retired_at: Option<u64>,
}

/// The keys of a state directory.
#[derive(Debug)]
pub struct Keyring {
    directory: PathBuf,
    keys: RwLock<Arc<Keys>>,
    /// The second in which the file was last looked at.
    looked_at: AtomicU64,
    stamp: Mutex<Option<Stamp>>,
}

/// One version of the file.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) issuer: String,
    pub(crate) signing: SigningKey,
    document: Document,
    jwks: String,
}

impl Keyring {
    /// Makes the first key where there is none. `now`: Unix seconds.
    pub fn open(directory: &Path, now: u64) -> Result<Self, KeyError> {
        let stamp = file::stamp(directory);
        // In most cases everything is in its place, and nobody has to wait for a lock.
        if let Some(document) = file::read(directory)? {
            let keys = Keys::new(document)?;
            if !keys.document.has_expired(now) && file::is_published(directory, &keys.jwks) {
                return Ok(Self::with(directory, keys, stamp, now));
            }
        }
        Self::change(directory, now, |document| Ok(document.drop_expired(now)))
    }

    /// Makes a new key that signs from now on, and retires the one that did.
    pub fn rotate(directory: &Path, now: u64) -> Result<Self, KeyError> {
        Self::change(directory, now, |document| {
            document.drop_expired(now);
            document.retire_all(now);
            document.keys.push(Row::random(now)?);
            Ok(true)
        })
    }

    fn change(
        directory: &Path,
        now: u64,
        change: impl FnOnce(&mut Document) -> Result<bool, KeyError>,
    ) -> Result<Self, KeyError> {
        let lock = file::open_lock(directory)?;
        lock.lock().map_err(|source| KeyError::Lock { path: directory.join(file::LOCK), source })?;
        Self::change_locked(directory, now, change)
    }

    /// `change` says whether it changed anything. Keys that were made just now are not changed.
    fn change_locked(
        directory: &Path,
        now: u64,
        change: impl FnOnce(&mut Document) -> Result<bool, KeyError>,
    ) -> Result<Self, KeyError> {
        let found = file::read(directory)?;
        let mut document = found.map_or_else(|| Document::random(now), Ok)?;
        let is_changed = document.is_new() || change(&mut document)?;
        let keys = Keys::new(document)?;
        // Published first: nobody meets a signature whose key they cannot find.
        if !file::is_published(directory, &keys.jwks) {
            file::publish(directory, &keys.jwks)?;
        }
        if is_changed {
            file::write(directory, &keys.document)?;
        }
        let stamp = file::stamp(directory);
        Ok(Self::with(directory, keys, stamp, now))
    }

    fn with(directory: &Path, keys: Keys, stamp: Option<Stamp>, now: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            keys: RwLock::new(Arc::new(keys)),
            looked_at: AtomicU64::new(now),
            stamp: Mutex::new(stamp),
        }
    }

    /// For every call: takes notice of a rotation within a second, and drops a retired key when its time is over.
    /// Looks at the file once a second at most; else it costs next to nothing. True where the keys are others now.
    ///
    /// An error is given once for each change of the file. The keys stay what they were.
    pub fn refresh_if_changed(&self, now: u64) -> Result<bool, KeyError> {
        if self.looked_at.load(Ordering::Relaxed) == now || self.looked_at.swap(now, Ordering::Relaxed) == now
        {
            return Ok(false);
        }
        let changed = self.reload()?;
        if !self.current().document.has_expired(now) {
            return Ok(changed);
        }
        // A call does not wait for a lock: whoever holds it does the same.
        let lock = file::open_lock(&self.directory)?;
        if lock.try_lock().is_err() {
            return Ok(changed);
        }
        Self::change_locked(&self.directory, now, |document| Ok(document.drop_expired(now)))?;
        Ok(self.reload()? || changed)
    }

    fn reload(&self) -> Result<bool, KeyError> {
        let mut known = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        // Before reading: a change in between makes the next look read again.
        let stamp = file::stamp(&self.directory);
        if stamp == *known {
            return Ok(false);
        }
        *known = stamp;
        let Some(document) = file::read(&self.directory)? else {
            return Err(KeyError::Read {
                path: self.directory.join(file::FILE),
                source: io::ErrorKind::NotFound.into(),
            });
        };
        let keys = Arc::new(Keys::new(document)?);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(true)
    }

    /// The public keys as a JWK set.
    pub fn jwks(&self) -> String {
        self.current().jwks.clone()
    }

    /// Where [`Keyring::jwks`] lies as a file.
    pub fn jwks_file(&self) -> PathBuf {
        self.directory.join(JWKS_FILE)
    }

    /// `callsign:<instance>`: who signs.
    pub fn issuer(&self) -> String {
        self.current().issuer.clone()
    }

    /// Oldest first.
    pub fn list(&self) -> Vec<KeyInfo> {
        let info = |row: &Row| KeyInfo {
            kid: row.kid.clone(),
            created_at: row.created_at,
            retired_at: row.retired_at,
        };
        self.current().document.keys.iter().map(info).collect()
    }

    pub(crate) fn current(&self) -> Arc<Keys> {
        // Nothing panics while it is held; a poisoned lock still guards a whole value.
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Keys {
    fn new(document: Document) -> Result<Self, KeyError> {
        let signing = document.signing_key()?;
        let issuer = format!("callsign:{}", document.instance);
        let jwks = document.jwks()?;
        Ok(Self { issuer, signing, document, jwks })
    }
}

#[cfg(test)]
mod tests;
