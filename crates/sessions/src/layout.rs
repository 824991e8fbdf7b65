//! Where a session's files lie.
//!
//! ```text
//! STATE/sessions/SESSION/        0700, ours
//!   workspace/                   /workspace of the box
//!   meta/                        /session-meta of the box: the agent's home
//!   runs/RUN/                    what is kept of a run; no box sees it
//!   access.json, key             how the agent is reached, the provider's key; 0600, no box sees them
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::session::{RunId, SessionId};
use model::settings::Secret;

use crate::world::Access;

const ACCESS: &str = "access.json";
const KEY: &str = "key";

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

    /// Everything of the session. Links in it are removed, not followed.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
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
    fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, new) = (self.root.join(name), self.root.join(format!(".{name}.new")));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.root)?.sync_all()
    }
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}
