//! Hooks: JavaScript that runs before a call goes out and after its answer has come, within limits.
//!
//! ```text
//! Spec ─→ Hooks (files, engines) ─→ Chain (the files of one server) ─ run(input, Draft) ─→ Draft
//!                                                                   ─ run(input, Ended) ─→ Ended
//! ```
//!
//! This crate knows nothing of MCP: it gets JSON and names and gives JSON and names back. Which names are taken is
//! told to it ([`Rules`]).
//!
//! **Invariants:** a run ends within its limits, or the caller is told at that time; nothing of a run is there in the
//! next, but `globalThis.state` of a file that has it; what a run changed counts only if it ended well.

mod chain;
mod draft;
mod engine;
mod fault;
mod hooks;
mod json;
mod limits;
mod modules;
mod pairs;
mod rules;
mod source;
mod turn;

pub use chain::Chain;
pub use draft::{Draft, Ended, Input, Pairs};
pub use fault::{Fault, FaultKind};
pub use hooks::{FileSpec, Hooks, Loaded, Spec};
pub use limits::Limits;
pub use rules::{Check, Inside, Rules};
pub use turn::{Event, Turn};

/// Type declarations for editors.
pub const TYPES: &str = include_str!("../callsign-hooks.d.ts");
