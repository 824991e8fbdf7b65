//! What an import finds, what stands against an apply, and what happens in between.

use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use carry::{Against, Cap, Kind, Outcome, Why};

use super::*;

/// What an import does with one file: on the host now, in the baseline, in the workspace.
#[track_caller]
fn row(host: Option<&str>, base: Option<&str>, workspace: Option<&str>, expected: Result<Option<&str>, ()>) {
    let world = World::new();
    put(&world.host(), "other", "x");
    let set = |root: &Path, content: Option<&str>| match content {
        Some(content) => put(root, "dir/file", content),
        None => {
            let _was_not_there = fs::remove_file(root.join("dir/file"));
        }
    };
    set(&world.host(), base);
    world.import().unwrap();
    set(&world.host(), host);
    set(&world.workspace(), workspace);
    let before = tree(&world.workspace());
    let result = world.import();
    let now = fs::read_to_string(world.workspace().join("dir/file")).ok();
    if let Ok(content) = expected {
        result.unwrap();
        assert_eq!(now.as_deref(), content);
        return;
    }
    let refused = result.unwrap_err();
    assert!(matches!(&refused, CarryError::Different(list) if list.count == 1), "{refused}");
    assert_eq!(tree(&world.workspace()), before);
    let replacing = World { existing: Existing::Replace, ..world };
    replacing.import().unwrap();
    assert_eq!(fs::read_to_string(replacing.workspace().join("dir/file")).ok().as_deref(), host);
}

#[test]
fn an_import_loses_nothing_of_the_box() {
    row(Some("h"), None, None, Ok(Some("h")));
    row(Some("h"), None, Some("h"), Ok(Some("h")));
    row(Some("h"), None, Some("w"), Err(()));
    row(Some("b"), Some("b"), Some("b"), Ok(Some("b")));
    row(Some("b"), Some("b"), Some("w"), Ok(Some("w")));
    row(Some("b"), Some("b"), None, Ok(None));
    row(Some("h"), Some("b"), Some("b"), Ok(Some("h")));
    row(Some("h"), Some("b"), Some("h"), Ok(Some("h")));
    row(Some("h"), Some("b"), Some("w"), Err(()));
    row(Some("h"), Some("b"), None, Err(()));
    row(None, Some("b"), Some("b"), Ok(Some("b")));
    row(None, Some("b"), Some("w"), Ok(Some("w")));
}

#[test]
fn a_file_that_the_host_removed_is_not_brought_back() {
    let world = World::new();
    put(&world.host(), "a", "a");
    put(&world.host(), "b", "b");
    world.import().unwrap();
    fs::remove_file(world.host().join("a")).unwrap();
    assert_eq!(world.import().unwrap().gone.first[0].to_string(), "a");
    assert!(world.changes().unwrap().is_empty());
    put(&world.workspace(), "a", "changed");
    let Err(CarryError::Conflicts(conflicts)) = world.apply() else { panic!("it was brought back") };
    assert_eq!(conflicts.first[0].why, Against::Removed);
}

#[test]
fn over_a_cap_nothing_is_carried_and_the_culprits_are_named() {
    let mut world = World::new();
    for number in 0..50 {
        put(&world.host(), &format!("many/{number}"), "x");
    }
    put(&world.host(), "big.bin", vec![0; 5000]);
    let refused = |world: &World| match world.import() {
        Err(CarryError::TooMuch(much)) => much,
        other => panic!("{other:?}"),
    };
    world.limits = Limits { files: 50, ..Limits::default() };
    let much = refused(&world);
    assert_eq!((much.cap, much.found, much.allowed), (Cap::Files, 51, 50));
    assert_eq!(much.culprits[0], ("many".to_owned(), 50));
    world.limits = Limits { bytes: 5000, ..Limits::default() };
    assert_eq!(refused(&world).culprits[0], ("big.bin".to_owned(), 5000));
    world.limits = Limits { one_file: 4999, ..Limits::default() };
    assert_eq!(
        refused(&world).to_string(),
        "a file is too big: 5000 bytes, at most 4999 are carried; most are in big.bin (5000 bytes); \
         leave them out with a .gitignore, or name a directory further down"
    );
    fs::File::create(world.host().join("sparse")).unwrap().set_len(1 << 40).unwrap();
    world.limits = Limits::default();
    assert_eq!(refused(&world).cap, Cap::OneFile);
    assert_eq!(fs::read_dir(world.workspace()).unwrap().count(), 0);
    assert!(matches!(world.changes(), Err(CarryError::NoBaseline)));
}

