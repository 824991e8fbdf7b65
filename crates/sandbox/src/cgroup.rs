//! Control groups: where the kernel itself holds a box to its memory, processes and processor time.
//!
//! In the unified layout (v2) one directory has all controllers; in the split one (v1) each has its own tree. A box gets
//! a group beneath the group that its daemon is in, so that it stays within what the daemon itself is held to.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{BoxName, Limits};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// Of the processor's time, in microseconds.
const PERIOD: u64 = 100_000;
/// The kernel takes a moment to notice that the last process has gone.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Layout {
    Unified,
    Split,
}

/// Directories in which groups can be made, as far as there are any. With a name appended: the groups of one box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) layout: Layout,
    pub(crate) memory: Option<PathBuf>,
    pub(crate) pids: Option<PathBuf>,
    pub(crate) cpu: Option<PathBuf>,
    /// Counts processor time; a tree of its own in the split layout.
    cpuacct: Option<PathBuf>,
}

impl Plan {
    /// None if no group can be made here.
    pub(crate) fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        places(&mounts, &groups).into_iter().map(Self::usable).find(Self::holds_something)
    }

    fn holds_something(&self) -> bool {
        self.memory.is_some() || self.pids.is_some() || self.cpu.is_some()
    }

    fn usable(self) -> Self {
        let Self { layout, memory, pids, cpu, cpuacct } = self;
        if layout == Layout::Unified {
            // One directory, four times.
            let Some(prepared) = memory.and_then(|directory| prepare(&directory)) else {
                return Self { layout, memory: None, pids: None, cpu: None, cpuacct: None };
            };
            let have = |file: &str| tried(&prepared, file).then(|| prepared.clone());
            return Self {
                layout,
                memory: have("memory.max"),
                pids: have("pids.max"),
                cpu: have("cpu.max"),
                cpuacct: have("cpu.stat"),
            };
        }
        let have = |directory: Option<PathBuf>, file| directory.filter(|directory| tried(directory, file));
        Self {
            layout,
            memory: have(memory, "memory.limit_in_bytes"),
            pids: have(pids, "pids.max"),
            cpu: have(cpu, "cpu.cfs_quota_us"),
            cpuacct: have(cpuacct, "cpuacct.usage"),
        }
    }

    pub(crate) fn of_box(&self, owner: &str, name: &BoxName) -> Self {
        let own =
            |directory: &Option<PathBuf>| Some(directory.as_ref()?.join(format!("callsign-{owner}-{name}")));
        Self {
            layout: self.layout,
            memory: own(&self.memory),
            pids: own(&self.pids),
            cpu: own(&self.cpu),
            cpuacct: own(&self.cpuacct),
        }
    }

    fn directories(&self) -> BTreeSet<&Path> {
        [&self.memory, &self.pids, &self.cpu, &self.cpuacct]
            .into_iter()
            .filter_map(Option::as_deref)
            .collect()
    }

    /// Makes the groups of a box. What an earlier box of this name left is removed, its counters with it.
    pub(crate) fn make(&self, limits: &Limits) -> io::Result<()> {
        self.remove();
        for directory in self.directories() {
            fs::create_dir(directory)?;
        }
        let unified = self.layout == Layout::Unified;
        if let (Some(directory), Some(most)) = (&self.memory, limits.memory) {
            let most = most.to_string();
            let (file, swap) = if unified {
                ("memory.max", "memory.swap.max")
            } else {
                ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            };
            fs::write(directory.join(file), &most)?;
            // Kernels without swap accounting have no such file, and systems without swap need none.
            fs::write(directory.join(swap), if unified { "0" } else { &most }).ok();
        }
        if let (Some(directory), Some(most)) = (&self.pids, limits.pids) {
            fs::write(directory.join("pids.max"), most.to_string())?;
        }
        if let (Some(directory), Some(thousandths)) = (&self.cpu, limits.cpus) {
            let quota = u64::from(thousandths) * PERIOD / 1000;
            if unified {
                fs::write(directory.join("cpu.max"), format!("{quota} {PERIOD}"))?;
            } else {
                fs::write(directory.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                fs::write(directory.join("cpu.cfs_quota_us"), quota.to_string())?;
            }
        }
        Ok(())
    }

    /// Moves this process into the groups.
    pub(crate) fn join(&self) -> io::Result<()> {
        self.directories()
            .into_iter()
            .try_for_each(|directory| fs::write(directory.join("cgroup.procs"), "0"))
    }

    /// How often memory ran out, and processes.
    pub(crate) fn hits(&self) -> (u64, u64) {
        let events = if self.layout == Layout::Unified { "memory.events" } else { "memory.oom_control" };
        (
            counter(self.memory.as_deref(), events, "oom_kill"),
            counter(self.pids.as_deref(), "pids.events", "max"),
        )
    }

    pub(crate) fn memory_in_use(&self) -> Option<u64> {
        let file = if self.layout == Layout::Unified { "memory.current" } else { "memory.usage_in_bytes" };
        number(self.memory.as_deref()?, file)
    }

    pub(crate) fn pids_in_use(&self) -> Option<u64> {
        number(self.pids.as_deref()?, "pids.current")
    }

    pub(crate) fn cpu_used(&self) -> Option<Duration> {
        let directory = self.cpuacct.as_deref()?;
        if self.layout == Layout::Unified {
            return Some(Duration::from_micros(counter(Some(directory), "cpu.stat", "usage_usec")));
        }
        number(directory, "cpuacct.usage").map(Duration::from_nanos)
    }

    /// Removes the groups. Does nothing to one in which somebody still is.
    pub(crate) fn remove(&self) {
        let until = Instant::now() + PATIENCE;
        for directory in self.directories() {
            while fs::remove_dir(directory)
                .is_err_and(|error| error.raw_os_error() == Some(Errno::EBUSY as i32))
                && Instant::now() < until
            {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn number(directory: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

fn counter(directory: Option<&Path>, file: &str, name: &str) -> u64 {
    let text =
        directory.and_then(|directory| fs::read_to_string(directory.join(file)).ok()).unwrap_or_default();
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

/// Whether a group can be made here, and has this file.
fn tried(directory: &Path, file: &str) -> bool {
    let probe = directory.join(format!("callsign-probe-{}", std::process::id()));
    if fs::create_dir(&probe).is_err() {
        return false;
    }
    let fine = fs::OpenOptions::new().read(true).open(probe.join(file)).is_ok();
    fs::remove_dir(&probe).is_ok() && fine
}

/// A group of the unified layout that hands controllers on to groups beneath it, or None.
///
/// A group with processes of its own cannot. Where the system says that the group is ours (`user.delegate`), they are
/// moved into a leaf, as systemd has it; a login's or another's group is left alone.
fn prepare(directory: &Path) -> Option<PathBuf> {
    let control = directory.join("cgroup.subtree_control");
    let there = fs::read_to_string(directory.join("cgroup.controllers")).ok()?;
    let wanted: Vec<String> = there
        .split_ascii_whitespace()
        .filter(|name| ["memory", "pids", "cpu"].contains(name))
        .map(|name| format!("+{name}"))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let wanted = wanted.join(" ");
    match fs::write(&control, &wanted) {
        Ok(()) => return Some(directory.to_owned()),
        Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) && delegated(directory) => {}
        Err(_) => return None,
    }
    let leaf = directory.join("callsign-daemon");
    fs::create_dir(&leaf).or_else(|error| if leaf.is_dir() { Ok(()) } else { Err(error) }).ok()?;
    for pid in fs::read_to_string(directory.join("cgroup.procs")).ok()?.lines() {
        // One that has ended since is no longer in the way.
        fs::write(leaf.join("cgroup.procs"), pid).ok();
    }
    fs::write(&control, wanted).ok()?;
    Some(directory.to_owned())
}

fn delegated(directory: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(directory, *name, &mut value)
            .is_ok_and(|length| value.get(..length) == Some(b"1"))
    })
}

/// Where this process's groups are: those of the unified layout first.
fn places(mounts: &str, groups: &str) -> Vec<Plan> {
    let find = |controller: Option<&str>| {
        let group = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let ours = controller
                .map_or(controllers.is_empty(), |name| controllers.split(',').any(|one| one == name));
            ours.then_some(path)
        })?;
        mounts.lines().find_map(|line| mounted(line, controller, group))
    };
    let unified = find(None);
    let unified = Plan {
        layout: Layout::Unified,
        memory: unified.clone(),
        pids: unified.clone(),
        cpu: unified.clone(),
        cpuacct: unified,
    };
    let split = Plan {
        layout: Layout::Split,
        memory: find(Some("memory")),
        pids: find(Some("pids")),
        cpu: find(Some("cpu")),
        cpuacct: find(Some("cpuacct")),
    };
    vec![unified, split]
}

/// The directory of `group` if this line of `mountinfo` is the mount of its tree.
fn mounted(line: &str, controller: Option<&str>, group: &str) -> Option<PathBuf> {
    let (front, back) = line.split_once(" - ")?;
    let mut back = back.split(' ');
    let (kind, _, options) = (back.next()?, back.next()?, back.next()?);
    let fits = match controller {
        None => kind == "cgroup2",
        Some(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
    };
    let mut front = front.split(' ').skip(3);
    let (root, at) = (front.next()?, front.next()?);
    let beneath = Path::new(group).strip_prefix(root).ok()?;
    // `join` with nothing would add a slash.
    fits.then(|| if beneath.as_os_str().is_empty() { PathBuf::from(at) } else { Path::new(at).join(beneath) })
}

#[cfg(test)]
mod tests;
