//! A call as one object of JSON.

use std::fmt::Write as _;

use ledger::{Call, Outcome};
use serde::Serialize;

use super::time;

/// What `callsign calls --json` prints, in this order. Unknown is `null`; `outcome` and `duration_ms` are `null` while
/// a call is under way.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Row<'a> {
    at: String,
    host: Option<&'a str>,
    session: Option<&'a str>,
    thread: Option<&'a str>,
    parent: Option<&'a str>,
    run: Option<&'a str>,
    turn: Option<&'a str>,
    call: Option<&'a str>,
    server: &'a str,
    tool: Option<&'a str>,
    method: &'a str,
    workspace: Option<&'a str>,
    trust: &'a str,
    source: Option<&'a str>,
    outcome: Option<&'static str>,
    duration_ms: Option<f64>,
    spoof: Vec<&'a str>,
}

/// Everything there is of a call: what `callsign ledger export` writes.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Whole<'a> {
    #[serde(flatten)]
    row: Row<'a>,
    reason: Option<&'a str>,
    target: Option<&'a str>,
    /// SHA-256 of the arguments.
    digest: Option<String>,
    size: u64,
    arguments: Option<&'a str>,
    result_size: Option<u64>,
    result: Option<&'a str>,
    trace: Option<&'a str>,
    writer: i64,
    seq: i64,
}

impl<'a> Row<'a> {
    pub(in crate::commands) fn of(call: &'a Call) -> Self {
        Self {
            at: time::rfc3339(call.at),
            host: call.host.as_deref(),
            session: call.session.as_deref(),
            thread: call.thread.as_deref(),
            parent: call.parent.as_deref(),
            run: call.run.as_deref(),
            turn: call.turn.as_deref(),
            call: Some(call.call.as_str()).filter(|id| !id.is_empty()),
            server: &call.server,
            tool: call.tool.as_deref(),
            method: &call.method,
            workspace: call.workspace.as_deref(),
            trust: &call.trust,
            source: call.source.as_deref(),
            outcome: call.outcome.map(Outcome::as_str),
            duration_ms: call.duration_ms,
            spoof: forged(call),
        }
    }
}

impl<'a> Whole<'a> {
    pub(in crate::commands) fn of(call: &'a Call) -> Self {
        Self {
            row: Row::of(call),
            reason: call.reason.as_deref(),
            target: call.target.as_deref(),
            digest: call.digest.as_deref().map(hex),
            size: call.size,
            arguments: call.arguments.as_deref(),
            result_size: call.result_size,
            result: call.result.as_deref(),
            trace: call.trace.as_deref(),
            writer: call.writer,
            seq: call.seq,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// What was forged and removed.
pub(super) fn forged(call: &Call) -> Vec<&str> {
    let names = call.spoof.as_deref().unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).collect()
}
