//! The binary with container engines: Docker and Podman, each started by its test, with an image made by debootstrap.
//!
//! `cargo xtask tools`, as root, brings both. Build the guard of engines first: `cargo build -p containers --bins`.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a surprise ends the test")]

mod image;
