//! Who may see pages, and who may change something.
//!
//! ```text
//! token in a form ─┐                         ┌─ cookie ─▶ login ─▶ is its token still good? ─▶ principal
//! one-time code ───┴─▶ login (cookie, csrf) ─┤
//!                                            └─ csrf in a form, and the origin, for what changes something
//! ```
//!
//! **Invariants:** a cookie or a code is kept as its digest alone. A login is worth what its token is worth now. Every table is
//! bounded, and whoever is too many pushes out the oldest of the same table.

mod cookie;
mod failures;
mod logins;
mod origin;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use model::Principal;
use tokio::time::Instant;

use failures::Failures;
use logins::{Codes, Logins};

pub(crate) use cookie::{end as end_cookie, set as set_cookie};
pub(crate) use logins::{Login, StreamPlace};
pub(crate) use origin::{is_unasked, may_change, may_read};

/// How long the code of a link counts.
const CODE: Duration = Duration::from_mins(2);

/// Answers whose token it is. None: nobody's, or nobody's any more.
pub type PrincipalOf = Arc<dyn Fn(&str) -> Option<Principal> + Send + Sync>;

/// How a person shows who they are.
#[derive(Clone)]
pub enum Auth {
    /// Whoever reaches the socket is the local user. Loopback only.
    None,
    Tokens(PrincipalOf),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Tokens(_) => "Tokens",
        })
    }
}

/// Why nobody was let in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("it does not count")]
    Wrong,
    #[error("too many tries")]
    TooOften,
    #[error("the system has no random bytes")]
    Random,
}

#[derive(Debug)]
pub(crate) struct Gate {
    auth: Auth,
    logins: Mutex<Logins>,
    codes: Mutex<Codes>,
    failures: Mutex<Failures>,
    /// Everybody's, where no token is wanted.
    open: Option<Arc<Login>>,
}

impl Gate {
    pub(crate) fn new(auth: Auth) -> Self {
        let open = match auth {
            // Without random bytes there is no csrf token, and so nothing can be changed: no login at all.
            Auth::None => Login::new(Principal::local(), String::new()).ok().map(Arc::new),
            Auth::Tokens(_) => None,
        };
        Self { auth, logins: Mutex::default(), codes: Mutex::default(), failures: Mutex::default(), open }
    }

    /// The login of a request. `counts`: a person asked, and not a page that keeps itself fresh.
    pub(crate) fn login(&self, headers: &HeaderMap, counts: bool) -> Option<Arc<Login>> {
        let Auth::Tokens(principal_of) = &self.auth else { return self.open.clone() };
        for cookie in cookie::values(headers) {
            let found = held(&self.logins).find(cookie, Instant::now(), counts);
            let Some(login) = found else { continue };
            if principal_of(&login.token).as_ref() == Some(&login.principal) {
                return Some(login);
            }
            held(&self.logins).end(&login);
        }
        None
    }

    /// Whether a login still counts, for what goes on longer than a request.
    pub(crate) fn still(&self, login: &Login) -> bool {
        match &self.auth {
            Auth::None => true,
            Auth::Tokens(principal_of) => {
                !login.over.is_cancelled() && principal_of(&login.token).as_ref() == Some(&login.principal)
            }
        }
    }

    /// Lets in who shows a token. The answer is the cookie.
    pub(crate) fn by_token(&self, token: &str, peer: Option<IpAddr>) -> Result<String, Denied> {
        let now = Instant::now();
        if !held(&self.failures).may_try(peer, now) {
            return Err(Denied::TooOften);
        }
        let Auth::Tokens(principal_of) = &self.auth else { return Err(Denied::Wrong) };
        let found = principal_of(token).map(|principal| (principal, token.to_owned()));
        self.settle(found, peer, now)
    }

    /// Lets in who has the code of a link, once.
    pub(crate) fn by_code(&self, code: &str, peer: Option<IpAddr>) -> Result<String, Denied> {
        let now = Instant::now();
        if !held(&self.failures).may_try(peer, now) {
            return Err(Denied::TooOften);
        }
        let token = held(&self.codes).take(code, now);
        let Auth::Tokens(principal_of) = &self.auth else { return Err(Denied::Wrong) };
        let found = token.and_then(|token| principal_of(&token).map(|principal| (principal, token)));
        self.settle(found, peer, now)
    }

    /// Lets in who was found; notes who was not.
    fn settle(
        &self,
        found: Option<(Principal, String)>,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<String, Denied> {
        let Some((principal, token)) = found else {
            held(&self.failures).failed(peer, now);
            return Err(Denied::Wrong);
        };
        let cookie = logins::random().map_err(|_none| Denied::Random)?;
        let login = Login::new(principal, token).map_err(|_none| Denied::Random)?;
        held(&self.logins).add(&cookie, Arc::new(login), now);
        Ok(cookie)
    }

    /// A code that lets in once, for whoever holds this token. None: nobody does, or no token is wanted.
    pub(crate) fn mint(&self, token: &str) -> Option<String> {
        let Auth::Tokens(principal_of) = &self.auth else { return None };
        principal_of(token)?;
        let code = logins::random().ok()?;
        held(&self.codes).add(&code, token.to_owned(), Instant::now() + CODE);
        Some(code)
    }

    /// What is everybody's is nobody's to end.
    pub(crate) fn end(&self, login: &Login) {
        match self.auth {
            Auth::None => {}
            Auth::Tokens(_) => held(&self.logins).end(login),
        }
    }
}

/// Nothing panics while one is held; a poisoned lock still guards a whole value.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
