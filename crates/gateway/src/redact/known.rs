//! Secrets that this process has come across, and how a text may spell them.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::builtin::is_telling;
use super::{AllOfIt, JSON_MARKER};

/// Shorter ones are in texts by chance.
pub(super) const SHORTEST: usize = 8;
const MOST: usize = 1024;
/// Of all values together: each byte costs a few dozen where texts are searched.
const MOST_BYTES: usize = 256 << 10;
/// A longer one is known in pieces.
const PIECE: usize = 16 << 10;

/// Values that programs are given and that hide nothing, in lower case.
const WORDS: [&str; 12] = [
    "application/json",
    "application/json, text/event-stream",
    "text/event-stream",
    "text/plain",
    "localhost",
    "production",
    "development",
    "undefined",
    "disabled",
    "xterm-256color",
    "truecolor",
    "callsign",
];

/// Where paths of a file system begin. Base64 begins with a slash, too.
const ROOTS: [&str; 30] = [
    "~",
    ".",
    "..",
    "Library",
    "Users",
    "app",
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "media",
    "mnt",
    "nix",
    "opt",
    "private",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "work",
    "workspace",
    "workspaces",
];

#[derive(Default)]
pub(super) struct Known(RwLock<State>);

#[derive(Default)]
struct State {
    /// The one that was learnt longest ago first.
    values: VecDeque<Box<str>>,
    bytes: usize,
    /// Counts changes of `values`.
    generation: u64,
    /// None: to be made of `values` when the next text comes.
    finder: Option<Arc<Finder>>,
}

impl Known {
    pub(super) fn learn(&self, secret: &str) {
        let secret = secret.trim();
        let bare = without_scheme(secret).filter(|bare| bare.len() >= SHORTEST).unwrap_or(secret);
        self.add(bare);
        if let Some(password) = basic_password(secret) {
            self.add(&password);
        }
        for password in url_password(secret) {
            self.add(&password);
        }
        if secret.starts_with('{') {
            self.learn_members(secret);
        }
    }

    /// What makes an object of headers or a file of credentials secret.
    fn learn_members(&self, object: &str) {
        let Ok(serde_json::Value::Object(members)) = serde_json::from_str(object) else {
            return;
        };
        for (name, value) in members {
            if let (true, Some(text)) = (is_telling(&name), value.as_str()) {
                self.add(without_scheme(text).unwrap_or(text));
            }
        }
    }

    fn add(&self, value: &str) {
        if is_plain(value) {
            return;
        }
        for piece in pieces(value).filter(|piece| piece.len() >= SHORTEST) {
            let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
            state.add(piece);
        }
    }

    /// Looks for all that is known by now.
    pub(super) fn finder(&self) -> Arc<Finder> {
        let (values, generation) = {
            let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(finder) = &state.finder {
                return Arc::clone(finder);
            }
            (state.values.clone(), state.generation)
        };
        let finder = Arc::new(Finder::new(&values));
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if state.generation == generation {
            state.finder = Some(Arc::clone(&finder));
        }
        finder
    }
}

impl State {
    fn add(&mut self, value: &str) {
        if let Some(index) = self.values.iter().position(|known| **known == *value) {
            // It is in use, so it goes last.
            let again = self.values.remove(index);
            self.values.extend(again);
            return;
        }
        self.bytes += value.len();
        self.values.push_back(value.into());
        while self.values.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.values.pop_front() else { break };
            self.bytes -= oldest.len();
        }
        self.generation += 1;
        self.finder = None;
    }
}

/// Finds every spelling of some values.
pub(super) enum Finder {
    Nothing,
    Automaton(AhoCorasick),
    /// It could not be made, so no text is let through.
    Broken,
}

impl Finder {
    fn new(values: &VecDeque<Box<str>>) -> Self {
        let mut spellings: Vec<String> = values.iter().flat_map(|value| spellings(value)).collect();
        spellings.sort_unstable();
        spellings.dedup();
        if spellings.is_empty() {
            return Self::Nothing;
        }
        // In any letter case: hexadecimal digits have two, and a header or a host may be written in lower case.
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(spellings);
        automaton.map_or(Self::Broken, Self::Automaton)
    }

