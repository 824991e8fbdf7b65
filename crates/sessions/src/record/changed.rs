//! Which files a run left: those of the workspace that it changed, and ours about it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use beneath::{Caps, Found, Root, Walk};
use model::ports::store::MOST_ARTIFACTS;
use model::session::{Artifact, ArtifactKind, RunId, UnixMillis};

use super::{RECORDS, RUNS, WORKSPACE};

/// With our own records, as many as the store keeps.
pub const CHANGED_CAPS: Caps = Caps { files: MOST_ARTIFACTS - RECORDS.len(), entries: 500_000, depth: 64 };

/// The kernel's clock for files goes in steps, and lags behind the one that `since` was read from.
const COARSE: Duration = Duration::from_millis(10);
/// Bytes of names that are held at a time. A box can make names of 4 kB, and a great many.
const MOST_NAMES: usize = 16 << 20;
/// The year 9999. A box sets times as it likes, and later ones have no date.
const LATEST: u64 = 253_402_300_799_999;

/// Regular files beneath the workspace that were made, written, renamed or touched since then, by path. Goes by when the
/// kernel last changed what it knows of a file: nobody can set that back. What is in a `.git` is left out, and so are
/// names that are no UTF-8, which nobody could ask for. There may be more than `caps` let it look at.
pub fn changed_files(workspace: &Path, since: SystemTime, caps: Caps) -> io::Result<Vec<Artifact>> {
    changed_within(workspace, since, caps, MOST_NAMES)
}

fn changed_within(
    workspace: &Path,
    since: SystemTime,
    caps: Caps,
    most_names: usize,
) -> io::Result<Vec<Artifact>> {
    let since = since.checked_sub(COARSE).unwrap_or(UNIX_EPOCH);
    let mut names = 0;
    let mut changed = Vec::new();
    for found in Walk::new(Root::open(workspace)?, caps.depth).take(caps.entries) {
        match found.stat.st_mode & FORMAT {
            // The walk holds it until it gets there.
            DIRECTORY => names += found.path.as_os_str().len(),
            REGULAR => {
                if let Some(artifact) = artifact(&found, since) {
                    names += artifact.path.len();
                    changed.push(artifact);
                }
            }
            _ => {}
        }
        if changed.len() >= caps.files || names > most_names {
            break;
        }
    }
    changed.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changed)
}

/// Those of [`RECORDS`] that are there. `directory` is the run's own.
pub fn records(directory: &Path, run: &RunId) -> Vec<Artifact> {
    let record = |name: &str| {
        let found = fs::symlink_metadata(directory.join(name)).ok().filter(fs::Metadata::is_file)?;
        let modified = millis(found.mtime(), found.mtime_nsec());
        Some(Artifact {
            path: format!("{RUNS}/{run}/{name}"),
            kind: ArtifactKind::Record,
            size: found.len(),
            modified,
        })
    };
    RECORDS.into_iter().filter_map(record).collect()
}

const FORMAT: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

fn artifact(found: &Found, since: SystemTime) -> Option<Artifact> {
    let Found { path, stat } = found;
    let seconds = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
    let changed = UNIX_EPOCH.checked_add(seconds)? + Duration::from_nanos(stat.st_ctime_nsec);
    let in_git =
        path.parent().is_some_and(|parent| parent.components().any(|part| part.as_os_str() == ".git"));
    if changed < since || in_git {
        return None;
    }
    let path = format!("{WORKSPACE}/{}", path.to_str()?);
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let modified = millis(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0));
    Some(Artifact { path, kind: ArtifactKind::Changed, size, modified })
}

