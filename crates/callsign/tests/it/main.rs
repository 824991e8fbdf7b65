//! The gateway from outside: the real binary, real sockets, real children.
//!
//! The servers behind it are programs of `testkit`; build them first with `cargo build -p testkit --bins`.
//! `CALLSIGN_FULL=1` runs the sizes that are too long for every day.

#![expect(clippy::expect_used, clippy::panic, reason = "a surprise ends the test")]

mod bad_inputs;
mod carry;
mod children;
mod daemon;
mod environment;
mod faithful;
mod forgery;
mod hooks;
mod identity;
mod ledger;
mod ledger_cli;
mod limits;
mod neighbours;
mod reload;
mod scale;
mod sessions_cli;
mod support;
mod workspace;
