//! Nothing leaks: descriptors, zombies, or the owner's stdio.

use std::time::Duration;

use crate::owner::{LIMIT, Owner, PROBE};
use crate::process::{children_of, eventually, marked, new_mark};

fn descriptors_of(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn two_hundred_lives_leave_no_descriptor_and_no_zombie() {
    let mut owner = Owner::start();
    // The first one makes what stays: nothing, but a runtime may.
    owner.ask("cycle\t1");
    let (before, of_spawner) = (owner.ask("descriptors"), descriptors_of(owner.spawner));
    println!("µs per start, per life: {}", owner.ask("cycle\t200"));
    assert_eq!(owner.ask("descriptors"), before);
    assert_eq!(descriptors_of(owner.spawner), of_spawner);
    eventually("the spawner has reaped all", LIMIT, || owner.supervisors().is_empty());
    assert_eq!(children_of(owner.pid()), [owner.spawner]);
}

#[test]
fn two_hundred_at_once_leave_no_descriptor_and_no_zombie() {
    let mark = new_mark();
    let mut owner = Owner::start();
    let before = owner.ask("descriptors");
    // Four descriptors each: as many as fit into the usual limit of 1024.
    println!("µs per spawn call, per start: {}", owner.ask(&format!("many\t200\t{PROBE}\tleaf\t{mark}")));
    let supervisors = owner.supervisors();
    assert_eq!(supervisors.len(), 200);
    for supervisor in supervisors {
        assert_eq!(descriptors_of(supervisor), 5, "0, 1, 2, its control socket and SIGCHLD");
    }
    for index in 0..200 {
        owner.ask(&format!("drop\t{index}"));
    }
    eventually("all have ended and are reaped", LIMIT, || owner.supervisors().is_empty());
    assert_eq!(marked(&mark), [0; 0]);
    assert_eq!(owner.ask("descriptors"), before);
}

#[test]
fn the_owners_stdout_closes_at_its_death_though_children_live() {
    let mark = new_mark();
    let mut owner = Owner::start();
    owner.start_family(0, &mark, "stubborn");
    owner.kill();
    let took = owner.wait_for_stdout_to_close();
    assert_eq!(marked(&mark).len(), 2, "the children are still there after {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    owner.assert_no_survivors(&mark, &[]);
}
