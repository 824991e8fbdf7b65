//! Hooks.

use crate::text::Text;

/// A file of hooks.
#[derive(Debug, Clone)]
pub struct Hook {
    pub file: Text,
    pub events: Vec<HookEvent>,
    /// A failure of it refuses no call.
    pub optional: bool,
    pub keeps_state: bool,
    /// For which servers it runs. None named: for all.
    pub servers: Vec<Text>,
    pub runs: u64,
    pub failures: u64,
    /// In all.
    pub took_ms: f64,
    pub last_fault: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct HookEvent {
    pub name: Text,
    /// Where its handler begins.
    pub line: u32,
}
