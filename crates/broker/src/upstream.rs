//! The one provider that a broker speaks to.

use std::net::Ipv4Addr;

use address::{HostKind, Refused, check_host};
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// How a container names its host. Seen from the daemon, that is this machine.
const HOST_FROM_A_CONTAINER: &str = "host.docker.internal";

/// Why a text is no address of a provider. Shows nothing of it that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUpstream {
    #[error("it is not a url in full, such as http://127.0.0.1:11434/v1")]
    NotAUrl,
    #[error("it begins with neither http:// nor https://")]
    Scheme,
    #[error("it holds credentials, a query or a fragment")]
    Extra,
    #[error("its host cannot be used")]
    Host(#[source] Refused),
}

/// Where a provider's API is.
#[derive(Debug, Clone)]
pub struct Upstream {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
    kind: HostKind,
}

impl Upstream {
    /// Loopback and private addresses are fine: whoever configures a session writes this, and no box does.
    pub fn parse(url: &str) -> Result<Self, BadUpstream> {
        if url.contains(['?', '#']) {
            return Err(BadUpstream::Extra);
        }
        let parts = url.parse::<Uri>().map_err(|_| BadUpstream::NotAUrl)?.into_parts();
        let scheme = parts.scheme.ok_or(BadUpstream::NotAUrl)?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(BadUpstream::Scheme);
        }
        let authority = parts.authority.ok_or(BadUpstream::NotAUrl)?;
        if authority.as_str().contains('@') {
            return Err(BadUpstream::Extra);
        }
        let host = authority.host();
        let authority = if host.trim_end_matches('.').eq_ignore_ascii_case(HOST_FROM_A_CONTAINER) {
            let port = authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}{port}", Ipv4Addr::LOCALHOST).parse().map_err(|_| BadUpstream::NotAUrl)?
        } else {
            authority
        };
        let kind = check_host(authority.host(), true).map_err(BadUpstream::Host)?;
        let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path);
        let prefix = path.trim_end_matches('/').to_owned();
        Ok(Self { scheme, authority, prefix, kind })
    }

    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// For messages: no port, since OpenCode takes some numbers in a message for a status.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    pub(crate) fn kind(&self) -> HostKind {
        self.kind
    }

    /// `rest` begins with a slash. None only where it is no path.
    pub(crate) fn uri(&self, rest: &str) -> Option<Uri> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(format!("{}{rest}", self.prefix).parse().ok()?);
        Uri::from_parts(parts).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Result<&str, &BadUpstream>) {
        let found = Upstream::parse(url);
        let found = found.map(|upstream| upstream.uri("/models").unwrap().to_string());
        assert_eq!(found.as_deref(), expected, "{url}");
    }

    #[test]
    fn what_is_asked_lies_beneath_the_base_url() {
        check("http://127.0.0.1:11434/v1", Ok("http://127.0.0.1:11434/v1/models"));
        check("https://api.example.org/v1/", Ok("https://api.example.org/v1/models"));
        check("https://api.example.org", Ok("https://api.example.org/models"));
        check("http://[::1]:8080/a/b", Ok("http://[::1]:8080/a/b/models"));
        check("http://10.0.0.3/v1", Ok("http://10.0.0.3/v1/models"));
        check("http://host.docker.internal:11434/v1", Ok("http://127.0.0.1:11434/v1/models"));
        check("http://Host.Docker.Internal./v1", Ok("http://127.0.0.1/v1/models"));
    }

    #[test]
    fn texts_that_are_no_base_url() {
        check("/v1", Err(&BadUpstream::NotAUrl));
        check("api.example.org", Err(&BadUpstream::NotAUrl));
        check("ftp://api.example.org/", Err(&BadUpstream::Scheme));
        check("http://user:sk-CANARY-7f3a@api.example.org/", Err(&BadUpstream::Extra));
        check("http://api.example.org/v1?key=1", Err(&BadUpstream::Extra));
        check("http://api.example.org/v1#a", Err(&BadUpstream::Extra));
        for host in ["169.254.169.254", "0x7f000001"] {
            assert!(matches!(Upstream::parse(&format!("http://{host}/v1")), Err(BadUpstream::Host(_))));
        }
    }
}
