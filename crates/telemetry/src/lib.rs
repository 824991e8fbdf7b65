//! Telemetry: which trace a call belongs to, spans for a collector, and figures as text.
//!
//! ```text
//! traceparent ─→ Trace ─┐
//! a call, or its row ───┴→ mcp::CallFacts ─→ otlp::Span ─┬→ export::Exporter ─→ a collector
//!                                                        └→ otlp::encode     ─→ a file
//! Counter, Histogram ─→ prometheus::Text
//! ```
//!
//! The same facts make the same span, whether they come from a call that has just ended or from a row of the ledger.
//!
//! **Invariants:** nothing here waits on the path of a call: a span that finds no room is dropped and counted; no
//! header value, response body or whole address is in a log line. What a span says is written as it was given:
//! whoever makes the facts has taken secrets out.

pub mod export;
pub mod mcp;
pub mod otlp;
pub mod prometheus;
pub mod trace;

pub use export::{ExportOptions, Exporter};
pub use mcp::{CallFacts, Outcome, Transport};
pub use otlp::{Kind, Span, Status, Value};
pub use prometheus::{Counter, Histogram, Text};
pub use trace::{Trace, TraceError, TraceParent};
