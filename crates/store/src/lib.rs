//! The store: sessions, their runs and what these left, in one `SQLite` file of the state directory.
//!
//! ```text
//! Store, StoreForScheduler (model) ─→ port ─→ sessions, runs, scheduler, artifacts ─→ connection: one writer, a few readers
//!                                                                     open: checks, migrations ─┘      └─ mark
//! ```
//!
//! Read `runs.rs` first: it is the queue. There is no other one.
//!
//! **Invariants:** what a method said was done is on the disk; no statement for a principal is without `principal = ?`;
//! a write under a lease that was taken over changes nothing; a run ends once; a connection on which anything went wrong,
//! or whose caller went away, is never used again; a file that is missing, cut off, damaged, newer or older than it was is
//! left as it is and named; a migration is added, never edited.

mod artifacts;
mod connection;
mod error;
mod mark;
mod open;
mod port;
mod rows;
mod runs;
mod scheduler;
mod sessions;

#[cfg(test)]
mod tests;

pub use connection::SqliteStore;
pub use open::{OpenError, Place};
