//! The real hosts, driven by the scripted model: `OpenCode`, Codex and Claude Code as npm has them.
//!
//! Each runs in a [`Home`] of its own with an environment built from nothing, speaks to the
//! [`ScriptedModel`](crate::llm::ScriptedModel) only, and is ended with all its descendants on drop.
//! [`arrived`] is what a logging server wrote down: the server's own word on who called it.
//!
//! The versions are pinned in `tools.toml`; `cargo xtask tools` installs them. A host that is missing or of
//! another version fails the test with that command: a test of a real host is never skipped.

mod arrived;
pub mod claude;
pub mod codex;
mod home;
mod installed;
pub mod opencode;
mod process;

pub use self::arrived::{Arrived, arrived, starts};
pub use self::home::Home;
pub use self::installed::{Host, binary, pinned};
