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
    /// None: there is no key.
    fn sign(&self, message: &[u8]) -> Option<Signature>;
    /// None: the key is not known.
    fn verify(&self, message: &[u8], signature: &Signature) -> Option<bool>;
}
