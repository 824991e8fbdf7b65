//! Boxes over time: who may die, who finds them again, and how they end.

use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{BoxState, Cause, Exit, How, Started};
use serde_json::json;

use crate::harness::{Kind, Scene, World, play, until};

const SCENES: [Scene; 4] = [
    a_box_outlives_its_daemon_is_found_by_the_next_and_stops,
    who_does_not_listen_is_ended_after_the_grace,
    twenty_starts_of_one_name_at_once_make_one_box,
    a_command_that_ends_says_how,
];

#[test]
fn boxes_live_and_end_on_docker() {
    play(Kind::Docker, &SCENES);
}

#[test]
fn boxes_live_and_end_on_podman() {
    play(Kind::Podman, &SCENES);
}

fn a_box_outlives_its_daemon_is_found_by_the_next_and_stops(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    let script = "trap 'echo asked; exit 3' TERM; echo begun; : > .done; while :; do sleep 0.05; done";
    spec.args = vec!["-c".to_owned(), script.to_owned()];
    spec.labels.insert("port".to_owned(), "4096".to_owned());
    let started = daemon.start(&spec);
    assert_eq!(started.how, How::Made);
    world.wait_done("one");
    until(|| world.log("one").contains("begun"), "what it prints to be followed");
    let id = world.inspect(&world.container("one"))["Id"].clone();
    daemon.kill();
    std::fs::write(&started.info.log, "").unwrap();
    let mut daemon = world.daemon();
    let found = daemon.found();
    let [(name, BoxState::Running(info))] = found.as_slice() else { panic!("{kind:?}: {found:?}") };
    assert_eq!((name.as_str(), info.labels["port"].as_str()), ("one", "4096"));
    until(|| world.log("one").contains("begun"), "the next daemon to follow it");
    assert_eq!(daemon.start(&spec).how, How::Found);
    assert_eq!(world.inspect(&world.container("one"))["Id"], id, "{kind:?}: another box was made");
    assert!(daemon.error(&json!({ "Forget": "one" })).contains("stop it first"));
    let state: BoxState = daemon.get(&json!({ "Stop": ["one", Duration::from_secs(20)] }));
    let BoxState::Ended(ending) = state else { panic!("{state:?}") };
    let message = ending.message.as_deref().unwrap_or_default();
    assert_eq!((ending.cause, ending.exit), (Cause::Asked, Exit::Code(3)), "{kind:?}");
    assert!(message.ends_with("asked") && world.log("one").ends_with("asked\n"), "{kind:?}: {message}");
    daemon.kill();
    let mut daemon = world.daemon();
    assert_eq!(daemon.state("one"), BoxState::Ended(ending.clone()), "the ending is remembered");
    let state: BoxState = daemon.get(&json!({ "Stop": ["one", Duration::ZERO] }));
    assert_eq!(state, BoxState::Ended(ending), "one that has ended keeps its ending");
    assert_eq!(daemon.start(&spec).how, How::Made, "{kind:?}: it can be started again");
    world.clear(daemon);
}

