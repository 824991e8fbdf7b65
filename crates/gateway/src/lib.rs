//! The carrier: what stands between hosts and servers.
//!
//! ```text
//! front (stdio, http) → call.rs → server/pool → server/child → server/link ─┐   servers that are our processes
//!         ↑                                                                 │
//!         └──────────────── the caller's own queue (outbox) ←───────────────┘
//! front (stdio, http) → server/remote                                           servers reached by HTTP
//! ```
//!
//! **Invariants:** an answer reaches the caller who asked and nobody else; no lock is held across an await;
//! every queue has a bound and every wait a deadline; what we do not own passes byte for byte.
//!
//! Read `call.rs` first.

pub use address;
pub mod call;
pub mod caller;
pub mod connection;
pub mod ending;
pub mod environment;
pub mod front;
pub mod hooked;
pub mod meters;
pub mod outbox;
pub mod rate;
pub mod recorded;
pub mod redact;
pub mod respond;
pub mod server;
pub mod strip;
pub mod traced;
pub mod worker;
