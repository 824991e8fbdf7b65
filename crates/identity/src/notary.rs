//! A key for what must be verifiable years later: it is made once and does not rotate.
//!
//! ```text
//! <state>/ledger.key  0600  the private half
//! <state>/ledger.pub  0644  the public half, to be taken along by whoever verifies elsewhere
//! ```
//!
//! The keys of assertions are forgotten a quarter of an hour after they are replaced; a ledger is read long after it
//! was written.
//!
//! **Invariant:** a file that is there is never written over.
//!
//! # Synchronization
//!
//! Many processes may find no key at once. Each makes one in a file of its own and links it to the one name; the first
//! link stands, and the others read what is there. A link is to a finished file, so nobody meets half a key.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use ring::digest::{SHA256, digest};

/// The private key, in the state directory.
pub const PRIVATE_FILE: &str = "ledger.key";
/// The public one.
pub const PUBLIC_FILE: &str = "ledger.pub";

/// What the files begin with, so that one is not taken for the other.
const PRIVATE: &str = "ledger-private ";
const PUBLIC: &str = "ledger-public ";

#[derive(Debug, thiserror::Error)]
pub enum NotaryError {
    #[error("could not read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("could not write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("other users may read {path}")]
    TooOpen { path: PathBuf },
    #[error("{path} belongs to another user than the directory it is in")]
    NotOurs { path: PathBuf },
    #[error("{path} does not hold a {what}")]
    Garbled { path: PathBuf, what: &'static str },
    #[error("could not get random bytes from the system: {0}")]
    Random(getrandom::Error),
}

/// Signs, where it has the private key, and knows its own signatures.
pub struct Notary {
    kid: String,
    signing: Option<SigningKey>,
    verifying: VerifyingKey,
}

impl Notary {
    /// The key of a state directory. Makes it where there is none.
    pub fn open(directory: &Path) -> Result<Self, NotaryError> {
        let found = read_private(directory)?;
        let notary = Self::signing(&found.map_or_else(|| make(directory), Ok)?);
        // Whoever made the key may have died before it was published.
        if !directory.join(PUBLIC_FILE).exists() {
            notary.publish(directory)?;
        }
        Ok(notary)
    }

    /// The key of a state directory, for verifying only: none is made. None: there is none.
    pub fn find(directory: &Path) -> Result<Option<Self>, NotaryError> {
        match read_private(directory) {
            Ok(Some(seed)) => Ok(Some(Self { signing: None, ..Self::signing(&seed) })),
            // A copy for somebody who verifies has the public half alone.
            Ok(None) => match Self::public(&directory.join(PUBLIC_FILE)) {
                Err(NotaryError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
                other => other.map(Some),
            },
            Err(error) => Err(error),
        }
    }

    /// The public key in a file, for verifying only.
    pub fn public(path: &Path) -> Result<Self, NotaryError> {
        let text =
            fs::read_to_string(path).map_err(|source| NotaryError::Read { path: path.to_owned(), source })?;
        let verifying = parse(&text, PUBLIC).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        let garbled = || NotaryError::Garbled { path: path.to_owned(), what: "public key of a ledger" };
        let verifying = verifying.ok_or_else(garbled)?;
        Ok(Self { kid: kid(&verifying), signing: None, verifying })
    }

    fn signing(seed: &[u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(seed);
        let verifying = signing.verifying_key();
        Self { kid: kid(&verifying), signing: Some(signing), verifying }
    }

    /// Says which key it is, and nothing else.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// None: the private key is not here.
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.signing.as_ref().map(|signing| signing.sign(message).to_bytes().to_vec())
    }

    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(signature) = Signature::from_slice(signature) else { return false };
        self.verifying.verify_strict(message, &signature).is_ok()
    }

    fn publish(&self, directory: &Path) -> Result<(), NotaryError> {
        let path = directory.join(PUBLIC_FILE);
        let text = format!("{PUBLIC}{}\n", BASE64.encode(self.verifying.as_bytes()));
        link(directory, PUBLIC_FILE, &text, 0o644)
            .map(drop)
            .map_err(|source| NotaryError::Write { path, source })
    }
}

impl fmt::Debug for Notary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notary").field("kid", &self.kid).finish_non_exhaustive()
    }
}

fn kid(verifying: &VerifyingKey) -> String {
    BASE64.encode(&digest(&SHA256, verifying.as_bytes()).as_ref()[..12])
}

fn parse(text: &str, what: &str) -> Option<[u8; 32]> {
    BASE64.decode(text.strip_prefix(what)?.trim_end()).ok()?.try_into().ok()
}

