//! Where a session's files lie.
//!
//! ```text
//! STATE/sessions/SESSION/        0700, ours
//!   workspace/                   /workspace of the box
//!   meta/                        /session-meta of the box: the agent's home
//!   sockets/                     /run/callsign of the box, read-only: its only ways out
//!   runs/RUN/                    what is kept of a run; no box sees it
//!   outdated                     files were imported since the agent was started; no box sees it
//!   base/, origin                what was imported, to tell changes by, and from where; no box sees it
//!   extras.json, extras/         what was installed besides, and where that is prepared; no box of the session sees them
//!   access.json, key             how the agent is reached, the provider's key; 0600, no box sees them
//! ```

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use model::session::{RunId, SessionId};
use model::settings::Secret;

use crate::world::Access;

const ACCESS: &str = "access.json";
const KEY: &str = "key";
const ORIGIN: &str = "origin";
const OUTDATED: &str = "outdated";

/// The directory of all sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// `root` is absolute and ours alone.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where it is noted what is being applied to directories of the host.
    pub fn journal(&self) -> PathBuf {
        self.root.join("exports")
    }

    pub fn of(&self, session: &SessionId) -> SessionDirs {
        SessionDirs { root: self.root.join(session.as_str()) }
    }

    /// Names that look like a session's, whether there is such a session or not.
    pub fn all(&self) -> io::Result<Vec<SessionId>> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let parse = |entry: fs::DirEntry| SessionId::parse(entry.file_name().to_str()?).ok();
        Ok(entries.flatten().filter_map(parse).collect())
    }
}

/// The directories of one session. Nothing is made until it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDirs {
    root: PathBuf,
}

impl SessionDirs {
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub fn meta(&self) -> PathBuf {
        self.root.join("meta")
    }

    pub fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    /// What the workspace was imported from, file by file.
    pub fn base(&self) -> PathBuf {
        self.root.join("base")
    }

    /// The directory of the host that the workspace was imported from last.
    pub fn origin(&self) -> Option<PathBuf> {
        let bytes = fs::read(self.root.join(ORIGIN)).ok()?;
        Some(PathBuf::from(OsString::from_vec(bytes)))
    }

    pub fn keep_origin(&self, origin: &Path) -> io::Result<()> {
        self.keep(ORIGIN, origin.as_os_str().as_bytes())
    }

    /// The box that runs has read what is not there any more: the next run has another one.
    pub fn mark_outdated(&self) -> io::Result<()> {
        self.keep(OUTDATED, b"")
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.root.join(OUTDATED).exists()
    }

