//! What is counted, and how it is shown to whoever collects it. The labels are names of configured servers and words of
//! ours, so there are never many.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ledger::Outcome;
use telemetry::prometheus::{FamilyKind as Kind, Histogram, Text};

use crate::front::http::Servers;
use crate::recorded::Sinks;
use crate::server::{Backend, Server};

/// The calls of one server.
#[derive(Debug, Default)]
pub struct Meters {
    under_way: AtomicI64,
    by_outcome: [AtomicU64; Outcome::ALL.len()],
    took: Histogram,
    /// Time in hooks, before and after calls.
    pub hooks: Histogram,
}

impl Meters {
    pub fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self, outcome: Outcome, took: Duration) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        if let Some(at) = Outcome::ALL.iter().position(|other| *other == outcome) {
            self.by_outcome[at].fetch_add(1, Ordering::Relaxed);
        }
        self.took.observe(took);
    }
}

/// Everything in Prometheus' form.
pub fn exposition(servers: &Servers, sinks: &Sinks, sessions: usize) -> String {
    let mut text = Text::new();
    let mut sorted: Vec<&Server> = servers.values().map(|server| &**server).collect();
    sorted.sort_by_key(|server| server.name());
    text.family("callsign_calls_total", "Calls that have ended, by how.", Kind::Counter);
    for server in &sorted {
        for (outcome, count) in Outcome::ALL.iter().zip(&server.recorder.meters.by_outcome) {
            let labels = [("server", server.name()), ("outcome", outcome.as_str())];
            text.sample("", &labels, count.load(Ordering::Relaxed));
        }
    }
    text.family("callsign_calls_under_way", "Calls that have begun and not ended.", Kind::Gauge);
    for server in &sorted {
        let count = server.recorder.meters.under_way.load(Ordering::Relaxed).max(0).unsigned_abs();
        text.sample("", &[("server", server.name())], count);
    }
    text.family("callsign_call_duration_seconds", "How long calls took.", Kind::Histogram);
    for server in &sorted {
        text.histogram(&[("server", server.name())], &server.recorder.meters.took.snapshot());
    }
    text.family(
        "callsign_hook_duration_seconds",
        "How long hooks took, for one call and event.",
        Kind::Histogram,
    );
    for server in &sorted {
        text.histogram(&[("server", server.name())], &server.recorder.meters.hooks.snapshot());
    }
    of_children(&mut text, &sorted);
    of_drops(&mut text, &sorted);
    text.family("callsign_http_sessions", "Sessions of clients that speak HTTP of the old era.", Kind::Gauge);
    text.sample("", &[], sessions as u64);
    of_sinks(&mut text, sinks);
    text.finish()
}

fn of_children(text: &mut Text, servers: &[&Server]) {
    let pools = || {
        servers.iter().filter_map(|server| match &server.backend {
            Backend::Pipes(pipes) => Some((server.name(), &pipes.pool)),
            Backend::Remote(_) => None,
        })
    };
    text.family("callsign_children", "Processes of a server that run.", Kind::Gauge);
    for (name, pool) in pools() {
        text.sample("", &[("server", name)], pool.census().children as u64);
    }
    text.family(
        "callsign_queued_messages",
        "Messages that wait to be read by a server's processes.",
        Kind::Gauge,
    );
    for (name, pool) in pools() {
        text.sample("", &[("server", name)], pool.census().queued as u64);
    }
}

fn of_drops(text: &mut Text, servers: &[&Server]) {
    text.family("callsign_dropped_total", "What servers sent and nobody got, by why.", Kind::Counter);
    for server in servers {
        let counters = &server.counters;
        let counts = [
            ("noise", &counters.noise),
            ("stray", &counters.stray),
            ("slow_reader", &counters.dropped),
            ("too_long", &counters.too_long),
        ];
        for (why, count) in counts {
            text.sample("", &[("server", server.name()), ("why", why)], count.load(Ordering::Relaxed));
        }
    }
}

fn of_sinks(text: &mut Text, sinks: &Sinks) {
    if let Some(ledger) = &sinks.ledger {
        let depth = ledger.depth();
        text.family(
            "callsign_ledger_queued_rows",
            "Rows that wait to be written into the ledger.",
            Kind::Gauge,
        );
        text.sample("", &[], depth.waiting as u64);
        text.family("callsign_ledger_written_rows_total", "Rows this process has written.", Kind::Counter);
        text.sample("", &[], depth.committed);
        text.family("callsign_ledger_failing", "1 while the ledger cannot be written.", Kind::Gauge);
        text.sample("", &[], u64::from(ledger.failure().is_some()));
    }
    if let Some(exporter) = &sinks.exporter {
        let (sent, dropped) = exporter.counts();
        text.family("callsign_spans_total", "Spans, by what became of them.", Kind::Counter);
        text.sample("", &[("fate", "sent")], sent);
        text.sample("", &[("fate", "dropped")], dropped);
    }
}
