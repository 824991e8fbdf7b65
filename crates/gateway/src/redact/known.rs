//! Secrets that this process has come across, and how a text may spell them.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::JSON_MARKER;
use super::builtin::is_telling;

/// Shorter ones are in texts by chance.
pub(super) const SHORTEST: usize = 8;
const MOST: usize = 1024;
/// Of all values together; their spellings are a few times that.
const MOST_BYTES: usize = 256 << 10;
/// How many make room where there is none left.
const AT_ONCE: usize = 128;
/// A longer one is known in pieces.
const PIECE: usize = 16 << 10;
/// A power of two.
const HINTS: usize = 1 << 16;

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

/// # Synchronization
///
/// Whoever searches a text does so in the table as it was when it began; a value that is added meanwhile goes into a
/// copy.
#[derive(Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    /// The one that was learnt longest ago first.
    values: VecDeque<Box<str>>,
    bytes: usize,
    table: Arc<Table>,
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
            self.state().add(piece);
        }
    }

    /// All that is known by now.
    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.state().table)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.values.len() <= MOST && self.bytes <= MOST_BYTES {
            Arc::make_mut(&mut self.table).add(value);
            return;
        }
        // Some at once: the table is made anew.
        while self.values.len() > MOST - AT_ONCE || self.bytes > MOST_BYTES - MOST_BYTES / 8 {
            let Some(oldest) = self.values.pop_front() else { break };
            self.bytes -= oldest.len();
        }
        let mut table = Table::default();
        for value in &self.values {
            table.add(value);
        }
        self.table = Arc::new(table);
    }
}

/// Finds every spelling of some values, in any letter case: hexadecimal digits have two, and a header or a host may
/// be written in lower case.
///
/// Nothing is prepared but lists by their first bytes, because values come and go all the time.
#[derive(Default, Clone)]
pub(super) struct Table {
    /// By their first [`SHORTEST`] bytes.
    lists: HashMap<u64, Vec<Spelling>>,
    /// Which lists there may be, a bit each: nearly no place of a text begins a secret.
    hints: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Spelling {
    /// In lower case; lists are sorted by it.
    text: Box<[u8]>,
    /// Where in the list the longest is that this one begins with.
    shorter: Option<usize>,
}

impl Table {
    fn add(&mut self, value: &str) {
        self.hints.resize(HINTS / 64, 0);
        for spelling in spellings(value) {
            let text = spelling.to_ascii_lowercase().into_bytes();
            let Some(first) = text.first_chunk::<SHORTEST>().map(|first| u64::from_be_bytes(*first)) else {
                continue;
            };
            let hint = hint(first);
            self.hints[hint / 64] |= 1 << (hint % 64);
            let list = self.lists.entry(first).or_default();
            if let Err(place) = list.binary_search_by(|other| (*other.text).cmp(&text)) {
                list.insert(place, Spelling { text: text.into(), shorter: None });
                link(list);
            }
        }
    }

    pub(super) fn mark(&self, text: &str, marks: &mut Vec<Range<usize>>) {
        let mut at = 0;
        while let Some(found) = self.next(text.as_bytes(), at) {
            at = found.end;
            marks.push(found);
        }
    }

    pub(super) fn is_in(&self, text: &str) -> bool {
        self.next(text.as_bytes(), 0).is_some()
    }

    /// The first at or behind `from`; of those that begin there, the longest.
    fn next(&self, bytes: &[u8], from: usize) -> Option<Range<usize>> {
        if self.hints.is_empty() {
            return None;
        }
        let rest = &bytes[from..];
        let (head, tail) = rest.split_at_checked(SHORTEST - 1)?;
        let push = |word: u64, byte: &u8| word << 8 | u64::from(byte.to_ascii_lowercase());
        let mut word = head.iter().fold(0, push);
        for (at, byte) in tail.iter().enumerate() {
            word = push(word, byte);
            let hint = hint(word);
            if self.hints[hint / 64] >> (hint % 64) & 1 == 0 {
                continue;
            }
            let length = self.lists.get(&word).and_then(|list| longest(list, &rest[at..]));
            if let Some(length) = length {
                return Some(from + at..from + at + length);
            }
        }
        None
    }
}

fn hint(first: u64) -> usize {
    // The upper bits of a product depend on all bits of the factors.
    let mixed = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or_default() % HINTS
}

/// Those that begin with another come right behind it, with nothing between them that does not.
fn link(list: &mut [Spelling]) {
    let mut open: Vec<usize> = Vec::new();
    for index in 0..list.len() {
        while open.last().is_some_and(|last| !list[index].text.starts_with(&list[*last].text)) {
            open.pop();
        }
        list[index].shorter = open.last().copied();
        open.push(index);
    }
}

/// How long the longest is that `bytes` begins with.
///
/// What lies in the order between it and `bytes` begins with it, so it is the last before `bytes`, or one that this
/// begins with.
fn longest(list: &[Spelling], bytes: &[u8]) -> Option<usize> {
    let lower = || bytes.iter().map(u8::to_ascii_lowercase);
    let behind = list.partition_point(|spelling| spelling.text.iter().copied().le(lower()));
    let mut candidate = list.get(behind.checked_sub(1)?)?;
    loop {
        let text = &candidate.text;
        if bytes.get(..text.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(text)) {
            return Some(text.len());
        }
        candidate = list.get(candidate.shorter?)?;
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
