//! `[ledger]`.

use std::time::Duration;

use gateway::redact::check_pattern;

use super::context::Context;
use super::table::{Field, Table};
use super::units;

const KEYS: [&str; 5] = ["enabled", "strict", "keep", "max_size", "redact"];

/// With less, what was written a moment ago would be removed already.
const SMALLEST: u64 = 1 << 20;

/// What is written down of calls, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerConfig {
    pub enabled: bool,
    /// A call goes out after its row is on the disk, or not at all. Only where `enabled`.
    pub strict: bool,
    /// None: forever.
    pub keep: Option<Duration>,
    /// Of the file, in bytes.
    pub max_size: u64,
    /// Regular expressions, each of which [`gateway::redact::Redactor::new`] takes.
    pub redact: Vec<String>,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            strict: false,
            keep: Some(Duration::from_hours(90 * 24)),
            max_size: 1 << 30,
            redact: Vec::new(),
        }
    }
}

pub(super) fn read(context: Context<'_>, root: &Table<'_>) -> LedgerConfig {
    let table = root.get("ledger").and_then(|field| field.table(context, "ledger."));
    let table = table.unwrap_or_default();
    table.check_keys(context, &KEYS, &[]);
    let defaults = LedgerConfig::default();
    let boolean = |key: &str| table.get(key).and_then(|field| field.boolean(context));
    let (enabled, strict) = (boolean("enabled"), boolean("strict"));
    if let (Some(false), Some(true), Some(field)) = (enabled, strict, table.get("strict")) {
        context.mistake(
            field.key_at,
            "`ledger.strict` wants every call written down, and `enabled = false` none; take one of the two out",
        );
    }
    LedgerConfig {
        enabled: enabled.unwrap_or(defaults.enabled),
        strict: strict.unwrap_or(defaults.strict),
        keep: table.get("keep").and_then(|field| units::age(context, field)).unwrap_or(defaults.keep),
        max_size: table.get("max_size").and_then(|field| size(context, field)).unwrap_or(defaults.max_size),
        redact: table.get("redact").map(|field| patterns(context, field)).unwrap_or_default(),
    }
}

fn size(context: Context<'_>, field: &Field<'_>) -> Option<u64> {
    let size = units::size(context, field)? as u64;
    if size < SMALLEST {
        context.mistake(field.at, format!("{} must be at least \"1MiB\"", field.label));
    }
    Some(size)
}

fn patterns(context: Context<'_>, field: &Field<'_>) -> Vec<String> {
    let mut patterns = Vec::new();
    for item in field.list(context, "a list of regular expressions").unwrap_or_default() {
        let Some(pattern) = item.text(context) else {
            continue;
        };
        if let Err(problem) = check_pattern(pattern) {
            context.mistake(item.at, format!("{pattern:?} cannot be used: {problem}"));
        }
        patterns.push(pattern.to_owned());
    }
    patterns
}