#[test]
fn links_stay_links_and_those_that_lead_out_stay_out() {
    let world = World::new();
    let host = world.host();
    put(&world.at("outside"), "secret", "s");
    put(&host, "dir/file", "f");
    symlink("dir/file", host.join("inner")).unwrap();
    symlink("../inner", host.join("dir/up")).unwrap();
    symlink("../outside/secret", host.join("out")).unwrap();
    symlink(host.join("dir/file"), host.join("absolute")).unwrap();
    assert!(Command::new("mkfifo").arg(host.join("pipe")).status().unwrap().success());
    let imported = world.import().unwrap();
    let told: BTreeMap<_, _> =
        imported.left_out.first.iter().map(|left| (left.path.as_str(), left.why.clone())).collect();
    assert_eq!(
        told,
        BTreeMap::from([("absolute", Why::LinkOut), ("out", Why::LinkOut), ("pipe", Why::NotRegular)])
    );
    let there = tree(&world.workspace());
    assert_eq!(there[Path::new("inner")], Item::Link("dir/file".into()));
    assert_eq!(there[Path::new("dir/up")], Item::Link("../inner".into()));
    assert!(world.changes().unwrap().is_empty());

    // One is removed, one becomes a file.
    fs::remove_file(world.workspace().join("inner")).unwrap();
    fs::remove_file(world.workspace().join("dir/up")).unwrap();
    put(&world.workspace(), "dir/up", "a file now\n");
    let kinds: Vec<_> = world.changes().unwrap().files.iter().map(carry::Change::kind).collect();
    assert_eq!(kinds, [Kind::Modified, Kind::Deleted]);
    copy_tree(&host, &world.at("copy"));
    fs::write(world.at("patch"), world.patch()).unwrap();
    git_must(&world.at("copy"), &["apply", "../patch"]);
    world.apply().unwrap();
    assert_eq!(tree(&host), tree(&world.at("copy")));
    assert!(!tree(&host).contains_key(Path::new("inner")));
}

