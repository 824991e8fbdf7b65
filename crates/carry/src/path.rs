//! Paths that may be carried: relative, plain, bounded, and never into what belongs to a version control system.
//!
//! A file system may take several spellings for one name: it ignores case, leaves out characters that nobody sees,
//! drops dots and spaces at the end, or has short names. A path that is harmless here may therefore be `.git/config`
//! on the disk of somebody else. All such spellings are refused, on every system alike.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Longest path in bytes: the kernel's own limit is 4096, and a prefix must fit before it.
const LONGEST: usize = 3500;
/// Longest name in bytes, as the usual file systems have it.
const LONGEST_NAME: usize = 255;
/// Most names in one path.
pub(crate) const DEEPEST: usize = 100;
/// Where an import puts files before they are moved into place. A box could use the name; it would only hide from itself.
pub(crate) const IMPORT_STAGE: &str = ".callsign-import-";
/// Where an apply keeps what it replaces until it is done.
pub(crate) const APPLY_STAGE: &str = ".callsign-apply-";

/// A path beneath some root, made by [`Rel::new`] alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
pub struct Rel(Vec<u8>);

/// Why a path is not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("it is not a plain relative path")]
    NotPlain,
    #[error("its path is too long or lies too deep")]
    TooLong,
    #[error("it belongs to a version control system, or is named so that it could be taken for it")]
    VersionControl,
    #[error("it says where git finds submodules; such a change is made by hand")]
    Submodules,
    #[error("it has a name that is used while files are carried")]
    Ours,
}

impl Rel {
    pub fn new(path: &[u8]) -> Result<Self, BadPath> {
        if path.is_empty() || path.contains(&0) {
            return Err(BadPath::NotPlain);
        }
        if path.len() > LONGEST {
            return Err(BadPath::TooLong);
        }
        let mut depth = 0;
        for name in path.split(|&byte| byte == b'/') {
            depth += 1;
            check_name(name)?;
        }
        if depth > DEEPEST {
            return Err(BadPath::TooLong);
        }
        let top = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        if top.starts_with(IMPORT_STAGE.as_bytes()) || top.starts_with(APPLY_STAGE.as_bytes()) {
            return Err(BadPath::Ours);
        }
        Ok(Self(path.to_vec()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The directory it lies in (None: the root itself), and its name there.
    pub(crate) fn split(&self) -> (Option<&Path>, &OsStr) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            None => (None, OsStr::from_bytes(&self.0)),
            Some(at) => {
                let (parent, name) = (&self.0[..at], &self.0[at + 1..]);
                (Some(Path::new(OsStr::from_bytes(parent))), OsStr::from_bytes(name))
            }
        }
    }

    /// The directories it lies in, the outermost first.
    pub(crate) fn ancestors(&self) -> impl DoubleEndedIterator<Item = Self> + '_ {
        let ends: Vec<usize> = (0..self.0.len()).filter(|&at| self.0[at] == b'/').collect();
        ends.into_iter().map(|end| Self(self.0[..end].to_vec()))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.split().1 == name
    }
}

impl fmt::Display for Rel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&shown(&self.0))
    }
}

impl fmt::Debug for Rel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// A path in a message: on one line, and no terminal acts on it.
pub(crate) fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for char in String::from_utf8_lossy(path).chars() {
        if char.is_control() || is_unseen(char) {
            text.extend(char.escape_unicode());
        } else {
            text.push(char);
        }
    }
    text
}

fn check_name(name: &[u8]) -> Result<(), BadPath> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(BadPath::NotPlain);
    }
    if name.len() > LONGEST_NAME {
        return Err(BadPath::TooLong);
    }
    // Where a backslash separates names, this is a path.
    for part in name.split(|&byte| byte == b'\\') {
        let plain = unmasked(part);
        if plain == ".." && part.len() != name.len() {
            return Err(BadPath::NotPlain);
        }
        let short = |of: &str| plain.strip_prefix(of).is_some_and(is_number);
        if matches!(plain.as_str(), ".git" | ".hg" | ".svn" | ".jj" | ".bzr") || short("git~") {
            return Err(BadPath::VersionControl);
        }
        if plain == ".gitmodules" || short("gitmod~") || plain.starts_with("gi7eb") && plain.contains('~') {
            return Err(BadPath::Submodules);
        }
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name as the most forgiving file system reads it: lower case, without what nobody sees, without a stream's name
/// behind a colon, without dots and spaces at the end.
fn unmasked(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name)
        .chars()
        .filter(|&char| !is_unseen(char))
        .flat_map(char::to_lowercase)
        // The two Turkish ones: without a dot, and with one that becomes a character of its own.
        .filter(|&char| char != '\u{307}')
        .map(|char| if char == 'ı' { 'i' } else { char })
        .collect();
    let stream = text.find(':').map_or(text.as_str(), |at| &text[..at]);
    if stream.chars().all(|char| char == '.') {
        return stream.to_owned();
    }
    stream.trim_end_matches(['.', ' ']).to_owned()
}

/// What file systems that fold case leave out when they compare names.
fn is_unseen(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A path in a file of JSON. What is no UTF-8 stands there in hexadecimal after a NUL, which no path contains.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Text(String);

impl From<Rel> for Text {
    fn from(path: Rel) -> Self {
        Self(as_text::written(&path.0))
    }
}

impl TryFrom<Text> for Rel {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Self, Self::Error> {
        let bytes = as_text::read(text.0).ok_or("it is neither text nor hexadecimal")?;
        Self::new(&bytes).map_err(|_| "no such path is carried")
    }
}

/// Bytes that are nearly always text, as text.
pub(crate) mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use crate::node::{hex, unhex};

    pub(crate) fn written(bytes: &[u8]) -> String {
        match str::from_utf8(bytes) {
            Ok(text) if !text.starts_with('\0') => text.to_owned(),
            Ok(_) | Err(_) => format!("\0{}", hex(bytes)),
        }
    }

    pub(crate) fn read(text: String) -> Option<Vec<u8>> {
        match text.strip_prefix('\0') {
            Some(digits) => unhex(digits),
            None => Some(text.into_bytes()),
        }
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&written(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        read(String::deserialize(from)?).ok_or_else(|| de::Error::custom("neither text nor hexadecimal"))
    }
}

#[cfg(test)]
mod tests;
