//! The digest of a call's arguments: what an assertion says about them.
//!
//! The canonical form is RFC 8785: members in the order of their UTF-16 code units, no white space, one
//! spelling for every string and number. Whoever parses the arguments and prints them again can check such a
//! digest. Some values do not survive that form, so the digest is taken over the bytes as they were sent:
//! numbers that a double cannot hold as they are written, and strings with half a surrogate pair.
//!
//! **Invariant:** of two texts with the same canonical digest, every reader reads the same value. That is why
//! duplicate keys, which one reader takes first and another last, are refused.

mod number;

use std::cmp::Ordering;
use std::ops::Range;

use ring::digest::{SHA256, digest};

/// What arguments may be nested.
const MAX_DEPTH: usize = 128;

/// SHA-256 of `{}`, which absent arguments count as.
const OF_NOTHING: [u8; 32] = [
    0x44, 0x13, 0x6f, 0xa3, 0x55, 0xb3, 0x67, 0x8a, 0x11, 0x46, 0xad, 0x16, 0xf7, 0xe8, 0x64, 0x9e, 0x94,
    0xfb, 0x4f, 0xc2, 0x1f, 0xe7, 0x7e, 0x83, 0x10, 0xc0, 0x60, 0xf6, 0x1c, 0xaa, 0xff, 0x8a,
];

/// SHA-256 of the arguments, and of which form of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentsDigest {
    /// Of the RFC 8785 form: the claim `ah`.
    Canonical([u8; 32]),
    /// Of the bytes sent, without the white space around them: the claim `ahx`.
    AsSent([u8; 32]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    #[error("the arguments have the same key twice in one object")]
    DuplicateKey,
    #[error("the arguments are no JSON at byte {at}")]
    Malformed { at: usize },
    #[error("the arguments are nested more than {MAX_DEPTH} deep")]
    TooDeep,
}

/// `raw`: the JSON text of `params.arguments` as it was sent; none where there are no arguments.
pub fn digest_arguments(raw: Option<&[u8]>) -> Result<ArgumentsDigest, BadArguments> {
    let Some(raw) = raw else { return Ok(ArgumentsDigest::Canonical(OF_NOTHING)) };
    let form = canonical_form(raw)?;
    Ok(match form.fidelity {
        Fidelity::Exact => ArgumentsDigest::Canonical(sha256(&form.text)),
        Fidelity::Lossy => ArgumentsDigest::AsSent(sha256(trim(raw))),
    })
}

/// Whether the canonical form has the value that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fidelity {
    Exact,
    Lossy,
}

#[derive(Debug)]
struct CanonicalForm {
    text: Vec<u8>,
    fidelity: Fidelity,
}

fn canonical_form(raw: &[u8]) -> Result<CanonicalForm, BadArguments> {
    let text =
        std::str::from_utf8(raw).map_err(|error| BadArguments::Malformed { at: error.valid_up_to() })?;
    let mut writer = Writer {
        text,
        at: 0,
        out: Vec::with_capacity(text.len()),
        keys: Vec::new(),
        members: Vec::new(),
        scratch: Vec::new(),
        fidelity: Fidelity::Exact,
    };
    writer.value(MAX_DEPTH)?;
    writer.skip_space();
    if writer.at != text.len() {
        return writer.malformed();
    }
    Ok(CanonicalForm { text: writer.out, fidelity: writer.fidelity })
}

/// Reads JSON and writes its canonical form, in one pass. An object's members are written as they come and put
/// in order at its end, where that is not their order already.
struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
    /// The keys of the objects that are open, without their escapes.
    keys: Vec<u8>,
    /// The members of the objects that are open, innermost last.
    members: Vec<Member>,
    scratch: Vec<u8>,
    fidelity: Fidelity,
}

struct Member {
    /// In `keys`.
    key: Range<usize>,
    /// In `out`: the key, the colon and the value.
    text: Range<usize>,
}

type Step = Result<(), BadArguments>;

