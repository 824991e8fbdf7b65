//! Who vouches for the ledger: the keys are somebody else's.

/// A signature, and the name of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub kid: String,
    pub bytes: Vec<u8>,
}

/// Signs the head of the ledger, and says whether a signature is right.
pub trait Seal: Send + Sync + 'static {
    /// Whether there is a key to sign with, or why there is none. Without it nothing is written.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
    /// Whether a head must be signed. Not everybody who can tell a signature can make one.
    fn has_key(&self) -> bool {
        true
    }
    /// None: there is no key to sign with.
    fn sign(&self, message: &[u8]) -> Option<Signature>;
    /// None: the key is not known.
    fn verify(&self, message: &[u8], signature: &Signature) -> Option<bool>;
}
