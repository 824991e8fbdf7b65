//! Takes the key out of what a provider says: some show what they were asked with.
//!
//! What is sent back is as long as before, and nothing waits that cannot be the beginning of the key.

use bytes::Bytes;
use memchr::memmem::Finder;
use model::settings::Secret;

/// A key that is shorter is a word such as `ollama`, which guards nothing and may stand in any answer.
const SHORTEST: usize = 12;

pub(crate) struct Scrub {
    finder: Finder<'static>,
    /// What came last, if it may be the beginning of the key.
    waiting: Bytes,
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrub(..)")
    }
}

impl Scrub {
    /// None: there is nothing to take out.
    pub(crate) fn new(key: Option<&Secret>) -> Option<Self> {
        let key = key?.expose().as_bytes();
        let finder = || Finder::new(key).into_owned();
        (key.len() >= SHORTEST).then(|| Self { finder: finder(), waiting: Bytes::new() })
    }

    /// Says nothing about what is cut off at the ends.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.finder.find(bytes).is_some()
    }

    /// May be empty: the rest follows with the next piece, or with [`Scrub::finish`].
    pub(crate) fn pass(&mut self, piece: Bytes) -> Bytes {
        let whole = if self.waiting.is_empty() {
            piece
        } else {
            Bytes::from([std::mem::take(&mut self.waiting), piece].concat())
        };
        let mut whole = self.without(whole);
        let key = self.finder.needle();
        let longest = (key.len() - 1).min(whole.len());
        let begun = (1..=longest).rev().find(|length| whole.ends_with(&key[..*length]));
        if let Some(length) = begun {
            self.waiting = whole.split_off(whole.len() - length);
        }
        whole
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.waiting)
    }

    fn without(&self, bytes: Bytes) -> Bytes {
        if !self.is_in(&bytes) {
            return bytes;
        }
        let mut clean = bytes.to_vec();
        for at in self.finder.find_iter(&bytes) {
            clean[at..at + self.finder.needle().len()].fill(b'*');
        }
        Bytes::from(clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-CANARY-7f3a";

    fn through(text: &str, size: usize) -> String {
        let mut scrub = Scrub::new(Some(&Secret::new(KEY))).unwrap();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend_from_slice(&scrub.pass(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&scrub.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_cut_lets_the_key_through() {
        let stars = "*".repeat(KEY.len());
        for text in
            ["", "sk-", "KEY", "KEYKEY", "a KEY b sk-CANARY-7f3 KEY", "sk-CANARY-sk-KEY", "sksk-KEYsk"]
        {
            let (given, expected) = (text.replace("KEY", KEY), text.replace("KEY", &stars));
            for size in 1..=given.len() + 1 {
                assert_eq!(through(&given, size), expected, "{given} in pieces of {size}");
            }
        }
    }

    #[test]
    fn nothing_waits_that_is_not_the_key() {
        let mut scrub = Scrub::new(Some(&Secret::new(KEY))).unwrap();
        let piece = Bytes::from_static(b"data: {\"a\":1}\n\n");
        assert_eq!(scrub.pass(piece.clone()), piece);
        assert_eq!(scrub.pass(Bytes::from_static(b"a s")), "a ");
        assert_eq!(scrub.pass(Bytes::from_static(b"o")), "so");
        assert_eq!(format!("{scrub:?}"), "Scrub(..)");
    }

    #[test]
    fn a_word_is_no_secret() {
        assert!(Scrub::new(None).is_none());
        assert!(Scrub::new(Some(&Secret::new("ollama"))).is_none());
    }
}
