//! Installing what the tests and the bench need, each version as `tools.toml` says.
//!
//! Idempotent: what is there in its pinned version is left alone, and nothing is said about it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::engines;
use crate::process::{output, run};
use crate::workspace::Workspace;

/// What `cargo xtask test` needs. What cannot be had is part of the error; the rest is installed all the same.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let steps = [
        ("Debian packages", debian(workspace, &workspace.pins.debian.test)),
        ("container engines", engines::install(workspace)),
        ("npm packages", npm(workspace, "npm", &workspace.pins.npm)),
        ("PyPI packages", pypi(workspace, "pypi-test", &workspace.pins.pypi_test)),
        ("npm hosts", npm(workspace, "npm-hosts", &workspace.pins.npm_hosts)),
        ("OpenCode's plugin library", opencode_plugin(workspace)),
        ("cargo tools", cargo_tools(workspace)),
    ];
    all(steps)
}

/// What `cargo xtask bench` needs beyond that: our peers.
pub(crate) fn install_peers(workspace: &Workspace) -> Result<()> {
    let steps = [
        ("Debian packages", debian(workspace, &workspace.pins.debian.bench)),
        ("npm packages", npm(workspace, "npm", &workspace.pins.npm)),
        ("npm peers", npm(workspace, "npm-peers", &workspace.pins.npm_peers)),
        ("PyPI peers", pypi(workspace, "pypi", &workspace.pins.pypi)),
        ("crate peers", crates(workspace)),
    ];
    all(steps)
}

fn all<const N: usize>(steps: [(&str, Result<()>); N]) -> Result<()> {
    let missing: Vec<_> = steps
        .into_iter()
        .filter_map(|(name, result)| result.err().map(|error| format!("{name}: {error:#}")))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("{}", missing.join("; "))
}

pub(crate) fn debian(workspace: &Workspace, packages: &BTreeMap<String, String>) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(command, _)| workspace.which(command).is_none())
        .map(|(_, package)| package.as_str())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !nix::unistd::geteuid().is_root() {
        bail!("not root; run `apt-get install {list}`");
    }
    println!("tools: installing the Debian packages {list}");
    let _no_services = NoServices::new()?;
    let install = || {
        let mut command = workspace.command("apt-get");
        command.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(&missing);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command)
    };
    install().or_else(|_| {
        run(workspace.command("apt-get").args(["update", "--quiet"]))?;
        install()
    })
}

/// While this lives, Debian packages do not start their services: nginx would take port 80.
struct NoServices {
    made: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn new() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        if Path::new(POLICY).exists() {
            return Ok(Self { made: false });
        }
        std::fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
        std::fs::set_permissions(POLICY, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { made: true })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.made {
            std::fs::remove_file(POLICY).ok();
        }
    }
}

fn npm(workspace: &Workspace, directory: &str, packages: &BTreeMap<String, String>) -> Result<()> {
    let directory = workspace.tool(directory);
    let missing: Vec<String> = packages
        .iter()
        .filter(|(name, version)| installed_npm_version(&directory, name).as_ref() != Some(version))
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("tools: installing {} into {}", missing.join(" "), directory.display());
    std::fs::create_dir_all(&directory)?;
    // All of them: npm removes from node_modules what it was not asked for and finds in no package.json.
    let every = packages.iter().map(|(name, version)| format!("{name}@{version}"));
    let mut command = workspace.command("npm");
    command.current_dir(&directory).args(["install", "--save-exact", "--no-audit", "--no-fund"]);
    command.args(["--loglevel", "error", "--prefix", "."]).args(every);
    run(&mut command).context("is npm installed?")
}

/// What `OpenCode` would fetch into each configuration directory at its first start; the tests link it there.
fn opencode_plugin(workspace: &Workspace) -> Result<()> {
    let version = workspace.pins.npm_hosts.get("opencode-ai").context("tools.toml pins no opencode-ai")?;
    let library = BTreeMap::from([("@opencode-ai/plugin".to_owned(), version.clone())]);
    npm(workspace, "opencode-plugin", &library)
}

pub(crate) fn installed_npm_version(directory: &Path, name: &str) -> Option<String> {
    let text = std::fs::read(directory.join("node_modules").join(name).join("package.json")).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(manifest.get("version")?.as_str()?.to_owned())
}

fn cargo_tools(workspace: &Workspace) -> Result<()> {
    for (name, version) in &workspace.pins.cargo {
        if workspace.which(name).is_none() {
            cargo_install(workspace, name, version, "cargo")?;
        }
    }
    Ok(())
}

fn crates(workspace: &Workspace) -> Result<()> {
    for (name, version) in &workspace.pins.crates {
        let root = format!("{name}-{version}");
        if !workspace.tool(&root).join("bin").join(name).is_file() {
            cargo_install(workspace, name, version, &root)?;
        }
    }
    Ok(())
}

fn cargo_install(workspace: &Workspace, name: &str, version: &str, root: &str) -> Result<()> {
    println!("tools: building {name} {version} from its crate; this takes minutes, once");
    let mut command = workspace.cargo();
    command.args(["install", "--locked", "--quiet", name, "--version", version]);
    command.arg("--root").arg(workspace.tool(root)).arg("--target-dir").arg(workspace.tool("build"));
    run(&mut command)
}

fn pypi(workspace: &Workspace, directory: &str, packages: &BTreeMap<String, String>) -> Result<()> {
    let home = workspace.tool(directory);
    let pip = home.join("bin/pip");
    for (name, version) in packages {
        let installed = version_in(workspace, &home, name).ok();
        if installed.as_ref() == Some(version) {
            continue;
        }
        println!("tools: installing {name}=={version} into {}", home.display());
        run(workspace.command("python3").args(["-m", "venv"]).arg(&home))
            .context("on Debian this needs the package python3-venv")?;
        let requirement = format!("{name}=={version}");
        run(workspace.command(&pip).args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            &requirement,
        ]))?;
    }
    Ok(())
}

pub(crate) fn pypi_version(workspace: &Workspace, name: &str) -> Result<String> {
    version_in(workspace, &workspace.tool("pypi"), name)
}

fn version_in(workspace: &Workspace, home: &Path, name: &str) -> Result<String> {
    let script = format!("from importlib.metadata import version; print(version('{name}'))");
    let text = output(workspace.command(home.join("bin/python")).args(["-c", &script]))?;
    Ok(text.trim().to_owned())
}
