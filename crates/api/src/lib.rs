//! What others see of sessions: the tools.
//!
//! ```text
//! daemon.sock ─▶ Tools::handle ─▶ asker.rs: who speaks, with which settings ─▶ rmcp, both eras
//!                                                                              │
//!                     Desk ◀─ one file a tool ◀─ server.rs ◀───────────────────┘
//!                       ▲                          │
//!                       └── tasks.rs: a run as a task of the protocol
//! ```
//!
//! Read `tools/server.rs` first.
//!
//! **Invariants**
//!
//! - Nothing is kept here that a restart would lose, but the old era's sessions; a client opens those again by itself.
//! - No tool sees another principal's sessions: each asks the desk under the name that came with the very request.
//! - What came as a setting is in no log and in no answer.
//! - A mistake that a model can make is an answer it can read; errors of the protocol are for mistakes of programs.

pub mod tools;
