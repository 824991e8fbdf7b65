//! How an answer ended, seen in passing: bodies are passed on in pieces of any size, and none of them is kept.
//!
//! ```text
//!  Begin ─▶ Name ─▶ Colon ─▶ Value ─┬─▶ Text, Scalar ─┬─▶ After ─▶ Name … ─▶ Done
//!            ▲                      ├─▶ Deep ─────────┘
//!            └─ of result, error ───┘      anything that cannot follow ─▶ Broken
//! ```
//!
//! Names are read in the message itself, in its `result` and in its `error`, escapes and all. Everything below
//! is skipped with a counter for its depth, so what is passed here need not be JSON to the last byte: kinds of
//! brackets, commas and words are not checked down there. What is cut off is never taken for whole.
//!
//! A name that the envelope reads (`id`, `method`, `result`, `error`) may not stand twice in a message, nor may
//! a result and an error stand together: the envelope refuses such a message, and here it is none. Of `isError`
//! and `code`, which the envelope does not read, the last one counts.

use std::borrow::Cow;

use bytes::Bytes;

use crate::envelope::decode_string;
use crate::scan::Scanner;

mod events;
mod quote;

pub use events::EventGlance;
use quote::past_quote;

/// An id, a name or a number that is longer than this is not kept.
const KEPT: usize = 256;

/// `isError` with every letter escaped, and a quote.
const LONGEST_NAME: usize = 7 * 6 + 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Result {
        /// Whether `result.isError` is `true`.
        is_error: bool,
    },
    Error {
        /// `error.code`, if it is a whole number, however it is spelled.
        code: Option<i64>,
    },
    /// A request or a notification, or no message of JSON-RPC.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub seen: Seen,
    /// The id as it is written, quotes included; `null` too. None for one longer than 256 bytes, and for what is
    /// no id at all: an object or a list.
    pub id: Option<Bytes>,
}

/// Looks at one body of JSON.
#[derive(Debug, Default)]
pub struct Glance {
    step: Step,
    /// The object whose names are read.
    inside: Inside,
    /// The name that was read last, in that object.
    member: Member,
    /// How many brackets are open.
    depth: u64,
    /// Whether the last byte of a string was a backslash that escapes the next.
    escaped: bool,
    /// What is being read to be kept. None: it became too long.
    kept: Option<Vec<u8>>,
    found: Found,
}

/// Where a [`Glance`] is.
#[derive(Debug, Clone, Copy, Default)]
enum Step {
    #[default]
    Begin,
    /// Before a name, or the end of the object.
    Name,
    Colon,
    Value,
    /// Behind a value: a comma, or the end of the object.
    After,
    Text(Use),
    Scalar(Use),
    /// Within something that is skipped whole.
    Deep,
    Done,
    Broken,
}

/// What a string or a word is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Name,
    Kept,
    Skipped,
    /// It is within something that is skipped whole.
    Deep,
    /// It is all there is.
    Body,
}

#[derive(Debug, Clone, Copy, Default)]
enum Inside {
    #[default]
    Message,
    Result,
    Error,
}

#[derive(Debug, Clone, Copy, Default)]
enum Member {
    Id,
    Result,
    Error,
    IsError,
    Code,
    #[default]
    Unread,
}

#[derive(Debug, Default)]
struct Found {
    id: Option<Bytes>,
    has_id: bool,
    /// None as long as nothing stood there that tells.
    seen: Option<Seen>,
}

