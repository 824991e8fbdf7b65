//! Makes the program that boxes start: the crate `bridge`, static, so that it runs whatever an image holds.
//!
//! A build of its own, since it has flags and a profile of its own. It asks for nothing that the build around it has
//! not fetched already: this crate depends on the library of `bridge`, and thereby on all that it needs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROFILE: &str = "bridge";
const PROGRAM: &str = "callsign-bridge";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["crates/bridge/src", "crates/bridge/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let target = variable("TARGET")?;
    let out = PathBuf::from(variable("OUT_DIR")?);
    let built = out.join("bridge");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.current_dir(&workspace);
    cargo.args([
        "build",
        "--quiet",
        "--frozen",
        "--package",
        "bridge",
        "--bin",
        PROGRAM,
        "--profile",
        PROFILE,
    ]);
    // With a target named, flags are for the program alone: build scripts and macros stay as they are.
    cargo.arg("--target").arg(&target).arg("--target-dir").arg(&built);
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_the_outer_build(name)) {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags()).env("CARGO_INCREMENTAL", "0");
    let done = cargo.output().map_err(|error| format!("could not start cargo: {error}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        // One line each: that is how cargo takes them.
        for line in said.lines() {
            println!("cargo::warning={line}");
        }
        // Whoever installs without the lock file has fetched other versions than it names.
        let hint = if said.contains("--frozen") { "; build or install with --locked" } else { "" };
        return Err(format!("could not build {PROGRAM}: {}{hint}", done.status));
    }
    let from = built.join(&target).join(PROFILE).join(PROGRAM);
    let into = out.join(PROGRAM);
    fs::copy(&from, &into).map_err(|error| format!("could not copy {}: {error}", from.display()))?;
    Ok(())
}

/// Those of the build around it, which may name a linker or where paths lead; and ours last, so that it counts.
fn flags() -> OsString {
    let mut flags = env::var_os("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if !flags.is_empty() {
        flags.push("\x1f");
    }
    flags.push("-Ctarget-feature=+crt-static");
    flags
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("cargo has not set {name}"))
}

/// What the build around this one says of itself: its flags, its lints, its directories, the crate it builds now.
fn is_of_the_outer_build(name: &OsString) -> bool {
    const PREFIXES: [&str; 4] = ["CARGO_CFG_", "CARGO_FEATURE_", "CARGO_PKG_", "CARGO_PROFILE_"];
    const NAMES: [&str; 17] = [
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_LINKS",
        "CARGO_MANIFEST_PATH",
        "CARGO_TARGET_DIR",
        "CLIPPY_ARGS",
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "TARGET",
    ];
    let name = name.to_string_lossy();
    NAMES.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
