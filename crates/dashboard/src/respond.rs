//! Responses: the headers that every one has, and the few kinds there are.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use maud::Markup;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// What every response says to the browser.
const ALWAYS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Nobody else is told. With `no-referrer` a browser says `Origin: null` for our own forms too.
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

pub(crate) fn with(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn full(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).boxed_unsync()
}

pub(crate) fn page(status: StatusCode, page: Markup) -> Response<Body> {
    with(status, "text/html; charset=utf-8", full(page.into_string()))
}

pub(crate) fn asset(kind: &'static str, content: &'static str) -> Response<Body> {
    with(StatusCode::OK, kind, full(content))
}

/// To a page of ours, by GET.
pub(crate) fn see(address: &str) -> Response<Body> {
    let mut response = with(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", full(""));
    // Ours are ASCII; one that is not leads to the first page.
    let address = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, address);
    response
}

/// A file of somebody else's, to be kept and not to be shown: whatever it is, a browser that saves it runs nothing.
pub(crate) fn download(name: &str, content: Vec<u8>) -> Response<Body> {
    let mut response = with(StatusCode::OK, "application/octet-stream", full(content));
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe: String = last
        .chars()
        .map(
            |character| {
                if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '_' }
            },
        )
        .take(100)
        .collect();
    let safe = safe.trim_start_matches('.');
    let safe = if safe.is_empty() { "file" } else { safe };
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{safe}\""));
    let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
    response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_never_a_page() {
        for (name, expected) in [
            ("workspace/a b.html", "a_b.html"),
            ("..\\..\\x\"\r\nSet-Cookie: a", "x___Set-Cookie__a"),
            ("/", "file"),
            ("...", "file"),
            ("日本.svg", "__.svg"),
        ] {
            let response = download(name, Vec::new());
            let said = response.headers()[header::CONTENT_DISPOSITION].to_str().unwrap().to_owned();
            assert_eq!(said, format!("attachment; filename=\"{expected}\""));
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/octet-stream");
        }
    }
}
