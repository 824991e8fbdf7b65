//! The configuration files of hosts: found, read, edited without harm, and given back.
//!
//! Everything here is a function from text to text; the command line does the reading and writing.
//!
//! **Invariants:** bytes that are not ours are never written anew, only kept (an edit is a splice); after every
//! edit the file is parsed again and must say what it said before but for our part, else the edit does not
//! happen; what is taken out again is what we put in, and nothing else.

mod claude_code;
mod codex;
mod cursor;
mod diff;
mod document;
mod entry;
mod gemini;
mod goose;
mod hooks;
mod host;
mod inspect;
mod install;
mod journal;
mod opencode;
mod place;
mod restore;
mod uninstall;
mod vscode;
mod wrap;

pub use diff::unified;
pub use document::{Broken, Format};
pub use entry::Left;
pub use hooks::NAME as HOOK_NAME;
pub use host::{Host, Scope, UnknownHost};
pub use inspect::{Found, inspect};
pub use install::{Installed, Settings, install};
pub use journal::{Edit, Journal, Record};
pub use opencode::{LeftByPlugin, box_plugin, left_by_plugin, plugin_settings};
pub use place::{Content, NoPlace, Surroundings, Target, targets};
pub use uninstall::{Outcome, Uninstalled, uninstall};

#[cfg(test)]
mod tests;