    /// Idempotent. Before another box is started.
    pub(crate) fn clear_outdated(&self) -> io::Result<()> {
        match fs::remove_file(self.root.join(OUTDATED)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub fn run(&self, run: &RunId) -> PathBuf {
        self.root.join("runs").join(run.as_str())
    }

    pub fn log(&self, run: &RunId) -> PathBuf {
        self.run(run).join("run.log")
    }

    /// Idempotent. What is there is left as it is.
    pub fn make(&self) -> io::Result<()> {
        for directory in [self.root.clone(), self.workspace(), self.meta(), self.root.join("runs")] {
            make(&directory)?;
        }
        Ok(())
    }

    pub fn make_run(&self, run: &RunId) -> io::Result<PathBuf> {
        let directory = self.run(run);
        make(&directory)?;
        Ok(directory)
    }

    /// Everything of the session. Links in it are removed, not followed. Nobody may write to it meanwhile. Blocks.
    pub fn remove(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => remove(&self.root),
        }
    }

    /// What was kept for the box that runs, or ran last. What cannot be read counts as nothing: a box is made anew then.
    pub fn access(&self) -> Option<Access> {
        let text = fs::read(self.root.join(ACCESS)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn keep_access(&self, access: &Access) -> io::Result<()> {
        self.keep(ACCESS, &serde_json::to_vec(access)?)
    }

    pub fn key(&self) -> io::Result<Option<Secret>> {
        match fs::read_to_string(self.root.join(KEY)) {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn keep_key(&self, key: &Secret) -> io::Result<()> {
        self.keep(KEY, key.expose().as_bytes())
    }

    /// Idempotent.
    pub fn forget_secrets(&self) -> io::Result<()> {
        for name in [ACCESS, KEY] {
            match fs::remove_file(self.root.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// On disk when it returns, and whole or not at all.
    pub(crate) fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, new) = (self.root.join(name), self.root.join(format!(".{name}.new")));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.root)?.sync_all()
    }
}

/// A box decides how deep its directories go and which of them it has locked. So each is unlocked and brought up to the
/// root before it is emptied: nothing recurses, and no path is longer than two names beneath the root.
pub(crate) fn remove(root: &Path) -> io::Result<()> {
    let mut brought = 0_u64;
    fs::set_permissions(root, Permissions::from_mode(0o700))?;
    loop {
        let mut left = false;
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            left = true;
            // Of the entry itself: a link is no directory.
            if entry.file_type()?.is_dir() {
                bring_up(root, &entry.path(), &mut brought)?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        if !left {
            return fs::remove_dir(root);
        }
    }
}

/// Empties a directory and removes it. What is a directory in it is one of the root's afterwards.
fn bring_up(root: &Path, directory: &Path, brought: &mut u64) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
            continue;
        }
        // One that is locked cannot be moved.
        fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
        // A removal that was cut off may have left some.
        loop {
            *brought += 1;
            match fs::rename(entry.path(), root.join(format!(".removed-{brought}"))) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
                other => break other?,
            }
        }
    }
    fs::remove_dir(directory)
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    use model::session::Stamp;

    use super::*;
    use crate::world::Ports;

    fn dirs() -> (tempfile::TempDir, SessionDirs) {
        let root = tempfile::tempdir().unwrap();
        let dirs = Layout::new(root.path()).of(&SessionId::new(Stamp { millis: 1, random: [1; 10] }));
        dirs.make().unwrap();
        (root, dirs)
    }

    #[test]
    fn what_a_box_has_locked_is_removed_and_nothing_that_it_links_to() {
        let (root, dirs) = dirs();
        let other = root.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "kept").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o500)).unwrap();
        let deep = dirs.workspace().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        symlink(&other, deep.join("link")).unwrap();
        fs::set_permissions(&deep, Permissions::from_mode(0o000)).unwrap();
        dirs.remove().unwrap();
        assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o500);
        dirs.remove().unwrap();
        assert!(!dirs.root().exists() && other.join("file").exists());
    }

    #[test]
    fn how_deep_a_box_went_does_not_matter() {
        let (_root, dirs) = dirs();
        // Each from the one before: a path would be too long.
        let mut at = File::open(dirs.workspace()).unwrap();
        for _ in 0..20_000 {
            let next = format!("/proc/self/fd/{}/d", at.as_raw_fd());
            fs::create_dir(&next).unwrap();
            at = File::open(&next).unwrap();
        }
        drop(at);
        dirs.remove().unwrap();
        assert!(!dirs.root().exists());
    }

    #[test]
    fn secrets_are_for_their_owner_and_can_be_forgotten() {
        let (_root, dirs) = dirs();
        assert_eq!(dirs.key().unwrap(), None);
        assert_eq!(dirs.access(), None);
        let secret = || "CANARY".to_owned();
        let ports = Ports { agent: 1, model: 2, mcp: 3, egress: 4 };
        let (password, token, seal) = (secret(), secret(), secret());
        let access =
            Access { ports, password, token, seal, policy: String::new(), models: Vec::new(), heard: true };
        dirs.keep_access(&access).unwrap();
        dirs.keep_key(&Secret::new("CANARY")).unwrap();
        for name in [ACCESS, KEY] {
            let mode = fs::metadata(dirs.root().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(dirs.access(), Some(access.clone()));
        assert_eq!(dirs.key().unwrap(), Some(Secret::new("CANARY")));
        assert!(!format!("{access:?}").contains("CANARY"));
        dirs.forget_secrets().unwrap();
        dirs.forget_secrets().unwrap();
        assert_eq!((dirs.key().unwrap(), dirs.access()), (None, None));
    }
}
