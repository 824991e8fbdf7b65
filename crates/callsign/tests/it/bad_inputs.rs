//! The bad inputs, one test per row of `BAD_INPUTS.md` that concerns the gateway, with its standing checks.

mod config;
mod http;
mod identity;
mod messages;
mod stdio;
mod tools;
mod upstream;
