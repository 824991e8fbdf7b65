//! The driver against a real `OpenCode` in the version that `tools.toml` pins, and the scripted model.
//!
//! A start of `OpenCode` takes seconds, so one serves many stories; those that kill it have their own.

#![expect(clippy::expect_used, clippy::panic, reason = "a surprise ends the test")]

mod killed;
mod provider;
mod proxy;
mod stories;
mod support;
