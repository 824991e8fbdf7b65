//! The engine and the desk on the real store, with boxes and an agent that are played.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod played;
mod stories;
mod warm;
