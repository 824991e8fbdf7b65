//! Which of the files that a box made git would ignore: what a build left behind is not what somebody wants back.
//!
//! Git is asked in a directory of ours that holds nothing but the `.gitignore` files. They come from the box and are
//! patterns, no more; the worst that they do is to keep the box's own files from being carried, or git busy for a while.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use beneath::{Content, Data, Root};

use crate::git::{Ask, Git, Settings};
use crate::path::Rel;
use crate::place::random_name;

const MOST_FILES: usize = 1000;
const MOST_BYTES: usize = 256 << 10;

pub(crate) struct Ignoring<'a> {
    pub(crate) git: &'a Git,
    /// A directory of ours.
    pub(crate) within: &'a Path,
    /// What the repository ignores besides its `.gitignore` files.
    pub(crate) exclude: &'a str,
    pub(crate) workspace: &'a Root,
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
        let mut feed = |to: &mut dyn io::Write| {
            let mut to = io::BufWriter::new(to);
            for path in paths {
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
        Some(said.out.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
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
        fs::write(within.join(".git/info/exclude"), self.exclude)?;
        for path in patterns {
            let Ok(Content { data, truncated: false, .. }) = self.workspace.read(path.as_path(), MOST_BYTES)
            else {
                continue;
            };
            let bytes = match data {
                Data::Text(text) => text.into_bytes(),
                Data::Binary(bytes) => bytes,
            };
            let at = within.join(path.as_path());
            if let Some(parent) = at.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(at, bytes)?;
        }
        Ok(private)
    }
}
