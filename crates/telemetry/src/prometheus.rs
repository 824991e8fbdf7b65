//! Figures as Prometheus reads them, and the counters behind them.
//!
//! # Synchronization
//!
//! Counters are relaxed atomics: each is right by itself, and a reading may have one figure a moment older than the
//! next. A histogram's count is the sum of its buckets, so the two never disagree.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
}

impl FamilyKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Int(u64),
    Float(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Int(number)
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self::Int(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

/// In seconds.
impl From<Duration> for Number {
    fn from(duration: Duration) -> Self {
        Self::Float(duration.as_secs_f64())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) if number.is_nan() => f.write_str("NaN"),
            Self::Float(f64::INFINITY) => f.write_str("+Inf"),
            Self::Float(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Self::Float(number) => write!(f, "{number}"),
        }
    }
}

/// What is answered to `/metrics`. A family is opened once, with all its samples behind it.
///
/// Names of families and labels are ours, and right; values of labels may be any text.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
    family: &'static str,
}

impl Text {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn family(&mut self, name: &'static str, help: &str, kind: FamilyKind) -> &mut Self {
        debug_assert!(is_name(name, true), "{name}");
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        self.escape(help, false);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(kind.as_str());
        self.text.push('\n');
        self.family = name;
        self
    }

    /// A sample of the last family; `suffix` is empty but for the parts of a histogram.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Into<Number>) -> &mut Self {
        self.line(suffix, labels, None, value.into());
        self
    }

    /// The buckets, sum and count of a histogram.
    pub fn histogram(&mut self, labels: &[(&str, &str)], snapshot: &Snapshot) -> &mut Self {
        let limits = LIMITS.iter().map(|limit| limit.text).chain(["+Inf"]);
        for (limit, count) in limits.zip(snapshot.cumulative) {
            self.line("_bucket", labels, Some(limit), count.into());
        }
        self.line("_sum", labels, None, snapshot.sum.into());
        self.line("_count", labels, None, snapshot.count().into());
        self
    }

    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], limit: Option<&str>, value: Number) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        let mut before = '{';
        for (name, value) in labels.iter().copied().chain(limit.map(|limit| ("le", limit))) {
            debug_assert!(is_name(name, false), "{name}");
            self.text.push(before);
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.escape(value, true);
            self.text.push('"');
            before = ',';
        }
        if before == ',' {
            self.text.push('}');
        }
        // Writing to a string does not fail.
        let _written = writeln!(self.text, " {value}");
    }

    fn escape(&mut self, text: &str, quoted: bool) {
        for character in text.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '"' if quoted => self.text.push_str("\\\""),
                other => self.text.push(other),
            }
        }
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || (colons && byte == b':');
    name.bytes().all(fine) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper end of a bucket, which is in it.
struct Limit {
    nanos: u64,
    text: &'static str,
}

const fn limit(millis: u64, text: &'static str) -> Limit {
    Limit { nanos: millis * 1_000_000, text }
}

/// From what a local tool takes to where hosts give up.
const LIMITS: [Limit; 15] = [
    limit(1, "0.001"),
    limit(2, "0.002"),
    limit(5, "0.005"),
    limit(10, "0.01"),
    limit(20, "0.02"),
    limit(50, "0.05"),
    limit(100, "0.1"),
    limit(200, "0.2"),
    limit(500, "0.5"),
    limit(1_000, "1"),
    limit(2_000, "2"),
    limit(5_000, "5"),
    limit(10_000, "10"),
    limit(30_000, "30"),
    limit(60_000, "60"),
];
const BUCKETS: usize = LIMITS.len() + 1;

/// How long things took.
#[derive(Debug, Default)]
pub struct Histogram {
    /// How many fell into each bucket, and into none.
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Snapshot {
    /// How many were at most as long as each limit; the last one is all.
    pub cumulative: [u64; BUCKETS],
    pub sum: Duration,
}

impl Snapshot {
    pub fn count(&self) -> u64 {
        self.cumulative[BUCKETS - 1]
    }
}

impl Histogram {
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], nanos: AtomicU64::new(0) }
    }

    pub fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = LIMITS.partition_point(|limit| limit.nanos < nanos);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut cumulative = [0; BUCKETS];
        let mut so_far = 0;
        for (total, bucket) in cumulative.iter_mut().zip(&self.buckets) {
            so_far += bucket.load(Ordering::Relaxed);
            *total = so_far;
        }
        Snapshot { cumulative, sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests;
