//! Who may come in: checked on the head of a request, before its body is read.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use identity::Channel;
use model::Principal;

use super::body::Body;
use super::plain;

/// The rules at the door.
#[derive(Clone)]
pub struct Access {
    /// Where we listen: what `Host` may name, besides the loopback names on loopback.
    pub listen: SocketAddr,
    /// Further origins that pages may call from.
    pub allowed_origins: Vec<String>,
    pub auth: Auth,
}

#[derive(Clone)]
pub enum Auth {
    /// Whoever reaches the socket is the local user. Loopback only, and only when written so.
    None,
    /// Answers whose token it is.
    Tokens(PrincipalOf),
}

/// Answers whose token it is.
pub(super) type PrincipalOf = Arc<dyn Fn(&str) -> Option<Principal> + Send + Sync>;

impl Access {
    /// A page in a browser must not reach us by a name of its own choice.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the response that is sent; it is rare and moved once"
    )]
    pub fn check_origin(&self, parts: &Parts) -> Result<(), Response<Body>> {
        let host = parts.headers.get(header::HOST).and_then(|value| value.to_str().ok());
        let several = parts.headers.get_all(header::HOST).iter().count() > 1;
        if several || !host.is_some_and(|host| self.is_ours(host)) {
            return Err(plain(StatusCode::FORBIDDEN, "this is not the host you asked for\n"));
        }
        for origin in parts.headers.get_all(header::ORIGIN) {
            if !origin.to_str().is_ok_and(|origin| self.may_call(origin)) {
                return Err(plain(
                    StatusCode::FORBIDDEN,
                    "pages of this origin may not call; see [serve] allowed_origins\n",
                ));
            }
        }
        Ok(())
    }

    /// Who holds the token. Says nothing about why one does not count.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the response that is sent; it is rare and moved once"
    )]
    pub fn authenticate(&self, parts: &Parts) -> Result<Principal, Response<Body>> {
        let Auth::Tokens(principal_of) = &self.auth else { return Ok(Principal::local()) };
        let value = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        token.and_then(|token| principal_of(token)).ok_or_else(|| {
            let text =
                "a token is needed: Authorization: Bearer …; it lies in the state directory of callsign\n";
            let mut response = plain(StatusCode::UNAUTHORIZED, text);
            let challenge = HeaderValue::from_static("Bearer realm=\"callsign\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            response
        })
    }

    /// What the words of a caller that was let in are worth.
    pub fn channel(&self, principal: &Principal) -> Channel {
        match self.auth {
            Auth::None => Channel::Open,
            Auth::Tokens(_) => Channel::Token { local: *principal == Principal::local() },
        }
    }

    fn is_ours(&self, authority: &str) -> bool {
        let Some((host, port)) = split(authority) else { return false };
        let right_port = port.unwrap_or(80) == self.listen.port();
        let ip = self.listen.ip();
        if ip.is_loopback() {
            // The port is not compared: a forwarded one is common, and a page cannot choose the name.
            return is_loopback_name(host) || host == ip.to_string();
        }
        right_port && (ip.is_unspecified() || host == ip.to_string()) || is_loopback_name(host)
    }

    fn may_call(&self, origin: &str) -> bool {
        if self.allowed_origins.iter().any(|allowed| allowed == origin) {
            return true;
        }
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.and_then(split).is_some_and(|(host, _)| is_loopback_name(host))
    }
}

fn is_loopback_name(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "::1")
}

/// Host and port, brackets removed. None where it is neither.
fn split(authority: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((authority, None)),
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Tokens(_) => "Tokens",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[track_caller]
    fn check(host: &str, origin: Option<&str>, expected: bool) {
        let access = Access {
            listen: "127.0.0.1:7171".parse().unwrap(),
            allowed_origins: vec!["https://app.example".into()],
            auth: Auth::None,
        };
        let mut request = Request::builder().header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        assert_eq!(access.check_origin(&parts).is_ok(), expected, "{host} {origin:?}");
    }

    #[test]
    fn only_our_own_names_and_allowed_origins_pass() {
        check("127.0.0.1:7171", None, true);
        check("localhost", None, true);
        check("[::1]:7171", None, true);
        check("evil.example", None, false);
        check("evil.example:7171", None, false);
        check("127.0.0.1.evil.example", None, false);
        check("", None, false);
        check("127.0.0.1", Some("http://evil.example"), false);
        check("127.0.0.1", Some("null"), false);
        check("127.0.0.1", Some("http://localhost:3000"), true);
        check("127.0.0.1", Some("https://app.example"), true);
        check("127.0.0.1", Some("https://app.example.evil"), false);
    }
}
