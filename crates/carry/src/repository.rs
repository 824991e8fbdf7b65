//! A repository for the box: one commit of what was carried in, made by us from nothing.
//!
//! The host's own `.git` has hooks, credentials, remotes with tokens, other people's branches, and in its history what
//! was removed for good reasons. None of that is taken. Git is run in a directory of ours, never in the workspace: what
//! a box writes into its `.git` could make git run programs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::error::CarryError;
use crate::git::{Ask, Git, Settings};
use crate::node::Node;
use crate::pack::Pack;
use crate::path::Rel;
use crate::place::{Owner, Place, Seen, random_name};
use crate::quote::quoted;

/// What was carried in is what the commit holds, byte for byte, whatever `.gitattributes` say.
const ATTRIBUTES: &str = "* -text -filter -ident -working-tree-encoding\n";
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                      [user]\n\tname = Callsign\n\temail = callsign@localhost\n";

/// A `.git` that waits to be copied. Goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Prepared(PathBuf);

impl Drop for Prepared {
    fn drop(&mut self) {
        let _left_for_a_person = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Commit<'a> {
    pub(crate) git: &'a Git,
    /// A directory of ours.
    pub(crate) within: &'a Path,
    pub(crate) files: &'a [(Rel, Node)],
    pub(crate) pack: &'a Pack,
    pub(crate) seconds: i64,
}

impl Commit<'_> {
    pub(crate) fn prepare(&self) -> Result<Prepared, CarryError> {
        let failed = |source| CarryError::system("make a repository for the session", source);
        let at = self.within.join(random_name("repository-").map_err(failed)?);
        fs::create_dir(&at).map_err(failed)?;
        let prepared = Prepared(at);
        let within = prepared.0.as_path();
        let ask = |doing, arguments| Ask { doing, within, settings: Settings::None, arguments };
        let arguments = [
            "init",
            "--quiet",
            "--bare",
            "--template=",
            "--initial-branch=main",
            "--object-format=sha1",
            ".",
        ];
        self.git.must(ask("make a repository for the session", &arguments))?;
        let arguments = [
            "-c",
            "core.compression=1",
            "-c",
            "fastimport.unpackLimit=0",
            "fast-import",
            "--quiet",
            "--done",
        ];
        let asked = ask("write the first commit of the session", &arguments);
        // It deflates everything, which is slower than looking.
        let deadline = self.git.deadline + Duration::from_secs(self.pack.end() >> 22);
        let git = Git { deadline, ..self.git.clone() };
        let said = git.feed(asked, &mut |to| self.write(&mut io::BufWriter::new(to)))?;
        if !said.success {
            return Err(CarryError::Git { doing: asked.doing, said: said.complaint });
        }
        self.git.must(ask("write the index of the session", &["read-tree", "main"]))?;
        fs::write(within.join("config"), CONFIG).map_err(failed)?;
        fs::create_dir_all(within.join("info")).map_err(failed)?;
        fs::write(within.join("info/attributes"), ATTRIBUTES).map_err(failed)?;
        Ok(prepared)
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        const MESSAGE: &str = "Workspace as it was imported";
        let seconds = self.seconds.max(0);
        writeln!(to, "feature done\ncommit refs/heads/main")?;
        writeln!(to, "committer Callsign <callsign@localhost> {seconds} +0000")?;
        writeln!(to, "data {}\n{MESSAGE}", MESSAGE.len())?;
        for (path, node) in self.files {
            writeln!(to, "M {} inline {}", node.mode(), quoted("", path.as_bytes()))?;
            match node {
                Node::File { digest, size, .. } => {
                    writeln!(to, "data {size}")?;
                    self.pack.copy(digest, to)?;
                }
                Node::Link { target } => {
                    writeln!(to, "data {}", target.len())?;
                    to.write_all(target)?;
                }
            }
            writeln!(to)?;
        }
        writeln!(to, "done")?;
        to.flush()
    }
}

impl Prepared {
    /// Whether the workspace has none yet.
    pub(crate) fn is_wanted(workspace: &Place) -> Result<bool, CarryError> {
        match workspace.look_here(".git") {
            Ok(seen) => Ok(matches!(seen, Seen::Absent)),
            Err(source) => Err(CarryError::system("look at the workspace", source)),
        }
    }

    pub(crate) fn copy(&self, to: &Place, owner: Option<Owner>) -> io::Result<()> {
        copy(&self.0, to, owner)
    }

    /// What a copy that failed left there.
    pub(crate) fn remove_copy(&self, from: &Place) {
        let _stays_and_is_ignored = remove(&self.0, from);
    }
}

fn copy(from: &Path, to: &Place, owner: Option<Owner>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.make_sub(name, 0o755, owner)?, owner)?;
        } else {
            io::copy(&mut File::open(entry.path())?, &mut to.create(name, 0o644, owner)?)?;
        }
    }
    Ok(())
}

fn remove(like: &Path, at: &Place) -> io::Result<()> {
    for entry in fs::read_dir(like)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if entry.file_type()?.is_dir() {
            match at.sub(name) {
                Ok(sub) => remove(&entry.path(), &sub)?,
                Err(Errno::NOENT) => continue,
                Err(other) => return Err(other.into()),
            }
            at.remove_directory_here(name)?;
        } else {
            match at.remove_here(name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
    Ok(())
}
