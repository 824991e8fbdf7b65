//! The ledger: every call, who made it and how it ended, provable afterwards.
//!
//! ```text
//! Ledger::begin, end ─→ queue ─→ thread ─→ batch (one transaction, chained, signed) ─→ file
//! verify, calls      ←─ file
//! ```
//!
//! Many processes write to one file. Each transaction is a batch; batches of all writers form one chain, whose end is
//! signed and replaced with every batch.
//!
//! **Invariants:** a row leaves the queue when it is committed; with `strict` a call goes out after its row is on the
//! disk; whoever makes a call never touches the file, its thread does; a file that cannot be understood is never written
//! to; what retention removes leaves a chain that can be verified.

mod batch;
mod chain;
mod file;
mod lock;
mod prune;
mod query;
mod queue;
mod row;
mod seal;
mod thread;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use file::{LedgerError, Place};
pub use prune::Retention;
pub use query::{
    Call, Change, Changes, Filter, call, calls, changed_since, each_call, last_batch, unreadable,
};
pub use queue::Depth;
pub use row::{Begin, End, Outcome};
pub use rusqlite::Connection;
pub use seal::{Seal, Signature};
pub use verify::{Anchor, Finding, Report, verify};
pub use writer::{Entry, Ledger, Options};
