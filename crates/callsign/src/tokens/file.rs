//! `tokens.json` on disk.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use model::Principal;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::state::{StateDir, StateError};

const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Principal,
    pub hash: [u8; 32],
    pub created_at: u64,
}

/// Tells one version of the file from another. The inode does most of it: each version is a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

#[derive(Serialize, Deserialize)]
struct Document {
    tokens: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    name: String,
    sha256: String,
    created_at: u64,
}

/// None: there is no file, or none that we may look at.
pub(super) fn stamp(state: &StateDir) -> Option<Stamp> {
    let metadata = fs::metadata(state.file(FILE)).ok()?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Some(Stamp { inode: metadata.ino(), modified, length: metadata.len() })
}

/// Empty where there is no file.
pub(super) fn read(state: &StateDir) -> Result<Vec<Entry>, StateError> {
    let Some(text) = state.read(FILE)? else {
        return Ok(Vec::new());
    };
    let entries = serde_json::from_str::<Document>(&text)
        .and_then(|document| document.tokens.into_iter().map(Row::into_entry).collect());
    entries.map_err(|source| StateError::Garbled { path: state.file(FILE), source })
}

pub(super) fn write(state: &StateDir, entries: &[Entry]) -> Result<(), StateError> {
    let document = Document { tokens: entries.iter().map(Row::from_entry).collect() };
    let garbled = |source| StateError::Garbled { path: state.file(FILE), source };
    let mut text = serde_json::to_vec_pretty(&document).map_err(garbled)?;
    text.push(b'\n');
    state.write(FILE, &text)
}

/// Held while the file is read, changed and written. Others are done in no time, so we wait for them.
pub(super) fn lock(state: &StateDir) -> Result<File, StateError> {
    let file = state.lock_file(LOCK)?;
    file.lock().map_err(|source| StateError::Lock { path: state.file(LOCK), source })?;
    Ok(file)
}

impl Row {
    fn from_entry(entry: &Entry) -> Self {
        let Entry { name, hash, created_at } = entry;
        Self { name: name.to_string(), sha256: to_hex(hash), created_at: *created_at }
    }

    fn into_entry(self) -> Result<Entry, serde_json::Error> {
        let Self { name, sha256, created_at } = self;
        let hash = from_hex(&sha256)
            .ok_or_else(|| serde_json::Error::custom("sha256 is not 64 hexadecimal digits"))?;
        let name = Principal::new(name).map_err(serde_json::Error::custom)?;
        Ok(Entry { name, hash, created_at })
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}
