//! Bearer tokens, one per principal.
//!
//! ```text
//! <state>/token        the token of `local` in clear: the commands of this user read it
//! <state>/tokens.json  every principal's token as its SHA-256, and when it was made
//! ```
//!
//! **Invariant:** a token other than `local`'s is never written down; who made it saw it once.
//!
//! # Synchronization
//!
//! Changes are made under a lock on `tokens.lock`, so that two commands at once lose nothing. Readers take no
//! lock: the file is replaced as a whole.

mod file;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use model::Principal;
use sha2::{Digest as _, Sha256};

use crate::state::{StateDir, StateError};
use file::{Entry, Stamp};

const CLEAR: &str = "token";
const PREFIX: &str = "cs_";
/// How long a revoked token may still be taken for good.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("`{0}` has a token already")]
    Exists(Principal),
    #[error("`local` is the name of the token the daemon makes itself")]
    Reserved,
    #[error("there is no token for `{0}`")]
    Unknown(Principal),
    #[error("could not get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error("could not use the tokens in the state directory")]
    State(#[from] StateError),
}

/// A token in clear. Only [`Secret::expose`] shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What can be told about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    pub name: Principal,
    /// Unix seconds.
    pub created_at: u64,
}

/// The tokens of a state directory.
#[derive(Debug)]
pub struct Tokens {
    state: StateDir,
    known: Mutex<Known>,
}

/// What `authenticate` goes by.
#[derive(Debug)]
struct Known {
    entries: Vec<Entry>,
    stamp: Option<Stamp>,
    looked_at: Instant,
}

impl Tokens {
    pub fn open(state: &StateDir) -> Result<Self, TokenError> {
        let stamp = file::stamp(state);
        let entries = file::read(state)?;
        let known = Known { entries, stamp, looked_at: Instant::now() };
        Ok(Self { state: state.clone(), known: Mutex::new(known) })
    }

    /// For the daemon's start: makes the token of `local` unless a good one is there, and says where it lies.
    /// Idempotent.
    pub fn ensure_local(&self, now: u64) -> Result<PathBuf, TokenError> {
        let _lock = file::lock(&self.state)?;
        let mut entries = file::read(&self.state)?;
        let clear = self.state.read(CLEAR)?;
        let hash = clear.as_deref().map(|clear| hash(clear.trim_end()));
        let local = Principal::local();
        // Both or none: a clear token that is not listed was revoked.
        if !entries.iter().any(|entry| entry.name == local && Some(entry.hash) == hash) {
            let secret = Secret::random()?;
            entries.retain(|entry| entry.name != local);
            entries.insert(0, Entry { name: local, hash: secret.hash(), created_at: now });
            self.state.write(CLEAR, format!("{}\n", secret.0).as_bytes())?;
            file::write(&self.state, &entries)?;
        }
        self.look_again();
        Ok(self.state.file(CLEAR))
    }

    /// The one time the token can be seen. `now`: Unix seconds.
    pub fn create(&self, name: &Principal, now: u64) -> Result<Secret, TokenError> {
        if *name == Principal::local() {
            return Err(TokenError::Reserved);
        }
        let _lock = file::lock(&self.state)?;
        let mut entries = file::read(&self.state)?;
        if entries.iter().any(|entry| entry.name == *name) {
            return Err(TokenError::Exists(name.clone()));
        }
        let secret = Secret::random()?;
        entries.push(Entry { name: name.clone(), hash: secret.hash(), created_at: now });
        file::write(&self.state, &entries)?;
        self.look_again();
        Ok(secret)
    }

    pub fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        let info = |entry: Entry| TokenInfo { name: entry.name, created_at: entry.created_at };
        Ok(file::read(&self.state)?.into_iter().map(info).collect())
    }

    /// A running daemon takes notice within a second. `local` gets a new one at the daemon's next start.
    pub fn revoke(&self, name: &Principal) -> Result<(), TokenError> {
        let _lock = file::lock(&self.state)?;
        let mut entries = file::read(&self.state)?;
        let before = entries.len();
        entries.retain(|entry| entry.name != *name);
        if entries.len() == before {
            return Err(TokenError::Unknown(name.clone()));
        }
        file::write(&self.state, &entries)?;
        if *name == Principal::local() {
            self.state.remove(CLEAR)?;
        }
        self.look_again();
        Ok(())
    }

    /// None for an unknown or revoked token. Callers cannot tell which, on purpose.
    pub fn authenticate(&self, bearer: &str) -> Option<Principal> {
        self.authenticate_at(bearer, Instant::now())
    }

    /// [`Tokens::authenticate`] at a given time.
    pub fn authenticate_at(&self, bearer: &str, now: Instant) -> Option<Principal> {
        let presented = hash(bearer);
        let mut known = self.known();
        if now.saturating_duration_since(known.looked_at) >= LOOK_AGAIN {
            known.looked_at = now;
            known.reload(&self.state);
        }
        // Every entry is compared to its end, so that the time taken tells nothing about any of them.
        let mut found = None;
        for entry in &known.entries {
            if is_same(&entry.hash, &presented) {
                found = Some(&entry.name);
            }
        }
        found.cloned()
    }

    fn look_again(&self) {
        self.known().reload(&self.state);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it is held; a poisoned lock still guards a whole value.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Fails closed: with a file that cannot be read nobody has a token, since one may have been revoked.
    fn reload(&mut self, state: &StateDir) {
        // Before reading: a change in between makes the next look read again.
        let stamp = file::stamp(state);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        self.entries = file::read(state).unwrap_or_else(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "no token is accepted until this is put right"
            );
            Vec::new()
        });
    }
}

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn random() -> Result<Self, TokenError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
        Ok(Self(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))))
    }

    fn hash(&self) -> [u8; 32] {
        hash(&self.0)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn is_same(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    // Keeps the compiler from leaving the loop at the first difference.
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests;
