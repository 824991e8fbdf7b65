//! Boxes over time: who may die, who finds them again, and how they end.

use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{BoxName, BoxState, Cause, Exit, How, Level, Started};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::harness::{Who, World, everyone, until};

#[test]
fn a_box_outlives_its_daemon_is_found_by_the_next_and_stops() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let mut spec = world.spec("one", "trap 'echo asked; exit 3' TERM");
        spec.args = vec![
            "-c".to_owned(),
            "trap 'echo asked; exit 3' TERM; : > .done; while :; do sleep 0.05; done".to_owned(),
        ];
        spec.labels.insert("port".to_owned(), "4096".to_owned());
        assert_eq!(daemon.start(&spec).how, How::Made);
        world.wait_done("one");
        let keepers = world.keepers();
        daemon.kill();
        let mut daemon = world.daemon();
        let found: Vec<(BoxName, BoxState)> = daemon.get(&json!("FindAll"));
        let [(name, BoxState::Running(info))] = found.as_slice() else { panic!("{who:?}: {found:?}") };
        assert_eq!((name.as_str(), info.labels["port"].as_str()), ("one", "4096"));
        assert_eq!(daemon.start(&spec).how, How::Found);
        assert_eq!(world.keepers(), keepers, "{who:?}: another box was made");
        let state: BoxState = daemon.get(&json!({ "Stop": ["one", Duration::from_secs(20)] }));
        let BoxState::Ended(ending) = state else { panic!("{state:?}") };
        assert_eq!(
            (ending.cause, ending.exit, ending.message.as_deref()),
            (Cause::Asked, Exit::Code(3), Some("asked"))
        );
        assert_eq!(daemon.state("one"), BoxState::Ended(ending), "the ending is remembered");
        assert_eq!(daemon.start(&spec).how, How::Made, "{who:?}: it can be started again");
        world.finish(daemon);
    }
}

#[test]
fn who_does_not_listen_is_ended_after_the_grace() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        daemon.start(&world.spec("deaf", "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000; :' &)"));
        world.wait_done("deaf");
        let since = Instant::now();
        let state: BoxState = daemon.get(&json!({ "Stop": ["deaf", Duration::from_millis(300)] }));
        assert!((300..5000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
        assert!(
            matches!(&state, BoxState::Ended(ending) if ending.cause == Cause::Asked),
            "{who:?}: {state:?}"
        );
        assert_eq!(world.sleepers(), Vec::<i32>::new(), "{who:?}");
        world.finish(daemon);
    }
}

#[test]
fn twenty_starts_of_one_name_at_once_make_one_box() {
    for &who in everyone() {
        let world = World::new(who);
        let mut first = world.daemon();
        // A second process as well: it does not own the boxes, and may start them all the same.
        let spec = world.spec("one", "");
        let started: Vec<Started> = first.get(&json!({ "StartMany": [spec, 20] }));
        let made = started.iter().filter(|started| started.how == How::Made).count();
        assert_eq!((started.len(), made), (20, 1), "{who:?}");
        world.wait_done("one");
        until(|| world.sleepers().len() == 1, "one process");
        assert_eq!(world.keepers().len(), 1);
        world.finish(first);
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_starts_a_box_leaves_one_or_none() {
    let world = World::new(Who::Nobody);
    let spec = world.spec("one", "");
    let mut reached = [0; 2];
    for round in 0..16_u64 {
        let mut daemon = world.daemon();
        daemon.send(&json!({ "Start": spec }));
        thread::sleep(Duration::from_millis(round * 5));
        daemon.kill();
        let mut daemon = world.daemon();
        let how = daemon.start(&spec).how;
        reached[usize::from(how == How::Found)] += 1;
        until(|| world.sleepers().len() == 1, "one process");
        assert_eq!(world.keepers().len(), 1, "round {round}");
        let state: BoxState = daemon.get(&json!({ "Kill": "one" }));
        assert!(matches!(state, BoxState::Ended(_)));
        assert_eq!(world.sleepers(), Vec::<i32>::new(), "round {round}");
    }
    println!("killed before there was a box: {}, after: {}", reached[0], reached[1]);
    let daemon = world.daemon();
    world.finish(daemon);
}

#[test]
fn a_box_without_an_owner_ends_after_its_grace() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let mut spec = world.spec("one", "");
        spec.orphan_grace = Duration::from_millis(700);
        daemon.start(&spec);
        thread::sleep(Duration::from_millis(1500));
        assert!(matches!(daemon.state("one"), BoxState::Running(_)), "{who:?}: it has an owner");
        daemon.kill();
        until(|| world.keepers().is_empty(), "the keeper to end");
        let mut daemon = world.daemon();
        let ending = daemon.ended("one");
        assert_eq!(ending.cause, Cause::Orphaned, "{who:?}");
        assert_eq!(world.sleepers(), Vec::<i32>::new());
        world.finish(daemon);
    }
}

#[test]
fn a_box_ends_with_its_keeper_and_is_known_to_be_lost() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let spec = world.spec("one", "(setsid sleep 100000 &) ; (setsid sh -c 'sleep 100000; :' &)");
        daemon.start(&spec);
        world.wait_done("one");
        until(|| world.sleepers().len() == 1, "the box to run");
        for keeper in world.keepers() {
            kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
        }
        until(|| world.sleepers().is_empty(), "the box to end");
        assert_eq!(daemon.ended("one").cause, Cause::Lost, "{who:?}");
        assert_eq!(daemon.start(&spec).how, How::Made, "{who:?}: it can be started again");
        world.finish(daemon);
    }
}

#[test]
fn a_command_that_ends_says_how() {
    let world = World::new(Who::Nobody);
    let mut daemon = world.daemon();
    for (script, exit) in [("exit 7", Exit::Code(7)), ("kill -9 $$", Exit::Signal(9))] {
        let mut spec = world.spec("one", "");
        spec.args = vec!["-c".to_owned(), format!("sleep 0.3; echo last words >&2; {script}")];
        daemon.start(&spec);
        let ending = daemon.ended("one");
        assert_eq!((ending.cause, ending.exit), (Cause::Exited, exit));
        assert!(ending.message.unwrap().contains("last words"));
    }
    world.finish(daemon);
}

#[test]
fn without_isolation_the_keeper_is_the_same() {
    for &who in everyone() {
        let mut world = World::new(who);
        world.level = Level::Nothing;
        let mut daemon = world.daemon();
        let script = "trap '' TERM; id -u; (setsid sh -c 'trap \"\" TERM; sleep 4321; :' &) ; tr '\\0' '\\n' < /proc/$$/environ";
        let info = daemon.start(&world.spec("one", script)).info;
        assert_eq!((info.level, info.inside.workspace), (Level::Nothing, world.at("one-workspace")));
        world.wait_done("one");
        daemon.kill();
        let mut daemon = world.daemon();
        let state: BoxState = daemon.get(&json!({ "Stop": ["one", Duration::from_millis(100)] }));
        assert!(matches!(state, BoxState::Ended(_)), "{who:?}: {state:?}");
        let log = daemon.log(&world, "one");
        assert!(!log.starts_with("0\n") && !log.contains("CANARY"), "{who:?}: {log}");
        world.finish(daemon);
    }
}