    pub(super) fn mark(&self, text: &str, marks: &mut Vec<Range<usize>>) -> Result<(), AllOfIt> {
        match self {
            Self::Automaton(automaton) if text.len() >= SHORTEST => {
                marks.extend(automaton.find_iter(text).map(|found| found.range()));
                Ok(())
            }
            Self::Automaton(_) | Self::Nothing => Ok(()),
            Self::Broken => Err(AllOfIt),
        }
    }

    pub(super) fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Automaton(automaton) => automaton.is_match(text),
            Self::Nothing => false,
            Self::Broken => true,
        }
    }
}

/// Whether it would be no use to hide `value`: it is short, one character over and over, a common word, a path or a
/// list of paths beneath a usual root, an address without a path, a locale, or a part of what stands for what was hidden.
pub(super) fn is_plain(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let mut characters = value.chars();
    let first = characters.next();
    value.len() < SHORTEST
        || characters.all(|other| Some(other) == first)
        || WORDS.contains(&lower.as_str())
        || JSON_MARKER.contains(&lower)
        || lower.ends_with(".utf-8")
        || value.split(':').all(is_path)
        || is_address(value)
}

fn is_path(text: &str) -> bool {
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    // `~/x`, or the empty part before the slash of `/usr/x`.
    let root = if first.is_empty() { parts.next().unwrap_or_default() } else { first };
    text.contains('/') && (first.is_empty() || first.starts_with(['~', '.'])) && ROOTS.contains(&root)
}

/// `https://collector.example:4318/`, `localhost:8080`, `10.0.0.1:53`: what is behind the host may be a secret.
fn is_address(text: &str) -> bool {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "0"));
    let host_is_well =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && host.contains('.');
    let says_so = matches!(scheme, "http" | "https" | "ws" | "wss") || host == "localhost" || is_number;
    host_is_well && says_so && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// What follows `Bearer`, `Basic` and the like.
fn without_scheme(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once(' ')?;
    let known = ["bearer", "basic", "token", "apikey", "digest", "negotiate"];
    known.contains(&scheme.to_ascii_lowercase().as_str()).then(|| rest.trim_start())
}

fn basic_password(value: &str) -> Option<String> {
    let (scheme, rest) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    Some(decoded.split_once(':')?.1.to_owned())
}

/// The password of `postgres://ann:PASSWORD@host/db`, as it is written and as it is meant.
fn url_password(value: &str) -> Vec<String> {
    let Some((_, rest)) = value.split_once("://") else {
        return Vec::new();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user_and_password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    let Some((_, written)) = user_and_password else {
        return Vec::new();
    };
    vec![written.to_owned(), percent_decoded(written)]
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%');
        bytes.push(decoded.unwrap_or(*byte));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
        rest = after;
        Some(piece)
    })
}

/// How `value` may stand in a text: as it is, in JSON, in JSON within JSON, in a url, in base64.
fn spellings(value: &str) -> Vec<String> {
    let in_json = json(value, Json::Plain);
    let mut all = vec![
        value.to_owned(),
        json(&in_json, Json::Plain),
        json(value, Json::Ascii),
        json(value, Json::Cautious),
        percent(value, b"-._~"),
        percent(value, b"-._~!*'()"),
        percent(value, b"-._~!*'();/?:@&=+$,#"),
        percent(value, b"-._*").replace("%20", "+"),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        in_json,
    ];
    all.retain(|spelling| !JSON_MARKER.contains(&spelling.to_ascii_lowercase()));
    all
}

/// What is escaped though it need not be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Json {
    Plain,
    /// All that is not ASCII, as Python does.
    Ascii,
    /// Also what means something in HTML and the slash, as PHP and Go do.
    Cautious,
}

/// The inside of a string.
fn json(value: &str, style: Json) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '/' if style == Json::Cautious => out.push_str("\\/"),
            '<' | '>' | '&' if style == Json::Cautious => escape(&mut out, character),
            ..'\u{20}' => escape(&mut out, character),
            _ if style != Json::Plain && !character.is_ascii() => escape(&mut out, character),
            _ => out.push(character),
        }
    }
    out
}

fn escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // A string takes everything.
        let _always = write!(out, "\\u{unit:04x}");
    }
}

fn percent(value: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _always = write!(out, "%{byte:02X}");
        }
    }
    out
}
