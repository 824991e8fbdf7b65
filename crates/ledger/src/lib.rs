//! The ledger: every call, who made it and how it ended, provable afterwards.
//!
//! ```text
//! Ledger::begin, end ─→ writer (queue, thread) ─→ batch (one transaction, chained, signed) ─→ file
//! verify, calls      ←─ file
//! ```
//!
//! Many processes write to one file. Each transaction is a batch; batches of all writers form one chain, whose end is
//! signed and replaced with every batch.
//!
//! **Invariants:** a row leaves the queue when it is committed; with `strict` a call goes out after its row is on the
//! disk; a file that cannot be understood is never written to; what retention removes leaves a chain that can be
//! verified.

mod batch;
mod chain;
mod file;
mod prune;
mod query;
mod row;
mod seal;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use file::{LedgerError, Place};
pub use prune::Retention;
pub use query::{Call, Filter, calls, changed_since, last_batch};
pub use row::{Begin, End, Outcome};
pub use rusqlite::Connection;
pub use seal::{Seal, Signature};
pub use verify::{Anchor, Finding, Report, verify};
pub use writer::{Depth, Entry, Ledger, Options};
