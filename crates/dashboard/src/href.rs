//! Addresses of our own pages. Whatever is put into one is encoded, so that it stays one segment or one value.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Left as they are. Dots are not: `.` and `..` are segments with a meaning.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// `/runs/run_1`: each part is one segment.
pub(crate) fn path(parts: &[&str]) -> String {
    parts.iter().fold(String::new(), |mut path, part| {
        let _infallible = write!(path, "/{}", utf8_percent_encode(part, KEPT));
        path
    })
}

/// `/calls?host=codex`: what is empty is left out.
pub(crate) fn query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_segment() {
        assert_eq!(path(&["runs", "run_1"]), "/runs/run_1");
        assert_eq!(path(&["runs", "../x?y#z%2f\"\\"]), "/runs/%2E%2E%2Fx%3Fy%23z%252f%22%5C");
        assert_eq!(path(&["sessions", "//evil.example", ""]), "/sessions/%2F%2Fevil%2Eexample/");
        assert_eq!(query("/calls", &[("host", "a&b=c"), ("tool", "")]), "/calls?host=a%26b%3Dc");
        assert_eq!(query("/calls", &[("tool", "")]), "/calls");
    }
}
