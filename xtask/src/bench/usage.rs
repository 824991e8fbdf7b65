//! What a program and its helpers cost, from /proc.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

/// Servers behind a target are not part of what it costs. Compared with the name the kernel keeps.
const SERVERS: [&str; 1] = ["echo-server"];

/// Linux counts the time of processes in hundredths of a second on every architecture we run on.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// User and system time since the start of each process.
    pub(crate) cpu_ms: f64,
    pub(crate) rss_kb: u64,
    /// Of `root` alone.
    pub(crate) root_rss_kb: u64,
    pub(crate) pss_kb: u64,
    pub(crate) processes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    name: String,
    parent: i32,
    ticks: u64,
}

/// Summed over `root` and its descendants, less servers and what these started.
pub(crate) fn measure(root: i32) -> Result<Usage> {
    let processes = processes()?;
    let mut usage = Usage::default();
    for pid in own(&processes, root) {
        let Some(process) = processes.get(&pid) else { continue };
        usage.cpu_ms += process.ticks as f64 * 1000.0 / TICKS_PER_SECOND;
        usage.processes += 1;
        // It may end between the two looks.
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let resident = field(&rollup, "Rss:");
        usage.rss_kb += resident;
        if pid == root {
            usage.root_rss_kb = resident;
        }
        usage.pss_kb += field(&rollup, "Pss:");
    }
    Ok(usage)
}

/// How many servers run behind `root`.
pub(crate) fn servers(root: i32) -> Result<usize> {
    let processes = processes()?;
    let is_server =
        |pid: &i32| processes.get(pid).is_some_and(|process| SERVERS.contains(&process.name.as_str()));
    Ok(descendants(&processes, root, |_| true).into_iter().filter(is_server).count())
}

/// PSS in kB of these and their descendants, summed by name. What `is_left_out` is not entered, nor what it started.
pub(crate) fn pss_by_name(
    roots: &[i32],
    is_left_out: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, u64>> {
    let processes = processes()?;
    let enter = |process: &Process| !is_left_out(&process.name);
    let pids: BTreeSet<i32> = roots.iter().flat_map(|root| descendants(&processes, *root, enter)).collect();
    let mut sums = BTreeMap::new();
    for pid in pids {
        let Some(process) = processes.get(&pid) else { continue };
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        *sums.entry(process.name.clone()).or_default() += field(&rollup, "Pss:");
    }
    Ok(sums)
}

/// Those of this name, as the kernel keeps it.
pub(crate) fn named(name: &str) -> Vec<i32> {
    let processes = processes().unwrap_or_default();
    processes.into_iter().filter(|(_, process)| process.name == name).map(|(pid, _)| pid).collect()
}

/// `root` and all its descendants.
pub(crate) fn family(root: i32) -> Vec<i32> {
    processes().map(|processes| descendants(&processes, root, |_| true)).unwrap_or_default()
}

fn own(processes: &BTreeMap<i32, Process>, root: i32) -> Vec<i32> {
    descendants(processes, root, |process| !SERVERS.contains(&process.name.as_str()))
}

fn descendants(processes: &BTreeMap<i32, Process>, root: i32, enter: impl Fn(&Process) -> bool) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if !processes.get(&pid).is_some_and(&enter) {
            continue;
        }
        found.push(pid);
        open.extend(processes.iter().filter(|(_, process)| process.parent == pid).map(|(child, _)| *child));
    }
    found
}

fn processes() -> Result<BTreeMap<i32, Process>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("could not read /proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        found.extend(parse(&stat).map(|process| (pid, process)));
    }
    Ok(found)
}

/// `PID (NAME) STATE PARENT …`, user and system time being fields 14 and 15. NAME may hold blanks and brackets.
fn parse(stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Process { name, parent: fields.get(1)?.parse().ok()?, ticks })
}

fn field(rollup: &str, name: &str) -> u64 {
    rollup
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Process, field, measure, own, parse, pss_by_name};

    #[test]
    fn a_stat_line_is_read_whatever_the_name_is() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 50 6 0 0 20 0 1 0 1 1";
        let expected = Process { name: "a) b (c)".into(), parent: 3, ticks: 56 };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn servers_and_what_they_started_are_not_the_targets_own() {
        let row = |name: &str, parent| Process { name: name.into(), parent, ticks: 0 };
        let processes = BTreeMap::from([
            (1, row("callsign", 0)),
            (2, row("callsign-sup", 1)),
            (3, row("echo-server", 2)),
            (4, row("sh", 3)),
            (5, row("other", 0)),
        ]);
        assert_eq!(own(&processes, 1), [1, 2]);
    }

    #[test]
    fn memory_is_read_from_the_rollup() {
        assert_eq!(field("x\nRss:      1234 kB\nPss:  12 kB\n", "Rss:"), 1234);
        assert_eq!(field("", "Rss:"), 0);
        let usage = measure(std::process::id().cast_signed()).unwrap();
        assert!(usage.rss_kb > 0 && usage.root_rss_kb == usage.rss_kb && usage.processes == 1, "{usage:?}");
        // Named twice, counted once.
        let us = std::process::id().cast_signed();
        let by_name = pss_by_name(&[us, us], |_| false).unwrap();
        assert!(by_name.values().sum::<u64>() > 0 && by_name.len() == 1, "{by_name:?}");
        assert!(pss_by_name(&[us], |_| true).unwrap().is_empty());
    }
}
