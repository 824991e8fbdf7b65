//! Who vouches for the ledger: the notary of the state directory, as the ledger wants to see one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use identity::notary::{Notary, NotaryError};
use ledger::{Seal, Signature};

/// A key that is at hand. Neither crate knows the other.
#[derive(Debug)]
pub struct Sealing(pub Notary);

/// For a process that writes: the key of a state directory, made where there is none.
///
/// Nothing is read or made here, but when the ledger first asks: that is on a thread of its own, and `wrap` has a host
/// waiting for it.
pub fn of(state: &Path) -> Arc<dyn Seal> {
    Arc::new(Lazy { state: state.to_owned(), found: OnceLock::new() })
}

impl Seal for Sealing {
    fn sign(&self, message: &[u8]) -> Option<Signature> {
        let bytes = self.0.sign(message)?;
        Some(Signature { kid: self.0.kid().to_owned(), bytes })
    }

    fn verify(&self, message: &[u8], signature: &Signature) -> Option<bool> {
        (signature.kid == self.0.kid()).then(|| self.0.verify(message, &signature.bytes))
    }
}

struct Lazy {
    state: PathBuf,
    found: OnceLock<Sealing>,
}

impl Lazy {
    /// It is tried again the next time, since a full disk has room again one day.
    fn key(&self) -> Result<&Sealing, NotaryError> {
        if let Some(key) = self.found.get() {
            return Ok(key);
        }
        let notary = Notary::open(&self.state)?;
        Ok(self.found.get_or_init(|| Sealing(notary)))
    }
}

impl Seal for Lazy {
    fn ready(&self) -> Result<(), String> {
        self.key().map(drop).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    fn sign(&self, message: &[u8]) -> Option<Signature> {
        self.key().ok()?.sign(message)
    }

    fn verify(&self, message: &[u8], signature: &Signature) -> Option<bool> {
        self.key().ok()?.verify(message, signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_when_it_is_first_asked_for_and_is_the_same_for_all() {
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (of(state.path()), of(state.path()));
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
        let signature = one.sign(b"head").unwrap();
        assert_eq!(other.verify(b"head", &signature), Some(true));
        assert_eq!(other.verify(b"tail", &signature), Some(false));
        let unknown = Signature { kid: "another".to_owned(), ..signature };
        assert_eq!(other.verify(b"head", &unknown), None);
    }

    #[test]
    fn without_a_key_nothing_is_signed_until_there_is_one() {
        let state = tempfile::tempdir().unwrap();
        let place = state.path().join("later");
        let seal = of(&place);
        assert_eq!(seal.sign(b"head"), None);
        assert!(seal.ready().unwrap_err().contains("later"), "it says where");
        std::fs::create_dir(&place).unwrap();
        assert!(seal.sign(b"head").is_some() && seal.ready().is_ok());
    }
}
