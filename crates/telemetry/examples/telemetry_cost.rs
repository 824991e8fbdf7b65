//! What telemetry costs a call: `cargo run --release -p telemetry --example telemetry_cost`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use telemetry::{CallFacts, Histogram, Outcome, Trace, TraceParent, otlp};

const TIMES: u32 = 200_000;

#[expect(clippy::print_stdout, reason = "it prints figures")]
fn measure<T>(what: &str, parts: u32, mut once: impl FnMut() -> T) {
    let times = TIMES / parts;
    let begun = Instant::now();
    for _ in 0..times {
        black_box(once());
    }
    let nanos = begun.elapsed().as_secs_f64() * 1e9 / f64::from(times * parts);
    println!("{what}: {nanos:.0} ns");
}

fn main() {
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = Trace::fresh();
    let facts = CallFacts {
        trace: Some(trace),
        method: "tools/call",
        tool: Some("echo"),
        server: "clumsies",
        host: Some("opencode"),
        session: Some("ses_0123456789abcdef"),
        thread: Some("ses_0123456789abcdef"),
        turn: Some("msg_0123456789abcdef"),
        call: Some("call_0123456789abcdef"),
        trust: Some("bound"),
        source: Some("seal"),
        outcome: Outcome::Ok,
        target: Some("pid 4711"),
        ..CallFacts::default()
    };
    let histogram = Histogram::new();
    let spans = vec![facts.span(); 512];
    measure("a fresh trace", 1, Trace::fresh);
    measure("traceparent read", 1, || TraceParent::parse(black_box(header)));
    measure("traceparent written", 1, || black_box(&trace).traceparent());
    measure("the ledger's column", 1, || black_box(&trace).to_column());
    measure("a call as a span", 1, || black_box(&facts).span());
    measure("a duration observed", 1, || histogram.observe(black_box(Duration::from_millis(3))));
    measure("a span encoded", 512, || otlp::encode("callsign", "0.1.0", &spans));
}
