//! The wire: JSON-RPC messages as bytes, and how they are framed.
//!
//! ```text
//! bytes ─ stdio::LineReader ─┐
//! bytes ─ sse::Decoder ──────┼→ Message (bytes + where the routing fields are) → splice → bytes
//! bytes ─ an HTTP body ──────┘
//! ```
//!
//! A [`Message`] keeps the bytes it was made from and remembers where a handful of fields lie. Nothing is
//! decoded that routing does not need, and what leaves is the same bytes with a few ranges replaced.
//!
//! **Invariants:** nothing here knows identity, sessions or servers; nothing here holds a typed model of a
//! method; a message is at most [`MAX_DEPTH`] deep; no member that routing reads stands twice in one object.
//!
//! Read `envelope.rs` first.

pub mod cut;
pub mod envelope;
pub mod glance;
pub mod headers;
pub mod meta;
pub mod scan;
pub mod splice;
pub mod sse;
pub mod stdio;

pub use envelope::{Head, Kind, MAX_DEPTH, Message, Place, Refused, Span};
