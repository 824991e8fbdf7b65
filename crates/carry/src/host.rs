//! What of a host's directory is wanted: what git names, or everything but a few names that are never meant.
//!
//! Where git is there and refuses, nothing is guessed: a walk would take along what the user keeps out of git, and that
//! is where secrets are.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::error::{Cap, CarryError, LeftOut, Listed, TooMuch, Why, text};
use crate::git::{Ask, Git, Said, Settings};
use crate::ignored::{IGNORE, Rules};
use crate::limits::Limits;
use crate::path::{BadPath, DEEPEST, Rel};
use crate::place::{Blocked, Place, Seen, is_executable, size};

/// Repositories within repositories: submodules, and clones that nobody told git of.
const MOST_REPOSITORIES: usize = 200;
/// One file of patterns, in bytes.
const LONGEST_EXCLUDE: u64 = 1 << 20;
/// Where git says nothing. Only what a tool makes anew and what is bound to this machine; `target`, `build` or `dist`
/// may well be somebody's sources.
pub(crate) const NEVER: [&str; 3] = ["node_modules", "__pycache__", ".venv"];

#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) files: BTreeMap<Rel, Wanted>,
    pub(crate) left_out: Listed<LeftOut>,
    /// None where git had nothing to say.
    pub(crate) git: Option<Rules>,
    /// When the newest file was last written, in seconds.
    pub(crate) newest: i64,
}

#[derive(Debug)]
pub(crate) enum Wanted {
    File { size: u64, executable: bool },
    Link { target: Vec<u8> },
}

pub(crate) struct Gather<'a> {
    pub(crate) from: &'a Path,
    pub(crate) git: &'a Git,
    pub(crate) limits: &'a Limits,
    pub(crate) stop: &'a AtomicBool,
}

