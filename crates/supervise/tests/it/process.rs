//! Words about processes, from `/proc`.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Unique among all processes: what the children of one test have in their command line.
pub(crate) fn new_mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("mark-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes whose command line has `mark`, in no order. A zombie has no command line.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let has_mark = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|argument| argument == mark.as_bytes())
    };
    all().into_iter().filter(has_mark).collect()
}

/// Zombies included.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    all().into_iter().filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    state_and_parent(pid).map(|(_, parent)| parent)
}

pub(crate) fn is_alive(pid: i32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// SIGSTOP, and waits for it: a signal sent at once after it could be delivered before it.
#[track_caller]
pub(crate) fn stop(pid: i32) {
    signal(pid, Signal::SIGSTOP);
    eventually("it has stopped", Duration::from_secs(5), || {
        state_and_parent(pid).is_some_and(|(state, _)| state == "T")
    });
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Waits for a state, and says how long it took.
#[track_caller]
pub(crate) fn eventually(what: &str, limit: Duration, condition: impl Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
    begin.elapsed()
}

fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn state_and_parent(pid: i32) -> Option<(String, i32)> {
    let stat = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