fn millis(seconds: i64, nanos: i64) -> UnixMillis {
    let millis = seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000);
    UnixMillis(u64::try_from(millis).unwrap_or(0).min(LATEST))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use model::session::Stamp;

    use super::*;

    fn changed_at(path: &Path) -> SystemTime {
        let found = fs::metadata(path).unwrap();
        let nanos = u64::try_from(found.ctime_nsec()).unwrap();
        UNIX_EPOCH + Duration::from_secs(found.ctime().try_into().unwrap()) + Duration::from_nanos(nanos)
    }

    /// A moment on the kernel's clock that is clearly after everything that was done until now.
    fn a_moment_later(directory: &Path) -> SystemTime {
        let probe = directory.join("probe");
        fs::write(&probe, "").unwrap();
        let before = changed_at(&probe);
        loop {
            fs::write(&probe, "x").unwrap();
            let now = changed_at(&probe);
            if now > before + 3 * COARSE {
                return now;
            }
        }
    }

    fn paths(workspace: &Path, since: SystemTime, caps: Caps) -> Vec<String> {
        let found = changed_files(workspace, since, caps).unwrap();
        assert!(found.iter().all(|artifact| artifact.kind == ArtifactKind::Changed));
        found.into_iter().map(|artifact| artifact.path).collect()
    }

    #[test]
    fn what_a_run_did_to_files_shows_however_it_did_it() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("workspace");
        fs::create_dir_all(at.join("sub/.git/objects")).unwrap();
        fs::create_dir(at.join(".git")).unwrap();
        for name in
            ["kept", "appended", "same size", "from", "backdated", "removed", "linked", "mode", "sub/kept"]
        {
            fs::write(at.join(name), "old").unwrap();
        }
        let since = a_moment_later(place.path());
        assert_eq!(paths(&at, since, CHANGED_CAPS), Vec::<String>::new());

        fs::write(at.join("new"), "new").unwrap();
        fs::write(at.join("appended"), "old and new").unwrap();
        fs::write(at.join("same size"), "new").unwrap();
        fs::rename(at.join("from"), at.join("to")).unwrap();
        fs::remove_file(at.join("removed")).unwrap();
        let touched = Command::new("touch").args(["-d", "2001-01-01"]).arg(at.join("backdated")).status();
        assert!(touched.unwrap().success());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(at.join("mode"), mode).unwrap();
        symlink("kept", at.join("link")).unwrap();
        symlink("/etc", at.join("folder")).unwrap();
        assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
        fs::write(at.join(OsStr::from_bytes(b"no\xfftext")), "").unwrap();
        fs::write(at.join("sub/größe\n.txt"), "").unwrap();
        fs::write(at.join(".git/index"), "").unwrap();
        fs::write(at.join("sub/.git/objects/0"), "").unwrap();
        fs::write(at.join("sub/.gitignore"), "").unwrap();
        fs::create_dir(at.join("module")).unwrap();
        fs::write(at.join("module/.git"), "gitdir: ../.git").unwrap();

        let expected = [
            "workspace/appended",
            "workspace/backdated",
            "workspace/mode",
            "workspace/module/.git",
            "workspace/new",
            "workspace/same size",
            "workspace/sub/.gitignore",
            "workspace/sub/größe\n.txt",
            "workspace/to",
        ];
        assert_eq!(paths(&at, since, CHANGED_CAPS), expected);
        let backdated = changed_files(&at, since, CHANGED_CAPS).unwrap().remove(1);
        assert!(backdated.size == 3 && backdated.modified < UnixMillis(978_400_000_000), "{backdated:?}");
        // At the moment itself counts, and a little before.
        let moment = changed_at(&at.join("new"));
        assert!(paths(&at, moment, CHANGED_CAPS).contains(&"workspace/new".to_owned()));
        assert!(paths(&at, moment + COARSE, CHANGED_CAPS).contains(&"workspace/new".to_owned()));
        assert!(!paths(&at, moment + 2 * COARSE, CHANGED_CAPS).contains(&"workspace/new".to_owned()));
    }

    #[test]
    fn times_without_a_date_are_brought_back_to_the_last_one() {
        let place = tempfile::tempdir().unwrap();
        let file = File::create(place.path().join("future")).unwrap();
        // Not every file system takes it.
        let _taken = file.set_modified(UNIX_EPOCH + Duration::from_secs(1 << 50));
        let found = changed_files(place.path(), UNIX_EPOCH, CHANGED_CAPS).unwrap();
        assert!(found[0].modified.0 <= LATEST);
        assert_eq!(millis(i64::MAX, 999_999_999), UnixMillis(LATEST));
        assert_eq!(millis(-5, 0), UnixMillis(0));
        assert_eq!(millis(5, 7_000_000), UnixMillis(5007));
    }

    #[test]
    fn a_look_ends_at_each_of_its_caps() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("1/2/3")).unwrap();
        fs::write(place.path().join("1/2/3/deep"), "").unwrap();
        for number in 0..20 {
            fs::write(place.path().join(format!("file {number}")), "").unwrap();
        }
        let count = |caps| paths(place.path(), UNIX_EPOCH, caps).len();
        assert_eq!(count(CHANGED_CAPS), 21);
        assert_eq!(count(Caps { files: 7, ..CHANGED_CAPS }), 7);
        assert!(count(Caps { entries: 5, ..CHANGED_CAPS }) <= 5);
        assert_eq!(count(Caps { depth: 2, ..CHANGED_CAPS }), 20);
        // `workspace/file 0` has 16 bytes, and the directories have 9 together.
        let found = changed_within(place.path(), UNIX_EPOCH, CHANGED_CAPS, 100).unwrap();
        assert!((1..=7).contains(&found.len()), "{found:?}");
    }

    #[test]
    fn a_workspace_that_is_not_there_or_is_a_link_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        symlink("/etc", place.path().join("link")).unwrap();
        for name in ["link", "gone"] {
            assert!(changed_files(&place.path().join(name), UNIX_EPOCH, CHANGED_CAPS).is_err());
        }
    }

    #[test]
    fn records_are_those_of_ours_that_are_there() {
        let place = tempfile::tempdir().unwrap();
        let run = RunId::new(Stamp { millis: 1, random: [7; 10] });
        assert_eq!(records(place.path(), &run), []);
        fs::write(place.path().join("run.log"), "12345").unwrap();
        fs::write(place.path().join("context.json"), "{}").unwrap();
        fs::write(place.path().join(".context.json.new"), "{").unwrap();
        fs::create_dir(place.path().join("assistant-response.md")).unwrap();
        let found: Vec<_> =
            records(place.path(), &run).into_iter().map(|it| (it.path, it.kind, it.size)).collect();
        let record = |name: &str, size| (format!("runs/{run}/{name}"), ArtifactKind::Record, size);
        assert_eq!(found, [record("context.json", 2), record("run.log", 5)]);
    }
}
