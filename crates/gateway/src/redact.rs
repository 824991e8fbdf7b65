//! Takes secrets out of texts before they are written down.
//!
//! ```text
//! text ─┬ JSON: json.rs   each string by itself, decoded; what has a telling name as a whole ─┐
//!       └ else ──────────────────────────────────────────────────────────────────────────────┤
//!                          known.rs     values that this process has come across ────────────┤
//!                          builtin.rs   what looks like a credential, or is named like one ──┼─→ marks ─→ text
//!                          the configured patterns ──────────────────────────────────────────┘
//! ```
//!
//! All of them look at the same text, and what any of them marks is replaced by [`MARKER`]. A configured pattern sees
//! one string of JSON at a time, as it reads, without its quotes, or one number.
//!
//! **Invariants:** of JSON remains JSON. No value that was learnt is in what comes out, in any of its spellings: where
//! it cannot be taken out piece by piece, nothing is left of the text. The same holds for JSON that is too deep to be
//! looked at, and for patterns that take too long.

mod builtin;
mod json;
mod known;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

use builtin::Builtin;
use known::{Known, Table};

/// What stands where something was.
pub const MARKER: &str = "[redacted]";

/// The same as JSON.
const JSON_MARKER: &str = "\"[redacted]\"";

/// For the program of one pattern, and again for what is remembered while it runs.
const LARGEST_PATTERN: usize = 1 << 20;

/// A single search is linear, but a pattern that looks far ahead for each of many matches is not.
const LONGEST: Duration = Duration::from_secs(1);

/// Knows what must not be written down. To be shared by all that write.
pub struct Redactor {
    builtin: Builtin,
    patterns: Vec<Regex>,
    /// What comes and goes.
    passing: Known,
    /// What stays.
    standing: Known,
}

impl Default for Redactor {
    /// Without patterns of a configuration.
    fn default() -> Self {
        Self {
            builtin: Builtin::new(),
            patterns: Vec::new(),
            passing: Known::default(),
            standing: Known::default(),
        }
    }
}

impl fmt::Debug for Redactor {
    /// Without what is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

impl Redactor {
    /// `Err` is the index of the first pattern that cannot be used, and why, in words that fit on a line.
    pub fn new(patterns: &[String]) -> Result<Self, (usize, String)> {
        let compiled = patterns
            .iter()
            .enumerate()
            .map(|(index, pattern)| compile(pattern).map_err(|problem| (index, problem)));
        Ok(Self { patterns: compiled.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Keeps `secret` out of every text from now on.
    ///
    /// The scheme of an `Authorization` header is left out of it; the password of `Basic`, of a url and of a JSON
    /// object's telling members are learnt too. Not learnt is what is shorter than 8 bytes or plainly no secret, see
    /// `is_plain`. At most 1,024 values and 256 KiB are known; those that were learnt longest ago go first.
    pub fn learn(&self, secret: &str) {
        self.passing.learn(secret);
    }

    /// The same for what the process has as long as it runs: it is counted apart, so that values which come with every
    /// caller do not push it out.
    pub fn learn_for_good(&self, secret: &str) {
        self.standing.learn(secret);
    }

    /// `text` without the secrets that are known. What only looks like one stays: a log is for people.
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut marks = Vec::new();
        for table in [self.standing.table(), self.passing.table()] {
            table.mark(text, &mut marks);
        }
        marks.sort_unstable_by_key(|mark| mark.start);
        without(text, marks)
    }

    /// `text` without secrets.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let pass = Pass {
            redactor: self,
            known: [self.standing.table(), self.passing.table()],
            begun: Instant::now(),
        };
        match json::kind(text) {
            json::Kind::Other => pass.plain(text).unwrap_or(Cow::Borrowed(MARKER)),
            json::Kind::Json => pass.json(text, 0).unwrap_or(Cow::Borrowed(JSON_MARKER)),
            json::Kind::TooDeep => Cow::Borrowed(JSON_MARKER),
        }
    }
}

/// The text with the marker in place of these ranges, which are in order of their beginnings.
fn without(text: &str, marks: Vec<Range<usize>>) -> Cow<'_, str> {
    if marks.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for mark in marks {
        // Overlapping and touching ones are one.
        if mark.start > at || out.is_empty() {
            out.push_str(&text[at..mark.start]);
            out.push_str(MARKER);
        }
        at = at.max(mark.end);
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

/// The text as a whole must go.
struct AllOfIt;

/// One text on its way.
struct Pass<'r> {
    redactor: &'r Redactor,
    known: [Arc<Table>; 2],
    begun: Instant,
}

impl Pass<'_> {
    /// Of a text that is no JSON, or of one string in it.
    fn plain<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, AllOfIt> {
        let out = without(text, self.marks(text)?);
        // What was put in may have made what was to be taken out.
        let is_changed = matches!(out, Cow::Owned(_));
        if is_changed && self.knows_part_of(&out) { Err(AllOfIt) } else { Ok(out) }
    }

    fn json<'a>(&self, text: &'a str, depth: usize) -> Result<Cow<'a, str>, AllOfIt> {
        let out = json::redact(self, text, depth)?;
        // A secret may reach from one string into the next.
        if self.knows_part_of(&out) { Err(AllOfIt) } else { Ok(out) }
    }

    fn knows_part_of(&self, text: &str) -> bool {
        self.known.iter().any(|table| table.is_in(text))
    }

    /// In order of their beginnings; none is empty.
    fn marks(&self, text: &str) -> Result<Vec<Range<usize>>, AllOfIt> {
        let mut marks = Vec::new();
        for table in &self.known {
            table.mark(text, &mut marks);
        }
        self.redactor.builtin.mark(text, &mut marks)?;
        for pattern in &self.redactor.patterns {
            if self.begun.elapsed() > LONGEST {
                return Err(AllOfIt);
            }
            for found in pattern.find_iter(text).filter(|found| !found.is_empty()) {
                marks.push(found.range());
                if self.begun.elapsed() > LONGEST {
                    return Err(AllOfIt);
                }
            }
        }
        marks.sort_unstable_by_key(|mark| mark.start);
        Ok(marks)
    }
}

/// Whether [`Redactor::new`] takes `pattern`. `Err` is why not.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    compile(pattern).map(drop)
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(pattern)
        .size_limit(LARGEST_PATTERN)
        .dfa_size_limit(LARGEST_PATTERN)
        .build()
        .map_err(|error| in_a_line(&error))?;
    if regex.is_match("") {
        return Err("it matches a text without anything in it; make it want something".to_owned());
    }
    Ok(regex)
}

/// The last line of an error says what is wrong, the others draw where.
fn in_a_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}
