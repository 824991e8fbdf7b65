//! A user's home for one test: everything that a host or we would write lies below it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

/// Removed on drop, unless `CALLSIGN_KEEP_HOMES` is set: then its path is all that a failed test leaves.
#[derive(Debug)]
pub struct Home {
    root: TempDir,
    more: Vec<(String, String)>,
}

impl Home {
    pub fn new() -> Arc<Self> {
        Self::with(&[])
    }

    /// A home whose environment has these as well.
    pub fn with(more: &[(&str, &str)]) -> Arc<Self> {
        let mut root = tempfile::Builder::new().prefix("callsign-host-").tempdir().expect("a directory");
        if std::env::var_os("CALLSIGN_KEEP_HOMES").is_some() {
            root.disable_cleanup(true);
        }
        let more = more.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let home = Self { root, more };
        for directory in [home.opencode(), home.codex(), home.claude(), home.project(), home.logs()] {
            std::fs::create_dir_all(directory).expect("a directory of the home");
        }
        Arc::new(home)
    }

    /// What `HOME` says.
    pub fn path(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The directory that the hosts work in.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// `OpenCode`'s configuration directory.
    pub fn opencode(&self) -> PathBuf {
        self.path().join(".config/opencode")
    }

    /// `CODEX_HOME`.
    pub fn codex(&self) -> PathBuf {
        self.path().join(".codex")
    }

    /// `CLAUDE_CONFIG_DIR`.
    pub fn claude(&self) -> PathBuf {
        self.path().join(".claude")
    }

    /// Our own state, where the user's state directory is.
    pub fn state(&self) -> PathBuf {
        self.path().join(".local/state/callsign")
    }

    /// Our own configuration.
    pub fn callsign_toml(&self) -> PathBuf {
        self.path().join(".config/callsign/callsign.toml")
    }

    /// A file for logs.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(name)
    }

    fn logs(&self) -> PathBuf {
        self.root.path().join("logs")
    }

    /// All there is in the environment of this user.
    pub fn environment(&self) -> Vec<(String, String)> {
        let home = self.path();
        let below = |path: &str| home.join(path).display().to_string();
        let mut all = vec![
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
            ("SHELL".to_owned(), "/bin/sh".to_owned()),
            ("HOME".to_owned(), home.display().to_string()),
            ("XDG_CONFIG_HOME".to_owned(), below(".config")),
            ("XDG_DATA_HOME".to_owned(), below(".local/share")),
            ("XDG_STATE_HOME".to_owned(), below(".local/state")),
            ("XDG_CACHE_HOME".to_owned(), below(".cache")),
            ("CODEX_HOME".to_owned(), self.codex().display().to_string()),
            ("CLAUDE_CONFIG_DIR".to_owned(), self.claude().display().to_string()),
        ];
        all.extend(self.more.iter().cloned());
        all
    }

    /// A command of this user, in the project's directory.
    pub fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command.current_dir(self.project()).env_clear().envs(self.environment());
        command
    }

    /// Runs a program of this user to its end, without input.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut command = std::process::Command::new(program);
        command.args(arguments).current_dir(self.project()).env_clear().envs(self.environment());
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }
}
