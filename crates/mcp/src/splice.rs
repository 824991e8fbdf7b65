//! Replaces ranges of a message and leaves every other byte as it is.

use crate::Span;

/// One replacement. An empty span inserts.
#[derive(Debug, Clone)]
pub struct Edit<'a> {
    pub span: Span,
    pub with: &'a [u8],
}

/// Applies `edits`, which must not overlap, in whatever order they are given.
pub fn splice(bytes: &[u8], edits: &mut [Edit<'_>]) -> Vec<u8> {
    edits.sort_by_key(|edit| edit.span.start);
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let mut out = Vec::with_capacity(bytes.len() + added);
    let mut at = 0;
    for edit in edits.iter() {
        debug_assert!(edit.span.start >= at, "edits overlap");
        out.extend_from_slice(&bytes[at..edit.span.start]);
        out.extend_from_slice(edit.with);
        at = edit.span.end;
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

/// Makes a message fit on one line. Inside a JSON string a line break is always escaped, so a raw one is
/// insignificant white space.
pub fn on_one_line(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(next) = memchr::memchr2(b'\n', b'\r', &bytes[at..]) {
        bytes[at + next] = b' ';
        at += next + 1;
    }
}
