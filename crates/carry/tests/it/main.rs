//! Real directories, the real git, and boxes that mean no good.

#![expect(clippy::unwrap_used, reason = "a surprise ends the test")]

mod edges;
mod git;
mod hostile;
mod killed;
mod meanwhile;
mod round_trip;
mod time;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;

use carry::{
    Applied, Apply, CarryError, Changes, Compare, Existing, Git, Import, Imported, Limits, PatchLimits,
};

/// A host's directory, a session's workspace, and what the daemon keeps.
struct World {
    directory: tempfile::TempDir,
    limits: Limits,
    existing: Existing,
    git: Git,
}

impl World {
    fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// Where waiting for the disk costs nothing, if there is such a place.
    fn in_memory() -> Self {
        Self::within(tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap()))
    }

    fn within(directory: tempfile::TempDir) -> Self {
        for name in ["host", "workspace"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, limits: Limits::default(), existing: Existing::Refuse, git: Git::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn host(&self) -> PathBuf {
        self.at("host")
    }

    fn workspace(&self) -> PathBuf {
        self.at("workspace")
    }

    fn import(&self) -> Result<Imported, CarryError> {
        self.import_from(self.host())
    }

    fn import_from(&self, from: PathBuf) -> Result<Imported, CarryError> {
        carry::import(Import {
            from,
            into: self.workspace(),
            base: self.at("base"),
            limits: self.limits,
            git: self.git.clone(),
            owner: None,
            existing: self.existing,
            stop: &AtomicBool::new(false),
            progress: &mut |_| {},
        })
    }

    fn changes(&self) -> Result<Changes, CarryError> {
        carry::changes(&Compare {
            workspace: self.workspace(),
            base: self.at("base"),
            limits: self.limits,
            git: self.git.clone(),
            stop: &AtomicBool::new(false),
        })
    }

    fn patch(&self) -> String {
        let patch = self.changes().unwrap().patch(&PatchLimits::default()).unwrap();
        assert!(patch.left_out.is_empty(), "{:?}", patch.left_out);
        patch.text
    }

    fn apply(&self) -> Result<Applied, CarryError> {
        self.apply_to(&self.host())
    }

    fn apply_to(&self, to: &Path) -> Result<Applied, CarryError> {
        let changes = self.changes().unwrap();
        let (to, journal) = (to.to_owned(), self.at("journal"));
        carry::apply(&Apply { changes: &changes, to, journal, stop: &AtomicBool::new(false) })
    }

    /// Whether nothing of ours was left on the host.
    fn left_nothing(&self) -> bool {
        // A journal that was being written when its process ended is none; the next one is written over it.
        let journals = fs::read_dir(self.at("journal")).map_or(0, |entries| {
            entries.filter(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "json").count()
        });
        let stages = fs::read_dir(self.host())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".callsign"));
        journals == 0 && stages.count() == 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    File { content: Vec<u8>, executable: bool },
    Link(PathBuf),
    Other,
}

/// Files and links by path, `.git` at the top aside. What holds no files is nothing.
fn tree(root: &Path) -> BTreeMap<PathBuf, Item> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let kind = metadata.file_type();
            if kind.is_dir() {
                if path != root.join(".git") {
                    waiting.push(path);
                }
                continue;
            }
            let item = if kind.is_file() {
                let executable = metadata.permissions().mode() & 0o100 != 0;
                Item::File { content: fs::read(&path).unwrap(), executable }
            } else if kind.is_symlink() {
                Item::Link(fs::read_link(&path).unwrap())
            } else {
                Item::Other
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), item);
        }
    }
    found
}

fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let at = root.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(at, content).unwrap();
}

fn executable(path: &Path, yes: bool) {
    fs::set_permissions(path, fs::Permissions::from_mode(if yes { 0o755 } else { 0o644 })).unwrap();
}

/// Git without anybody's settings.
fn git(within: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(within)
        .env("GIT_CEILING_DIRECTORIES", within.parent().unwrap())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap()
}

#[track_caller]
fn git_must(within: &Path, arguments: &[&str]) -> String {
    let output = git(within, arguments);
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn copy_tree(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}
