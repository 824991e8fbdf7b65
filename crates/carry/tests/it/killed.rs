//! Killed in the middle of an apply, at any moment: afterwards all of it is there, or nothing.

use std::io::Read as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use carry::Outcome;

use super::*;

const FILES: usize = 120;
const KILLS: u32 = 200;

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

#[test]
fn an_apply_that_is_killed_leaves_all_or_nothing() {
    let world = World::new();
    work(&world);
    let (before, after) = (tree(&world.host()), tree(&world.workspace()));
    copy_tree(&world.host(), &world.at("kept"));
    let (journal, host) = (world.at("journal"), world.host());

    let run = |kill: Kill| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_carry-probe"))
            .args([world.workspace(), world.at("base"), host.clone(), journal.clone()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has compared, and applies from now on.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
        let begun = Instant::now();
        match kill {
            Kill::Never => {}
            Kill::After(time) => {
                thread::sleep(time);
                child.kill().unwrap();
            }
            Kill::Moving(time) => {
                while !is_moving(&journal) && begun.elapsed() < Duration::from_secs(10) {}
                thread::sleep(time);
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        begun.elapsed()
    };
    let renew = || {
        fs::remove_dir_all(&host).unwrap();
        copy_tree(&world.at("kept"), &host);
    };
    let mut whole = Duration::ZERO;
    for _ in 0..5 {
        whole = whole.max(run(Kill::Never));
        assert_eq!(tree(&host), after);
        renew();
    }

    let (mut untouched, mut undone, mut finished, mut done, mut amid) = (0, 0, 0, 0, 0);
    for kill in 0..KILLS {
        // Half of them at any time, half while files are moved, which is soon over.
        let part = f64::from(kill) / f64::from(KILLS);
        run(if kill % 2 == 0 {
            Kill::After(whole.mul_f64(part))
        } else {
            Kill::Moving(Duration::from_millis(8).mul_f64(part))
        });
        let torn = tree(&host);
        let torn: BTreeMap<_, _> = torn.into_iter().filter(|(path, _)| !is_stage(path)).collect();
        let recovered = carry::recover(&journal).unwrap();
        let now = tree(&host);
        match recovered.as_slice() {
            [] if now == before => untouched += 1,
            [] => {
                assert_eq!(now, after, "kill {kill}");
                done += 1;
            }
            [one] if one.outcome == Outcome::Undone => {
                assert_eq!(now, before, "kill {kill}");
                undone += 1;
                amid += usize::from(torn != before);
            }
            [one] if one.outcome == Outcome::Finished => {
                assert_eq!(now, after, "kill {kill}");
                finished += 1;
            }
            other => panic!("{other:?}"),
        }
        assert!(world.left_nothing(), "kill {kill}");
        if now != before {
            renew();
        }
    }
    println!(
        "{KILLS} kills within {whole:?}: untouched {untouched}, undone {undone} ({amid} with files moved), finished {finished}, done {done}"
    );
    assert!(amid >= 20, "few were killed in the middle: this showed little");
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
