//! Boxes in containers, from outside: private engines, each started for one test and ended with it.
//!
//! Needs root, Docker, Podman and a base image: `cargo xtask tools` brings them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a surprise ends the test")]

mod engines;
mod harness;
mod image;
mod inside;
mod life;
mod limits;
mod strangers;
mod trouble;
