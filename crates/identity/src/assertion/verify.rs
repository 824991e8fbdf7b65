//! Verifying, for authors of servers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use model::identity::{Id, Identity, Source, Trust};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Number;

use super::replay::{TokenId, Use, Used};
use super::{BadJwks, LIFETIME, MAX_CLAIMS, Reject, SKEW, TYPE};
use crate::canonical::{ArgumentsDigest, digest_arguments};

/// Claims in base64, with room for the header and the signature.
const MAX_TOKEN: usize = MAX_CLAIMS * 4 / 3 + 1024;

/// Verifies the assertions that a server gets.
#[derive(Debug)]
pub struct Verifier {
    keys: Mutex<PublicKeys>,
    audience: Option<String>,
    require: Trust,
    used: Mutex<Used>,
}

/// What a verified assertion says. Whether it is about the request it came with, [`Verified::is_about`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub identity: Identity,
    pub issuer: String,
    pub audience: String,
    pub method: String,
    pub name: Option<String>,
    pub call: String,
    pub id: String,
    /// Unix seconds.
    pub issued_at: u64,
    pub expires_at: u64,
}

impl Verified {
    /// `name`: of the tool or prompt, or the uri; none for a list.
    pub fn is_about(&self, method: &str, name: Option<&str>) -> bool {
        self.method == method && self.name.as_deref() == name
    }
}

impl Verifier {
    /// `jwks`: a JWK set, as [`crate::keys::Keyring::jwks`] gives it.
    pub fn new(jwks: &str) -> Result<Self, BadJwks> {
        Ok(Self::with(PublicKeys { keys: parse_jwks(jwks)?, file: None }))
    }

    /// `path`: what the environment variable `CALLSIGN_JWKS_FILE` holds. A rotation is taken notice of.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self, BadJwks> {
        let path = path.into();
        let stamp = stamp(&path);
        let keys = parse_jwks(&fs::read_to_string(&path)?)?;
        Ok(Self::with(PublicKeys { keys, file: Some(KeyFile { path, stamp, looked_at: 0 }) }))
    }

    fn with(keys: PublicKeys) -> Self {
        Self { keys: Mutex::new(keys), audience: None, require: Trust::None, used: Mutex::default() }
    }

    /// The server's own name, as Callsign's configuration has it. Without one nothing verifies.
    #[must_use]
    pub fn audience(self, name: impl Into<String>) -> Self {
        Self { audience: Some(name.into()), ..self }
    }

    /// The least trust that is taken.
    #[must_use]
    pub fn require(self, trust: Trust) -> Self {
        Self { require: trust, ..self }
    }

    /// `arguments`: the JSON of `params.arguments`, as it came or printed again; none where there are none. `now`:
    /// Unix seconds. An assertion is taken once.
    pub fn verify(&self, token: &str, arguments: Option<&[u8]>, now: u64) -> Result<Verified, Reject> {
        let audience = self.audience.as_deref().ok_or(Reject::Audience)?;
        self.verify_for(audience, token, arguments, now)
    }

    /// [`Verifier::verify`] for a server named here.
    pub fn verify_for(
        &self,
        audience: &str,
        token: &str,
        arguments: Option<&[u8]>,
        now: u64,
    ) -> Result<Verified, Reject> {
        let claims = self.open(token, now)?;
        let (issued_at, expires_at) = claims.times(now)?;
        if claims.aud != audience {
            return Err(Reject::Audience);
        }
        let (digest, id) = (claims.digest()?, claims.token_id());
        let verified = claims.into_verified(issued_at, expires_at)?;
        if verified.identity.trust < self.require {
            return Err(Reject::Trust);
        }
        if digest_arguments(arguments) != Ok(digest) {
            return Err(Reject::Arguments);
        }
        // Last: what is refused is not used up.
        match lock(&self.used).once(id, expires_at, now) {
            Use::First => Ok(verified),
            Use::Again => Err(Reject::Replay),
            Use::Expired => Err(Reject::Expired),
            Use::Full => Err(Reject::Busy),
        }
    }

    /// The claims, once the signature was found right.
    fn open(&self, token: &str, now: u64) -> Result<Claims, Reject> {
        if token.len() > MAX_TOKEN {
            return Err(Reject::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Reject::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Reject::Malformed)?;
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| Reject::Malformed)?;
        if header.alg.as_deref() != Some("EdDSA") {
            return Err(Reject::Algorithm);
        }
        if header.typ.as_deref() != Some(TYPE) || header.crit.is_some() {
            return Err(Reject::Malformed);
        }
        let key = header.kid.and_then(|kid| lock(&self.keys).find(&kid, now)).ok_or(Reject::Key)?;
        let (claims, signature) = (decode(claims)?, decode(signature)?);
        UnparsedPublicKey::new(&ED25519, key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| Reject::Signature)?;
        serde_json::from_slice(&claims).map_err(|_| Reject::Malformed)
    }
}

/// Takes the one way of writing that base64url has: no padding, no other letters, no bits left over.
fn decode(text: &str) -> Result<Vec<u8>, Reject> {
    BASE64.decode(text).map_err(|_| Reject::Malformed)
}

