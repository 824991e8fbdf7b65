//! The tools over HTTP, both eras, on a real store. Runs are moved on by hand, as an engine would.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure here is a failed test"
)]

mod harness;
mod legacy;
mod mistakes;
mod principals;
mod schema;
mod tasks;
mod waiting;
mod workflow;
