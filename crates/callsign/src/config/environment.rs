//! The process environment, as a value that tests can replace.

use std::fmt;
use std::path::PathBuf;

/// Looks variables up by name. What is not Unicode counts as not set.
#[derive(Clone, Copy)]
pub struct Environment<'a>(&'a (dyn Fn(&str) -> Option<String> + Sync));

impl Environment<'static> {
    pub fn of_process() -> Self {
        Self(&read)
    }
}

impl<'a> Environment<'a> {
    pub fn new(lookup: &'a (dyn Fn(&str) -> Option<String> + Sync)) -> Self {
        Self(lookup)
    }

    pub fn get(self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    /// A variable that names a path. An empty one counts as not set, as shells have it.
    pub fn path(self, name: &str) -> Option<PathBuf> {
        self.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    pub fn home(self) -> Option<PathBuf> {
        self.absolute("HOME")
    }

    /// `$XDG_CONFIG_HOME/callsign`, else `~/.config/callsign`.
    pub fn config_home(self) -> Option<PathBuf> {
        let base = self.absolute("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))?;
        Some(base.join("callsign"))
    }

    /// `$XDG_STATE_HOME/callsign`, else `~/.local/state/callsign`.
    pub fn state_home(self) -> Option<PathBuf> {
        let base = self.absolute("XDG_STATE_HOME").or_else(|| Some(self.home()?.join(".local/state")))?;
        Some(base.join("callsign"))
    }

    /// The XDG specification has relative paths ignored: they would depend on where we were started.
    fn absolute(self, name: &str) -> Option<PathBuf> {
        self.path(name).filter(|path| path.is_absolute())
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the process environment is read")]
fn read(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment(..)")
    }
}
