//! What tests with real container engines need: Docker and Podman from Debian, and an image to start boxes from.
//!
//! Nothing is started here. Each test starts an engine of its own, whose every file lies in one directory, and a guard
//! leaves nothing of it (`crates/containers/probe/guard.rs`); so no service of Debian's is needed or touched.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::process::run;
use crate::tools::debian;
use crate::workspace::Workspace;

const RELEASE: &str = "bookworm";
/// What no box needs, and what differs from run to run.
const LEFT_OUT: [&str; 6] = [
    "./var/cache/apt",
    "./var/lib/apt/lists",
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./dev",
];

/// Installs the engines and makes the base image, unless they are there.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    debian(workspace, &workspace.pins.debian.engines)?;
    let tar = workspace.tool("engines/base.tar");
    if tar.is_file() {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "not root; run `cargo xtask tools` as root once: the base image {} is made by debootstrap",
            tar.display()
        );
    }
    let directory = tar.parent().context("it lies in a directory")?;
    println!("tools: making the base image {}; this takes a minute, once", tar.display());
    std::fs::create_dir_all(directory)?;
    let made = base(workspace, directory, &tar);
    // A tree that was begun is of no use to the next attempt.
    std::fs::remove_dir_all(directory.join("root")).ok();
    made
}

fn base(workspace: &Workspace, directory: &Path, tar: &Path) -> Result<()> {
    let (root, next) = (directory.join("root"), directory.join("base.tar.next"));
    std::fs::remove_dir_all(&root).ok();
    let extra: Vec<&str> = workspace.pins.base_image.keys().map(String::as_str).collect();
    let mut command = workspace.command("debootstrap");
    command.args(["--variant=minbase", "--log-extra-deps"]);
    if !extra.is_empty() {
        command.arg(format!("--include={}", extra.join(",")));
    }
    run(command.arg(RELEASE).arg(&root).stdout(std::process::Stdio::null()))?;
    let mut command = workspace.command("tar");
    command.arg("--create").arg("--numeric-owner").arg("--directory").arg(&root);
    command.args(LEFT_OUT.map(|path| format!("--exclude={path}/*")));
    run(command.arg("--file").arg(&next).arg("."))?;
    std::fs::rename(&next, tar)?;
    Ok(())
}
