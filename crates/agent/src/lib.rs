//! Drives OpenCode by its HTTP API: the only place that knows it.
//!
//! ```text
//! Agent (model::ports) ◀── OpenCode ─┬─ deliver.rs    a prompt, once; was it delivered; abort
//!                                    ├─ watch.rs      a turn until its end: events, with polling behind them
//!                                    │    ├─ tracker.rs    parts of messages → Progress, each once
//!                                    │    ├─ questions.rs  permissions and questions, by policy or surfaced
//!                                    │    └─ life.rs       gone, silent, or merely busy
//!                                    ├─ history.rs    a turn as OpenCode has stored it
//!                                    ├─ verdict.rs    how a stored turn ended; pure: read this first
//!                                    └─ client.rs, sse.rs, wire.rs    one request a connection; events; JSON
//! config.rs                          what a box starts OpenCode with; pure
//! ```
//!
//! What an event says is news; what the history says is the truth. A turn's result is always read from the history, so it
//! does not matter who watched when.
//!
//! **Invariants:** every request has a connection of its own and a deadline; a heartbeat is no sign of life; nothing is
//! spawned but the reading of a long answer, which nobody else waits for, so that dropping a future leaves nothing behind;
//! whatever comes out of a box has a limit of length, and what is kept of it a limit of number: only ids of OpenCode's
//! form are; no password is in `Debug`; no time of the wall clock is read here.

mod config;
mod opencode;

pub use config::{BoxConfig, BoxModel, McpEntry, environment};
pub use opencode::{OpenCode, Opening, Options, Place, Since, Timing, Way};