impl Gather<'_> {
    pub(crate) fn run(&self, place: &Place) -> Result<Gathered, CarryError> {
        let mut gathered = Gathered::default();
        match self.repository()? {
            Some(rules) => {
                gathered.git = Some(rules);
                self.list(place, &mut gathered, None)?;
            }
            None => self.walk(place, &mut gathered)?,
        }
        check(&gathered, self.limits)?;
        Ok(gathered)
    }

    /// What it ignores, if the directory lies in the checkout of a repository.
    fn repository(&self) -> Result<Option<Rules>, CarryError> {
        let said = match self.ask(self.from, &["rev-parse", "--is-inside-work-tree"]) {
            Err(CarryError::NoGit { .. }) if !self.from.ancestors().any(has_git) => return Ok(None),
            other => other?,
        };
        if !said.success {
            let none = said.complaint.contains("not a git repository");
            return match (said.complaint, self.leads_nowhere()) {
                (text, _) if text.contains("dubious ownership") => Err(not_trusted(self.from)),
                (_, None) if none => Ok(None),
                // No reason to take along what it would keep out.
                (said, Some(at)) if none => {
                    let said = format!("{} leads to no repository: {said}", text(at.join(".git")));
                    Err(CarryError::Git { doing: "look at the repository", said })
                }
                (said, _) => Err(CarryError::Git { doing: "look at the repository", said }),
            };
        }
        if said.out != b"true\n" {
            return Err(CarryError::NoWorkTree { path: text(self.from) });
        }
        let said = self.ask(self.from, &["rev-parse", "--show-prefix"])?;
        let prefix = said.out.strip_suffix(b"\n").unwrap_or(&said.out).to_vec();
        if !prefix.is_empty() && self.is_ignored()? {
            // A repository further up that wants nothing of this directory, such as one for the files of a home.
            return Ok(None);
        }
        // The outermost first; the directory itself is imported, with its own.
        let above = prefix.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count();
        let above: Vec<&Path> = self.from.ancestors().skip(1).take(above).collect();
        let top = above.last().copied().unwrap_or(self.from).to_owned();
        let above = above.into_iter().rev().map(|at| patterns(&at.join(IGNORE))).collect();
        Ok(Some(Rules { exclude: self.exclude(&top)?, prefix, above }))
    }

    /// A directory from here upwards with a `.git`, as far as git goes.
    fn leads_nowhere(&self) -> Option<&Path> {
        let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
        let here = device(self.from);
        self.from.ancestors().take_while(|path| device(path) == here).find(|path| has_git(path))
    }

    /// What is ignored and written nowhere in the checkout. What counts more comes last.
    fn exclude(&self, top: &Path) -> Result<String, CarryError> {
        let named = |said: Said, within: &Path| {
            let path = said.out.strip_suffix(b"\n").unwrap_or(&said.out);
            if said.success && !path.is_empty() {
                patterns_through(&within.join(OsStr::from_bytes(path)))
            } else {
                String::new()
            }
        };
        let users = self.ask(self.from, &["config", "--type=path", "--get", "core.excludesFile"])?;
        let own = self.ask(self.from, &["rev-parse", "--git-path", "info/exclude"])?;
        Ok([named(users, top), named(own, self.from)].join("\n"))
    }

    fn is_ignored(&self) -> Result<bool, CarryError> {
        let (Some(parent), Some(name)) = (self.from.parent(), self.from.file_name().and_then(OsStr::to_str))
        else {
            return Ok(false);
        };
        Ok(self.ask(parent, &["check-ignore", "-q", "--", &format!("./{name}")])?.success)
    }

    fn list(&self, place: &Place, gathered: &mut Gathered, start: Option<Rel>) -> Result<(), CarryError> {
        let mut waiting = vec![start];
        let mut repositories = 0;
        while let Some(at) = waiting.pop() {
            repositories += 1;
            if repositories > MOST_REPOSITORIES {
                return Err(too_many_entries(MOST_REPOSITORIES, "repositories within it"));
            }
            let within = at.as_ref().map_or(self.from.to_owned(), |at| self.from.join(at.as_path()));
            let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
            let said = self.ask(&within, &arguments)?;
            if !said.success {
                if said.complaint.contains("dubious ownership") {
                    return Err(not_trusted(&within));
                }
                return Err(CarryError::Git { doing: "list the files", said: said.complaint });
            }
            for name in said.out.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
                self.go_on()?;
                let bytes = joined(at.as_ref(), name.strip_suffix(b"/").unwrap_or(name));
                let Some(path) = gathered.path(&bytes) else { continue };
                if let Some(inner) = gathered.look(place, path)? {
                    if has_git(&self.from.join(inner.as_path())) {
                        waiting.push(Some(inner));
                    } else {
                        gathered.left_out.add(LeftOut::new(inner.as_bytes(), Why::NotCheckedOut));
                    }
                }
            }
        }
        Ok(())
    }

    fn walk(&self, place: &Place, gathered: &mut Gathered) -> Result<(), CarryError> {
        let mut waiting: Vec<Option<Rel>> = vec![None];
        let mut seen = 0;
        while let Some(at) = waiting.pop() {
            let names = match place.names(at.as_ref()) {
                Ok(names) => names,
                Err(error) if at.is_none() => return Err(CarryError::system("read the directory", error)),
                Err(_) => {
                    gathered.left_out.add(LeftOut::new(&bytes_of(at.as_ref()), Why::Unreadable));
                    continue;
                }
            };
            for name in names {
                self.go_on()?;
                seen += 1;
                if seen > self.limits.entries {
                    return Err(too_many_entries(self.limits.entries, "the directory"));
                }
                let bytes = joined(at.as_ref(), &name);
                if NEVER.iter().any(|never| never.as_bytes() == name) {
                    gathered.left_out.add(LeftOut::new(&bytes, Why::NeverWanted));
                } else if let Some(path) = gathered.path(&bytes)
                    && let Some(inner) = gathered.look(place, path)?
                {
                    // A repository in a directory that is none: there git knows again.
                    if has_git(&self.from.join(inner.as_path())) {
                        self.list(place, gathered, Some(inner))?;
                    } else {
                        waiting.push(Some(inner));
                    }
                }
            }
        }
        Ok(())
    }

    fn ask(&self, within: &Path, arguments: &[&str]) -> Result<Said, CarryError> {
        self.git.run(Ask { doing: "look at the repository", within, settings: Settings::User, arguments })
    }

    fn go_on(&self) -> Result<(), CarryError> {
        if self.stop.load(Ordering::Relaxed) { Err(CarryError::Stopped) } else { Ok(()) }
    }
}

impl Gathered {
    fn path(&mut self, bytes: &[u8]) -> Option<Rel> {
        match Rel::new(bytes) {
            Ok(path) => Some(path),
            // It never enters, and nobody expects it to.
            Err(BadPath::VersionControl) if bytes == b".git" => None,
            Err(bad) => {
                self.left_out.add(LeftOut::new(bytes, Why::Path(bad)));
                None
            }
        }
    }

    /// Notes what is there. A directory is given back.
    fn look(&mut self, place: &Place, path: Rel) -> Result<Option<Rel>, CarryError> {
        let why = match place.look(&path) {
            Ok(Seen::File(stat)) => {
                self.newest = self.newest.max(stat.st_mtime);
                self.files.insert(path, wanted(&stat));
                return Ok(None);
            }
            Ok(Seen::Link(target)) if stays_inside(&path, &target) => {
                self.files.insert(path, Wanted::Link { target });
                return Ok(None);
            }
            // Named by git, but removed and not committed yet.
            Ok(Seen::Absent | Seen::Blocked(Blocked::File)) => return Ok(None),
            Ok(Seen::Directory(_)) => return Ok(Some(path)),
            Ok(Seen::Link(_) | Seen::Blocked(Blocked::Link)) => Why::LinkOut,
            Ok(Seen::Other | Seen::Blocked(Blocked::Mount)) => Why::NotRegular,
            Err(Errno::ACCESS | Errno::PERM) => Why::Unreadable,
            Err(error) => return Err(CarryError::system(format!("look at {path}"), error)),
        };
        self.left_out.add(LeftOut::new(path.as_bytes(), why));
        Ok(None)
    }
}

