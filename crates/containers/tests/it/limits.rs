//! What happens to a box that takes too much.

use std::fs;
use std::time::Duration;

use model::ports::sandbox::{BoxState, Cause, Exit, Hold, Holds, Limits, Strictness, Usage};
use serde_json::json;

use crate::harness::{Daemon, Kind, Scene, World, play, until};

/// Takes 400 MB, and keeps them.
const HOG: &str =
    "mkfifo /tmp/p; (head -c 400M /dev/zero; exec sleep 30) > /tmp/p & tail -c 400M < /tmp/p > /dev/null";

const SCENES: [Scene; 4] = [
    each_limit_says_how_it_is_held_and_strict_refuses_less,
    a_fork_bomb_stops_at_the_limit_and_harms_no_neighbour,
    a_memory_hog_is_ended_and_its_box_goes_on_unless_it_is_the_command,
    usage_is_told,
];

#[test]
fn limits_hold_on_docker() {
    play(Kind::Docker, &SCENES);
}

#[test]
fn limits_hold_on_podman() {
    play(Kind::Podman, &SCENES);
}

fn each_limit_says_how_it_is_held_and_strict_refuses_less(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let probe = daemon.ask(&json!("Probe"));
    let holds: Holds = serde_json::from_value(probe["holds"].clone()).unwrap();
    let all = Hold::Enforced;
    assert_eq!(
        holds,
        Holds { memory: all, pids: all, cpus: all, disk: Hold::Watched, syscalls: all },
        "{kind:?}"
    );
    assert_eq!((&probe["can_start"], &probe["missing"]), (&json!(true), &json!([])), "{kind:?}");
    let facts = daemon.ask(&json!("Facts"));
    let name = match kind {
        Kind::Docker | Kind::DockerLive => "Docker ",
        Kind::Podman => "Podman ",
    };
    assert!(
        facts.as_str().unwrap().starts_with(name) && facts.as_str().unwrap().contains("rootful, cgroup v"),
        "{facts}"
    );
    let mut spec = world.spec("one", "");
    spec.strictness = Strictness::Strict;
    spec.limits = Limits { memory: Some(1 << 30), pids: Some(100), cpus: Some(1000), disk: Some(1 << 30) };
    let error = daemon.refused(&spec);
    assert!(error.ends_with("cannot be enforced here: disk"), "{kind:?}: {error}");
    spec.limits.disk = None;
    daemon.start(&spec);
    world.clear(daemon);
}

fn a_fork_bomb_stops_at_the_limit_and_harms_no_neighbour(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    daemon.start(&world.spec("neighbour", ""));
    let mut spec = world.spec("bomb", "");
    // Unlike others, this shell goes on when it cannot fork.
    spec.command = "/bin/bash".into();
    spec.args = vec!["-c".to_owned(), "while :; do sleep 30 & done 2> /dev/null".to_owned()];
    spec.limits.pids = Some(20);
    daemon.start(&spec);
    let mut most = 0;
    until(
        || {
            let usage: Option<Usage> = daemon.get(&json!({ "Usage": "bomb" }));
            most = most.max(usage.map_or(0, |usage| usage.pids));
            assert!(most <= 20, "{kind:?}: {most} processes");
            match daemon.state("bomb") {
                BoxState::Running(info) => info.hits.pids > 0,
                state @ (BoxState::Absent | BoxState::Starting | BoxState::Unknown | BoxState::Ended(_)) => {
                    let hits = matches!(&state, BoxState::Ended(ending) if ending.hits.pids > 0);
                    assert!(hits, "{kind:?}: {state:?}");
                    true
                }
            }
        },
        "the limit to be reported",
    );
    assert!(matches!(daemon.state("neighbour"), BoxState::Running(_)));
    world.clear(daemon);
}

fn a_memory_hog_is_ended_and_its_box_goes_on_unless_it_is_the_command(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let mut spec = world.spec("hog", &format!("{HOG}; echo ended with $?"));
    spec.limits.memory = Some(100 << 20);
    daemon.start(&spec);
    world.wait_done("hog");
    let told =
        |daemon: &mut Daemon| matches!(daemon.state("hog"), BoxState::Running(info) if info.hits.memory > 0);
    until(|| told(&mut daemon), "the limit to be reported");
    daemon.ask(&json!({ "Kill": "hog" }));
    let log = world.log("hog");
    assert!(log.contains("ended with 137"), "{kind:?}: {log}");
    spec.args = vec!["-c".to_owned(), HOG.replace("tail", "exec tail")];
    daemon.start(&spec);
    let ending = daemon.ended("hog");
    match kind {
        Kind::Docker | Kind::DockerLive => {
            assert_eq!(ending.cause, Cause::Memory, "{ending:?}");
            assert!(ending.hits.memory > 0, "{ending:?}");
        }
        // With the older control groups its monitor may miss the moment; that it was killed is known all the same.
        Kind::Podman => assert_eq!(ending.exit, Exit::Signal(9), "{ending:?}"),
    }
    world.clear(daemon);
}

#[test]
fn a_disk_that_fills_ends_the_box_and_nothing_is_removed() {
    let world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    let fill = "cd /workspace; for i in $(seq 20); do dd if=/dev/zero of=f$i bs=1M count=1; done 2>/dev/null";
    let mut spec = world.spec("many", fill);
    spec.limits.disk = Some(8 << 20);
    daemon.start(&spec);
    let ending = daemon.ended("many");
    assert_eq!((ending.cause, ending.hits.disk), (Cause::Disk, 1), "{ending:?}");
    // It may have been ended before the last file; what it had written by then was too much, and is still there.
    let files = fs::read_dir(world.at("many-workspace")).unwrap().flatten();
    let kept: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    assert!(kept > 8 << 20, "data is never removed, and {kept} bytes are left");
    world.finish(daemon);
}

fn usage_is_told(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let script = "dd if=/dev/urandom of=/workspace/f bs=1M count=3 2>/dev/null; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let mut spec = world.spec("one", script);
    spec.limits.disk = Some(1 << 30);
    daemon.start(&spec);
    world.wait_done("one");
    let mut usage = Usage::default();
    until(
        || {
            usage = daemon.get::<Option<Usage>>(&json!({ "Usage": "one" })).unwrap();
            usage.disk.is_some_and(|bytes| bytes >= 3 << 20)
        },
        "the disk to be counted",
    );
    assert!(usage.memory > 0 && (1..=6).contains(&usage.pids), "{kind:?}: {usage:?}");
    assert!(usage.cpu > Duration::from_millis(1), "{kind:?}: {usage:?}");
    daemon.ask(&json!({ "Kill": "one" }));
    assert_eq!(daemon.get::<Option<Usage>>(&json!({ "Usage": "one" })), None);
    world.clear(daemon);
}

#[test]
fn a_flood_of_words_is_capped() {
    let world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    let log = world.printed(
        &mut daemon,
        &world.spec("one", "yes 'many words, over and over' | head -c 30M; echo the end"),
    );
    assert!(log.ends_with("the end\n"), "{}", log.len());
    let kept = world.at(&format!("boxes-{}/one", world.owner));
    let size: u64 = fs::read_dir(kept).unwrap().flatten().map(|entry| entry.metadata().unwrap().len()).sum();
    assert!(size <= 9 << 20, "{size}");
    world.finish(daemon);
}
