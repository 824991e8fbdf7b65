//! What looks like a credential, and what is named like one.
//!
//! One search finds the places that may begin something; each is then looked at by hand. What was marked is not looked
//! at again, and what was not is left after a bounded number of bytes or at the end of a word, so a text is walked
//! through a few times at most, whatever is in it.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::AllOfIt;
use super::json::is_marker;

/// A name that has one of these in it tells that its value is a secret. Compared without case and `_`, `-`, `.`, space.
const TELLING: [&str; 8] =
    ["password", "passwd", "secret", "token", "apikey", "authorization", "cookie", "privatekey"];

/// What may stand before a credential in the value of a header.
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "digest"];

/// The shortest text that can hold any of it: `token=x`.
const SHORTEST: usize = 7;

/// A longer rest of a name is no name.
const LONGEST_NAME: usize = 64;

/// What a place may begin.
#[derive(Debug, Clone, Copy)]
enum Anchor {
    /// A word of [`TELLING`], in a name with a value behind it: in JSON, in a query, in a header, in an assignment.
    Name(Line),
    /// `Bearer x`, `Basic x`.
    Scheme,
    /// A token that begins this way, written exactly so, with at least so many characters behind it.
    Prefix(usize),
    /// The same, where so few are a word as well: at least one is a digit, or there are 20.
    WordPrefix(usize),
    /// A private key in PEM.
    Pem,
    /// A JSON web token.
    Jwt,
    /// A url that may have a password.
    Url,
}

/// Whether the value of an unquoted `name:` is all of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Whole,
    Word,
}

const ANCHORS: [(&str, Anchor); 36] = [
    ("password", Anchor::Name(Line::Word)),
    ("passwd", Anchor::Name(Line::Word)),
    ("secret", Anchor::Name(Line::Word)),
    ("token", Anchor::Name(Line::Word)),
    ("apikey", Anchor::Name(Line::Word)),
    ("api_key", Anchor::Name(Line::Word)),
    ("api-key", Anchor::Name(Line::Word)),
    ("api.key", Anchor::Name(Line::Word)),
    ("privatekey", Anchor::Name(Line::Word)),
    ("private_key", Anchor::Name(Line::Word)),
    ("private-key", Anchor::Name(Line::Word)),
    ("private.key", Anchor::Name(Line::Word)),
    ("authorization", Anchor::Name(Line::Whole)),
    ("cookie", Anchor::Name(Line::Whole)),
    ("bearer", Anchor::Scheme),
    ("basic", Anchor::Scheme),
    ("sk-", Anchor::WordPrefix(8)),
    ("sk_live_", Anchor::Prefix(8)),
    ("sk_test_", Anchor::Prefix(8)),
    ("rk_live_", Anchor::Prefix(8)),
    ("ghp_", Anchor::Prefix(8)),
    ("gho_", Anchor::Prefix(8)),
    ("ghu_", Anchor::Prefix(8)),
    ("ghs_", Anchor::Prefix(8)),
    ("ghr_", Anchor::Prefix(8)),
    ("github_pat_", Anchor::Prefix(8)),
    ("glpat-", Anchor::Prefix(8)),
    ("xoxb-", Anchor::Prefix(8)),
    ("xoxp-", Anchor::Prefix(8)),
    ("xoxa-", Anchor::Prefix(8)),
    ("AIza", Anchor::Prefix(30)),
    ("AKIA", Anchor::Prefix(16)),
    ("ASIA", Anchor::Prefix(16)),
    ("-----BEGIN", Anchor::Pem),
    ("eyJ", Anchor::Jwt),
    ("://", Anchor::Url),
];

/// Whether what stands under `name` is a secret.
pub(super) fn is_telling(name: &str) -> bool {
    let kept = |character: &char| !matches!(character, '_' | '-' | '.' | ' ');
    let plain: String = name.chars().filter(kept).map(|character| character.to_ascii_lowercase()).collect();
    TELLING.iter().any(|word| plain.contains(word))
}

pub(super) struct Builtin {
    /// None: it could not be made, so no text is let through.
    anchors: Option<AhoCorasick>,
}

impl Builtin {
    pub(super) fn new() -> Self {
        let anchors = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(ANCHORS.map(|(text, _)| text));
        Self { anchors: anchors.ok() }
    }