impl Glance {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match self.step {
                Step::Text(what) => self.text(what, rest),
                Step::Scalar(what) => self.scalar(what, rest),
                Step::Deep => self.deep(rest),
                Step::Broken => return,
                Step::Begin | Step::Name | Step::Colon | Step::Value | Step::After | Step::Done => {
                    self.between(rest)
                }
            };
            rest = &rest[used..];
        }
    }

    /// None: what was fed is not one complete value, or it is a list, which is a batch.
    pub fn finish(mut self) -> Option<Answer> {
        self.end()
    }

    fn end(&mut self) -> Option<Answer> {
        if let Step::Scalar(Use::Body) = self.step {
            self.end_of_scalar(Use::Body);
        }
        match self.step {
            Step::Done => Some(std::mem::take(&mut self.found).answer()),
            Step::Begin | Step::Name | Step::Colon | Step::Value | Step::After => None,
            Step::Text(_) | Step::Scalar(_) | Step::Deep | Step::Broken => None,
        }
    }

    /// White space, and one byte that says what comes next. Returns how much was used, as all the steps do.
    fn between(&mut self, bytes: &[u8]) -> usize {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let Some(at) = bytes.iter().position(|byte| !is_space(byte)) else { return bytes.len() };
        let byte = bytes[at];
        self.step = match (self.step, byte) {
            (Step::Begin, b'{') => self.enter(),
            (Step::Begin, b'"') => Step::Text(Use::Body),
            (Step::Begin, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.keep_anew();
                self.step = Step::Scalar(Use::Body);
                return at;
            }
            (Step::Name, b'"') => {
                self.keep_anew();
                Step::Text(Use::Name)
            }
            (Step::Name | Step::After, b'}') => self.leave(),
            (Step::After, b',') => Step::Name,
            (Step::Colon, b':') => Step::Value,
            (Step::Value, _) => {
                let step = self.value(byte);
                // The first byte of a number or a word is part of it.
                if let Step::Scalar(_) = step {
                    self.step = step;
                    return at;
                }
                step
            }
            (Step::Begin | Step::Name | Step::Colon | Step::After | Step::Done, _) => Step::Broken,
            (Step::Text(_) | Step::Scalar(_) | Step::Deep | Step::Broken, _) => Step::Broken,
        };
        at + 1
    }

    /// What a value is, by its first byte.
    fn value(&mut self, first: u8) -> Step {
        match (first, self.member) {
            (b'{', Member::Result) => {
                self.inside = Inside::Result;
                self.enter()
            }
            (b'{', Member::Error) => {
                self.inside = Inside::Error;
                self.enter()
            }
            (b'{' | b'[', _) => {
                self.depth += 1;
                Step::Deep
            }
            (b'"', Member::Id) => {
                self.keep_anew();
                self.keep(b"\"");
                Step::Text(Use::Kept)
            }
            (b'"', _) => Step::Text(Use::Skipped),
            (b'-' | b'0'..=b'9' | b't' | b'f' | b'n', Member::Id | Member::IsError | Member::Code) => {
                self.keep_anew();
                Step::Scalar(Use::Kept)
            }
            (b'-' | b'0'..=b'9' | b't' | b'f' | b'n', _) => Step::Scalar(Use::Skipped),
            _ => Step::Broken,
        }
    }

    /// Into an object whose names are read.
    fn enter(&mut self) -> Step {
        self.depth += 1;
        Step::Name
    }

    /// Out of it again.
    fn leave(&mut self) -> Step {
        self.depth -= 1;
        match self.inside {
            Inside::Message => Step::Done,
            Inside::Result | Inside::Error => {
                self.inside = Inside::Message;
                Step::After
            }
        }
    }

    fn text(&mut self, what: Use, bytes: &[u8]) -> usize {
        let end = past_quote(bytes, &mut self.escaped);
        let used = end.unwrap_or(bytes.len());
        match what {
            // Most names lie in one piece, and need not be kept to be read.
            Use::Name if end.is_some() && self.kept.as_ref().is_some_and(Vec::is_empty) => {
                self.read_name(Some(&bytes[..used]));
                self.step = Step::Colon;
                return used;
            }
            Use::Name | Use::Kept => self.keep(&bytes[..used]),
            Use::Skipped | Use::Deep | Use::Body => {}
        }
        if end.is_some() {
            self.step = match what {
                Use::Name => {
                    let kept = self.kept.take();
                    self.read_name(kept.as_deref());
                    self.kept = kept;
                    Step::Colon
                }
                Use::Kept => {
                    self.read_value();
                    Step::After
                }
                Use::Skipped => Step::After,
                Use::Deep => Step::Deep,
                Use::Body => Step::Done,
            };
        }
        used
    }

    /// A number, `true`, `false` or `null`: whatever stands before the next thing that cannot be part of them.
    fn scalar(&mut self, what: Use, bytes: &[u8]) -> usize {
        let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.') || byte.is_ascii_alphanumeric();
        let end = bytes.iter().position(|byte| !is_part(byte));
        let used = end.unwrap_or(bytes.len());
        if what != Use::Skipped {
            self.keep(&bytes[..used]);
        }
        if end.is_some() {
            self.end_of_scalar(what);
        }
        used
    }

    fn end_of_scalar(&mut self, what: Use) {
        self.step = match what {
            Use::Kept => {
                self.read_value();
                Step::After
            }
            // A body that was cut off within a word must not pass for a whole one.
            Use::Body => {
                let mut scanner = Scanner::new(self.kept.as_deref().unwrap_or_default());
                if scanner.value().is_ok() && scanner.end().is_ok() { Step::Done } else { Step::Broken }
            }
            Use::Skipped | Use::Name | Use::Deep => Step::After,
        };
    }

    /// Skips what is of no interest, up to the bracket that closes it.
    fn deep(&mut self, bytes: &[u8]) -> usize {
        let floor = match self.inside {
            Inside::Message => 1,
            Inside::Result | Inside::Error => 2,
        };
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'"' => {
                    let Some(used) = past_quote(&bytes[at..], &mut self.escaped) else {
                        self.step = Step::Text(Use::Deep);
                        return bytes.len();
                    };
                    at += used;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == floor {
                        self.step = Step::After;
                        return at;
                    }
                }
                _ => {}
            }
        }
        at
    }

    /// `raw` is the name without its first quote. None: it was too long to be one of ours.
    fn read_name(&mut self, raw: Option<&[u8]>) {
        let raw = raw.unwrap_or_default();
        let decoded;
        let name = if raw.len() > LONGEST_NAME {
            b""
        } else if raw.contains(&b'\\') {
            decoded = decode_string(&[b"\"", raw].concat()).map(Cow::into_owned).unwrap_or_default();
            decoded.as_bytes()
        } else {
            raw.strip_suffix(b"\"").unwrap_or_default()
        };
        let found = &mut self.found;
        self.member = match (self.inside, name) {
            (Inside::Message, b"id") => {
                if std::mem::replace(&mut found.has_id, true) {
                    found.seen = Some(Seen::Other);
                }
                found.id = None;
                Member::Id
            }
            (Inside::Message, b"method") => {
                found.seen = Some(Seen::Other);
                Member::Unread
            }
            (Inside::Message, b"result") => {
                found.ended(Seen::Result { is_error: false });
                Member::Result
            }
            (Inside::Message, b"error") => {
                found.ended(Seen::Error { code: None });
                Member::Error
            }
            // The last one counts, so what an earlier one said is forgotten.
            (Inside::Result, b"isError") => {
                found.is_error(false);
                Member::IsError
            }
            (Inside::Error, b"code") => {
                found.code(None);
                Member::Code
            }
            (Inside::Message | Inside::Result | Inside::Error, _) => Member::Unread,
        };
    }

    fn read_value(&mut self) {
        let Some(raw) = self.kept.as_deref() else { return };
        match self.member {
            Member::Id => self.found.id = Some(Bytes::copy_from_slice(raw)),
            Member::IsError => self.found.is_error(raw == b"true"),
            Member::Code => self.found.code(whole_number(raw)),
            Member::Result | Member::Error | Member::Unread => {}
        }
    }

    fn keep_anew(&mut self) {
        self.kept.get_or_insert_default().clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        if let Some(kept) = &mut self.kept {
            if kept.len() + bytes.len() <= KEPT {
                kept.extend_from_slice(bytes);
            } else {
                self.kept = None;
            }
        }
    }
}

impl Found {
    /// There is a result, or an error. With anything else that tells beside it, this is no answer.
    fn ended(&mut self, seen: Seen) {
        self.seen = Some(if self.seen.is_none() { seen } else { Seen::Other });
    }

    fn is_error(&mut self, new: bool) {
        if let Some(Seen::Result { is_error }) = &mut self.seen {
            *is_error = new;
        }
    }

    fn code(&mut self, new: Option<i64>) {
        if let Some(Seen::Error { code }) = &mut self.seen {
            *code = new;
        }
    }

    fn answer(self) -> Answer {
        Answer { seen: self.seen.unwrap_or(Seen::Other), id: self.id }
    }
}

/// JSON knows no integers: `-32601`, `-32601.0` and `-3.2601e4` are one number.
fn whole_number(raw: &[u8]) -> Option<i64> {
    /// Beyond this, a float is not the number that was written.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number: serde_json::Number = serde_json::from_slice(raw).ok()?;
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and smaller than an i64 can be")]
    number.as_i64().or_else(|| float().map(|float| float as i64))
}

#[cfg(test)]
mod tests;
