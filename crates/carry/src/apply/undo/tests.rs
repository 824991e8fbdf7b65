//! Each step in each state in which a process can leave it that was killed on some line, with whatever a person did since.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use super::*;
use crate::node::Digest;

const STAGE: &str = ".callsign-apply-0123abcd";
const PATH: &str = "file";
use Thing::{Before, Directory, Edited, Mine, Nothing, Ours};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Nothing,
    /// What the apply puts there.
    Ours,
    /// The same file, in which somebody wrote since.
    Edited,
    /// What was planned for.
    Before,
    /// Another file.
    Mine,
    /// With a file in it.
    Directory,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Create,
    Replace,
    Remove,
    RemoveDirectory,
    MakeDirectory,
}

struct Host {
    directory: tempfile::TempDir,
    ours: u64,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("host").join(STAGE)).unwrap();
        // Outside, so that nobody else gets its inode.
        fs::write(directory.path().join("ours"), "ours").unwrap();
        let ours = fs::metadata(directory.path().join("ours")).unwrap().ino();
        Self { directory, ours }
    }

    fn to(&self) -> PathBuf {
        self.directory.path().join("host")
    }

    fn staged(&self) -> PathBuf {
        self.to().join(STAGE).join("0")
    }

    fn there(&self) -> PathBuf {
        self.to().join(PATH)
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("journal.json")
    }

    fn put(&self, at: &Path, thing: Thing) {
        match thing {
            Nothing => {}
            Ours => fs::rename(self.directory.path().join("ours"), at).unwrap(),
            Edited => {
                fs::rename(self.directory.path().join("ours"), at).unwrap();
                fs::write(at, "edited").unwrap();
            }
            Before => fs::write(at, "before").unwrap(),
            Mine => fs::write(at, "mine").unwrap(),
            Directory => {
                fs::create_dir(at).unwrap();
                fs::write(at.join("inner"), "mine").unwrap();
            }
        }
    }

    fn seen(at: &Path) -> Thing {
        match fs::read_to_string(at) {
            Ok(text) if text == "ours" => Ours,
            Ok(text) if text == "edited" => Edited,
            Ok(text) if text == "before" => Before,
            Ok(text) if text == "mine" => Mine,
            Ok(text) => panic!("{text}"),
            Err(_) if at.is_dir() => {
                assert_eq!(fs::read_to_string(at.join("inner")).unwrap(), "mine");
                Directory
            }
            Err(_) => Nothing,
        }
    }

    fn step(&self, kind: Kind) -> Step {
        let path = Rel::new(PATH.as_bytes()).unwrap();
        let node = |text: &str| Node::File {
            digest: Digest::of(text.as_bytes()),
            size: text.len() as u64,
            executable: false,
        };
        let (mode, owner, inode) = (0o644, None, self.ours);
        match kind {
            Kind::Create => Step::Create { path, node: node("ours"), mode, owner, inode },
            Kind::Replace => {
                Step::Replace { path, before: node("before"), after: node("ours"), mode, owner, inode }
            }
            Kind::Remove => Step::Remove { path, before: node("before") },
            Kind::RemoveDirectory => Step::RemoveDirectory { path },
            Kind::MakeDirectory => Step::MakeDirectory { path, owner },
        }
    }

    fn write(&self, state: State, steps: Vec<Step>) {
        Journal { to: self.to(), stage: STAGE.into(), state, steps }.write(&self.journal()).unwrap();
    }

    fn recover(&self) -> Result<Option<Outcome>, CarryError> {
        let Some(journal) = Journal::read(&self.journal())? else { return Ok(None) };
        let place = Place::open(&self.to()).unwrap();
        recover_one(&place, &self.journal(), &journal).map(|recovered| Some(recovered.outcome))
    }
}

type Both = (Thing, Thing);

/// What lies in the stage and on the host, and what lies there afterwards. None: all is undone, and no stage is left.
#[track_caller]
fn check(kind: Kind, (staged, there): Both, expected: Result<Thing, Both>) {
    let host = Host::new();
    host.put(&host.staged(), staged);
    host.put(&host.there(), there);
    host.write(State::Moving, vec![host.step(kind)]);
    // The second finds what the first has left.
    for time in ["at first", "again"] {
        let outcome = host.recover().unwrap();
        let now = (Host::seen(&host.staged()), Host::seen(&host.there()));
        match expected {
            Ok(there) => {
                assert_eq!(now, (Nothing, there), "{kind:?} {staged:?} {there:?} {time}");
                assert!(matches!(outcome, None | Some(Outcome::Undone)), "{outcome:?}");
                assert!(!host.to().join(STAGE).exists() && !host.journal().exists());
            }
            Err(both) => {
                assert_eq!(now, both, "{kind:?} {staged:?} {there:?} {time}");
                assert!(matches!(outcome, Some(Outcome::Unsettled(_))), "{outcome:?}");
            }
        }
    }
}

