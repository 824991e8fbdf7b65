//! Parse, wire, run, drain: the room in which everything meets.

pub mod config;
pub mod exit;
pub mod state;
pub mod tokens;
