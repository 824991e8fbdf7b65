//! What happens to a box that takes too much.

use std::fs;
use std::time::Duration;

use model::ports::sandbox::{BoxState, Cause, Hold, Holds, Limits, Strictness, Usage};
use serde_json::json;

use crate::harness::{Daemon, Who, World, everyone, until};

/// Takes 400 MB, and keeps them.
const HOG: &str =
    "mkfifo /tmp/p; (head -c 400M /dev/zero; exec sleep 30) > /tmp/p & tail -c 400M < /tmp/p > /dev/null";

fn holds(daemon: &mut Daemon) -> Holds {
    serde_json::from_value(daemon.ask(&json!("Probe"))["holds"].clone()).unwrap()
}

#[test]
fn each_limit_says_how_it_is_held() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let grouped = match who {
            Who::Nobody => (Hold::Watched, Hold::Absent),
            Who::Delegated | Who::Root => (Hold::Enforced, Hold::Enforced),
        };
        let (memory, cpus) = grouped;
        let expected =
            Holds { memory, pids: Hold::Enforced, cpus, disk: Hold::Watched, syscalls: Hold::Enforced };
        assert_eq!(holds(&mut daemon), expected, "{who:?}");
        world.finish(daemon);
    }
}

#[test]
fn strict_refuses_what_is_not_enforced() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let mut spec = world.spec("one", "");
        spec.strictness = Strictness::Strict;
        spec.limits =
            Limits { memory: Some(1 << 30), pids: Some(100), cpus: Some(1000), disk: Some(1 << 30) };
        let error = daemon.refused(&spec);
        let expected = if who == Who::Nobody { "memory, cpus, disk" } else { "disk" };
        assert!(error.ends_with(&format!("cannot be enforced here: {expected}")), "{who:?}: {error}");
        spec.limits = Limits { pids: Some(100), ..Limits::default() };
        daemon.start(&spec);
        world.finish(daemon);
    }
}

#[test]
fn a_fork_bomb_stops_at_the_limit_and_harms_no_neighbour() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        daemon.start(&world.spec("neighbour", ""));
        let mut spec = world.spec("bomb", "");
        // Unlike others, this shell goes on when it cannot fork.
        spec.command = "/bin/bash".to_owned();
        spec.args = vec!["-c".to_owned(), "while :; do sleep 30 & done 2> /dev/null".to_owned()];
        spec.limits.pids = Some(20);
        daemon.start(&spec);
        until(
            || {
                let usage: Option<Usage> = daemon.get(&json!({ "Usage": "bomb" }));
                let pids = usage.map_or(0, |usage| usage.pids);
                assert!(pids <= 21, "{who:?}: {pids} processes");
                match daemon.state("bomb") {
                    BoxState::Running(info) => info.hits.pids > 0,
                    state @ (BoxState::Absent
                    | BoxState::Starting
                    | BoxState::Unknown
                    | BoxState::Ended(_)) => {
                        let hits = matches!(&state, BoxState::Ended(ending) if ending.hits.pids > 0);
                        assert!(hits, "{who:?}: {state:?}");
                        true
                    }
                }
            },
            "the limit to be reported",
        );
        assert!(matches!(daemon.state("neighbour"), BoxState::Running(_)));
        world.finish(daemon);
    }
}

#[test]
fn a_memory_hog_is_ended_and_its_box_goes_on() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let mut spec = world.spec("hog", &format!("{HOG}; echo ended with $?"));
        spec.limits.memory = Some(100 << 20);
        daemon.start(&spec);
        world.wait_done("hog");
        let told = |daemon: &mut Daemon| matches!(daemon.state("hog"), BoxState::Running(info) if info.hits.memory > 0);
        until(|| told(&mut daemon), "the limit to be reported");
        let log = daemon.log(&world, "hog");
        assert!(log.contains("ended with 137"), "{who:?}: {log}");
        world.finish(daemon);
    }
}

#[test]
fn a_command_that_is_itself_the_hog_ends_the_box_with_this_cause() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let mut spec = world.spec("hog", "");
        spec.args = vec!["-c".to_owned(), HOG.replace("tail", "exec tail")];
        spec.limits.memory = Some(100 << 20);
        daemon.start(&spec);
        let ending = daemon.ended("hog");
        assert_eq!(ending.cause, Cause::Memory, "{who:?}: {ending:?}");
        world.finish(daemon);
    }
}

#[test]
fn a_disk_that_fills_ends_the_box_and_one_large_file_is_refused() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        let mut spec =
            world.spec("one", "dd if=/dev/zero of=/workspace/large bs=1M count=20; rm -f /workspace/large");
        spec.limits.disk = Some(8 << 20);
        daemon.start(&spec);
        world.wait_done("one");
        let log = daemon.log(&world, "one");
        assert!(!log.contains("20+0 records out"), "{who:?}: {log}");
        let mut spec = world.spec(
            "many",
            "cd /workspace; for i in $(seq 20); do dd if=/dev/zero of=f$i bs=1M count=1; done 2>/dev/null",
        );
        spec.limits.disk = Some(8 << 20);
        daemon.start(&spec);
        let ending = daemon.ended("many");
        assert_eq!((ending.cause, ending.hits.disk), (Cause::Disk, 1), "{who:?}: {ending:?}");
        assert_eq!(fs::read_dir(world.at("many-workspace")).unwrap().count(), 21, "data is never removed");
        world.finish(daemon);
    }
}

#[test]
fn usage_is_told() {
    for &who in everyone() {
        let world = World::new(who);
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
        assert!(usage.memory > 0 && (1..=6).contains(&usage.pids), "{who:?}: {usage:?}");
        // What processes that have ended used is known where there is a group.
        assert!(who == Who::Nobody || usage.cpu > Duration::from_millis(1), "{who:?}: {usage:?}");
        world.finish(daemon);
    }
}