fn who_does_not_listen_is_ended_after_the_grace(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    daemon.start(&world.spec("deaf", "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000; :' &)"));
    world.wait_done("deaf");
    let since = Instant::now();
    let state: BoxState = daemon.get(&json!({ "Stop": ["deaf", Duration::from_millis(300)] }));
    assert!((300..9000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
    let asked = matches!(&state, BoxState::Ended(ending) if ending.cause == Cause::Asked && ending.exit == Exit::Signal(9));
    assert!(asked, "{kind:?}: {state:?}");
    assert_eq!(world.sleepers(), 0, "{kind:?}");
    world.clear(daemon);
}

fn twenty_starts_of_one_name_at_once_make_one_box(kind: Kind, world: &World) {
    let (mut first, mut second) = (world.daemon(), world.daemon());
    let spec = world.spec("one", "");
    for daemon in [&mut first, &mut second] {
        daemon.send(&json!({ "StartMany": [spec, 10] }));
    }
    let mut made = 0;
    for daemon in [&mut first, &mut second] {
        let answer = daemon.hear();
        let started: Vec<Started> =
            serde_json::from_value(answer.clone()).unwrap_or_else(|_| panic!("{answer}"));
        assert_eq!(started.len(), 10);
        made += started.iter().filter(|started| started.how == How::Made).count();
    }
    assert_eq!(made, 1, "{kind:?}");
    world.wait_done("one");
    until(|| world.sleepers() == 1, "one process");
    drop(second);
    world.clear(first);
}

#[test]
fn a_daemon_that_is_killed_while_it_starts_a_box_leaves_one_or_none() {
    let world = World::new(Kind::Docker);
    let spec = world.spec("one", "");
    let mut reached = [0; 2];
    // How long it takes here and now: the moments lie before, within and after.
    let since = Instant::now();
    let mut daemon = world.daemon();
    daemon.start(&spec);
    let whole = since.elapsed();
    daemon.ask(&json!({ "Kill": "one" }));
    drop(daemon);
    for round in 0..14_u32 {
        let mut daemon = world.daemon();
        daemon.send(&json!({ "Start": spec }));
        thread::sleep(whole * round / 8);
        daemon.kill();
        let mut daemon = world.daemon();
        let how = daemon.start(&spec).how;
        reached[usize::from(how == How::Found)] += 1;
        until(|| world.sleepers() == 1, "one process");
        let state: BoxState = daemon.get(&json!({ "Kill": "one" }));
        assert!(matches!(state, BoxState::Ended(_)), "{state:?}");
        assert_eq!(world.sleepers(), 0, "round {round}");
    }
    println!("killed before there was a box: {}, after: {}", reached[0], reached[1]);
    assert!(reached[0] > 0 && reached[1] > 0, "the moments were not spread: {reached:?}");
    let daemon = world.daemon();
    world.finish(daemon);
}

fn a_command_that_ends_says_how(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    for (script, cause, exit) in [
        ("exit 7", Cause::Exited, Exit::Code(7)),
        ("sh -c 'kill -9 $$'; exit $?", Cause::Exited, Exit::Signal(9)),
        ("exit 75", Cause::Orphaned, Exit::Code(75)),
    ] {
        let mut spec = world.spec("one", "");
        spec.args = vec!["-c".to_owned(), format!("sleep 1; echo last words >&2; {script}")];
        daemon.start(&spec);
        let ending = daemon.ended("one");
        assert_eq!((ending.cause, ending.exit), (cause, exit), "{kind:?}: {script}");
        assert!(ending.message.unwrap().contains("last words"));
        until(|| world.log("one").contains("last words"), "the log to be whole");
    }
    world.clear(daemon);
}

#[test]
fn a_box_goes_on_where_its_engine_is_killed_and_restored() {
    let mut world = World::new(Kind::DockerLive);
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    spec.args[1] = format!(": > .done; while :; do echo still here; sleep 0.2; done; {}", spec.args[1]);
    daemon.start(&spec);
    world.wait_done("one");
    until(|| world.log("one").contains("still here"), "what it prints to be followed");
    world.tell("kill");
    until(|| world.api("GET", "/_ping", None).is_empty(), "the engine to be gone");
    let error = daemon.error(&json!({ "State": "one" }));
    assert!(error.contains("does not run") && error.contains("systemctl restart docker"), "{error}");
    world.tell("start");
    world.wait_up();
    let state = daemon.state("one");
    assert!(matches!(state, BoxState::Running(_)), "{state:?}");
    let lines = || world.log("one").lines().count();
    let before = lines();
    until(|| lines() > before + 3, "its log to go on");
    assert_eq!(daemon.start(&spec).how, How::Found);
    world.finish(daemon);
}

#[test]
fn a_box_that_its_engine_did_not_restore_is_found_ended_and_starts_anew() {
    let mut world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    let spec = world.spec("one", "");
    daemon.start(&spec);
    world.wait_done("one");
    world.tell("kill");
    until(|| world.api("GET", "/_ping", None).is_empty(), "the engine to be gone");
    world.tell("start");
    world.wait_up();
    let ending = daemon.ended("one");
    assert!(ending.cause != Cause::Asked, "{ending:?}");
    assert_eq!(world.sleepers(), 0);
    assert_eq!(daemon.start(&spec).how, How::Made);
    world.finish(daemon);
}
