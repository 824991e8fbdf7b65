//! Which workspace a call is about: the one it names, else that of its session, else an error.
//!
//! **Invariant:** what comes out exists, is a directory, has no links left in it and lies beneath an allowed root.
//! The directory a process happens to run in is never asked.

mod uri;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

/// Beneath which directories a workspace may lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots(Vec<PathBuf>);

/// A workspace that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub path: PathBuf,
    pub from: From,
    /// The session's workspace, where the call named another one. The caller logs it at info.
    pub differs: Option<String>,
}

/// Where a workspace was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// In the call itself.
    Explicit,
    /// By the session it belongs to.
    Ambient,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error(
        "no workspace is known for this call: give one in the argument `workspace`, or let the client announce \
         one in `initialize.params._meta` as `orbit.workspace`"
    )]
    Missing,
    #[error("the workspace {text:?} has control characters in it")]
    ControlCharacter { text: String },
    #[error("the workspace {text:?} is no file URI of this machine")]
    BadUri { text: String },
    #[error("the workspace {text:?} is not an absolute path")]
    NotAbsolute { text: String },
    #[error("the workspace {text:?} does not exist or cannot be reached")]
    Unreachable { text: String, source: io::Error },
    #[error("the workspace {text:?} is not a directory")]
    NotADirectory { text: String },
    #[error("the workspace {text:?} is not beneath an allowed root")]
    OutsideRoots { text: String },
}

impl Roots {
    /// `roots`: absolute, `~` expanded. One that is not there allows nothing.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self(roots)
    }

    /// `path`: without links.
    fn contain(&self, path: &Path) -> bool {
        let is_beneath = |root: &PathBuf| fs::canonicalize(root).is_ok_and(|root| path.starts_with(root));
        self.0.iter().filter(|root| root.is_absolute()).any(is_beneath)
    }
}

/// `explicit`: what the call says; `ambient`: what is said of its session. Blank counts as absent.
pub fn resolve(
    explicit: Option<&str>,
    ambient: Option<&str>,
    roots: &Roots,
) -> Result<Resolved, WorkspaceError> {
    match (present(explicit), present(ambient)) {
        (Some(explicit), None) => {
            Ok(Resolved { path: locate(explicit, roots)?, from: From::Explicit, differs: None })
        }
        (Some(explicit), Some(ambient)) => {
            let path = locate(explicit, roots)?;
            // The session's own may be wrong in any way: it is not the one that is used.
            let is_same = explicit == ambient || locate(ambient, roots).is_ok_and(|other| other == path);
            let differs = (!is_same).then(|| ambient.to_owned());
            Ok(Resolved { path, from: From::Explicit, differs })
        }
        (None, Some(ambient)) => {
            Ok(Resolved { path: locate(ambient, roots)?, from: From::Ambient, differs: None })
        }
        (None, None) => Err(WorkspaceError::Missing),
    }
}

/// What a client announces in `_meta`: `{"orbit": {"workspace": …}}` or `{"orbit.workspace": …}`. `meta`: its JSON.
pub fn ambient_from_meta(meta: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default)]
        orbit: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "orbit.workspace")]
        flat: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Orbit<'a> {
        #[serde(borrow, default)]
        workspace: Option<&'a RawValue>,
    }
    fn text(raw: &RawValue) -> Option<String> {
        let text: String = serde_json::from_str(raw.get()).ok()?;
        present(Some(&text)).map(str::to_owned)
    }
    let Meta { orbit, flat } = serde_json::from_slice(meta).ok()?;
    let nested = orbit.and_then(|orbit| serde_json::from_str::<Orbit<'_>>(orbit.get()).ok()?.workspace);
    nested.and_then(text).or_else(|| flat.and_then(text))
}

fn present(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn locate(text: &str, roots: &Roots) -> Result<PathBuf, WorkspaceError> {
    let said = || text.to_owned();
    let named = if uri::is_file_uri(text) {
        uri::path_of(text).ok_or_else(|| WorkspaceError::BadUri { text: said() })?
    } else {
        text.to_owned()
    };
    if named.chars().any(char::is_control) {
        return Err(WorkspaceError::ControlCharacter { text: said() });
    }
    let named = Path::new(&named);
    if !named.is_absolute() {
        return Err(WorkspaceError::NotAbsolute { text: said() });
    }
    match fs::canonicalize(named) {
        Ok(path) if !roots.contain(&path) => Err(WorkspaceError::OutsideRoots { text: said() }),
        Ok(path) if !path.is_dir() => Err(WorkspaceError::NotADirectory { text: said() }),
        Ok(path) => Ok(path),
        // Outside the roots nobody learns what is there and what is not.
        Err(source) if is_beneath(named, roots) => Err(WorkspaceError::Unreachable { text: said(), source }),
        Err(_) => Err(WorkspaceError::OutsideRoots { text: said() }),
    }
}

/// Whether the part of a path that is there lies beneath a root.
fn is_beneath(path: &Path, roots: &Roots) -> bool {
    path.ancestors().find_map(|part| fs::canonicalize(part).ok()).is_some_and(|part| roots.contain(&part))
}

#[cfg(test)]
mod tests;
