//! What is kept of each file that was edited: `install/HOST-SCOPE-HASH/` in the state directory.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hosts::{Host, Journal, Record, Scope};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::files::HostFile;
use crate::state::StateDir;

const ORIGINAL: &str = "original";
const INSTALLED: &str = "installed";
const JOURNAL: &str = "journal.json";

#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    prefix: String,
}

/// `journal.json`. It is written last and names the other two by their digest: a set that does not belong
/// together counts as none.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    path: PathBuf,
    original: Option<String>,
    installed: String,
    #[serde(flatten)]
    journal: Journal,
}

impl Records {
    pub(super) fn new(state_dir: &Path, host: Host, scope: Scope) -> Self {
        Self { directory: state_dir.join("install"), prefix: format!("{host}-{scope}") }
    }

    /// None: nothing usable was kept.
    pub(super) fn load(&self, file: &HostFile) -> anyhow::Result<Option<Record>> {
        let directory = self.of(file);
        let Some(text) = read(&directory.join(JOURNAL))? else { return Ok(None) };
        let Ok(kept) = serde_json::from_slice::<Kept>(&text) else { return Ok(None) };
        let Some(installed) = read(&directory.join(INSTALLED))? else { return Ok(None) };
        let original = read(&directory.join(ORIGINAL))?.filter(|_| kept.original.is_some());
        let belongs =
            kept.installed == digest(&installed) && kept.original == original.as_deref().map(digest);
        Ok(belongs.then_some(Record { original, installed, journal: kept.journal }))
    }

    pub(super) fn save(&self, file: &HostFile, record: &Record) -> anyhow::Result<()> {
        let Record { original, installed, journal } = record;
        let state = StateDir::open(self.of(file))?;
        if let Some(original) = original {
            state.write(ORIGINAL, original)?;
        }
        state.write(INSTALLED, installed)?;
        let kept = Kept {
            path: file.target.clone(),
            original: original.as_deref().map(digest),
            installed: digest(installed),
            journal: journal.clone(),
        };
        state.write(JOURNAL, &serde_json::to_vec_pretty(&kept)?)?;
        Ok(())
    }

    pub(super) fn forget(&self, file: &HostFile) -> anyhow::Result<()> {
        let directory = self.of(file);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("could not remove {}", directory.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn of(&self, file: &HostFile) -> PathBuf {
        let hash = digest(file.target.as_os_str().as_encoded_bytes());
        self.directory.join(format!("{}-{}", self.prefix, &hash[..16]))
    }
}

fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
