//! What tests with real container engines need: Docker and Podman from Debian, and an image to start boxes from.
//!
//! ```text
//! Debian's packages ─▶ dockerd, podman, runc …
//! Debian's packages ─▶ debootstrap ─▶ a tree ─▶ target/tools/engines/base.tar, and base.recipe: what it was made of
//! ```
//!
//! Nothing is started here. Each test starts an engine of its own, whose every file lies in one directory, and a guard
//! leaves nothing of it (`crates/containers/probe/guard.rs`); so no service of Debian's is needed or touched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{output, run_within};
use crate::tools::debian;
use crate::workspace::{Workspace, environment};

const RELEASE: &str = "bookworm";
/// A mirror that says nothing is an error in time.
const LONGEST: Duration = Duration::from_mins(10);
/// What no box needs, and what differs from run to run.
const LEFT_OUT: [&str; 7] = [
    "./var/cache/apt",
    "./var/lib/apt/lists",
    "./var/log",
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./dev",
];

/// `none`: this machine cannot have engines. The tests that need them are left out, and every summary says so.
const VARIABLE: &str = "CALLSIGN_ENGINES";

/// Why there are to be no engines here.
pub(crate) fn left_out() -> Option<String> {
    let wish = environment(VARIABLE)?;
    (wish == "none").then(|| format!("{VARIABLE}={wish}: no test ran on a container engine"))
}

/// Installs the engines and makes the base image, unless they are there.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    if let Some(reason) = left_out() {
        bail!("{reason}");
    }
    let packages = debian(workspace, &workspace.pins.debian.engines);
    let image = base_image(workspace).context("the base image could not be made");
    // Both reasons: whoever is not root learns everything to do at once.
    match (packages, image) {
        (Ok(()), image) => image,
        (packages, Ok(())) => packages,
        (Err(packages), Err(image)) => bail!("{packages:#}; {image:#}"),
    }
}

fn base_image(workspace: &Workspace) -> Result<()> {
    let image = Image {
        directory: workspace.tool("engines"),
        packages: workspace.pins.base_image.keys().cloned().collect(),
    };
    if image.is_made() {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("debootstrap needs root; run `cargo xtask tools` as root once, in this directory");
    }
    fs::create_dir_all(&image.directory)?;
    // One at a time: the tree has one place. Debootstrap holds the lock as well, for it outlives us if we are killed.
    let lock = File::options().read(true).append(true).create(true).open(image.at("lock"))?;
    if lock.try_lock().is_err() {
        println!("tools: somebody makes the base image already; waiting for them");
        lock.lock()?;
    }
    if image.is_made() {
        return Ok(());
    }
    let since = Instant::now();
    println!("tools: making the base image {}; this takes a minute, once", image.at("base.tar").display());
    let made = image.make(workspace, &lock);
    // A tree that was begun is of no use to the next attempt.
    let left = image.clear();
    made?;
    left?;
    println!("tools: the base image took {:.1} s", since.elapsed().as_secs_f64());
    Ok(())
}

struct Image {
    directory: PathBuf,
    /// Besides the smallest system.
    packages: Vec<String>,
}

impl Image {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whoever changes it gets another image.
    fn recipe(&self) -> String {
        format!("{RELEASE}\n{}\nwithout {}\n", self.packages.join("\n"), LEFT_OUT.join(" "))
    }

    fn is_made(&self) -> bool {
        self.at("base.tar").is_file()
            && fs::read_to_string(self.at("base.recipe")).is_ok_and(|recipe| recipe == self.recipe())
    }

    fn make(&self, workspace: &Workspace, lock: &File) -> Result<()> {
        self.clear()?;
        let (root, next, log) = (self.at("root"), self.at("base.tar.next"), self.at("debootstrap.log"));
        let program = workspace.which("debootstrap").context("debootstrap is not installed")?;
        // In a mount namespace of its own: what it mounts in the tree goes with it, however it ends.
        let mut command = workspace.command("unshare");
        command.arg("--mount").arg(program).arg("--variant=minbase");
        if !self.packages.is_empty() {
            command.arg(format!("--include={}", self.packages.join(",")));
        }
        let said = File::create(&log)?;
        command.arg(RELEASE).arg(&root).args(mirror(workspace));
        command.stdin(lock.try_clone()?).stdout(said.try_clone()?).stderr(said);
        run_within(&mut command, LONGEST).with_context(|| {
            // What went wrong inside the tree is told there alone.
            let inside = last_lines(&root.join("debootstrap/debootstrap.log"));
            format!("debootstrap said:{}{inside}", last_lines(&log))
        })?;
        let mut command = workspace.command("tar");
        command.arg("--create").args(["--numeric-owner", "--sort=name"]).arg("--directory").arg(&root);
        command.args(LEFT_OUT.map(|path| format!("--exclude={path}/*")));
        run_within(command.arg("--file").arg(&next).arg("."), LONGEST)?;
        // The recipe last: without it the image counts for nothing.
        fs::remove_file(self.at("base.recipe")).or_else(absent)?;
        fs::rename(&next, self.at("base.tar"))?;
        fs::write(self.at("base.recipe"), self.recipe())?;
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        for path in [self.at("root"), self.at("base.tar.next")] {
            let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            gone.or_else(absent).with_context(|| format!("could not remove {}", path.display()))?;
        }
        Ok(())
    }
}

fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Where this machine gets its own packages from, if it is a Debian: other hosts may be out of reach.
/// Else debootstrap knows where Debian is.
fn mirror(workspace: &Workspace) -> Option<String> {
    let format = "$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)";
    let mut command = workspace.command("apt-get");
    let listed = output(command.args(["indextargets", "--format", format, "Identifier: Packages"]));
    chosen(&listed.ok()?).map(str::to_owned)
}

/// The first that is Debian itself, not its security updates, which are a repository of their own.
fn chosen(listed: &str) -> Option<&str> {
    let mut mirrors = listed.lines().filter_map(|line| line.strip_prefix("Debian Debian main "));
    mirrors.find(|mirror| mirror.starts_with("http://") || mirror.starts_with("https://"))
}

fn last_lines(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(8))
        .fold(String::new(), |all, line| format!("{all}\n    {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_debians_own_where_there_is_one() {
        let listed = "Debian Debian-Security main http://m/debian-security/\nNode node main https://n/\n\
                      Debian Debian main copy:/media\nDebian Debian main http://m/debian/\n";
        assert_eq!(chosen(listed), Some("http://m/debian/"));
        assert_eq!(chosen("Ubuntu Ubuntu main http://u/ubuntu/\n"), None);
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn an_image_of_another_recipe_or_half_a_one_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let image = |packages: &[&str]| Image {
            directory: directory.path().to_owned(),
            packages: packages.iter().map(ToString::to_string).collect(),
        };
        assert!(!image(&[]).is_made());
        fs::write(image(&[]).at("base.tar"), "").unwrap();
        assert!(!image(&[]).is_made(), "a tar without a recipe was left by nobody who had finished");
        fs::write(image(&[]).at("base.recipe"), image(&["git"]).recipe()).unwrap();
        assert!(image(&["git"]).is_made() && !image(&[]).is_made());
    }
}
