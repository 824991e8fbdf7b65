//! The broker and the proxy against real servers, over real sockets.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a surprise ends the test")]

mod asking;
mod egress;
mod failing;
mod harness;
mod hostile;
mod metering;
mod tls;
