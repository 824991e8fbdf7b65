//! No descendant is left behind, whoever dies first. A family's leaf is forked twice and in a session of its own.

use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::owner::{LIMIT, Owner};
use crate::process::{eventually, marked, new_mark, parent_of, signal, stop};

/// The family is child 0. Child 1 is a bystander: with no supervisor but the family's, the spawner's own sweep for strays
/// would hide that the supervisor has let one escape.
fn family(flags: &str) -> (Owner, String) {
    let mark = new_mark();
    let mut owner = Owner::start();
    owner.start_family(0, &mark, flags);
    assert!(owner.ask("spawn\t\t\tcat").starts_with("started "));
    (owner, mark)
}

/// Both the main child and the orphaned leaf are its children.
#[track_caller]
fn supervisor_of(mark: &str) -> i32 {
    let parents: Vec<i32> = marked(mark).into_iter().filter_map(parent_of).collect();
    let [main_childs, leafs] = parents[..] else { panic!("a main child and a leaf, not {parents:?}") };
    assert_eq!(main_childs, leafs, "the orphan has gone to somebody else");
    leafs
}

#[track_caller]
fn assert_gone(mark: &str, limit: Duration) {
    eventually("no marked process is left", limit, || marked(mark).is_empty());
}

#[test]
fn terminate_reaches_an_orphan_in_its_own_session() {
    let (mut owner, mark) = family("");
    assert_eq!(marked(&mark).len(), 2, "the main child and the leaf");
    owner.ask("terminate\t0");
    assert_eq!(owner.ask("exited\t0"), "signal 15");
    owner.ask("gone\t0");
    assert_eq!(marked(&mark), [0; 0], "gone means gone");
}

#[test]
fn the_main_childs_exit_takes_the_orphan_along() {
    let (mut owner, mark) = family("leave");
    assert_eq!(owner.ask("exited\t0"), "exit code 0");
    assert_gone(&mark, LIMIT);
    let (mut owner, mark) = family("leave\tstubborn");
    assert_eq!(owner.ask("exited\t0"), "exit code 0");
    assert_gone(&mark, LIMIT);
}

#[test]
fn kill_is_immediate() {
    let (mut owner, mark) = family("stubborn");
    owner.ask("kill\t0");
    assert_eq!(owner.ask("exited\t0"), "signal 9");
    assert_gone(&mark, Duration::from_secs(1));
}

#[test]
fn dropping_the_control_ends_the_family() {
    let (mut owner, mark) = family("stubborn");
    owner.ask("drop\t0");
    assert_gone(&mark, LIMIT);
}

#[test]
fn one_that_ignores_sigterm_is_killed() {
    let (mut owner, mark) = family("stubborn");
    owner.ask("terminate\t0");
    assert_eq!(owner.ask("exited\t0"), "signal 9");
    assert_gone(&mark, LIMIT);
}

#[test]
fn stopped_ones_are_killed() {
    let (mut owner, mark) = family("");
    for pid in marked(&mark) {
        stop(pid);
    }
    owner.ask("terminate\t0");
    assert_eq!(owner.ask("exited\t0"), "signal 9");
    assert_gone(&mark, LIMIT);
}

#[test]
fn the_owners_death_ends_all() {
    for flags in ["", "stubborn"] {
        let (mut owner, mark) = family(flags);
        let supervisors = owner.supervisors();
        assert_eq!(supervisors.len(), 2);
        owner.kill();
        let took = owner.assert_no_survivors(&mark, &supervisors);
        println!("after the owner's SIGKILL, {flags:?}: {took:?}");
    }
}

#[test]
fn the_death_of_the_owners_process_group_ends_all() {
    let (owner, mark) = family("stubborn");
    let supervisors = owner.supervisors();
    killpg(Pid::from_raw(owner.pid()), Signal::SIGKILL).unwrap();
    owner.assert_no_survivors(&mark, &supervisors);
}

#[test]
fn sigterm_to_the_owners_process_group_ends_all() {
    let (owner, mark) = family("stubborn");
    let supervisors = owner.supervisors();
    killpg(Pid::from_raw(owner.pid()), Signal::SIGTERM).unwrap();
    owner.assert_no_survivors(&mark, &supervisors);
}

#[test]
fn a_supervisors_death_ends_its_family_at_once_and_no_other() {
    let (mut owner, mark) = family("stubborn");
    let other = new_mark();
    owner.start_family(2, &other, "");
    signal(supervisor_of(&mark), Signal::SIGKILL);
    assert_eq!(owner.ask("exited\t0"), "an unknown exit status");
    assert_gone(&mark, Duration::from_secs(1));
    assert_eq!(marked(&other).len(), 2);
    owner.ask("kill\t2");
    assert_gone(&other, LIMIT);
}

#[test]
fn a_stopped_supervisor_does_not_outlive_the_owner() {
    let (mut owner, mark) = family("stubborn");
    let supervisors = owner.supervisors();
    stop(supervisor_of(&mark));
    owner.kill();
    owner.assert_no_survivors(&mark, &supervisors);
}

#[test]
fn without_the_spawner_the_owners_death_still_ends_all() {
    let (mut owner, mark) = family("stubborn");
    let supervisors = owner.supervisors();
    signal(owner.spawner, Signal::SIGKILL);
    owner.kill();
    owner.assert_no_survivors(&mark, &supervisors);
}

#[test]
fn two_hundred_families_end_with_the_owner() {
    let mark = new_mark();
    let mut owner = Owner::start();
    for index in 0..200 {
        let flags = if index % 2 == 0 { "" } else { "stubborn" };
        owner.start_family(index, &mark, flags);
    }
    let supervisors = owner.supervisors();
    assert_eq!((supervisors.len(), marked(&mark).len()), (200, 400));
    owner.kill();
    let took = owner.assert_no_survivors(&mark, &supervisors);
    println!("200 families: {took:?}");
}
