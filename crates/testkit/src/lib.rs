//! Fakes and words for tests: MCP servers that misbehave on purpose, a client of both eras, a harness.
//!
//! **Invariant:** development only; nothing that ships depends on this crate.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::exit,
    reason = "test code: a surprise ends the test, and servers that die are the point"
)]

pub mod client;
pub mod conformance;
pub mod echo;
pub mod engine;
pub mod harness;
pub mod hostile;
pub mod hosts;
pub mod jsonrpc;
pub mod listen;
pub mod llm;
pub mod record;
pub mod sse;

pub use harness::bin;
