//! A bundle of the host, read once: what is hashed is what is kept.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown};
use std::path::{Path, PathBuf};

use beneath::{Root, Walk};
use rustix::fs::FileType;
use sha2::{Digest as _, Sha256};

use super::{Digested, Owner, Stage, hex};

pub(super) const REQUIREMENTS: &str = "requirements.txt";
pub(super) const SKILLS: &str = "skills";
const LARGEST_REQUIREMENTS: u64 = 1 << 20;
const MOST_FILES: usize = 10_000;
const MOST_ENTRIES: usize = 20_000;
const LARGEST: u64 = 64 << 20;
const MOST_BYTES: u64 = 256 << 20;
const DEEPEST: usize = 32;

/// What a bundle held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    pub path: String,
    pub requirements: Option<Digested>,
    /// By their paths.
    pub skills: Vec<Digested>,
}

/// Reads a bundle. With a stage, what is read is kept there, in place of whatever lay there before. Blocks.
pub fn snapshot(bundle: &Path, stage: Option<&Stage>, owner: Owner) -> Result<Bundle, String> {
    let shown = bundle.display();
    let unread = |error: &dyn std::fmt::Display| {
        format!(
            "the extras in {shown} cannot be read: {error}; set MCP_RUNTIME_EXTRAS_DIR, or `extras_dir` in [sessions], to a directory that can"
        )
    };
    // The directory itself is named by whoever runs callsign, and may be reached through a link.
    let bundle = fs::canonicalize(bundle).map_err(|error| unread(&error))?;
    if !bundle.is_dir() {
        return Err(unread(&"it is no directory"));
    }
    let mut reading = Reading { stage, owner, files: 0, bytes: 0 };
    if let Some(stage) = stage {
        Reading::prepare(stage).map_err(|error| format!("the extras cannot be kept: {error}"))?;
    }
    let requirements = match kind(&bundle.join(REQUIREMENTS)).map_err(|error| unread(&error))? {
        None => None,
        Some(FileType::RegularFile) => {
            let root = Root::open(&bundle).map_err(|error| unread(&error))?;
            let to = stage.map(|stage| stage.work().join(REQUIREMENTS));
            let from = (&root, Path::new(REQUIREMENTS));
            Some(reading.file(from, REQUIREMENTS, to, LARGEST_REQUIREMENTS)?)
        }
        Some(other) => return Err(refused(REQUIREMENTS, other)),
    };
    let skills = match kind(&bundle.join(SKILLS)).map_err(|error| unread(&error))? {
        None => Vec::new(),
        Some(FileType::Directory) => {
            let root = Root::open(&bundle.join(SKILLS)).map_err(|error| unread(&error))?;
            reading.skills(&root)?
        }
        Some(other) => return Err(refused(SKILLS, other)),
    };
    Ok(Bundle { path: bundle.to_string_lossy().into_owned(), requirements, skills })
}

fn kind(path: &Path) -> io::Result<Option<FileType>> {
    match rustix::fs::lstat(path) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn refused(path: &str, kind: FileType) -> String {
    let what = match kind {
        FileType::Symlink => "a link, and none is followed; put what it leads to in its place",
        FileType::Directory => "a directory, where a file belongs",
        FileType::RegularFile => "a file, where a directory belongs",
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => "neither a file nor a directory; take it out of the bundle",
    };
    format!("{path} of the extras is {what}")
}

struct Reading<'a> {
    stage: Option<&'a Stage>,
    owner: Owner,
    files: usize,
    bytes: u64,
}

impl Reading<'_> {
    fn prepare(stage: &Stage) -> io::Result<()> {
        stage.remove()?;
        for directory in [stage.work(), stage.meta()] {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        Ok(())
    }

    fn skills(&mut self, root: &Root) -> Result<Vec<Digested>, String> {
        let again = root.try_clone().map_err(|error| error.to_string())?;
        let mut walk = Walk::new(again, DEEPEST);
        let mut found = Vec::new();
        if let Some(stage) = self.stage {
            self.directory(&stage.skills())?;
        }
        for seen in 0.. {
            let Some(entry) = walk.next() else { break };
            let shown = format!("{SKILLS}/{}", entry.path.display());
            let plain = |text: &&str| !text.chars().any(char::is_control);
            let Some(path) = entry.path.to_str().filter(plain).map(|path| format!("{SKILLS}/{path}")) else {
                return Err(format!("{shown:?} of the extras has a name that is no text"));
            };
            if seen >= MOST_ENTRIES || self.files > MOST_FILES {
                return Err(format!("{SKILLS} of the extras has more than {MOST_FILES} files"));
            }
            let to = self.stage.map(|stage| stage.skills().join(&entry.path));
            match FileType::from_raw_mode(entry.stat.st_mode) {
                FileType::Directory => {
                    if let Some(to) = to {
                        self.directory(&to)?;
                    }
                }
                FileType::RegularFile => {
                    let digested = self.file((root, &entry.path), &path, to.clone(), LARGEST)?;
                    if let Some(to) = to.filter(|_| entry.stat.st_mode & 0o111 != 0) {
                        fs::set_permissions(&to, Permissions::from_mode(0o755)).map_err(unkept(&path))?;
                    }
                    found.push(digested);
                }
                other @ (FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown) => return Err(refused(&path, other)),
            }
        }
        if walk.cut() {
            return Err(format!(
                "{SKILLS} of the extras is deeper than {DEEPEST} directories, or some of it cannot be read"
            ));
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    fn directory(&self, to: &Path) -> Result<(), String> {
        let made = match fs::create_dir(to) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => fs::set_permissions(to, Permissions::from_mode(0o755)),
        };
        let given = made.and_then(|()| match self.owner {
            Some((uid, gid)) => chown(to, Some(uid), Some(gid)),
            None => Ok(()),
        });
        given.map_err(unkept(SKILLS))
    }

    /// One pass: read, hashed, kept.
    fn file(
        &mut self,
        (root, at): (&Root, &Path),
        path: &str,
        to: Option<PathBuf>,
        largest: u64,
    ) -> Result<Digested, String> {
        let opened = root.file(at).map_err(|error| format!("{path} of the extras: {error}"))?;
        let most = largest.min(MOST_BYTES.saturating_sub(self.bytes));
        let mut from = opened.file.take(most + 1);
        let mut kept = match to {
            None => None,
            Some(to) => {
                let made = File::options().write(true).create_new(true).mode(0o644).open(to);
                Some(made.map_err(unkept(path))?)
            }
        };
        let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 64 << 10]);
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("{path} of the extras cannot be read: {error}")),
            };
            let part = buffer.get(..count).unwrap_or_default();
            hash.update(part);
            bytes += count as u64;
            if let Some(kept) = &mut kept {
                kept.write_all(part).map_err(unkept(path))?;
            }
        }
        if bytes > most {
            return Err(format!(
                "the extras are too large at {path}: one file has at most {} MiB, all together {} MiB",
                largest >> 20,
                MOST_BYTES >> 20
            ));
        }
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
        if let Some(kept) = kept {
            // Whatever the umask says.
            let given = kept.set_permissions(Permissions::from_mode(0o644)).and_then(|()| match self.owner {
                Some((uid, gid)) => fchown(&kept, Some(uid), Some(gid)),
                None => Ok(()),
            });
            given.map_err(unkept(path))?;
        }
        Ok(Digested { path: path.to_owned(), sha256: hex(&hash.finalize()), bytes })
    }
}

fn unkept(path: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{path} of the extras cannot be kept: {error}")
}
