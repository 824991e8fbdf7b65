//! One file a command.

pub mod config;
pub mod serve;
pub mod servers;
pub mod token;
pub mod up;
pub mod wrap;