impl Writer<'_> {
    /// `room`: how many levels may still be opened.
    fn value(&mut self, room: usize) -> Step {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(room.checked_sub(1).ok_or(BadArguments::TooDeep)?),
            Some(b'[') => self.array(room.checked_sub(1).ok_or(BadArguments::TooDeep)?),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => self.malformed(),
        }
    }

    fn object(&mut self, room: usize) -> Step {
        self.copy_byte();
        let (first, keys, start) = (self.members.len(), self.keys.len(), self.out.len());
        let mut in_order = true;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.copy_byte();
            return Ok(());
        }
        loop {
            let member = self.member(room)?;
            if let Some(last) = self.members[first..].last() {
                match key_order(&self.keys[last.key.clone()], &self.keys[member.key.clone()]) {
                    Ordering::Less => {}
                    Ordering::Equal => return Err(BadArguments::DuplicateKey),
                    Ordering::Greater => in_order = false,
                }
            }
            self.members.push(member);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.copy_byte(),
                Some(b'}') => break,
                _ => return self.malformed(),
            }
        }
        if !in_order {
            self.put_in_order(first, start)?;
        }
        self.copy_byte();
        self.members.truncate(first);
        self.keys.truncate(keys);
        Ok(())
    }

    fn member(&mut self, room: usize) -> Result<Member, BadArguments> {
        self.skip_space();
        let start = self.out.len();
        if self.peek() != Some(b'"') {
            return self.malformed();
        }
        self.string()?;
        let key = self.keys.len();
        unescape(&self.out[start + 1..self.out.len() - 1], &mut self.keys);
        let key = key..self.keys.len();
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.malformed();
        }
        self.copy_byte();
        self.value(room)?;
        Ok(Member { key, text: start..self.out.len() })
    }

    /// `start`: where the text of the first member begins.
    fn put_in_order(&mut self, first: usize, start: usize) -> Step {
        let (keys, members) = (&self.keys, &mut self.members[first..]);
        let key = |member: &Member| &keys[member.key.clone()];
        members.sort_unstable_by(|left, right| key_order(key(left), key(right)));
        if members.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
            return Err(BadArguments::DuplicateKey);
        }
        self.scratch.clear();
        for (index, member) in members.iter().enumerate() {
            if index > 0 {
                self.scratch.push(b',');
            }
            self.scratch.extend_from_slice(&self.out[member.text.clone()]);
        }
        self.out.truncate(start);
        self.out.extend_from_slice(&self.scratch);
        Ok(())
    }

    fn array(&mut self, room: usize) -> Step {
        self.copy_byte();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.copy_byte();
            return Ok(());
        }
        loop {
            self.value(room)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.copy_byte(),
                Some(b']') => break,
                _ => return self.malformed(),
            }
        }
        self.copy_byte();
        Ok(())
    }

    fn string(&mut self) -> Step {
        self.copy_byte();
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            // Everything that may stand unescaped is written as it is.
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20));
            let plain = plain.unwrap_or(rest.len());
            self.out.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                _ => return self.malformed(),
            }
        }
        self.copy_byte();
        Ok(())
    }

    fn escape(&mut self) -> Step {
        let Some(kind) = self.text.as_bytes().get(self.at + 1).copied() else { return self.malformed() };
        let plain = match kind {
            b'"' | b'\\' | b'/' => kind,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0c,
            b'r' => b'\r',
            b'u' => return self.unicode_escape(),
            _ => return self.malformed(),
        };
        self.at += 2;
        write_char(&mut self.out, char::from(plain));
        Ok(())
    }

    fn unicode_escape(&mut self) -> Step {
        let Some(unit) = self.code_unit() else { return self.malformed() };
        self.at += 6;
        let mut units = [unit, 0];
        let mut count = 1;
        if (0xd800..0xdc00).contains(&unit)
            && let Some(low @ 0xdc00..0xe000) = self.code_unit()
        {
            self.at += 6;
            units[1] = low;
            count = 2;
        }
        for decoded in char::decode_utf16(units.into_iter().take(count)) {
            match decoded {
                Ok(character) => write_char(&mut self.out, character),
                Err(half) => {
                    // Kept in the way UTF-8 would write it, so that equal keys stay equal.
                    self.fidelity = Fidelity::Lossy;
                    let half = half.unpaired_surrogate();
                    let [high, low] = (half & 0x0fff).to_be_bytes();
                    self.out.extend_from_slice(&[0xed, 0x80 | (high << 2) | (low >> 6), 0x80 | (low & 0x3f)]);
                }
            }
        }
        Ok(())
    }

    /// The four digits of `\uXXXX` at this place.
    fn code_unit(&self) -> Option<u16> {
        let escape = self.text.as_bytes().get(self.at..self.at + 6)?;
        let digits = escape.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit: u16, digit| {
            let value = char::from(*digit).to_digit(16)?;
            Some(unit << 4 | u16::try_from(value).ok()?)
        })
    }

    fn number(&mut self) -> Step {
        let rest = &self.text[self.at..];
        let Some(literal) = number::scan(rest) else { return self.malformed() };
        self.at += literal.len();
        if number::write(literal, &mut self.out) == Fidelity::Lossy {
            self.fidelity = Fidelity::Lossy;
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Step {
        if !self.text.as_bytes()[self.at..].starts_with(word) {
            return self.malformed();
        }
        self.at += word.len();
        self.out.extend_from_slice(word);
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn copy_byte(&mut self) {
        self.out.extend(self.peek());
        self.at += 1;
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn malformed<T>(&self) -> Result<T, BadArguments> {
        Err(BadArguments::Malformed { at: self.at })
    }
}

/// Writes a JSON string in the canonical spelling, quotes included.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_inner(out, text);
    out.push(b'"');
}

/// What stands between the quotes.
pub(crate) fn write_inner(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while let Some(special) = rest.find(|character: char| matches!(character, '"' | '\\' | ..'\x20')) {
        let (plain, from) = rest.split_at(special);
        out.extend_from_slice(plain.as_bytes());
        let mut characters = from.chars();
        if let Some(character) = characters.next() {
            write_char(out, character);
        }
        rest = characters.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

fn write_char(out: &mut Vec<u8>, character: char) {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\x08' => out.extend_from_slice(b"\\b"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\x0c' => out.extend_from_slice(b"\\f"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\0'..='\x1f' => {
            let code = character as usize;
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[code >> 4], HEX[code & 15]]);
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// `canonical`: what [`Writer::string`] wrote, without its quotes.
fn unescape(canonical: &[u8], out: &mut Vec<u8>) {
    let mut rest = canonical;
    while let Some(backslash) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..backslash]);
        let escape = &rest[backslash + 1..];
        let (byte, length) = match *escape {
            [b'b', ..] => (0x08, 1),
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'f', ..] => (0x0c, 1),
            [b'r', ..] => (b'\r', 1),
            [b'u', _, _, high, low, ..] => (hex_value(high) << 4 | hex_value(low), 5),
            [other, ..] => (other, 1),
            [] => return,
        };
        out.push(byte);
        rest = &escape[length..];
    }
    out.extend_from_slice(rest);
}

fn hex_value(digit: u8) -> u8 {
    if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 }
}

/// The order of UTF-16 code units, on UTF-8. The two differ in one thing: what takes two code units comes before
/// U+E000 to U+FFFF, since surrogates are lower. The first bytes tell these apart, and where two strings differ
/// first, both have a first byte or both a later one.
fn key_order(left: &[u8], right: &[u8]) -> Ordering {
    let rank = |byte: &u8| if matches!(byte, 0xee | 0xef) { byte + 0x10 } else { *byte };
    left.iter().map(rank).cmp(right.iter().map(rank))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn trim(raw: &[u8]) -> &[u8] {
    let start = raw.iter().position(|byte| !is_space(*byte)).unwrap_or(raw.len());
    let end = raw.iter().rposition(|byte| !is_space(*byte)).map_or(start, |last| last + 1);
    &raw[start..end]
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests;