#[derive(Deserialize)]
struct Header {
    alg: Option<String>,
    typ: Option<String>,
    kid: Option<String>,
    /// What must be understood; nothing of it is.
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    host: String,
    session: String,
    thread: Option<String>,
    parent: Option<String>,
    run: Option<String>,
    call: String,
    trust: String,
    source: String,
    method: String,
    name: Option<String>,
    ah: Option<String>,
    ahx: Option<String>,
    jti: String,
    iat: Number,
    exp: Number,
}

impl Claims {
    fn times(&self, now: u64) -> Result<(u64, u64), Reject> {
        let (Some(issued_at), Some(expires_at)) = (self.iat.as_u64(), self.exp.as_u64()) else {
            return Err(Reject::Time);
        };
        let lifetime = expires_at.checked_sub(issued_at).ok_or(Reject::Time)?;
        if !(1..=LIFETIME).contains(&lifetime) || issued_at > now.saturating_add(SKEW) {
            return Err(Reject::Time);
        }
        if expires_at <= now { Err(Reject::Expired) } else { Ok((issued_at, expires_at)) }
    }

    fn digest(&self) -> Result<ArgumentsDigest, Reject> {
        let read = |text: &str| <[u8; 32]>::try_from(decode(text)?).map_err(|_| Reject::Malformed);
        match (&self.ah, &self.ahx) {
            (Some(canonical), None) => read(canonical).map(ArgumentsDigest::Canonical),
            (None, Some(as_sent)) => read(as_sent).map(ArgumentsDigest::AsSent),
            (Some(_), Some(_)) | (None, None) => Err(Reject::Malformed),
        }
    }

    fn token_id(&self) -> TokenId {
        let whole = digest(&SHA256, format!("{}\n{}", self.iss, self.jti).as_bytes());
        let mut id = TokenId::default();
        let length = id.len();
        id.copy_from_slice(&whole.as_ref()[..length]);
        id
    }

    fn into_verified(self, issued_at: u64, expires_at: u64) -> Result<Verified, Reject> {
        if self.sub != format!("{}:{}", self.host, self.session) {
            return Err(Reject::Malformed);
        }
        let id = |text: String| Id::new(text).map_err(|_| Reject::Malformed);
        let trust = Trust::parse(&self.trust).filter(|trust| *trust > Trust::None);
        let identity = Identity {
            host: Some(id(self.host)?),
            session: Some(id(self.session)?),
            thread: self.thread.map(id).transpose()?,
            parent: self.parent.map(id).transpose()?,
            run: self.run.map(id).transpose()?,
            turn: None,
            call: Id::new(self.call.as_str()).ok(),
            title: None,
            trust: trust.ok_or(Reject::Malformed)?,
            source: crate::read::source(&self.source).ok_or(Reject::Malformed)?,
        };
        if identity.source == Source::None {
            return Err(Reject::Malformed);
        }
        Ok(Verified {
            identity,
            issuer: self.iss,
            audience: self.aud,
            method: self.method,
            name: self.name,
            call: self.call,
            id: self.jti,
            issued_at,
            expires_at,
        })
    }
}

/// Keys by their `kid`.
type Known = HashMap<String, [u8; 32]>;

#[derive(Debug)]
struct PublicKeys {
    keys: Known,
    /// None: they never change.
    file: Option<KeyFile>,
}

#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    /// The second in which it was last looked at.
    looked_at: u64,
}

type Stamp = (Option<SystemTime>, u64);

impl PublicKeys {
    fn find(&mut self, kid: &str, now: u64) -> Option<[u8; 32]> {
        // An unknown key may be one that was made a moment ago.
        if !self.keys.contains_key(kid) || self.file.as_ref().is_some_and(|file| file.looked_at != now) {
            self.look_again(now);
        }
        self.keys.get(kid).copied()
    }

    /// What cannot be read changes nothing.
    fn look_again(&mut self, now: u64) {
        let Some(file) = &mut self.file else { return };
        file.looked_at = now;
        // Before reading: a change in between makes the next look read again.
        let stamp = stamp(&file.path);
        if stamp == file.stamp {
            return;
        }
        let text = fs::read_to_string(&file.path).ok();
        if let Some(keys) = text.and_then(|text| parse_jwks(&text).ok()) {
            self.keys = keys;
            file.stamp = stamp;
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok(), metadata.len()))
}

/// Keys of other kinds and uses are left out.
fn parse_jwks(text: &str) -> Result<Known, BadJwks> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Jwk>,
    }
    #[derive(Deserialize)]
    struct Jwk {
        kty: String,
        crv: Option<String>,
        x: Option<String>,
        kid: Option<String>,
        alg: Option<String>,
        #[serde(rename = "use")]
        usage: Option<String>,
    }
    let set: Set = serde_json::from_str(text)?;
    let usable = |jwk: Jwk| {
        let fits = jwk.kty == "OKP"
            && jwk.crv.as_deref() == Some("Ed25519")
            && jwk.alg.is_none_or(|alg| alg == "EdDSA")
            && jwk.usage.is_none_or(|usage| usage == "sig");
        let key = BASE64.decode(jwk.x?).ok()?.try_into().ok()?;
        if fits { Some((jwk.kid?, key)) } else { None }
    };
    let keys: Known = set.keys.into_iter().filter_map(usable).collect();
    if keys.is_empty() { Err(BadJwks::Empty) } else { Ok(keys) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held; a poisoned lock still guards a whole value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
