//! Processes that are told apart from those which get their number later, and what `/proc` says about them.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A number and the tick at which its process started: a later process with the number has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    start: u64,
}

impl Process {
    /// None if there is no such process, or only its remains.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        (stat.state != 'Z').then_some(Self { pid, start: stat.start })
    }

    /// None if it has ended.
    pub(crate) fn open(self) -> Option<Handle> {
        let descriptor = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Compared afterwards: from here on the descriptor means the process whose start time was read.
        (Self::of(self.pid) == Some(self)).then_some(Handle(descriptor))
    }

    pub(crate) fn signal(self, signal: Signal) {
        if let Some(handle) = self.open() {
            handle.signal(signal);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// A process that has ended meanwhile needs no signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.0, signal);
    }
}

struct Stat {
    state: char,
    parent: i32,
    ticks: u64,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `pid (name) state ppid …`; the name may itself contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let rest: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        let number = |index: usize| rest.get(index).and_then(|field| field.parse::<u64>().ok());
        Some(Self {
            state: rest.first()?.chars().next()?,
            parent: rest.get(1)?.parse().ok()?,
            ticks: number(11)?.saturating_add(number(12)?),
            start: number(19)?,
        })
    }
}

/// Direct children. May miss one while others come and go.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // A kernel without CONFIG_PROC_CHILDREN, or a thread that has just ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::metadata(task.path()).is_ok() => {
                return children_by_scan(pid);
            }
            Err(_) => {}
        }
    }
    found
}

fn children_by_scan(parent: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|&pid| Stat::of(pid).is_some_and(|stat| stat.parent == parent)).collect()
}

/// The process and all below it. In a process namespace nobody escapes this: orphans go to its init.
pub(crate) fn tree(root: i32) -> Vec<i32> {
    /// More than any box may have; against a list that grows while it is read.
    const MOST: usize = 100_000;
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next).filter(|_| found.len() < MOST) {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// What all processes of a box use together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Bytes that only these processes have; pages that forks share count for each.
    pub(crate) memory: u64,
    pub(crate) threads: u64,
    pub(crate) cpu: Duration,
}

pub(crate) fn sum(pids: &[i32]) -> Sum {
    pids.iter().fold(Sum::default(), |sum, &pid| Sum {
        memory: sum.memory + private_memory(pid),
        threads: sum.threads + status_field(pid, "Threads:"),
        cpu: sum.cpu + Stat::of(pid).map_or(Duration::ZERO, |stat| from_ticks(stat.ticks)),
    })
}

pub(crate) fn private_memory(pid: i32) -> u64 {
    status_field(pid, "RssAnon:").saturating_mul(1024)
}

/// As `private_memory`, with shared pages divided among those who share them. Costs far more.
pub(crate) fn proportional_memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    field(&text, "Pss_Anon:").map_or_else(|| private_memory(pid), |kib| kib.saturating_mul(1024))
}

fn status_field(pid: i32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&text, name).unwrap_or(0)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
}

fn from_ticks(ticks: u64) -> Duration {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
    Duration::from_millis(ticks.saturating_mul(1000) / per_second.filter(|&ticks| ticks > 0).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let fields = "S 7 1 1 0 -1 4194560 0 0 0 0 20 30 0 0 20 0 1 0 4242 0 0";
        let stat = Stat::parse(&format!("12 (a) b (c) {fields}")).unwrap();
        assert_eq!((stat.state, stat.parent, stat.ticks, stat.start), ('S', 7, 50, 4242));
        assert!(Stat::parse("12 (cut").is_none());
    }

    #[test]
    fn a_process_with_the_number_of_another_is_not_opened() {
        let own = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.open().is_some());
        assert!(Process { start: own.start + 1, ..own }.open().is_none());
    }
}
