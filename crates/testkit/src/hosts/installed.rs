//! Where the pinned hosts lie.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// How they get there.
const COMMAND: &str = "cargo xtask tools";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    OpenCode,
    Codex,
    ClaudeCode,
}

impl Host {
    /// The npm package that `tools.toml` pins.
    fn package(self) -> &'static str {
        match self {
            Self::OpenCode => "opencode-ai",
            Self::Codex => "@openai/codex",
            Self::ClaudeCode => "@anthropic-ai/claude-code",
        }
    }

    /// The program itself below `node_modules`, not the script around it: its pid is the host's.
    fn program(self) -> String {
        let (npm, triple) =
            if cfg!(target_arch = "aarch64") { ("arm64", "aarch64") } else { ("x64", "x86_64") };
        match self {
            Self::OpenCode => format!("opencode-linux-{npm}/bin/opencode"),
            Self::Codex => format!("@openai/codex-linux-{npm}/vendor/{triple}-unknown-linux-musl/bin/codex"),
            Self::ClaudeCode => format!("@anthropic-ai/claude-code-linux-{npm}/claude"),
        }
    }
}

/// The version that the tests are written for.
pub fn pinned(host: Host) -> String {
    let path = workspace().join("tools.toml");
    let text = std::fs::read_to_string(&path).expect("tools.toml");
    let pins: toml::Table = text.parse().expect("tools.toml is TOML");
    let version = pins["npm-hosts"][host.package()].as_str();
    version.unwrap_or_else(|| panic!("no version of {} in {}", host.package(), path.display())).to_owned()
}

/// The program of a host. Panics where it is missing or not the pinned version.
pub fn binary(host: Host) -> PathBuf {
    let modules = tools("npm-hosts").join("node_modules");
    let (package, wanted) = (host.package(), pinned(host));
    let found = installed_version(&modules.join(package));
    assert!(
        found.as_ref() == Some(&wanted),
        "the tests want {package} {wanted}, {} has {}: install it with `{COMMAND}`",
        modules.display(),
        found.as_deref().unwrap_or("none"),
    );
    let program = modules.join(host.program());
    assert!(program.is_file(), "{} is missing: install it with `{COMMAND}`", program.display());
    program
}

/// What `OpenCode` would fetch for its plugins at its first start, already fetched.
pub(super) fn opencode_plugin() -> PathBuf {
    let directory = tools("opencode-plugin");
    let package = directory.join("node_modules/@opencode-ai/plugin");
    let (found, wanted) = (installed_version(&package), pinned(Host::OpenCode));
    assert!(
        found.as_ref() == Some(&wanted),
        "{} is not of version {wanted}: install it with `{COMMAND}`",
        package.display()
    );
    directory
}

fn installed_version(package: &Path) -> Option<String> {
    let text = std::fs::read(package.join("package.json")).ok()?;
    let manifest: Value = serde_json::from_slice(&text).ok()?;
    Some(manifest["version"].as_str()?.to_owned())
}

/// A directory below `target/tools`: of the build that runs, else of the workspace.
fn tools(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.ancestors().map(|path| path.join("tools").join(name)).find(|path| path.is_dir());
    built.unwrap_or_else(|| workspace().join("target/tools").join(name))
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
