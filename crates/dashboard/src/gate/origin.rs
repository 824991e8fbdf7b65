//! Which pages a request comes from, as the browser says.
//!
//! Another port of the same machine is the same site, so the cookie alone does not tell its pages from ours.

use http::header::{self, HeaderMap, HeaderName};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

fn one(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok();
    // Two that may disagree are as good as a wrong one.
    if values.next().is_some() { Some("") } else { value.or(Some("")) }
}

fn is_own_origin(headers: &HeaderMap, origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| !authority.is_empty() && one(headers, header::HOST) == Some(authority))
}

/// Whether a request that changes something comes from a page of ours. Every browser says so; who says nothing is none.
pub(crate) fn may_change(headers: &HeaderMap) -> bool {
    let (origin, site) = (one(headers, header::ORIGIN), one(headers, SITE));
    let own = origin.is_none_or(|origin| is_own_origin(headers, origin));
    let same = site.is_none_or(|site| site == "same-origin");
    own && same && (origin.is_some() || site.is_some())
}

/// Whether a request that only reads may be answered: anybody may link to a page, but not read it from a script of theirs.
pub(crate) fn may_read(headers: &HeaderMap) -> bool {
    let own = one(headers, header::ORIGIN).is_none_or(|origin| is_own_origin(headers, origin));
    let near = one(headers, SITE).is_none_or(|site| matches!(site, "same-origin" | "none"));
    own && (near || one(headers, MODE) == Some("navigate"))
}

/// Whether the person came by themselves, and no page sent them.
pub(crate) fn is_unasked(headers: &HeaderMap) -> bool {
    let near = one(headers, SITE).is_none_or(|site| matches!(site, "same-origin" | "none"));
    near && !headers.contains_key("sec-purpose") && !headers.contains_key("purpose")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_pages_change_something() {
        let check = |pairs: &[(&'static str, &'static str)], change, read| {
            let mut headers = headers(pairs);
            headers.insert("host", "127.0.0.1:7171".parse().unwrap());
            assert_eq!((may_change(&headers), may_read(&headers)), (change, read), "{pairs:?}");
        };
        check(&[("origin", "http://127.0.0.1:7171")], true, true);
        check(&[("origin", "http://127.0.0.1:7171"), ("sec-fetch-site", "same-origin")], true, true);
        check(&[("sec-fetch-site", "same-origin")], true, true);
        check(&[], false, true);
        check(&[("origin", "http://127.0.0.1:3000")], false, false);
        check(&[("origin", "null")], false, false);
        check(&[("origin", "http://evil.example")], false, false);
        check(&[("origin", "http://127.0.0.1:7171"), ("sec-fetch-site", "same-site")], false, false);
        check(&[("sec-fetch-site", "same-site")], false, false);
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false, true);
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], false, false);
        check(&[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")], false, true);
    }

    #[test]
    fn two_that_disagree_are_none() {
        let mut headers = headers(&[("host", "a"), ("origin", "http://a")]);
        assert!(may_change(&headers));
        headers.append("origin", "http://b".parse().unwrap());
        assert!(!may_change(&headers));
    }
}
