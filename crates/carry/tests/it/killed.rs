//! Killed in the middle of an apply, and of recovering from that, at any moment: afterwards all of it is there, or nothing.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use carry::Outcome;

use super::*;

const FILES: usize = 120;
const KILLS: u32 = 80;

#[derive(Clone, Copy)]
enum Kill {
    Never,
    After(Duration),
    Moving(Duration),
}

/// Every kind of step.
fn work(world: &World) {
    for number in 0..FILES {
        put(&world.host(), &format!("dir{}/file{number}", number % 7), format!("old {number}\n"));
    }
    put(&world.host(), "turns/into/file", "a directory");
    put(&world.host(), "turned", "a file");
    world.import().unwrap();
    let workspace = world.workspace();
    for number in 0..FILES {
        let at = workspace.join(format!("dir{}/file{number}", number % 7));
        match number % 4 {
            0 => fs::write(&at, format!("new {number}\n")).unwrap(),
            1 => fs::remove_file(&at).unwrap(),
            2 => executable(&at, true),
            _ => put(&workspace, &format!("more{}/deep/file{number}", number % 5), "made"),
        }
    }
    fs::remove_dir_all(workspace.join("turns")).unwrap();
    put(&workspace, "turns", "a file now");
    fs::remove_file(workspace.join("turned")).unwrap();
    put(&workspace, "turned/into/directory", "x");
}