#[test]
fn what_was_created_goes_unless_somebody_wrote_to_it() {
    let check = |before, after| check(Kind::Create, before, after);
    check((Ours, Nothing), Ok(Nothing));
    check((Ours, Mine), Ok(Mine));
    check((Ours, Directory), Ok(Directory));
    check((Nothing, Ours), Ok(Nothing));
    check((Nothing, Nothing), Ok(Nothing));
    check((Nothing, Edited), Err((Nothing, Edited)));
    check((Nothing, Mine), Err((Nothing, Mine)));
    check((Nothing, Directory), Err((Nothing, Directory)));
    // Taken out by an undo that was killed before it put it back.
    check((Edited, Nothing), Err((Nothing, Edited)));
    check((Mine, Nothing), Err((Nothing, Mine)));
    check((Directory, Nothing), Err((Nothing, Directory)));
    check((Edited, Mine), Err((Edited, Mine)));
    check((Mine, Directory), Err((Mine, Directory)));
}

#[test]
fn what_was_replaced_comes_back_unless_somebody_was_there_since() {
    let check = |before, after| check(Kind::Replace, before, after);
    for there in [Nothing, Before, Mine, Directory] {
        check((Ours, there), Ok(there));
        if there != Before {
            check((Before, there), Err((Before, there)));
            check((Mine, there), Err((Mine, there)));
            check((Edited, there), Err((Edited, there)));
        }
    }
    check((Before, Ours), Ok(Before));
    check((Before, Edited), Err((Before, Edited)));
    check((Before, Before), Err((Before, Before)));
    // What was exchanged was not what was planned for.
    check((Mine, Ours), Ok(Mine));
    check((Directory, Ours), Ok(Directory));
    check((Mine, Edited), Err((Mine, Edited)));
    check((Directory, Edited), Err((Directory, Edited)));
    // Taken out by an undo that was killed before it put it back.
    check((Edited, Before), Err((Before, Edited)));
    check((Mine, Before), Err((Before, Mine)));
    check((Directory, Before), Err((Before, Directory)));
    // Somebody took it out of the stage.
    check((Nothing, Before), Ok(Before));
    check((Nothing, Ours), Err((Nothing, Ours)));
    check((Nothing, Mine), Err((Nothing, Mine)));
}

#[test]
fn what_was_removed_comes_back_unless_somebody_was_there_since() {
    let check = |before, after| check(Kind::Remove, before, after);
    check((Nothing, Before), Ok(Before));
    check((Nothing, Mine), Ok(Mine));
    check((Before, Nothing), Ok(Before));
    check((Mine, Nothing), Ok(Mine));
    check((Directory, Nothing), Ok(Directory));
    check((Before, Mine), Err((Before, Mine)));
    check((Before, Directory), Err((Before, Directory)));
    // Somebody removed it as well, before we could.
    check((Nothing, Nothing), Ok(Nothing));
}

#[test]
fn directories_come_back_as_they_were_and_go_only_if_they_are_empty() {
    check(Kind::RemoveDirectory, (Directory, Nothing), Ok(Directory));
    check(Kind::RemoveDirectory, (Directory, Mine), Err((Directory, Mine)));
    check(Kind::RemoveDirectory, (Nothing, Directory), Ok(Directory));
    check(Kind::RemoveDirectory, (Nothing, Mine), Ok(Mine));
    check(Kind::MakeDirectory, (Nothing, Directory), Ok(Directory));
    check(Kind::MakeDirectory, (Nothing, Nothing), Ok(Nothing));

    let host = Host::new();
    fs::create_dir(host.staged()).unwrap();
    fs::set_permissions(host.staged(), fs::Permissions::from_mode(0o2710)).unwrap();
    host.write(State::Moving, vec![host.step(Kind::RemoveDirectory)]);
    assert_eq!(host.recover().unwrap(), Some(Outcome::Undone));
    assert_eq!(fs::metadata(host.there()).unwrap().mode() & 0o7777, 0o2710);

    let host = Host::new();
    fs::create_dir(host.there()).unwrap();
    host.write(State::Moving, vec![host.step(Kind::MakeDirectory)]);
    assert_eq!(host.recover().unwrap(), Some(Outcome::Undone));
    assert!(!host.there().exists());
}

#[test]
fn once_all_is_undone_nothing_is_asked_of_the_stage_any_more() {
    let host = Host::new();
    host.put(&host.staged(), Before);
    host.put(&host.there(), Ours);
    // In the way of removing the stage: as if killed there.
    fs::create_dir_all(host.to().join(STAGE).join("somebodys/own")).unwrap();
    host.write(State::Moving, vec![host.step(Kind::Replace)]);
    host.recover().unwrap_err();
    assert_eq!(Host::seen(&host.there()), Before);
    fs::remove_dir_all(host.to().join(STAGE).join("somebodys")).unwrap();
    let _gone_already = fs::remove_file(host.staged());
    fs::write(host.there(), "mine").unwrap();
    assert_eq!(host.recover().unwrap(), Some(Outcome::Undone));
    assert_eq!(Host::seen(&host.there()), Mine);
    assert!(!host.to().join(STAGE).exists() && !host.journal().exists());
}
