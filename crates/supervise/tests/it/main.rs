//! Real processes: an owner (the probe, because a test has many threads), its children, and signals.

#![cfg(test)]

mod descendants;
mod owner;
mod process;
mod resources;
mod start;