#[test]
fn a_patch_is_one_that_patch_takes() {
    let world = World::new();
    for (path, content) in
        [("a.txt", "one\ntwo\nthree"), ("gone.txt", "x\n"), ("sub/with space", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")]
    {
        put(&world.host(), path, content);
    }
    put(&world.host(), "tool", "#!/bin/sh\n");
    world.import().unwrap();
    let workspace = world.workspace();
    put(&workspace, "a.txt", "one\n2\nthree\n");
    put(&workspace, "sub/with space", "0\n1\n2\n3\n4\n5\n6\n7\n8\n");
    put(&workspace, "new/deep/file", "made\n");
    put(&workspace, "empty", "");
    fs::remove_file(workspace.join("gone.txt")).unwrap();
    executable(&workspace.join("tool"), true);
    let patch = world.patch();
    fs::write(world.at("patch"), &patch).unwrap();
    let output =
        Command::new("patch").args(["-p1", "--input=../patch"]).current_dir(world.host()).output().unwrap();
    assert!(output.status.success(), "{}\n{patch}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(tree(&world.host()), tree(&workspace), "{patch}");
}

#[test]
fn what_is_no_text_goes_in_as_binary_or_is_named() {
    let world = World::new();
    put(&world.host(), "a.bin", vec![0, 1, 2]);
    world.import().unwrap();
    put(&world.workspace(), "a.bin", (0..=255).cycle().take(100_000).collect::<Vec<u8>>());
    let changes = world.changes().unwrap();
    assert!(
        changes.patch(&PatchLimits::default()).unwrap().text.contains("GIT binary patch\nliteral 100000\n")
    );
    let patch = changes.patch(&PatchLimits { binary: 1000, ..PatchLimits::default() }).unwrap();
    assert!(patch.text.is_empty() && patch.left_out.first[0].why == Why::Binary);
    let patch = changes.patch(&PatchLimits { bytes: 1000, ..PatchLimits::default() }).unwrap();
    assert!(patch.text.is_empty() && patch.left_out.first[0].why == Why::PatchFull);
}

#[test]
fn everything_that_stands_against_an_apply_is_named_at_once() {
    let world = World::new();
    let (host, workspace) = (world.host(), world.workspace());
    for name in ["changed", "removed", "mode", "turned", "fine"] {
        put(&host, name, "old");
    }
    world.import().unwrap();
    for name in ["changed", "removed", "mode", "turned", "fine", "another", "way/x", "directory"] {
        put(&workspace, name, "new");
    }
    put(&host, "changed", "mine");
    fs::remove_file(host.join("removed")).unwrap();
    executable(&host.join("mode"), true);
    fs::remove_file(host.join("turned")).unwrap();
    put(&host, "turned/x", "mine");
    put(&host, "another", "mine");
    put(&host, "way", "mine");
    put(&host, "directory/x", "mine");
    let before = tree(&host);
    let Err(CarryError::Conflicts(conflicts)) = world.apply() else { panic!("it was applied") };
    let why: BTreeMap<_, _> = conflicts.first.iter().map(|one| (one.path.to_string(), one.why)).collect();
    let expected = [
        ("another", Against::Another),
        ("changed", Against::Changed),
        ("directory", Against::Directory),
        ("mode", Against::Changed),
        ("removed", Against::Removed),
        ("turned", Against::NotRegular),
        ("way/x", Against::FileInTheWay),
    ];
    assert_eq!(why, expected.map(|(path, why)| (path.to_owned(), why)).into());
    assert_eq!(tree(&host), before);
    assert!(world.left_nothing());
}

#[test]
fn modes_and_owners_of_the_host_are_kept() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    put(&world.host(), "private", "old");
    fs::set_permissions(world.host().join("private"), fs::Permissions::from_mode(0o640)).unwrap();
    let root = Command::new("chown")
        .arg("12345:12346")
        .arg(world.host().join("private"))
        .status()
        .unwrap()
        .success();
    world.import().unwrap();
    put(&world.workspace(), "private", "new");
    executable(&world.workspace().join("private"), true);
    world.apply().unwrap();
    let metadata = fs::metadata(world.host().join("private")).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o750);
    assert!(!root || (metadata.uid(), metadata.gid()) == (12345, 12346));
}

#[test]
fn what_the_host_writes_at_the_last_moment_is_not_lost() {
    let world = World::new();
    for number in 0..30 {
        put(&world.host(), &format!("file{number}"), "old");
    }
    world.import().unwrap();
    for number in 0..30 {
        put(&world.workspace(), &format!("file{number}"), "new");
    }
    let changes = world.changes().unwrap();
    let (mut won, mut refused) = (0, 0);
    let begun = Instant::now();
    world.apply().unwrap();
    let whole = begun.elapsed();
    for round in 0..100_u32 {
        for number in 0..30 {
            put(&world.host(), &format!("file{number}"), "old");
        }
        let applied = thread::scope(|scope| {
            let host = world.host();
            scope.spawn(move || {
                // As editors do it: written beside, then renamed.
                thread::sleep(whole * round / 70);
                fs::write(host.join("beside"), "mine").unwrap();
                fs::rename(host.join("beside"), host.join("file15")).unwrap();
            });
            let (to, journal) = (world.host(), world.at("journal"));
            carry::apply(&Apply { changes: &changes, to, journal, stop: &AtomicBool::new(false) })
        });
        assert_eq!(
            fs::read_to_string(world.host().join("file15")).unwrap(),
            "mine",
            "round {round}: {applied:?}"
        );
        let others = tree(&world.host())
            .into_iter()
            .filter(|(path, _)| path.to_str().unwrap().starts_with("file") && !path.ends_with("file15"));
        let new = others
            .filter(|(_, item)| matches!(item, Item::File { content, .. } if content == b"new"))
            .count();
        match applied {
            Ok(_) => {
                won += 1;
                assert_eq!(new, 29);
            }
            Err(CarryError::Conflicts(_)) => {
                refused += 1;
                assert_eq!(new, 0);
            }
            Err(CarryError::Unsettled { .. }) => {
                // It was changed while all was undone: settled as the message says.
                for entry in fs::read_dir(world.host()).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        fs::remove_dir_all(path).unwrap();
                    }
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
    println!("applied {won}, refused {refused}");
    assert!(won > 0 && refused > 0);
}

#[test]
fn two_at_once_do_not_mix() {
    let world = World::new();
    for number in 0..200 {
        put(&world.host(), &format!("file{number}"), "old");
    }
    world.import().unwrap();
    for number in 0..200 {
        put(&world.workspace(), &format!("file{number}"), "new");
    }
    let changes = world.changes().unwrap();
    let results: Vec<_> = thread::scope(|scope| {
        let run = || {
            let (to, journal) = (world.host(), world.at("journal"));
            carry::apply(&Apply { changes: &changes, to, journal, stop: &AtomicBool::new(false) })
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(
        results.iter().filter(|result| matches!(result, Ok(applied) if applied.changed == 200)).count(),
        1
    );
    assert!(
        results.iter().all(|result| matches!(result, Ok(_) | Err(CarryError::Busy { .. }))),
        "{results:?}"
    );
    assert_eq!(tree(&world.host()), tree(&world.workspace()));
    assert!(world.left_nothing());
}

#[test]
fn what_somebody_changed_after_a_cut_off_apply_is_theirs() {
    let world = World::new();
    for number in 0..400 {
        put(&world.host(), &format!("file{number:03}"), "old");
    }
    world.import().unwrap();
    for number in 0..400 {
        put(&world.workspace(), &format!("file{number:03}"), "new");
    }
    let before = tree(&world.host());
    let first = world.host().join("file000");
    // Until one is caught after the first file and before the last.
    let caught = (0..200).any(|_| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_carry-probe"))
            .args([world.workspace(), world.at("base"), world.host(), world.at("journal")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while fs::read(&first).unwrap() != b"new" && begun.elapsed() < Duration::from_secs(20) {}
        child.kill().unwrap();
        child.wait().unwrap();
        if fs::read(world.host().join("file399")).unwrap() == b"old" {
            return true;
        }
        carry::recover(&world.at("journal")).unwrap();
        for number in 0..400 {
            put(&world.host(), &format!("file{number:03}"), "old");
        }
        false
    });
    assert!(caught);
    fs::write(&first, "mine").unwrap();
    let recovered = carry::recover(&world.at("journal")).unwrap();
    let Outcome::Unsettled(kept) = &recovered[0].outcome else { panic!("{recovered:?}") };
    assert_eq!(kept.first[0].to_string(), "file000");
    assert_eq!(fs::read_to_string(&first).unwrap(), "mine");
    let refused = world.apply().unwrap_err();
    let CarryError::Unsettled { kept, .. } = &refused else { panic!("{refused}") };
    // What it was before is there.
    assert_eq!(fs::read_to_string(Path::new(kept).join("0")).unwrap(), "old");
    fs::remove_dir_all(kept).unwrap();
    fs::write(&first, "old").unwrap();
    assert_eq!(tree(&world.host()), before);
    assert_eq!(world.apply().unwrap().changed, 400);
}

#[test]
fn stopped_before_it_begins_nothing_is_changed() {
    let world = World::new();
    put(&world.host(), "a", "a");
    world.import().unwrap();
    put(&world.workspace(), "a", "b");
    let changes = world.changes().unwrap();
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    let (to, journal) = (world.host(), world.at("journal"));
    let stopped = carry::apply(&Apply { changes: &changes, to, journal, stop: &stop });
    assert!(matches!(stopped, Err(CarryError::Stopped)), "{stopped:?}");
    assert_eq!(fs::read_to_string(world.host().join("a")).unwrap(), "a");
    assert!(world.left_nothing());
}

#[test]
fn what_an_import_that_was_cut_off_left_is_in_nobodys_way() {
    let world = World::new();
    put(&world.host(), "a", "a");
    put(&world.host(), "b", "b");
    // Files in the stage, one in place, contents in a pack, no manifest.
    put(&world.workspace(), ".callsign-import-0123/7", "half");
    put(&world.workspace(), "a", "a");
    put(&world.at("base"), "0.pack", "some of it, and more than the next one needs");
    put(&world.at("base"), "manifest.json.new", "{");
    assert_eq!(world.import().unwrap().written, 1);
    assert_eq!(tree(&world.workspace()), tree(&world.host()));
    assert!(world.changes().unwrap().is_empty());
    put(&world.workspace(), "a", "changed");
    assert_eq!(world.apply().unwrap().changed, 1);
    // Packs that no manifest names any more are gone.
    for content in ["x", "y", "z"] {
        put(&world.host(), "a", content);
        put(&world.workspace(), "a", content);
        world.import().unwrap();
    }
    let packs = fs::read_dir(world.at("base")).unwrap().filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "pack")
    });
    assert_eq!(packs.count(), 1);
}

#[test]
fn a_file_goes_back_and_forth_again_and_again() {
    let world = World::new();
    let (host, workspace) = (world.host(), world.workspace());
    for name in ["edited", "removed", "kept"] {
        put(&host, name, "0");
    }
    world.import().unwrap();
    let settle = || {
        let changes = world.changes().unwrap();
        let applied = world.apply().unwrap();
        changes.settle(&world.at("base")).unwrap();
        assert!(world.changes().unwrap().is_empty());
        assert_eq!(tree(&host), tree(&workspace));
        applied.changed
    };
    put(&workspace, "edited", "1");
    put(&workspace, "new", "1");
    fs::remove_file(workspace.join("removed")).unwrap();
    assert_eq!(settle(), 3);
    put(&workspace, "edited", "2");
    put(&workspace, "new", "2");
    put(&workspace, "removed", "back");
    assert_eq!(settle(), 3);
    // The host goes on from there, and the box after it.
    put(&host, "edited", "3");
    world.import().unwrap();
    put(&workspace, "edited", "4");
    assert!(world.patch().contains("-3\n\\ No newline at end of file\n+4\n"), "{}", world.patch());
    assert_eq!(settle(), 1);
    // What the host changed since is still not overwritten.
    put(&host, "edited", "mine");
    put(&workspace, "edited", "5");
    assert!(matches!(world.apply(), Err(CarryError::Conflicts(_))));
}

#[test]
fn a_damaged_baseline_is_told_and_not_used_until_all_is_imported_anew() {
    let damages: [fn(&World); 4] = [
        |world| fs::write(world.at("base/manifest.json"), "{").unwrap(),
        |world| fs::write(world.at("base/manifest.json"), "{\"version\":9}").unwrap(),
        |world| fs::write(world.at("base/0.pack"), "contenT, and so on").unwrap(),
        |world| fs::remove_file(world.at("base/0.pack")).unwrap(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let world = World::new();
        for name in ["a", "gone"] {
            put(&world.host(), name, format!("content of {name}"));
        }
        world.import().unwrap();
        put(&world.workspace(), "a", "changed");
        put(&world.workspace(), "gone", "changed");
        fs::remove_file(world.host().join("gone")).unwrap();
        damage(&world);
        let told = world.changes().unwrap_err();
        assert!(matches!(told, CarryError::Damaged(_)), "{number}: {told}");
        assert!(told.to_string().contains("with `replace`"), "{told}");
        if number < 2 {
            let told = world.import().unwrap_err();
            assert!(matches!(told, CarryError::Damaged(_)), "{number}: {told}");
            assert_eq!(fs::read(world.workspace().join("a")).unwrap(), b"changed");
        }
        let world = World { existing: Existing::Replace, ..world };
        world.import().unwrap();
        assert_eq!(fs::read(world.workspace().join("a")).unwrap(), b"content of a");
        put(&world.workspace(), "a", "changed again\n");
        // What nothing is known of any more is the session's own.
        let changes = world.changes().unwrap();
        let kinds: Vec<_> =
            changes.files.iter().map(|change| (change.path.to_string(), change.kind())).collect();
        assert_eq!(kinds, [("a".to_owned(), Kind::Modified), ("gone".to_owned(), Kind::Added)], "{number}");
        assert!(world.patch().contains("-content of a"));
        assert_eq!(world.apply().unwrap().changed, 2);
        let packs = fs::read_dir(world.at("base")).unwrap().filter(|entry| {
            entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "pack")
        });
        assert_eq!(packs.count(), 1);
    }
}

#[test]
fn equal_contents_count_as_often_as_they_are_written() {
    let mut world = World::new();
    world.limits.bytes = 1000;
    for name in ["a", "b", "c"] {
        put(&world.host(), name, "x".repeat(300));
    }
    world.import().unwrap();
    for name in ["a", "b", "c"] {
        executable(&world.workspace().join(name), true);
    }
    for number in 0..6 {
        put(&world.workspace(), &format!("new{number}"), "y".repeat(300));
    }
    // 1800 bytes to be written; of the modes nothing is.
    assert_eq!(world.changes().unwrap().files.len(), 9);
    put(&world.workspace(), "new6", "y".repeat(300));
    let Err(CarryError::TooMuch(much)) = world.changes() else { panic!("it was carried") };
    assert_eq!((much.cap, much.found, much.allowed), (Cap::Bytes, 2100, 2000));
    fs::remove_file(world.workspace().join("new6")).unwrap();
    fs::remove_file(world.workspace().join("a")).unwrap();
    assert!(matches!(world.changes(), Err(CarryError::TooMuch(_))), "what is removed is shown");
}
