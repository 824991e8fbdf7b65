//! The files of hooks that a configuration names.

use std::path::PathBuf;

/// A file of hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFile {
    /// Absolute. Whether there is such a file is found out when it is loaded.
    pub path: PathBuf,
    /// As the configuration names it: what messages show.
    pub shown: String,
    /// Its failures are skipped instead of refusing the call.
    pub optional: bool,
}
