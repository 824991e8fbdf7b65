//! Signing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use model::identity::{Id, Identity, Trust};

use super::{LIFETIME, MAX_CLAIMS};
use crate::canonical::{ArgumentsDigest, BadArguments, digest_arguments, write_inner, write_string};
use crate::keys::Keyring;

/// The call that an assertion is about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Its name is the audience.
    pub server: &'a str,
    pub method: &'a str,
    /// The tool's or prompt's name, or the uri.
    pub name: Option<&'a str>,
    /// The host's id of the call, else ours.
    pub call: &'a str,
    /// The JSON of `params.arguments` as it is sent.
    pub arguments: Option<&'a [u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    #[error("there is nobody to vouch for")]
    Nobody,
    #[error("could not take the digest of the arguments")]
    Arguments(#[from] BadArguments),
    #[error("the claims are longer than {MAX_CLAIMS} bytes")]
    TooLong,
    #[error("could not get random bytes from the system: {0}")]
    Random(getrandom::Error),
}

/// Makes the assertions of one process.
#[derive(Debug)]
pub struct Signer {
    keys: Arc<Keyring>,
    /// No other process has it, so that a number makes an id of each token.
    prefix: String,
    count: AtomicU64,
}

impl Signer {
    pub fn new(keys: Arc<Keyring>) -> Result<Self, SignError> {
        let mut prefix = [0; 12];
        getrandom::fill(&mut prefix).map_err(SignError::Random)?;
        Ok(Self { keys, prefix: BASE64.encode(prefix), count: AtomicU64::new(0) })
    }

    /// The keys it signs with. Whoever signs calls [`Keyring::refresh_if_changed`] before, to take notice of a
    /// rotation.
    pub fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// Refuses an identity of trust `none`, or without a host or a session: there is nothing to say about it.
    pub fn sign(&self, identity: &Identity, about: &About<'_>, now_ms: u64) -> Result<String, SignError> {
        let Identity { host: Some(host), session: Some(session), .. } = identity else {
            return Err(SignError::Nobody);
        };
        if identity.trust == Trust::None {
            return Err(SignError::Nobody);
        }
        let digest = digest_arguments(about.arguments)?;
        let keys = self.keys.current();
        let mut claims = Claims::new();
        claims.text("iss", &keys.issuer);
        claims.text("aud", about.server);
        claims.subject(host, session);
        claims.who(identity);
        claims.text("call", about.call);
        claims.text("trust", identity.trust.as_str());
        claims.text("source", identity.source.as_str());
        claims.text("method", about.method);
        if let Some(name) = about.name {
            claims.text("name", name);
        }
        claims.digest(digest);
        claims.id(&self.prefix, self.count.fetch_add(1, Ordering::Relaxed));
        let now = now_ms / 1000;
        claims.number("iat", now);
        claims.number("exp", now.saturating_add(LIFETIME));
        let claims = claims.finish()?;

        let header = keys.signing.header();
        let mut token = String::with_capacity(header.len() + claims.len() * 4 / 3 + 96);
        token.push_str(header);
        BASE64.encode_string(claims, &mut token);
        let signature = keys.signing.sign(token.as_bytes());
        token.push('.');
        BASE64.encode_string(signature, &mut token);
        Ok(token)
    }
}

/// The claims as JSON, written straight into one buffer: this is done for every call.
struct Claims(Vec<u8>);

impl Claims {
    fn new() -> Self {
        let mut out = Vec::with_capacity(768);
        out.push(b'{');
        Self(out)
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        write_string(&mut self.0, value);
    }

    fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        self.0.extend_from_slice(value.to_string().as_bytes());
    }

    fn subject(&mut self, host: &Id, session: &Id) {
        self.key("sub");
        self.0.push(b'"');
        write_inner(&mut self.0, host.as_str());
        self.0.push(b':');
        write_inner(&mut self.0, session.as_str());
        self.0.push(b'"');
    }

    fn who(&mut self, identity: &Identity) {
        // The host's own id of the call, the turn and the title are not claims.
        let Identity { host, session, thread, parent, run, turn: _, call: _, title: _, trust: _, source: _ } =
            identity;
        let ids =
            [("host", host), ("session", session), ("thread", thread), ("parent", parent), ("run", run)];
        for (key, id) in ids {
            if let Some(id) = id {
                self.text(key, id.as_str());
            }
        }
    }

    fn digest(&mut self, digest: ArgumentsDigest) {
        let (key, digest) = match digest {
            ArgumentsDigest::Canonical(digest) => ("ah", digest),
            ArgumentsDigest::AsSent(digest) => ("ahx", digest),
        };
        let mut text = [0; 43];
        // 32 bytes are 43 characters, so it always fits.
        let length = BASE64.encode_slice(digest, &mut text).unwrap_or_default();
        self.key(key);
        self.0.push(b'"');
        self.0.extend_from_slice(&text[..length]);
        self.0.push(b'"');
    }

    fn id(&mut self, prefix: &str, count: u64) {
        self.key("jti");
        self.0.push(b'"');
        self.0.extend_from_slice(prefix.as_bytes());
        self.0.push(b'.');
        self.0.extend_from_slice(count.to_string().as_bytes());
        self.0.push(b'"');
    }

    fn finish(mut self) -> Result<Vec<u8>, SignError> {
        self.0.push(b'}');
        if self.0.len() > MAX_CLAIMS { Err(SignError::TooLong) } else { Ok(self.0) }
    }
}
