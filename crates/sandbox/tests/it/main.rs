//! Boxes from outside: real bubblewrap, real processes, as an unprivileged user, with groups of its own, and as root.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a surprise ends the test")]

mod harness;
mod inside;
mod life;
mod limits;
mod refusals;
