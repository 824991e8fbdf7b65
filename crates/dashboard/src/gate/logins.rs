//! Logins, and codes that become one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::Principal;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a login lasts that nobody uses.
const IDLE: Duration = Duration::from_hours(12);
const MOST_LOGINS: usize = 256;
const MOST_CODES: usize = 16;
/// Pages of one login that are kept live at once.
const MOST_STREAMS: usize = 16;

/// 256 random bits, as text.
pub(super) fn random() -> Result<String, getrandom::Error> {
    use fmt::Write as _;
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    }))
}

type Digest = [u8; 32];

fn digest(secret: &str) -> Digest {
    Sha256::digest(secret.as_bytes()).into()
}

/// A person who was let in.
pub(crate) struct Login {
    pub(crate) principal: Principal,
    /// Stands in every form that changes something.
    pub(crate) csrf: String,
    /// What it is worth. Never shown.
    pub(super) token: String,
    /// Cancelled when the login ends.
    pub(crate) over: CancellationToken,
    streams: AtomicUsize,
}

impl Login {
    pub(super) fn new(principal: Principal, token: String) -> Result<Self, getrandom::Error> {
        Ok(Self {
            principal,
            csrf: random()?,
            token,
            over: CancellationToken::new(),
            streams: AtomicUsize::new(0),
        })
    }

    /// Compared to its end, so that the time taken tells nothing.
    pub(crate) fn is_csrf(&self, presented: &str) -> bool {
        self.csrf.as_bytes().ct_eq(presented.as_bytes()).into()
    }

    /// None: there are enough.
    pub(crate) fn stream(self: &Arc<Self>) -> Option<StreamPlace> {
        let place = StreamPlace(Arc::clone(self));
        (self.streams.fetch_add(1, Ordering::AcqRel) < MOST_STREAMS).then_some(place)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// A live page's place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace(pub(crate) Arc<Login>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

/// By the digest of the cookie: whoever reads this memory cannot log in, and looking one up tells nothing of the others.
#[derive(Debug, Default)]
pub(super) struct Logins(HashMap<Digest, (Arc<Login>, Instant)>);

impl Logins {
    pub(super) fn add(&mut self, cookie: &str, login: Arc<Login>, now: Instant) {
        self.0.retain(|_, (login, used)| {
            let stays = now.saturating_duration_since(*used) < IDLE;
            if !stays {
                login.over.cancel();
            }
            stays
        });
        if self.0.len() >= MOST_LOGINS {
            let oldest = self.0.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            if let Some((login, _)) = oldest.and_then(|oldest| self.0.remove(&oldest)) {
                login.over.cancel();
            }
        }
        self.0.insert(digest(cookie), (login, now));
    }

    pub(super) fn find(&mut self, cookie: &str, now: Instant, counts: bool) -> Option<Arc<Login>> {
        let key = digest(cookie);
        let (login, used) = self.0.get_mut(&key)?;
        if now.saturating_duration_since(*used) >= IDLE {
            login.over.cancel();
            self.0.remove(&key);
            return None;
        }
        if counts {
            *used = now;
        }
        Some(Arc::clone(login))
    }

    pub(super) fn end(&mut self, login: &Login) {
        login.over.cancel();
        self.0.retain(|_, (other, _)| !std::ptr::eq(&raw const **other, &raw const *login));
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// By the digest of the code: the token it stands for, and until when.
#[derive(Default)]
pub(super) struct Codes(HashMap<Digest, (String, Instant)>);

impl Codes {
    pub(super) fn add(&mut self, code: &str, token: String, until: Instant) {
        if self.0.len() >= MOST_CODES {
            let oldest = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(digest(code), (token, until));
    }

    /// Whatever comes of it, it is gone then.
    pub(super) fn take(&mut self, code: &str, now: Instant) -> Option<String> {
        let (token, until) = self.0.remove(&digest(code))?;
        (now < until).then_some(token)
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} codes", self.0.len())
    }
}
