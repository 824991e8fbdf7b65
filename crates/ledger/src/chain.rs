//! The hashes that hold the rows together.
//!
//! ```text
//! row:    mark(n) = H(mark(n-1) ‖ row n), beginning with the writer; the first 8 bytes are stored with the row
//! batch:  chain(n) = H(chain(n-1) ‖ batch n, with the last mark of its rows), over the batches of all writers
//! head:   the last chain, signed
//! ```
//!
//! A change of a row shows in its mark, a change of anything in the chain, and a chain that was made anew in the
//! signature.

use rusqlite::types::ValueRef;
use sha2::{Digest as _, Sha256};

pub(crate) type Hash = [u8; 32];

/// How much of a mark is stored with each row: enough to tell which one was changed. What holds is the chain.
pub(crate) const MARK: usize = 8;

/// Where a chain begins.
pub(crate) const NOTHING: Hash = [0; 32];

/// As text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Values in their order, such that no two lists of values look the same.
pub(crate) struct Link(Sha256);

impl Link {
    /// `what` keeps rows, batches and heads apart.
    pub(crate) fn new(what: &str, before: &Hash) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(what.as_bytes());
        hasher.update([0]);
        hasher.update(before);
        Self(hasher)
    }

    pub(crate) fn value(&mut self, value: ValueRef<'_>) -> &mut Self {
        let (tag, bytes): (u8, &[u8]) = match value {
            ValueRef::Null => (0, &[]),
            ValueRef::Integer(number) => return self.part(1, &number.to_be_bytes()),
            ValueRef::Real(number) => return self.part(2, &number.to_be_bytes()),
            ValueRef::Text(text) => (3, text),
            ValueRef::Blob(blob) => (4, blob),
        };
        self.part(tag, bytes)
    }

    fn part(&mut self, tag: u8, bytes: &[u8]) -> &mut Self {
        self.0.update([tag]);
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    pub(crate) fn end(self) -> Hash {
        self.0.finalize().into()
    }
}

/// The hash of a list of values behind another.
pub(crate) fn link<'a>(what: &str, before: &Hash, values: impl IntoIterator<Item = ValueRef<'a>>) -> Hash {
    let mut link = Link::new(what, before);
    for value in values {
        link.value(value);
    }
    link.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_look_the_same() {
        let lists: [&[ValueRef<'_>]; 8] = [
            &[ValueRef::Text(b"ab"), ValueRef::Text(b"c")],
            &[ValueRef::Text(b"a"), ValueRef::Text(b"bc")],
            &[ValueRef::Text(b"abc")],
            &[ValueRef::Blob(b"abc")],
            &[ValueRef::Null, ValueRef::Text(b"abc")],
            &[ValueRef::Text(b"abc"), ValueRef::Null],
            &[ValueRef::Integer(1)],
            &[ValueRef::Real(1.0)],
        ];
        let hashes: std::collections::HashSet<Hash> =
            lists.iter().map(|list| link("row", &NOTHING, list.iter().copied())).collect();
        assert_eq!(hashes.len(), lists.len());
        assert_ne!(link("row", &NOTHING, []), link("batch", &NOTHING, []));
    }
}
