//! What is planned for one directory of the host, on disk before the first step.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::replace;
use crate::error::CarryError;
use crate::node::{Digest, Node};
use crate::path::{APPLY_STAGE, Rel, as_text};
use crate::place::Owner;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Journal {
    #[serde(with = "path_as_text")]
    pub(super) to: PathBuf,
    /// The name of the directory beneath `to` in which step N has the name N.
    pub(super) stage: String,
    pub(super) state: State,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Nothing of the host's was touched.
    Staging,
    /// Any of the steps may be done.
    Moving,
    /// All are; only the stage is left.
    Done,
    /// None is any more; only the stage is left, or a part of it.
    Undone,
}

/// Done in the order in which they stand, undone in the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Remove {
        path: Rel,
        before: Node,
    },
    /// It is empty by then.
    RemoveDirectory {
        path: Rel,
    },
    MakeDirectory {
        path: Rel,
        owner: Option<Owner>,
    },
    /// `inode` is that of the file in the stage; known from `Moving` on.
    Create {
        path: Rel,
        node: Node,
        mode: u32,
        owner: Option<Owner>,
        inode: u64,
    },
    Replace {
        path: Rel,
        before: Node,
        after: Node,
        mode: u32,
        owner: Option<Owner>,
        inode: u64,
    },
    Mode {
        path: Rel,
        from: u32,
        to: u32,
        inode: u64,
    },
}

impl Step {
    pub(super) fn path(&self) -> &Rel {
        match self {
            Self::Remove { path, .. }
            | Self::RemoveDirectory { path }
            | Self::MakeDirectory { path, .. }
            | Self::Create { path, .. }
            | Self::Replace { path, .. }
            | Self::Mode { path, .. } => path,
        }
    }
}

impl Journal {
    /// One a directory: it is locked as long as there may be one.
    pub(super) fn path(directory: &Path, to: &Path) -> io::Result<PathBuf> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(directory.join(format!("{}.json", Digest::of(to.as_os_str().as_bytes()))))
    }

    pub(super) fn read(at: &Path) -> Result<Option<Self>, CarryError> {
        let failed = |source| CarryError::system("read what was noted of an earlier export", source);
        match fs::read(at) {
            Ok(bytes) => {
                let journal: Self = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
                // It says what is removed: no other name than one we give.
                let digits = journal.stage.strip_prefix(APPLY_STAGE).filter(|digits| !digits.is_empty());
                if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
                    return Err(failed(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "it names a stage that is none",
                    )));
                }
                Ok(Some(journal))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) fn all(directory: &Path) -> Result<Vec<(PathBuf, Self)>, CarryError> {
        let failed = |source| CarryError::system("read what was noted of earlier exports", source);
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let at = entry.map_err(failed)?.path();
            if at.extension().is_some_and(|extension| extension == "json")
                && let Some(journal) = Self::read(&at)?
            {
                found.push((at, journal));
            }
        }
        Ok(found)
    }

    pub(super) fn write(&self, at: &Path) -> Result<(), CarryError> {
        let failed = |source| CarryError::system("note what is to be done", source);
        let bytes = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let (Some(directory), Some(name)) = (at.parent(), at.file_name().and_then(|name| name.to_str()))
        else {
            return Err(failed(io::Error::other("the journal has no name")));
        };
        replace(directory, name, &bytes).map_err(failed)
    }

    pub(super) fn remove(at: &Path) -> Result<(), CarryError> {
        match fs::remove_file(at) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(CarryError::system("remove what was noted of an export", error)),
        }
    }
}

mod path_as_text {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

    use serde::{Deserializer, Serializer};

    use super::{Path, PathBuf, as_text};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(path.as_os_str().as_bytes(), to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(std::ffi::OsString::from_vec(as_text::deserialize(from)?).into())
    }
}
