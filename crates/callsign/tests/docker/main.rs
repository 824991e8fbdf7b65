//! The binary with container engines: Docker and Podman, each started by its test, with an image made by debootstrap.
//!
//! `cargo xtask tools`, as root, brings both. Build the guard of engines first: `cargo build -p containers --bins`.

#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a surprise ends the test")]

mod away;
mod changed;
mod image;
mod init;
#[path = "../sessions/rig.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "the other tests of sessions use the rest; a failure tells its log"
)]
mod rig;
