//! Parse, wire, run, drain: the room in which everything meets.

pub mod app;
pub mod client;
pub mod commands;
pub mod conceal;
pub mod config;
pub mod daemon;
pub mod example;
pub mod exit;
pub mod hooking;
pub mod identification;
pub mod keeping;
pub mod logging;
pub mod notary;
pub mod opencode;
pub mod output;
pub mod recording;
pub mod sessions;
pub mod state;
pub mod tokens;
