//! Which of the files that a box made git would ignore: what a build left behind is not what somebody wants back.
//!
//! Git is asked in a directory of ours that holds nothing but the `.gitignore` files, each where it lies in the host's
//! checkout. Those of the workspace come from the box and are patterns, no more; the worst that they do is to keep the
//! box's own files from being carried, or git busy for a while.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use beneath::{Content, Data, Root};
use serde::{Deserialize, Serialize};

use crate::git::{Ask, Git, Settings};
use crate::path::{Rel, as_text};
use crate::place::random_name;

pub(crate) const IGNORE: &str = ".gitignore";
const MOST_FILES: usize = 1000;
const MOST_BYTES: usize = 256 << 10;

/// What the repository of the host ignores besides the `.gitignore` files that were imported.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// What is written nowhere in the checkout.
    pub(crate) exclude: String,
    /// Where in the checkout the imported directory lies: names with a slash after each, empty for the whole.
    #[serde(with = "as_text")]
    pub(crate) prefix: Vec<u8>,
    /// The `.gitignore` of each directory above it, the outermost first; empty where there is none.
    pub(crate) above: Vec<String>,
}

pub(crate) struct Ignoring<'a> {
    pub(crate) git: &'a Git,
    /// A directory of ours.
    pub(crate) within: &'a Path,
    pub(crate) rules: &'a Rules,
    pub(crate) workspace: &'a Root,
    /// `.gitignore` files as the host has them. Those of the workspace count more.
    pub(crate) imported: Vec<(Rel, Vec<u8>)>,
}

/// Goes when it is dropped.
struct Private(PathBuf);

impl Drop for Private {
    fn drop(&mut self) {
        let _left_for_a_person = fs::remove_dir_all(&self.0);
    }
}

impl Ignoring<'_> {
    /// None where git could not tell.
    pub(crate) fn among(&self, paths: &[Rel], mut patterns: Vec<Rel>) -> Option<HashSet<Vec<u8>>> {
        if paths.is_empty() {
            return Some(HashSet::new());
        }
        // Those further up say more, if there are too many.
        patterns.sort_by_key(|path| path.names().count());
        patterns.truncate(MOST_FILES);
        let private = self.prepare(&patterns).ok()?;
        let ask = |arguments| Ask {
            doing: "tell what is ignored",
            within: &private.0,
            settings: Settings::User,
            arguments,
        };
        // A name at the beginning that begins with a colon would mean something else to git.
        let prefix = [b"./", self.rules.prefix.as_slice()].concat();
        let mut feed = |to: &mut dyn io::Write| {
            let mut to = io::BufWriter::new(to);
            for path in paths {
                to.write_all(&prefix)?;
                to.write_all(path.as_bytes())?;
                to.write_all(&[0])?;
            }
            to.flush()
        };
        let said = self.git.feed(ask(&["check-ignore", "-z", "--stdin", "--no-index"]), &mut feed).ok()?;
        // It also ends without success where it has nothing to tell; then it does not complain.
        if !said.success && !said.complaint.is_empty() {
            return None;
        }
        let paths = said.out.split(|&byte| byte == 0).filter_map(|path| path.strip_prefix(prefix.as_slice()));
        Some(paths.filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn prepare(&self, patterns: &[Rel]) -> io::Result<Private> {
        let at = self.within.join(random_name("ignore-")?);
        fs::create_dir(&at)?;
        let private = Private(at);
        let within = private.0.as_path();
        let arguments = &["init", "--quiet", "--template=", "."];
        let ask = Ask { doing: "tell what is ignored", within, settings: Settings::None, arguments };
        self.git.must(ask).map_err(io::Error::other)?;
        fs::create_dir_all(within.join(".git/info"))?;
        let Rules { exclude, prefix, above } = self.rules;
        fs::write(within.join(".git/info/exclude"), exclude)?;
        let mut top = within.to_owned();
        let mut names = prefix.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        for patterns in above {
            fs::write(top.join(IGNORE), patterns)?;
            if let Some(name) = names.next() {
                top.push(OsStr::from_bytes(name));
                fs::create_dir(&top)?;
            }
        }
        let put = |path: &Rel, bytes: &[u8]| {
            let at = top.join(path.as_path());
            if let Some(parent) = at.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(at, bytes)
        };
        for (path, bytes) in &self.imported {
            put(path, bytes)?;
        }
        for path in patterns {
            let Ok(Content { data, truncated: false, .. }) = self.workspace.read(path.as_path(), MOST_BYTES)
            else {
                continue;
            };
            match data {
                Data::Text(text) => put(path, text.as_bytes())?,
                Data::Binary(bytes) => put(path, &bytes)?,
            }
        }
        Ok(private)
    }
}