/// None: there is no file.
fn read_private(directory: &Path) -> Result<Option<[u8; 32]>, NotaryError> {
    let path = directory.join(PRIVATE_FILE);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(NotaryError::Read { path, source }),
    };
    let mut text = String::new();
    let looked = file.metadata().and_then(|metadata| {
        file.read_to_string(&mut text)?;
        Ok((metadata, fs::metadata(directory)?))
    });
    let (metadata, of_directory) = match looked {
        Ok(looked) => looked,
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(NotaryError::Garbled { path, what: "private key of a ledger" });
        }
        Err(source) => return Err(NotaryError::Read { path, source }),
    };
    if metadata.uid() != of_directory.uid() {
        return Err(NotaryError::NotOurs { path });
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(NotaryError::TooOpen { path });
    }
    let seed = parse(&text, PRIVATE);
    seed.map(Some).ok_or(NotaryError::Garbled { path, what: "private key of a ledger" })
}

/// The key that is there afterwards, whoever made it.
fn make(directory: &Path) -> Result<[u8; 32], NotaryError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(NotaryError::Random)?;
    let path = directory.join(PRIVATE_FILE);
    let text = format!("{PRIVATE}{}\n", BASE64.encode(seed));
    match link(directory, PRIVATE_FILE, &text, 0o600) {
        Ok(true) => Ok(seed),
        Ok(false) => {
            let gone = || NotaryError::Read { path, source: ErrorKind::NotFound.into() };
            read_private(directory)?.ok_or_else(gone)
        }
        Err(source) => Err(NotaryError::Write { path, source }),
    }
}

/// Makes a file whole or not at all; it is on disk when this returns. False: there was one already.
fn link(directory: &Path, name: &str, text: &str, mode: u32) -> io::Result<bool> {
    let mut random = [0; 9];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let draft = directory.join(format!(".new-{name}-{}", BASE64.encode(random)));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
    let linked = file
        .write_all(text.as_bytes())
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all())
        .and_then(|()| match fs::hard_link(&draft, directory.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        });
    // Also where something failed: it may hold a key.
    fs::remove_file(&draft)?;
    // The link itself is on disk only when the directory is.
    if matches!(linked, Ok(true)) {
        File::open(directory)?.sync_all()?;
    }
    linked
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn one_key_is_made_however_many_ask_and_its_public_half_verifies() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let kids: HashSet<String> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..16).map(|_| scope.spawn(|| Notary::open(state).unwrap().kid().to_owned())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(kids.len(), 1);
        let files: HashSet<_> =
            fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, HashSet::from([PRIVATE_FILE.into(), PUBLIC_FILE.into()]));
        assert_eq!((mode(&state.join(PRIVATE_FILE)), mode(&state.join(PUBLIC_FILE))), (0o600, 0o644));
        let notary = Notary::open(state).unwrap();
        let signature = notary.sign(b"head").unwrap();
        let public = Notary::public(&state.join(PUBLIC_FILE)).unwrap();
        assert!(public.verify(b"head", &signature) && !public.verify(b"tail", &signature));
        assert!(!public.verify(b"head", &signature[1..]));
        assert_eq!((public.kid(), public.sign(b"x")), (notary.kid(), None));
        assert!(!format!("{notary:?}").contains("signing"), "{notary:?}");
    }

    #[test]
    fn whoever_verifies_makes_no_key_and_needs_the_public_half_only() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        assert!(Notary::find(state).unwrap().is_none());
        assert_eq!(fs::read_dir(state).unwrap().count(), 0);
        let made = Notary::open(state).unwrap();
        let found = Notary::find(state).unwrap().unwrap();
        assert_eq!((found.kid(), found.sign(b"x")), (made.kid(), None));
        fs::remove_file(state.join(PRIVATE_FILE)).unwrap();
        assert_eq!(Notary::find(state).unwrap().unwrap().kid(), made.kid());
    }

    #[test]
    fn a_lost_public_half_is_published_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let kid = Notary::open(state).unwrap().kid().to_owned();
        fs::remove_file(state.join(PUBLIC_FILE)).unwrap();
        assert_eq!(Notary::open(state).unwrap().kid(), kid);
        assert_eq!(Notary::public(&state.join(PUBLIC_FILE)).unwrap().kid(), kid);
    }

    #[test]
    fn a_key_that_cannot_be_used_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let private = state.join(PRIVATE_FILE);
        for text in ["", "ledger-private", "ledger-private AAAA\n", "ledger-public AAAA\n", "\u{feff}"] {
            fs::write(&private, text).unwrap();
            fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
            let error = Notary::open(state).unwrap_err();
            assert!(matches!(error, NotaryError::Garbled { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&private).unwrap(), text);
        }
        fs::set_permissions(&private, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Notary::open(state).unwrap_err(), NotaryError::TooOpen { .. }));
        // A private key is not taken for a public one.
        fs::remove_file(&private).unwrap();
        Notary::open(state).unwrap();
        assert!(matches!(Notary::public(&private).unwrap_err(), NotaryError::Garbled { .. }));
    }
}