    pub(super) fn mark(&self, text: &str, marks: &mut Vec<Range<usize>>) -> Result<(), AllOfIt> {
        let anchors = self.anchors.as_ref().ok_or(AllOfIt)?;
        if text.len() < SHORTEST {
            return Ok(());
        }
        let bytes = text.as_bytes();
        // Up to here there is no JSON web token: the dots are missing.
        let mut barren = 0;
        let mut at = 0;
        while let Some(found) = anchors.find(Input::new(text).range(at..)) {
            let (written, anchor) = ANCHORS[found.pattern().as_usize()];
            let exact = bytes[found.range()] == *written.as_bytes() && begins_word(bytes, found.start());
            let mark = match anchor {
                Anchor::Name(line) => value_behind(text, found.end(), line),
                Anchor::Scheme => credential_behind(bytes, found.range()),
                Anchor::Prefix(least) if exact => token(bytes, found.range(), least),
                Anchor::WordPrefix(least) if exact => token(bytes, found.range(), least)
                    .filter(|token| token.len() >= 20 || bytes[token.clone()].iter().any(u8::is_ascii_digit)),
                Anchor::Jwt if exact && found.start() >= barren => {
                    let (run, is_token) = web_token(bytes, found.start());
                    barren = run.end;
                    is_token.then_some(run)
                }
                Anchor::Prefix(_) | Anchor::WordPrefix(_) | Anchor::Jwt => None,
                Anchor::Pem => private_key(text, found.start()),
                Anchor::Url => password_of_url(bytes, found.end()),
            };
            at = mark.as_ref().map_or(found.end(), |mark| mark.end);
            marks.extend(mark);
        }
        Ok(())
    }
}

fn run(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|byte| belongs(**byte)).count()
}

/// Whether no word goes on here. What an escape stands for is none.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    let before = |distance: usize| at.checked_sub(distance).and_then(|at| bytes.get(at));
    let escaped = before(3) == Some(&b'%') || before(2) == Some(&b'\\') || before(6) == Some(&b'\\');
    !before(1).is_some_and(u8::is_ascii_alphanumeric) || escaped
}

fn token(bytes: &[u8], anchor: Range<usize>, least: usize) -> Option<Range<usize>> {
    let end = run(bytes, anchor.end, |byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    (end - anchor.end >= least).then_some(anchor.start..end)
}

/// Three parts with dots between them, or more; all but the first may be empty.
fn web_token(bytes: &[u8], start: usize) -> (Range<usize>, bool) {
    let end = run(bytes, start, |byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    let dots = memchr::memchr_iter(b'.', &bytes[start..end]).take(2).count();
    (start..end, dots == 2)
}

/// From its first line to its last; without one, to the end.
fn private_key(text: &str, start: usize) -> Option<Range<usize>> {
    let (label, rest) = text[start + 5..].split_once("-----")?;
    if label.len() > LONGEST_NAME || !label.contains("PRIVATE KEY") {
        return None;
    }
    let last = rest.split_once("-----END").and_then(|(_, last)| last.split_once("-----"));
    Some(start..text.len() - last.map_or(0, |(_, after)| after.len()))
}

/// Behind `://`: what is between the colon and the `@`, or all before the `@` if it is long enough for a token.
fn password_of_url(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let end = run(bytes, start, |byte| byte > b' ' && !b"/?#\"'<>\\`".contains(&byte));
    let at = bytes[start..end].iter().rposition(|byte| *byte == b'@')?;
    let user = &bytes[start..start + at];
    let from = match user.iter().position(|byte| *byte == b':') {
        Some(colon) => colon + 1,
        None if user.len() >= 16 => 0,
        None => return None,
    };
    let mark = start + from..start + at;
    (!mark.is_empty() && !bytes[mark.clone()].starts_with(b"[redacted")).then_some(mark)
}

/// What follows `Bearer`, unless it is a word of prose.
fn credential_behind(bytes: &[u8], anchor: Range<usize>) -> Option<Range<usize>> {
    if !begins_word(bytes, anchor.start) {
        return None;
    }
    let start = skip_gap(bytes, anchor.end);
    if start == anchor.end {
        return None;
    }
    let end = run(bytes, start, |byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    let (first, rest) = bytes[start..end].split_first()?;
    let is_word = first.is_ascii_alphabetic()
        && rest.iter().all(|byte| byte.is_ascii_lowercase() || b".-".contains(byte));
    let length = end - start;
    (length >= 20 || length >= 6 && !is_word).then_some(start..end)
}

/// Spaces, also as a url has them.
fn skip_gap(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        match bytes.get(at) {
            Some(b' ' | b'\t') => at += 1,
            Some(b'%') if bytes[at..].starts_with(b"%20") => at += 3,
            Some(b'+') if at == from => at += 1,
            _ => return at,
        }
    }
}

/// The value of the name in which a telling word ends at `from`.
fn value_behind(text: &str, from: usize, line: Line) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let name_end = end_of_name(bytes, from)?;
    let (after_name, name) = match quote_at(bytes, name_end) {
        Some(quote) => (quote.end, Name::Quoted),
        None => (name_end, Name::Bare),
    };
    let separator = skip_space(bytes, after_name, name);
    let value = skip_space(bytes, end_of_separator(bytes, separator)?, name);
    if is_marker(&text[value..]) {
        return None;
    }
    if let Some(quote) = quote_at(bytes, value) {
        let end = end_of_quoted(bytes, &quote);
        let inside = &text[quote.end..end];
        return (!inside.is_empty() && !is_marker(inside)).then_some(quote.end..end);
    }
    // Of headers the whole line is meant, of a query it is not.
    let line = if bytes[separator] == b':' { line } else { Line::Word };
    let end = match (bytes.get(value)?, name, line) {
        (b'{' | b'[', Name::Quoted, _) => end_of_brackets(bytes, value),
        (_, Name::Quoted, _) => {
            run(bytes, value, |byte| byte.is_ascii_graphic() && !b",}]\"\\".contains(&byte))
        }
        (_, Name::Bare, Line::Whole) => run(bytes, value, |byte| !b"\r\n\"'`\\".contains(&byte)),
        (_, Name::Bare, Line::Word) => {
            let end = end_of_word(bytes, value);
            let is_scheme = SCHEMES.iter().any(|scheme| text[value..end].eq_ignore_ascii_case(scheme));
            let credential = credential_behind(bytes, value..end).filter(|_| is_scheme);
            credential.map_or(end, |credential| credential.end)
        }
    };
    let says_nothing = matches!(&text[value..end], "" | "true" | "false" | "null");
    (!says_nothing).then_some(value..end)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Quoted,
    Bare,
}

/// None: it goes on for too long.
fn end_of_name(bytes: &[u8], from: usize) -> Option<usize> {
    let belongs = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.]%".contains(byte);
    (from..=from + LONGEST_NAME)
        .find(|at| !bytes.get(*at).is_some_and(belongs) || is_encoded_separator(bytes, *at))
}

