//! W3C Trace Context: what a caller says of its trace, and what we pass on.
//!
//! ```text
//! traceparent of the caller ─→ TraceParent ─→ Trace (a span of ours) ─→ traceparent for the server
//! ```

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// Whoever has it records the trace.
pub const SAMPLED: u8 = 0x01;
/// The trace id was made at random; said by whoever made it, and passed on.
pub const RANDOM: u8 = 0x02;

/// What every version of the header begins with: `vv-` trace id `-` span id `-` flags.
const LENGTH: usize = 55;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A `traceparent` that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub parent: [u8; 8],
    pub flags: u8,
}

/// Whoever sent it is not told: a bad `traceparent` counts as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TraceError {
    #[error("the length is not that of a trace context")]
    Length,
    #[error("the version is not valid")]
    Version,
    #[error("the parts do not lie where they should")]
    Layout,
    #[error("a part is no lower-case hexadecimal number")]
    Digits,
    #[error("an id is all zeros")]
    Zero,
}

impl TraceParent {
    /// Versions that are not known yet are read as far as they look like the first one.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let bytes = text.as_bytes();
        if bytes.len() < LENGTH {
            return Err(TraceError::Length);
        }
        let [version] = digits(&bytes[..2])?;
        match version {
            0xff => return Err(TraceError::Version),
            0 if bytes.len() > LENGTH => return Err(TraceError::Length),
            _ => {}
        }
        let dashes = [2, 35, 52].iter().all(|&at| bytes[at] == b'-');
        if !dashes || bytes.get(LENGTH).is_some_and(|&next| next != b'-') {
            return Err(TraceError::Layout);
        }
        let trace_id = id(&bytes[3..35])?;
        let parent = id(&bytes[36..52])?;
        let [flags] = digits(&bytes[53..55])?;
        Ok(Self { trace_id, parent, flags })
    }
}

impl FromStr for TraceParent {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        Self::parse(text)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(LENGTH);
        text.push_str("00-");
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.parent);
        text.push('-');
        push_hex(&mut text, &[self.flags]);
        f.write_str(&text)
    }
}

/// A span of ours, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trace {
    pub trace_id: [u8; 16],
    pub span: [u8; 8],
    /// The caller's span. None: the trace begins here.
    pub parent: Option<[u8; 8]>,
    pub flags: u8,
}

impl Trace {
    /// A span below the caller's. Flags that nobody has defined yet are not passed on.
    pub fn continuing(parent: &TraceParent) -> Self {
        Self {
            trace_id: parent.trace_id,
            span: random_id(),
            parent: Some(parent.parent),
            flags: parent.flags & (SAMPLED | RANDOM),
        }
    }

    /// The first span of a trace that is recorded.
    pub fn fresh() -> Self {
        Self { trace_id: random_id(), span: random_id(), parent: None, flags: SAMPLED }
    }

    /// For a row that was written without a trace: the same row always gets the same ids, and the rows of a session
    /// are one trace. A call without a session is a trace of its own, since ids of calls need not be unique.
    pub fn derived(session: Option<&str>, call: &str, (writer, seq): (i64, i64)) -> Self {
        let row = [writer.to_be_bytes(), seq.to_be_bytes()].concat();
        let trace_id = match session {
            Some(session) => hashed("trace of a session", &[session.as_bytes()]),
            None => hashed("trace of a call", &[&row, call.as_bytes()]),
        };
        Self { trace_id, span: hashed("span of a row", &[&row]), parent: None, flags: SAMPLED }
    }

    /// Does whoever began the trace want it recorded?
    pub fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// What a server is told, so that its spans lie below ours.
    pub fn traceparent(&self) -> String {
        TraceParent { trace_id: self.trace_id, parent: self.span, flags: self.flags }.to_string()
    }

    /// As it stands in the ledger: trace id, span, parent or nothing, flags.
    pub fn to_column(&self) -> String {
        let mut text = String::with_capacity(69);
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.span);
        text.push('-');
        if let Some(parent) = &self.parent {
            push_hex(&mut text, parent);
        }
        text.push('-');
        push_hex(&mut text, &[self.flags]);
        text
    }

    pub fn from_column(text: &str) -> Result<Self, TraceError> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(TraceError::Layout);
        let (trace_id, span, parent, flags) = (next()?, next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(TraceError::Layout);
        }
        let parent = if parent.is_empty() { None } else { Some(id(parent.as_bytes())?) };
        let [flags] = digits(flags.as_bytes())?;
        Ok(Self { trace_id: id(trace_id.as_bytes())?, span: id(span.as_bytes())?, parent, flags })
    }
}

pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Upper case is refused: two spellings of one id would be two ids to whoever compares texts.
fn digits<const N: usize>(text: &[u8]) -> Result<[u8; N], TraceError> {
    if text.len() != 2 * N {
        return Err(TraceError::Length);
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(TraceError::Digits),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

fn id<const N: usize>(text: &[u8]) -> Result<[u8; N], TraceError> {
    let bytes = digits(text)?;
    if bytes == [0; N] { Err(TraceError::Zero) } else { Ok(bytes) }
}

fn hashed<const N: usize>(what: &str, parts: &[&[u8]]) -> [u8; N] {
    let mut hash = Sha256::new();
    hash.update(what);
    for part in parts {
        hash.update([0]);
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut id = [0; N];
    id.copy_from_slice(&digest[..N]);
    not_zero(id)
}

/// An id of zeros means none.
fn not_zero<const N: usize>(mut id: [u8; N]) -> [u8; N] {
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

fn random_id<const N: usize>() -> [u8; N] {
    let mut id = [0; N];
    for part in id.chunks_mut(8) {
        part.copy_from_slice(&random().to_ne_bytes()[..part.len()]);
    }
    not_zero(id)
}

/// Good enough that ids do not collide, not for secrets: xoshiro256++ on each thread, seeded by the system.
pub(crate) fn random() -> u64 {
    thread_local! {
        static STATE: Cell<[u64; 4]> = Cell::new(seed());
    }
    STATE.with(|state| {
        let [mut a, mut b, mut c, mut d] = state.get();
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        c ^= a;
        d ^= b;
        b ^= c;
        a ^= d;
        c ^= shifted;
        d = d.rotate_left(45);
        state.set([a, b, c, d]);
        result
    })
}

fn seed() -> [u64; 4] {
    let mut bytes = [0; 32];
    if getrandom::fill(&mut bytes).is_err() {
        // Worse, but still another one for each thread and process.
        let keys = RandomState::new();
        return [1, 2, 3, 4].map(|number: u64| keys.hash_one(number));
    }
    let mut state = [0; 4];
    for (word, part) in state.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = part.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    // All zeros would stay zeros.
    if state == [0; 4] { [1, 2, 3, 4] } else { state }
}

#[cfg(test)]
mod tests;
