//! JSON without secrets, which is JSON again.

use std::borrow::Cow;
use std::ops::Range;

use mcp::scan::{Bad, Scanner};

use super::builtin::is_telling;
use super::{AllOfIt, JSON_MARKER, MARKER, Pass};

/// How often JSON may lie in a string of JSON and be seen as such. Deeper it is text.
const NESTED: usize = 8;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    /// It may be JSON.
    TooDeep,
    Other,
}

pub(super) fn kind(text: &str) -> Kind {
    let mut scanner = Scanner::new(text.as_bytes());
    match scanner.value().and_then(|_| scanner.end()) {
        Ok(()) => Kind::Json,
        Err(Bad::TooDeep) => Kind::TooDeep,
        Err(Bad::Syntax(_)) => Kind::Other,
    }
}

/// `text` is JSON, or this makes no sense.
pub(super) fn redact<'a>(pass: &Pass<'_>, text: &'a str, depth: usize) -> Result<Cow<'a, str>, AllOfIt> {
    let bytes = text.as_bytes();
    let (mut out, mut copied) = (String::new(), 0);
    let mut replace = |range: Range<usize>, with: &str| {
        out.push_str(&text[copied..range.start]);
        out.push_str(with);
        copied = range.end;
    };
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let end = end_of(bytes, at);
        match byte {
            b'"' => {
                let content = decode(&text[at + 1..end - 1]);
                if let Cow::Owned(encoded) = string(pass, &content, depth)? {
                    replace(at..end, &encoded);
                }
                at = end;
                if let Some(value) = value_of_name(bytes, end).filter(|_| is_telling(&content)) {
                    if is_worth_it(&text[value.clone()]) {
                        replace(value.clone(), JSON_MARKER);
                        at = value.end;
                    } else {
                        at = value.start;
                    }
                }
            }
            b'-' | b'0'..=b'9' => {
                if !pass.marks(&text[at..end])?.is_empty() {
                    replace(at..end, JSON_MARKER);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(text));
    }
    out.push_str(&text[copied..]);
    Ok(Cow::Owned(out))
}

/// What a string of this content becomes, with its quotes. Borrowed: it stays as it is.
fn string(pass: &Pass<'_>, content: &str, depth: usize) -> Result<Cow<'static, str>, AllOfIt> {
    let nested = depth < NESTED && content.trim_start().starts_with(['{', '[']);
    let kind = if nested { kind(content) } else { Kind::Other };
    let redacted = match kind {
        Kind::Other => pass.plain(content)?,
        Kind::Json => pass.json(content, depth + 1)?,
        Kind::TooDeep => return Ok(Cow::Owned(JSON_MARKER.to_owned())),
    };
    match redacted {
        Cow::Borrowed(_) => Ok(Cow::Borrowed("")),
        Cow::Owned(redacted) => serde_json::to_string(&redacted).map(Cow::Owned).map_err(|_| AllOfIt),
    }
}

/// Nothing is hidden in these. What is replaced already stays.
fn is_worth_it(value: &str) -> bool {
    !matches!(value, "true" | "false" | "null" | "\"\"" | "{}" | "[]" | JSON_MARKER)
}

/// Where the value lies, if the string that ends at `end` is a name.
fn value_of_name(bytes: &[u8], end: usize) -> Option<Range<usize>> {
    let colon = skip_space(bytes, end);
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let start = skip_space(bytes, colon + 1);
    let mut at = start;
    let mut open = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => open += 1,
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        at = end_of(bytes, at);
        if open == 0 {
            break;
        }
    }
    Some(start..at)
}

fn skip_space(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// Where what begins at `at` ends: a string, a number, a word, or a single mark.
fn end_of(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = match rest[0] {
        b'"' => {
            let mut end = 1;
            while let Some(next) = memchr::memchr2(b'"', b'\\', rest.get(end..).unwrap_or_default()) {
                end += next;
                if rest[end] == b'"' {
                    break;
                }
                end += 2;
            }
            end + 1
        }
        b'-' | b'0'..=b'9' | b'a'..=b'z' => {
            let in_word = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
            rest.iter().take_while(in_word).count()
        }
        _ => 1,
    };
    (at + length).min(bytes.len())
}

/// The text that the inside of a string stands for. Half of a surrogate pair stands for nothing that can be looked for.
fn decode(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    if let Ok(text) = serde_json::from_str::<String>(&format!("\"{inner}\"")) {
        return Cow::Owned(text);
    }
    let mut units: Vec<u16> = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((before, after)) = rest.split_once('\\') {
        units.extend(before.encode_utf16());
        let mut characters = after.chars();
        let (unit, width) = match characters.next() {
            Some('u') => (u16::from_str_radix(after.get(1..5).unwrap_or_default(), 16).unwrap_or(0xfffd), 5),
            Some('n') => (0x0a, 1),
            Some('r') => (0x0d, 1),
            Some('t') => (0x09, 1),
            Some('b') => (0x08, 1),
            Some('f') => (0x0c, 1),
            Some(other) => (u16::try_from(u32::from(other)).unwrap_or(0xfffd), other.len_utf8()),
            None => break,
        };
        units.push(unit);
        rest = after.get(width..).unwrap_or_default();
    }
    units.extend(rest.encode_utf16());
    Cow::Owned(String::from_utf16_lossy(&units))
}

/// A telling value inside of a text that is already no more than this.
pub(super) fn is_marker(text: &str) -> bool {
    text.starts_with(MARKER)
}
