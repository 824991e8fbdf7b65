use std::process::{Command, Stdio};

use super::*;

#[track_caller]
fn check(stat: &str, expected: Option<i32>) {
    assert_eq!(parent_in_stat(stat.as_bytes()), expected.map(Pid::from_raw));
}

#[test]
fn the_parent_is_read_past_any_name() {
    check("7 (sh) S 3 7 7 0", Some(3));
    check("7 (a b) c) S 9) Z 12 7 7", Some(12));
    check("7 (sh) S", None);
    check("", None);
}

#[test]
fn the_scan_finds_a_child() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let found = children_by_scan(getpid()).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(found.contains(&pid), "{pid} is not in {found:?}");
}
