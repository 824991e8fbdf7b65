//! How often the kernel refused a box something: engines do not tell, its control group does.

use std::fs;
use std::path::{Path, PathBuf};

use model::ports::sandbox::Hits;

const MOUNTED: &str = "/sys/fs/cgroup";

/// What this process's groups have counted. Nothing where the engine's processes are not on this machine.
pub(crate) fn hits(pid: u32) -> Hits {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return Hits::default() };
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let count = |controller: &str, names: [&str; 2]| {
        let Some(group) = group(&text, controller) else { return 0 };
        names
            .into_iter()
            .filter_map(|name| name.split_once(' '))
            .map(|(file, key)| value(&read(group.join(file)), key))
            .max()
            .unwrap_or(0)
    };
    Hits {
        memory: count("memory", ["memory.events oom_kill", "memory.oom_control oom_kill"]),
        pids: count("pids", ["pids.events max", "pids.events max"]),
        disk: 0,
    }
}

/// The directory of a process's group, in either layout.
fn group(text: &str, controller: &str) -> Option<PathBuf> {
    let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let split = lines.clone().find(|(names, _)| names.split(',').any(|name| name == controller));
    let (names, path) = split.or_else(|| lines.clone().find(|(names, _)| names.is_empty()))?;
    let path = Path::new(path.trim_start_matches('/'));
    // Seen from within another namespace, it lies outside.
    let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    plain.then(|| Path::new(MOUNTED).join(names).join(path))
}

fn value(text: &str, key: &str) -> u64 {
    let mut words = text.lines().filter_map(|line| line.split_once(' '));
    words.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_layouts_and_not_outside_of_the_tree() {
        let split = "5:pids:/docker/ab\n4:cpu,cpuacct:/x\n0::/other\n";
        assert_eq!(group(split, "pids").unwrap(), Path::new("/sys/fs/cgroup/pids/docker/ab"));
        let unified = "0::/system.slice/docker-ab.scope\n";
        assert_eq!(
            group(unified, "memory").unwrap(),
            Path::new("/sys/fs/cgroup/system.slice/docker-ab.scope")
        );
        assert_eq!(group("0::/../../x\n", "memory"), None);
        assert_eq!(value("low 0\noom_kill 3\n", "oom_kill"), 3);
    }
}
