//! The cookie of a login.

use http::header::{self, HeaderMap, HeaderValue};

const NAME: &str = "callsign_login";
/// Cookies of this name that are looked at: whatever else runs on this host can set some too.
const MOST: usize = 4;

/// Whatever stands in a cookie of ours.
pub(super) fn values(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, value)| *name == NAME && value.len() == 64)
        .map(|(_, value)| value)
        .take(MOST)
}

pub(crate) fn set(cookie: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{NAME}={cookie}; HttpOnly; SameSite=Strict; Path=/")).ok()
}

pub(crate) fn end() -> HeaderValue {
    HeaderValue::from_static("callsign_login=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
}
