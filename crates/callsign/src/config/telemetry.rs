//! `[telemetry]`: where spans go.

use std::cell::RefCell;
use std::fmt;

use gateway::address::HostKind;
use model::template::PLACEHOLDERS;

use super::Purpose;
use super::context::{Context, Found, Resolve};
use super::http::{check_address, headers};
use super::table::{Field, Table};
use super::value::placeholders;

const KEYS: [&str; 3] = ["otlp", "headers", "service"];

/// Where a collector takes spans, behind its base url.
const TRACES: &str = "/v1/traces";

/// An OpenTelemetry collector, and how it is spoken to.
#[derive(Clone, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// In full: `http` or `https`, without credentials, a query or a fragment, and with the path for spans.
    pub otlp: String,
    /// Names and values that a request can carry. No name is there twice.
    pub headers: Vec<(String, String)>,
    /// What we are called there.
    pub service: String,
}

impl fmt::Debug for TelemetryConfig {
    /// Without the values of `headers`: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { otlp, headers, service } = self;
        let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("TelemetryConfig")
            .field("otlp", otlp)
            .field("headers", &names)
            .field("service", service)
            .finish()
    }
}

/// None: there is no such table, or `wrap` cannot load a secret that it names.
pub(super) fn read(context: Context<'_>, root: &Table<'_>, purpose: Purpose<'_>) -> Option<TelemetryConfig> {
    let field = root.get("telemetry")?;
    let table = field.table(context, "telemetry.")?;
    table.check_keys(context, &KEYS, &[]);
    if table.get("otlp").is_none() {
        context.absent(field.key_at, "`telemetry` needs `otlp`, the url of a collector");
    }
    match purpose {
        Purpose::Serve | Purpose::Background => config(context, &table),
        Purpose::Wrap(_) => {
            config(context.resolving(Resolve::No), &table)?;
            loaded_or_none(context, &table)
        }
    }
}

/// A host that clears the environment must not break every server: what cannot be loaded is a warning for `wrap`.
/// Whatever else could be wrong was reported before.
fn loaded_or_none(context: Context<'_>, table: &Table<'_>) -> Option<TelemetryConfig> {
    let found = RefCell::new(Found::default());
    let config = config(Context { found: &found, ..context }, table);
    let problems = found.into_inner().mistakes;
    if problems.is_empty() {
        return config;
    }
    for mut problem in problems {
        problem.message.push_str("; no spans are sent from here");
        context.found.borrow_mut().warnings.push(problem);
    }
    None
}

fn config(context: Context<'_>, table: &Table<'_>) -> Option<TelemetryConfig> {
    let headers = table.get("headers").map(|field| fixed_headers(context, field)).unwrap_or_default();
    let service = match table.get("service") {
        Some(field) => field.text(context),
        None => Some("callsign"),
    };
    let otlp = table.get("otlp").and_then(|field| url(context, field, headers.is_empty()));
    Some(TelemetryConfig { otlp: otlp?, headers, service: service?.to_owned() })
}

fn url(context: Context<'_>, field: &Field<'_>, nothing_secret: bool) -> Option<String> {
    let written = field.text(context)?;
    if written.contains('?') {
        let problem = format!("{}: a query does not go here; put what it says in `headers`", field.label);
        context.mistake(field.at, problem);
        return None;
    }
    // A collector is nearly always on this machine or in its network; whoever names one there means it.
    let kind = match check_address(written, true, "http://127.0.0.1:4318") {
        Ok(kind) => kind,
        Err(problem) => {
            context.mistake(field.at, format!("{}: {problem}", field.label));
            return None;
        }
    };
    if kind == HostKind::Name && !nothing_secret && written.to_ascii_lowercase().starts_with("http:") {
        let problem = format!("{} is http: the headers can be read on the way; use https", field.label);
        context.warn(field.at, problem);
    }
    let base = written.trim_end_matches('/');
    let base = base.strip_suffix(TRACES).unwrap_or(base);
    Some(format!("{base}{TRACES}"))
}

/// No call is about to be made when these are sent, so nothing of one can be in them.
fn fixed_headers(context: Context<'_>, field: &Field<'_>) -> Vec<(String, String)> {
    let mut fixed = Vec::new();
    for (name, value) in headers(context, field) {
        if let Some(used) = placeholders(&value).first() {
            let row = PLACEHOLDERS.iter().find(|(_, other)| other == used);
            let spelling = row.map_or("", |(spelling, _)| spelling);
            let problem = format!(
                "`telemetry.headers.{name}`: {{{spelling}}} is a caller's, and spans of many are sent together; use \
                 {{env:NAME}} or {{file:PATH}}"
            );
            let table = field.table(context, "").unwrap_or_default();
            context.mistake(table.get(&name).map_or(field.at, |header| header.at), problem);
            continue;
        }
        fixed.extend(value.render(&|_| None).map(|value| (name, value.into_owned())));
    }
    fixed
}