fn wanted(stat: &Stat) -> Wanted {
    Wanted::File { size: size(stat), executable: is_executable(stat) }
}

/// Up first, then down: `..` after a name could follow another link to anywhere.
fn stays_inside(link: &Rel, target: &[u8]) -> bool {
    let mut above = link.ancestors().count();
    let mut down = Vec::new();
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" if down.is_empty() => return false,
            b"" | b"." => {}
            b".." if !down.is_empty() || above == 0 => return false,
            b".." => above -= 1,
            name => down.push(name),
        }
    }
    down.is_empty() || down.len() <= DEEPEST && Rel::new(&down.join(&b'/')).is_ok()
}

/// The numbers, before anything is copied.
fn check(gathered: &Gathered, limits: &Limits) -> Result<(), CarryError> {
    let sizes = || {
        gathered.files.iter().filter_map(|(path, wanted)| match wanted {
            Wanted::File { size, .. } => Some((path.to_string(), *size)),
            Wanted::Link { .. } => None,
        })
    };
    let too_much =
        |cap, found, allowed, culprits| Err(CarryError::TooMuch(TooMuch { cap, found, allowed, culprits }));
    if gathered.files.len() > limits.files {
        let mut directories: BTreeMap<String, u64> = BTreeMap::new();
        for path in gathered.files.keys() {
            let top = path.ancestors().next().map_or(".".to_owned(), |top| top.to_string());
            *directories.entry(top).or_default() += 1;
        }
        let (found, allowed) = (gathered.files.len() as u64, limits.files as u64);
        return too_much(Cap::Files, found, allowed, biggest(directories.into_iter()));
    }
    if let Some(found) = sizes().map(|(_, size)| size).max().filter(|size| *size > limits.one_file) {
        let culprits = biggest(sizes().filter(|(_, size)| *size > limits.one_file));
        return too_much(Cap::OneFile, found, limits.one_file, culprits);
    }
    let found = sizes().fold(0_u64, |sum, (_, size)| sum.saturating_add(size));
    if found > limits.bytes {
        return too_much(Cap::Bytes, found, limits.bytes, biggest(sizes()));
    }
    Ok(())
}

pub(crate) fn biggest(found: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    found.truncate(5);
    found
}

fn too_many_entries(allowed: usize, what: &str) -> CarryError {
    let allowed = allowed as u64;
    let culprits = vec![(what.to_owned(), allowed + 1)];
    CarryError::TooMuch(TooMuch { cap: Cap::Entries, found: allowed + 1, allowed, culprits })
}

fn not_trusted(path: &Path) -> CarryError {
    CarryError::NotTrusted { path: text(path) }
}

/// Git follows no link to a file of patterns in a checkout, and neither do we.
fn patterns(at: &Path) -> String {
    if at.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        patterns_through(at)
    } else {
        String::new()
    }
}

fn patterns_through(at: &Path) -> String {
    let fits = at.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LONGEST_EXCLUDE);
    let bytes = if fits { fs::read(at).unwrap_or_default() } else { Vec::new() };
    String::from_utf8_lossy(&bytes).into_owned()
}

fn has_git(directory: &Path) -> bool {
    directory.join(".git").symlink_metadata().is_ok()
}

fn bytes_of(path: Option<&Rel>) -> Vec<u8> {
    path.map(|path| path.as_bytes().to_vec()).unwrap_or_default()
}

fn joined(at: Option<&Rel>, name: &[u8]) -> Vec<u8> {
    match at {
        None => name.to_vec(),
        Some(at) => [at.as_bytes(), b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_inside_only_if_it_goes_up_first_and_not_too_far() {
        let check = |link: &str, target: &str, expected| {
            let link = Rel::new(link.as_bytes()).unwrap();
            assert_eq!(stays_inside(&link, target.as_bytes()), expected, "{link} -> {target}");
        };
        check("a", "b", true);
        check("d/a", "../b", true);
        check("d/e/a", "../../b/c/", true);
        check("d/a", "./b", true);
        check("d/a", "..", true);
        check("a", "..", false);
        check("d/a", "../../b", false);
        check("a", "/etc/passwd", false);
        check("a", "d/../b", false);
        check("a", "", false);
        check("a", ".git/config", false);
        check("d/a", "../.GIT/config", false);
    }
}
