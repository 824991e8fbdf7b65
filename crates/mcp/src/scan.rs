//! One pass over JSON: checks that it is JSON, and says where values lie.
//!
//! A message is looked at on every call, twice, and nothing of it is kept but a few ranges; a general
//! deserializer spends more than half of a call's instructions here. What this accepts is exactly RFC 8259,
//! which the tests hold against `serde_json`.

use std::borrow::Cow;

use crate::{MAX_DEPTH, Span};

/// Why bytes are not JSON we carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// Where it stops being JSON.
    Syntax(usize),
    TooDeep,
}

#[derive(Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    key_at: usize,
}

/// Bytes that end the plain part of a string: the quote, the backslash, and what must be escaped.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        stops[byte] = true;
        byte += 1;
    }
    stops[b'"' as usize] = true;
    stops[b'\\' as usize] = true;
    stops
};

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0, key_at: 0 }
    }

    /// The first byte of the next value, white space skipped.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                _ => return Some(*byte),
            }
        }
        None
    }

    /// Skips one value and says where it was.
    pub fn value(&mut self) -> Result<Span, Bad> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => drop(self.string()?),
            Some(b'{') => self.members(|scanner, _key| scanner.value().map(drop))?,
            Some(b'[') => self.elements(|scanner| scanner.value().map(drop))?,
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            Some(b'n') => self.literal(b"null")?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(Bad::Syntax(self.at)),
        }
        Ok(start..self.at)
    }

    /// Walks through an object. `visit` gets each name, decoded, and must consume the value behind it.
    pub fn members(&mut self, mut visit: impl FnMut(&mut Self, &str) -> Result<(), Bad>) -> Result<(), Bad> {
        self.enter(b'{')?;
        if self.peek() == Some(b'}') {
            return self.leave();
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(Bad::Syntax(self.at));
            }
            let start = self.at;
            let plain = self.string()?;
            let key = self.key(start, plain).ok_or(Bad::Syntax(start))?;
            if self.peek() != Some(b':') {
                return Err(Bad::Syntax(self.at));
            }
            self.at += 1;
            self.key_at = start;
            visit(self, &key)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => return self.leave(),
                _ => return Err(Bad::Syntax(self.at)),
            }
        }
    }

    /// Skips one value and says where it was; if it is an object, its members are visited on the way.
    pub fn object_or_value(
        &mut self,
        visit: impl FnMut(&mut Self, &str) -> Result<(), Bad>,
    ) -> Result<Span, Bad> {
        if self.peek() != Some(b'{') {
            return self.value();
        }
        let start = self.at;
        self.members(visit)?;
        Ok(start..self.at)
    }

    /// Nothing but white space may follow.
    pub fn end(&mut self) -> Result<(), Bad> {
        if self.peek().is_none() { Ok(()) } else { Err(Bad::Syntax(self.at)) }
    }

    /// Where the scanner is.
    pub fn position(&self) -> usize {
        self.at
    }

    /// While a member is visited, before anything of it is consumed: where its name begins.
    pub fn key_at(&self) -> usize {
        self.key_at
    }

    /// Walks through a list. `visit` must consume one value.
    pub fn elements(&mut self, mut visit: impl FnMut(&mut Self) -> Result<(), Bad>) -> Result<(), Bad> {
        self.enter(b'[')?;
        if self.peek() == Some(b']') {
            return self.leave();
        }
        loop {
            visit(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => return self.leave(),
                _ => return Err(Bad::Syntax(self.at)),
            }
        }
    }

    fn enter(&mut self, open: u8) -> Result<(), Bad> {
        if self.peek() != Some(open) {
            return Err(Bad::Syntax(self.at));
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Bad::TooDeep);
        }
        self.at += 1;
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it ends functions that can fail")]
    fn leave(&mut self) -> Result<(), Bad> {
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// Skips a string. Says whether it means what it spells.
    fn string(&mut self) -> Result<Spelling, Bad> {
        self.at += 1;
        let mut spelling = Spelling::Plain;
        loop {
            self.skip_plain();
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(spelling);
                }
                Some(b'\\') => {
                    self.escape()?;
                    spelling = Spelling::Escaped;
                }
                _ => return Err(Bad::Syntax(self.at)),
            }
        }
    }

    /// Eight bytes at a time, as long as none of them ends the plain part of a string.
    fn skip_plain(&mut self) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
        while let Some(chunk) = self.bytes[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let quote = has_zero(word ^ (ONES * 0x22));
            let backslash = has_zero(word ^ (ONES * 0x5c));
            let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
            let stop = quote | backslash | control;
            if stop != 0 {
                // The lowest mark is exact; marks above a borrow may not be.
                self.at += (stop.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().position(|byte| STOPS[usize::from(*byte)]).unwrap_or(rest.len());
    }

    /// A member's name. A lone surrogate has no text of its own: it can be none of the names we look for.
    fn key(&self, start: usize, spelling: Spelling) -> Option<Cow<'a, str>> {
        let bytes: &'a [u8] = self.bytes;
        match spelling {
            Spelling::Plain => std::str::from_utf8(&bytes[start + 1..self.at - 1]).ok().map(Cow::Borrowed),
            Spelling::Escaped => Some(
                crate::envelope::decode_string(&bytes[start..self.at]).unwrap_or(Cow::Borrowed("\u{fffd}")),
            ),
        }
    }

    fn escape(&mut self) -> Result<(), Bad> {
        let width = match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 2..self.at + 6).ok_or(Bad::Syntax(self.at))?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Bad::Syntax(self.at));
                }
                6
            }
            _ => return Err(Bad::Syntax(self.at)),
        };
        self.at += width;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Bad> {
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(Bad::Syntax(self.at)),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Bad> {
        let rest = &self.bytes[self.at..];
        let count = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        self.at += count;
        if count == 0 { Err(Bad::Syntax(self.at)) } else { Ok(()) }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Bad> {
        if self.bytes[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(Bad::Syntax(self.at))
        }
    }
}

/// Whether a string has escapes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Plain,
    Escaped,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn is_json(bytes: &[u8]) -> bool {
        let mut scanner = Scanner::new(bytes);
        scanner.value().is_ok() && scanner.end().is_ok() && std::str::from_utf8(bytes).is_ok()
    }

    #[track_caller]
    fn agrees(bytes: &[u8]) {
        let theirs = serde_json::from_slice::<&RawValue>(bytes).is_ok();
        assert_eq!(is_json(bytes), theirs, "{:?}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn what_is_json_is_what_serde_json_says() {
        for text in [
            "0",
            "-0",
            "01",
            "-",
            "1.",
            ".1",
            "1e",
            "1e+",
            "1E-5",
            "1.5e10",
            "--1",
            "+1",
            "1 2",
            "tru",
            "true",
            "nul",
            r#""""#,
            r#""\""#,
            r#""\u12""#,
            r#""\u12G4""#,
            r#""\ud800""#,
            r#""\x""#,
            "\"\t\"",
            "\"\u{7f}\"",
            "[]",
            "[,]",
            "[1,]",
            "[1 2]",
            "{}",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            r#"{"a":}"#,
            r"{a:1}",
            r#"{"a":1 "b":2}"#,
            "{1:2}",
            "[[[]]]",
            "[}",
            "{]",
            "",
            " ",
            " [ 1 , { \"a\" : null } ] ",
            "\u{feff}1",
            "nan",
            "Infinity",
            "'a'",
        ] {
            agrees(text.as_bytes());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_bytes_are_read_differently(bytes in proptest::collection::vec(proptest::sample::select(
            b"{}[]\":,\\ u0123456789abcdefE+-.truefalsn\n\x01\xc3\xa9".to_vec()), 0..40)) {
            agrees(&bytes);
        }

        #[test]
        fn a_cut_or_changed_message_is_read_alike(cut in 0..120_usize, byte: u8, at in 0..120_usize) {
            let text = br#"{"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{"name":"n","x":[1,-2.5e3,true,null,{"y":"\u00e9"}]}}"#;
            agrees(&text[..cut.min(text.len())]);
            let mut changed = text.to_vec();
            let at = at % changed.len();
            changed[at] = byte;
            agrees(&changed);
        }
    }
}
