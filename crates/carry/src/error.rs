//! What can go wrong, said so that whoever reads it knows what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::path::{BadPath, Rel, shown};

/// Most entries that a list in an answer holds.
const LISTED: usize = 1000;
/// Most entries that a message spells out.
const SPELLED: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error("{0}")]
    TooMuch(TooMuch),
    #[error(
        "the workspace of the session has other content at {0}; export its changes first, or import with `replace`"
    )]
    Different(Listed<Rel>),
    #[error(
        "nothing was applied, the directory is as it was: {0}; settle it there or in the session, then export again"
    )]
    Conflicts(Listed<Conflict>),
    #[error(
        "git does not trust {path}, because it belongs to somebody else; if you trust it, run: git config --global --add safe.directory {path}"
    )]
    NotTrusted { path: String },
    #[error(
        "{path} is a bare repository or lies inside one: it has no files to work on; name a directory with a checkout"
    )]
    NoWorkTree { path: String },
    #[error(
        "{path} is in a git repository, but git could not be started; install git, or name a directory outside of it"
    )]
    NoGit {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("git could not {doing}: {said}")]
    Git { doing: &'static str, said: String },
    #[error("git took more than {seconds} s to {doing}")]
    GitTooSlow { doing: &'static str, seconds: u64 },
    #[error(
        "nothing was imported into this session yet, so there is nothing to compare with; import a workspace first"
    )]
    NoBaseline,
    #[error(
        "the baseline of the session is damaged, so its changes cannot be told; import the workspace anew with `replace`: what the host has is then as on the host"
    )]
    Damaged(#[source] io::Error),
    #[error("another import or export works on {path}; try again in a moment")]
    Busy { path: String },
    #[error("{path} is no directory that can be opened")]
    NoDirectory {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "an export to {path} was cut off earlier and could not be undone whole; {count} files are kept in {kept}; settle them by hand, then remove that directory"
    )]
    Unsettled { path: String, kept: String, count: usize },
    #[error(
        "the file system of {path} cannot exchange two files in one go, so nothing was applied; take the patch and apply it there"
    )]
    CannotExchange { path: String },
    #[error("could not {doing}")]
    System {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("stopped before it was done; nothing was changed")]
    Stopped,
}

impl CarryError {
    pub(crate) fn system(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { doing: doing.into(), source: source.into() }
    }
}

/// Over one of the caps, with the numbers and the biggest culprits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooMuch {
    pub cap: Cap,
    pub found: u64,
    pub allowed: u64,
    /// The biggest files in bytes, or directories with most files; the biggest first.
    pub culprits: Vec<(String, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    Files,
    Bytes,
    OneFile,
    /// Entries of any kind that were looked at.
    Entries,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cap, found, allowed, culprits } = self;
        let (what, unit) = match cap {
            Cap::Files => ("too many files", ""),
            Cap::Bytes => ("too much content", " bytes"),
            Cap::OneFile => ("a file is too big", " bytes"),
            Cap::Entries => ("too many entries", ""),
        };
        write!(formatter, "{what}: {found}{unit}, at most {allowed} are carried")?;
        for (at, (name, count)) in culprits.iter().enumerate() {
            write!(formatter, "{}{name} ({count}{unit})", if at == 0 { "; most are in " } else { ", " })?;
        }
        formatter.write_str("; leave them out with a .gitignore, or name a directory further down")
    }
}

/// The first of a list, and how long it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    pub first: Vec<T>,
    pub count: usize,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { first: Vec::new(), count: 0 }
    }
}

impl<T> Listed<T> {
    pub(crate) fn add(&mut self, item: T) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(item);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T> FromIterator<T> for Listed<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::default();
        items.into_iter().for_each(|item| list.add(item));
        list
    }
}

impl<T: fmt::Display> fmt::Display for Listed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.first.iter().take(SPELLED).enumerate() {
            write!(formatter, "{}{item}", if at == 0 { "" } else { ", " })?;
        }
        match self.count.saturating_sub(SPELLED.min(self.first.len())) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}

/// What is not carried, and why. The rest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// As it can be shown; what is left out may have a path that nothing takes.
    pub path: String,
    pub why: Why,
}

impl LeftOut {
    pub(crate) fn new(path: &[u8], why: Why) -> Self {
        let mut path = shown(path);
        if path.len() > 300 {
            let end = (0..=300).rev().find(|&at| path.is_char_boundary(at)).unwrap_or(0);
            path.truncate(end);
            path.push('…');
        }
        Self { path, why }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.why)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("{0}")]
    Path(BadPath),
    #[error("it is a link that leads out of the directory")]
    LinkOut,
    #[error("it is a link that was made or changed in the session; links are not carried back")]
    LinkMade,
    #[error("it is neither a file nor a link")]
    NotRegular,
    #[error("it cannot be read")]
    Unreadable,
    #[error("it is bigger than {0} bytes")]
    TooBig(u64),
    #[error("it is kept out wherever git does not say what is wanted")]
    NeverWanted,
    #[error("it is a submodule that is not checked out")]
    NotCheckedOut,
    #[error("it is not text, and the patch would grow too big with it")]
    Binary,
    #[error("the patch would grow too big with it")]
    PatchFull,
}

/// One thing on the host that stands against an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub path: Rel,
    pub why: Against,
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.path, self.why)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Against {
    #[error("changed since it was imported")]
    Changed,
    #[error("removed since it was imported")]
    Removed,
    #[error("there is another file of this name")]
    Another,
    #[error("it is no regular file there")]
    NotRegular,
    #[error("there is a directory of this name with files in it")]
    Directory,
    #[error("a file lies where a directory is needed")]
    FileInTheWay,
    #[error("a link lies on the way to it")]
    ThroughLink,
    #[error("it lies on another file system than the directory")]
    OtherFileSystem,
    #[error("it cannot be read")]
    Unreadable,
}

pub(crate) fn text(path: impl Into<PathBuf>) -> String {
    shown(path.into().as_os_str().as_encoded_bytes())
}
