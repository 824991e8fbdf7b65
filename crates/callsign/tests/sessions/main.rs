//! Sessions from outside: the real binary, real boxes, the real `OpenCode`, and a model that says what its prompt
//! tells it to.
//!
//! `OpenCode` takes some seconds to start, so tests here share a daemon and a session where that is honest.
//! Install it with `cargo xtask tools`. `CALLSIGN_FULL=1` runs the sizes that are too long for every day.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a surprise ends the test; what was measured, or left out, is told"
)]

mod bad_inputs;
mod boxed;
mod canceled;
mod engines;
mod exchange;
mod extras;
mod faults;
mod killed;
mod lifecycle;
mod many;
mod rig;
mod trial;
mod unique;
mod users;
mod warm;
mod workflow;
