//! One file a command.

pub mod announce;
pub mod artifacts;
pub mod calls;
pub mod config;
pub mod doctor;
pub mod hooks;
pub mod image;
pub mod install;
pub mod keys;
pub mod ledger;
pub mod logs;
pub mod mcp;
pub mod runs;
pub mod serve;
pub mod servers;
pub mod sessions;
pub mod submit;
pub mod token;
pub mod up;
pub mod wrap;
