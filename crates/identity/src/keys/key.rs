//! One Ed25519 key, and how JOSE writes it (RFC 8037, RFC 7638).

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signer as _, SigningKey as KeyPair};
use ring::digest::{SHA256, digest};

use crate::assertion::TYPE;

pub(crate) struct SigningKey {
    /// Made by the library that signs fastest; what it signs is verified with another one.
    pair: KeyPair,
    /// The first part of every token of this key, with its dot.
    header: String,
}

impl SigningKey {
    pub(super) fn new(pair: KeyPair) -> Self {
        let kid = thumbprint(pair.verifying_key().as_bytes());
        let header = format!(r#"{{"alg":"EdDSA","typ":"{TYPE}","kid":"{kid}"}}"#);
        let header = format!("{}.", BASE64.encode(header));
        Self { pair, header }
    }

    pub(crate) fn header(&self) -> &str {
        &self.header
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.pair.sign(message).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// RFC 7638: the digest of the members a key cannot be without.
pub(super) fn thumbprint(public: &[u8]) -> String {
    let required = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, BASE64.encode(public));
    BASE64.encode(digest(&SHA256, required.as_bytes()))
}

/// A member of a JWK set.
pub(super) fn jwk(public: &[u8]) -> String {
    let (x, kid) = (BASE64.encode(public), thumbprint(public));
    format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}","kid":"{kid}","alg":"EdDSA","use":"sig"}}"#)
}
