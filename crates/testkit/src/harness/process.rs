//! What `/proc` says.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

struct Stat {
    parent: u32,
    state: char,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some(Stat { state, parent: fields.next()?.parse().ok()? })
}

fn all() -> HashMap<u32, Stat> {
    let entries = fs::read_dir("/proc").expect("/proc");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

fn below(pid: u32, all: &HashMap<u32, Stat>) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, stat)| stat.parent == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// Children, their children and so on, zombies left out. Who was reparented away is not there any more.
pub fn descendants(pid: u32) -> Vec<u32> {
    let all = all();
    below(pid, &all).into_iter().filter(|pid| all.get(pid).is_some_and(|stat| stat.state != 'Z')).collect()
}

/// Descendants that are dead and that nobody waited for.
pub fn zombies(pid: u32) -> Vec<u32> {
    let all = all();
    below(pid, &all).into_iter().filter(|pid| all.get(pid).is_some_and(|stat| stat.state == 'Z')).collect()
}

/// Whether a process is there and no zombie.
pub fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state != 'Z')
}

pub fn kill(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may be gone already.
        let _ = nix::sys::signal::kill(Pid::from_raw(pid), signal);
    }
}

pub fn fd_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Resident bytes now.
pub fn rss(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The most resident bytes since the start or since [`reset_peak`].
pub fn peak(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmHWM:")
}

pub fn reset_peak(pid: u32) {
    // Where the kernel does not allow it, the peak counts from the start: stricter, never laxer.
    drop(fs::write(format!("/proc/{pid}/clear_refs"), "5"));
}

/// Resident bytes with shared pages divided among those who share them.
pub fn pss(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Waits for a state. False when it was not reached in time.
pub async fn wait_until(deadline: Duration, mut reached: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if reached() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
