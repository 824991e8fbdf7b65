//! The real hosts, `OpenCode`, Codex and Claude Code, in the versions that `tools.toml` pins.
//!
//! [`stock`] shows that the hosts still do what we rest on: where a next version changes that, its messages
//! say which fact. The other modules show what Callsign makes of it after `callsign install`, asserted on the
//! servers' own logs.
//! Install the hosts with `cargo xtask tools` and build the servers with `cargo build -p testkit --bins`.

#![expect(clippy::expect_used, clippy::panic, reason = "a surprise ends the test")]

mod claude;
mod codex;
mod hooks;
mod ledger;
mod opencode;
mod sessions;
mod stock;
mod support;