/// `%3D` or `%3A`.
fn is_encoded_separator(bytes: &[u8], at: usize) -> bool {
    bytes[at..]
        .first_chunk::<3>()
        .is_some_and(|three| three.eq_ignore_ascii_case(b"%3d") || three.eq_ignore_ascii_case(b"%3a"))
}

/// `:`, `=`, `=>`, `:=`, or one that is encoded; not `==` and not `://`.
fn end_of_separator(bytes: &[u8], at: usize) -> Option<usize> {
    if is_encoded_separator(bytes, at.min(bytes.len())) {
        return Some(at + 3);
    }
    match (bytes.get(at)?, bytes.get(at + 1)) {
        (b'=', Some(b'=')) | (b':', Some(b':')) => None,
        (b':', Some(b'/')) if bytes.get(at + 2) == Some(&b'/') => None,
        (b'=', Some(b'>')) | (b':', Some(b'=')) => Some(at + 2),
        (b'=' | b':', _) => Some(at + 1),
        _ => None,
    }
}

/// In JSON a value may stand on a line of its own.
fn skip_space(bytes: &[u8], from: usize, name: Name) -> usize {
    run(bytes, from, |byte| {
        matches!(byte, b' ' | b'\t') || name == Name::Quoted && matches!(byte, b'\r' | b'\n')
    })
}

/// A quote with the backslashes before it: inside of strings, quotes are escaped.
fn quote_at(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let quote = run(bytes, from, |byte| byte == b'\\');
    matches!(bytes.get(quote)?, b'"' | b'\'' | b'`').then_some(from..quote + 1)
}

/// Where the text that `open` begins ends, without the backslashes of the quote that ends it.
///
/// Each level of strings doubles the backslashes and adds one, so of those before a quote their number tells its level.
fn end_of_quoted(bytes: &[u8], open: &Range<usize>) -> usize {
    let (level, quote) = (open.len() - 1, bytes[open.end - 1]);
    let mut at = open.end;
    while let Some(next) = memchr::memchr(quote, &bytes[at..]) {
        let place = at + next;
        let before = bytes[open.end..place].iter().rev().take_while(|byte| **byte == b'\\').count();
        if before < level || before % (2 * (level + 1)) == level {
            return place - before.min(level);
        }
        at = place + 1;
    }
    bytes.len()
}

fn end_of_brackets(bytes: &[u8], from: usize) -> usize {
    let mut open = 0_usize;
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => open += 1,
            b'}' | b']' => open -= 1,
            b'"' | b'\\' => {
                let close = quote_at(bytes, at).map(|quote| end_of_quoted(bytes, &quote));
                let close = close.map(|end| quote_at(bytes, end).map_or(bytes.len(), |quote| quote.end));
                at = close.unwrap_or_else(|| run(bytes, at, |byte| byte == b'\\'));
                continue;
            }
            _ => {}
        }
        at += 1;
        if open == 0 {
            break;
        }
    }
    at
}

fn end_of_word(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        let ends = byte.is_ascii_whitespace() || b"&\"'`<>)\\".contains(byte);
        if ends || bytes[at..].starts_with(b"%26") {
            break;
        }
        at += 1;
    }
    at
}
