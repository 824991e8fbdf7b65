//! Rows of the ledger as spans: what a collector would have been sent when the calls ended.

use std::io::{self, Write};
use std::time::Duration;

use ledger::Call;
use telemetry::mcp::{CallFacts, Outcome};
use telemetry::otlp::{self, Span};
use telemetry::trace::Trace;

use crate::commands::calls::escape;

/// Spans of one line. Collectors bound their requests.
const BATCH: usize = 512;
const SERVICE: &str = "callsign";

/// Calls on their way out, a line at a time.
pub(super) struct Spans<W> {
    out: W,
    waiting: Vec<Span>,
    written: u64,
}

impl<W: Write> Spans<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, waiting: Vec::with_capacity(BATCH), written: 0 }
    }

    /// A call under way is no span: it has no end.
    pub(super) fn add(&mut self, call: &Call) -> io::Result<()> {
        let Some(facts) = facts(call) else { return Ok(()) };
        self.waiting.push(facts.span());
        if self.waiting.len() == BATCH { self.line() } else { Ok(()) }
    }

    /// How many there were.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if !self.waiting.is_empty() {
            self.line()?;
        }
        Ok(self.written)
    }

    fn line(&mut self) -> io::Result<()> {
        let line = String::from_utf8(otlp::encode(SERVICE, env!("CARGO_PKG_VERSION"), &self.waiting));
        let line = line.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        writeln!(self.out, "{}", escape(line))
    }
}

fn facts(call: &Call) -> Option<CallFacts<'_>> {
    let outcome = Outcome::parse(call.outcome?.as_str()).unwrap_or_default();
    let seconds = call.duration_ms.unwrap_or_default() / 1000.0;
    Some(CallFacts {
        // A trace that makes no sense is as good as none.
        trace: call.trace.as_deref().and_then(|column| Trace::from_column(column).ok()),
        row: Some((call.writer, call.seq)),
        start_unix_nanos: call.at.saturating_mul(1_000_000),
        duration: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        method: &call.method,
        tool: call.tool.as_deref(),
        server: &call.server,
        host: call.host.as_deref(),
        session: call.session.as_deref(),
        thread: call.thread.as_deref(),
        parent: call.parent.as_deref(),
        run: call.run.as_deref(),
        turn: call.turn.as_deref(),
        call: Some(&call.call),
        workspace: call.workspace.as_deref(),
        trust: Some(&call.trust),
        source: call.source.as_deref(),
        spoof: call.spoof.as_deref(),
        outcome,
        reason: call.reason.as_deref(),
        target: call.target.as_deref(),
        arguments_size: Some(call.size),
        result_size: call.result_size,
        ..CallFacts::default()
    })
}