/// How long it took from when it had compared and began to apply, or to recover.
fn run(kill: Kill, arguments: &[PathBuf], journal: &Path) -> Duration {
    let mut child = Command::new(env!("CARGO_BIN_EXE_carry-probe"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    let begun = Instant::now();
    match kill {
        Kill::Never => {}
        Kill::After(time) => {
            thread::sleep(time);
            child.kill().unwrap();
        }
        Kill::Moving(time) => {
            while !is_moving(journal) && begun.elapsed() < Duration::from_secs(10) {}
            thread::sleep(time);
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    begun.elapsed()
}

#[test]
fn an_apply_that_is_killed_leaves_all_or_nothing() {
    let world = World::new();
    work(&world);
    let (before, after) = (tree(&world.host()), tree(&world.workspace()));
    copy_tree(&world.host(), &world.at("kept"));
    let (journal, host) = (world.at("journal"), world.host());

    let apply = [world.workspace(), world.at("base"), host.clone(), journal.clone()];
    let renew = || {
        fs::remove_dir_all(&host).unwrap();
        copy_tree(&world.at("kept"), &host);
    };
    let mut whole = Duration::ZERO;
    for _ in 0..5 {
        whole = whole.max(run(Kill::Never, &apply, &journal));
        assert_eq!(tree(&host), after);
        renew();
    }

    let outside = |host: &Path| -> BTreeMap<_, _> {
        tree(host).into_iter().filter(|(path, _)| !is_stage(path)).collect()
    };
    let (mut undone, mut done, mut amid, mut twice) = (0, 0, 0, 0);
    for kill in 0..KILLS {
        // Half of them at any time, half while files are moved, which is soon over.
        let part = f64::from(kill) / f64::from(KILLS);
        let how = if kill % 2 == 0 {
            Kill::After(whole.mul_f64(part))
        } else {
            Kill::Moving(Duration::from_millis(8).mul_f64(part.powi(2)))
        };
        run(how, &apply, &journal);
        let torn = outside(&host);
        amid += usize::from(is_moving(&journal) && torn != before);
        // Then whoever recovers is killed as well, soon.
        for time in 0..kill % 3 {
            let part = f64::from(kill % 10 + time) / 10.0;
            let soon = Kill::After(Duration::from_millis(10).mul_f64(part));
            run(soon, std::slice::from_ref(&journal), &journal);
            let now = outside(&host);
            twice += usize::from(now != torn && now != before && now != after);
        }
        let recovered = carry::recover(&journal).unwrap();
        let now = tree(&host);
        match recovered.as_slice() {
            [] if now == before => undone += 1,
            [] => {
                assert_eq!(now, after, "kill {kill}");
                done += 1;
            }
            [one] if one.outcome == Outcome::Undone => {
                assert_eq!(now, before, "kill {kill}");
                undone += 1;
            }
            [one] if one.outcome == Outcome::Finished => {
                assert_eq!(now, after, "kill {kill}");
                done += 1;
            }
            other => panic!("{other:?}"),
        }
        assert!(world.left_nothing(), "kill {kill}");
        if now != before {
            renew();
        }
    }
    println!(
        "{KILLS} kills within {whole:?}: undone {undone}, done {done}; {amid} with some files moved, {twice} with some moved back"
    );
    assert!(amid >= 8, "few were killed in the middle: this showed little");
}

/// One of each kind of step.
fn small_work(world: &World) {
    let (host, workspace) = (world.host(), world.workspace());
    for name in ["changed", "removed", "mode", "turned", "turns/into/file"] {
        put(&host, name, "old");
    }
    world.import().unwrap();
    put(&workspace, "changed", "new");
    fs::remove_file(workspace.join("removed")).unwrap();
    executable(&workspace.join("mode"), true);
    fs::remove_file(workspace.join("turned")).unwrap();
    put(&workspace, "turned/into/directory", "new");
    fs::remove_dir_all(workspace.join("turns")).unwrap();
    put(&workspace, "turns", "new");
    put(&workspace, "made/deep/file", "new");
}

/// What changes something on disk.
const CHANGES: [&str; 9] =
    ["rename", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "fchmod", "fchmodat", "fchownat"];

/// Runs the probe until it is about to do one of these so many times. True: it came to its end.
fn until(kills: &[(&str, usize)], arguments: &[PathBuf]) -> bool {
    let names: Vec<&str> = kills.iter().map(|(name, _)| *name).collect();
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={}", names.join(","))]);
    for (name, count) in kills {
        strace.args(["-e", &format!("inject={name}:signal=KILL:when={count}")]);
    }
    let probe = strace.arg(env!("CARGO_BIN_EXE_carry-probe")).args(arguments);
    let status = probe.stdout(Stdio::null()).status().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    status.success()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Somebody {
    Rests,
    /// In what was put there.
    Writes,
    /// A directory of the name of what was put there.
    MakesDirectories,
}

/// What somebody did, which must be there afterwards.
fn meddle(host: &Path, somebody: Somebody) -> BTreeMap<PathBuf, Item> {
    let mut mine = BTreeMap::new();
    for name in ["changed", "made/deep/file", "turns"] {
        if fs::read(host.join(name)).is_ok_and(|content| content == b"new") {
            let item = Item::File { content: b"mine".into(), executable: false };
            match somebody {
                Somebody::Rests => {}
                Somebody::Writes => {
                    put(host, name, "mine");
                    mine.insert(name.into(), item);
                }
                Somebody::MakesDirectories => {
                    fs::remove_file(host.join(name)).unwrap();
                    put(host, &format!("{name}/inner"), "mine");
                    mine.insert(format!("{name}/inner").into(), item);
                }
            }
        }
    }
    mine
}

#[test]
fn killed_before_each_change_and_again_before_each_of_recovering() {
    assert!(
        Command::new("strace").arg("-V").output().is_ok(),
        "strace is missing; `cargo xtask tools` installs it"
    );
    let world = World::in_memory();
    small_work(&world);
    let (before, after) = (tree(&world.host()), tree(&world.workspace()));
    copy_tree(&world.host(), &world.at("kept"));
    let (journal, host) = (world.at("journal"), world.host());
    let apply = [world.workspace(), world.at("base"), host.clone(), journal.clone()];
    let renew = || {
        fs::remove_dir_all(&host).unwrap();
        copy_tree(&world.at("kept"), &host);
    };
    let (mut applies, mut recoveries, mut unsettled) = (0, 0, 0);
    for somebody in [Somebody::Rests, Somebody::Writes, Somebody::MakesDirectories] {
        for call in CHANGES {
            for count in 1.. {
                renew();
                if until(&[(call, count)], &apply) {
                    assert_eq!(tree(&host), after);
                    break;
                }
                applies += 1;
                let context = format!("{somebody:?}, killed before {call} {count}");
                let mine = if is_moving(&journal) { meddle(&host, somebody) } else { BTreeMap::new() };
                recoveries += recover_in_bits(&journal, count, &context);
                let now = tree(&host);
                for (path, item) in &mine {
                    assert_eq!(now.get(path), Some(item), "{context}");
                }
                if mine.is_empty() {
                    assert!(now == before || now == after, "{context}: {now:?}");
                } else {
                    unsettled += 1;
                    settle(&world, before.len(), &context);
                }
                assert!(world.left_nothing(), "{context}");
            }
        }
    }
    println!("{applies} applies and {recoveries} recoveries killed, {unsettled} left to a person");
    assert!(applies > 100 && recoveries > 300 && unsettled >= 6);
}

/// Each gets one rename further than the last, or removes one thing more. Tells how many were killed.
fn recover_in_bits(journal: &PathBuf, count: usize, context: &str) -> usize {
    let arguments = std::slice::from_ref(journal);
    // Sometimes all is undone at once, and the kill comes before that is noted, or before the first file goes.
    let at_once = [("rename", 1), ("unlinkat", 1), ("unlink", 1), ("renameat2", 1)][count % 4];
    let mut killed = usize::from(!until(&[at_once], arguments));
    // A directory is found out to be one by a call that fails, and so is what somebody else made: to get anywhere, it must
    // be let do a little more each time.
    while !until(&[("renameat2", 2 + killed / 20), ("unlinkat", 3 + killed / 20), ("fchmod", 2)], arguments) {
        killed += 1;
        assert!(killed < 300, "{context}: it gets nowhere");
    }
    killed
}

/// As the message says: nothing is lost, and once the stage was removed by hand all is well.
fn settle(world: &World, files: usize, context: &str) {
    let recovered = carry::recover(&world.at("journal")).unwrap();
    assert!(matches!(recovered[0].outcome, Outcome::Unsettled(_)), "{context}: {recovered:?}");
    let now = tree(&world.host());
    let old = |item: &&Item| matches!(item, Item::File { content, .. } if content == b"old");
    assert_eq!(now.values().filter(old).count(), files, "{context}: {now:?}");
    for entry in fs::read_dir(world.host()).unwrap().flatten() {
        if is_stage(Path::new(&entry.file_name())) {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    assert_eq!(carry::recover(&world.at("journal")).unwrap()[0].outcome, Outcome::Undone, "{context}");
}

fn is_moving(journal: &Path) -> bool {
    let entries = fs::read_dir(journal).map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    entries
        .into_iter()
        .flatten()
        .any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.contains("\"state\":\"moving\"")))
}

fn is_stage(path: &Path) -> bool {
    path.iter().next().unwrap().to_string_lossy().starts_with(".callsign")
}
