//! Files of hosts: read whole, replaced whole, with their mode, owner and links kept.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Code, Failure};

/// Claude Code keeps its history in the same file.
const LARGEST: u64 = 256 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct HostFile {
    /// Where the bytes are, links followed.
    pub(super) target: PathBuf,
    /// None: there is no such file.
    pub(super) bytes: Option<Vec<u8>>,
}

/// Reads the file at `path`. What lies in a project is not to be trusted: a link in one must not lead out of it.
pub(super) fn read(path: &Path, within: Option<&Path>) -> anyhow::Result<HostFile> {
    let target = resolve(path).with_context(|| format!("could not find {}", path.display()))?;
    let refused = |why: &str| Failure::new(Code::Configuration, format!("{}: {why}", path.display()));
    if let Some(project) = within {
        let project = project.canonicalize().context("could not find the current directory")?;
        if !target.starts_with(&project) {
            return Err(refused("it is a link that leads out of the project").into());
        }
    }
    let file = match File::open(&target) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HostFile { target, bytes: None }),
        opened => opened.with_context(|| format!("could not read {}", path.display()))?,
    };
    if !file.metadata()?.is_file() {
        return Err(refused("it is not a file").into());
    }
    let mut bytes = Vec::new();
    let length = file.take(LARGEST + 1).read_to_end(&mut bytes);
    if length.with_context(|| format!("could not read {}", path.display()))? as u64 > LARGEST {
        return Err(refused("it is larger than 256 MiB").into());
    }
    Ok(HostFile { target, bytes: Some(bytes) })
}

impl HostFile {
    /// Others write to these files as well; what we read must still be what is there.
    pub(super) fn check_unchanged(&self) -> anyhow::Result<()> {
        let now = match fs::read(&self.target) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", self.target.display()));
            }
        };
        if now == self.bytes {
            return Ok(());
        }
        let message = format!("{} was changed while we looked at it", self.target.display());
        Err(Failure::new(Code::Configuration, message).with_hint("try again").into())
    }

    /// Replaces the file as a whole: a reader sees the old bytes or the new ones. Mode and owner stay.
    pub(super) fn write(&self, bytes: &[u8]) -> anyhow::Result<()> {
        self.replace(bytes).with_context(|| format!("could not write {}", self.target.display()))
    }

    pub(super) fn remove(&self) -> anyhow::Result<()> {
        fs::remove_file(&self.target).with_context(|| format!("could not remove {}", self.target.display()))
    }

    fn replace(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let directory = self.target.parent().context("it has no directory")?;
        fs::create_dir_all(directory)?;
        let before = fs::metadata(&self.target).ok();
        let mode = before.as_ref().map_or(0o600, |before| before.permissions().mode() & 0o7777);
        let mut file = tempfile::Builder::new().prefix(".callsign-").tempfile_in(directory)?;
        file.write_all(bytes)?;
        if let Some(before) = &before {
            keep_owner(file.as_file(), before)?;
        }
        file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        // As late as can be: what others wrote in between would be lost.
        self.check_unchanged()?;
        file.persist(&self.target)?;
        File::open(directory)?.sync_all()?;
        Ok(())
    }
}

fn keep_owner(file: &File, before: &Metadata) -> anyhow::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) == (before.uid(), before.gid()) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()))
        .context("could not keep its owner")
}

/// Follows links as far as there is something to follow. One that leads nowhere is an error.
fn resolve(path: &Path) -> anyhow::Result<PathBuf> {
    match path.canonicalize() {
        Ok(target) => Ok(target),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if path.is_symlink() {
                anyhow::bail!("it is a link to something that is not there");
            }
            let name = path.file_name().context("it has no name")?;
            let parent = path.parent().context("it has no directory")?;
            Ok(resolve(parent)?.join(name))
        }
        Err(error) => Err(error.into()),
    }
}
