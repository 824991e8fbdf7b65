//! What `/proc` says of the processes of one state directory, and the control groups of its daemon.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::harness::{alive, descendants};

/// The length of a session's id.
const SESSION_ID: usize = 29;

/// A box that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxProcess {
    /// The session's id.
    pub(crate) session: String,
    /// The process that keeps it: where it is a container, its first one.
    pub(crate) keeper: u32,
    /// The agent in it; none yet while the box starts.
    pub(crate) opencode: Vec<u32>,
}

fn arguments(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Keepers are told where the record of their box lies, which is named after the session.
pub(super) fn boxes(state: &Path) -> Vec<BoxProcess> {
    let session = |pid: u32| {
        let arguments = arguments(pid);
        let at = arguments.iter().position(|argument| argument == "keep")?;
        let record = Path::new(arguments.get(at + 1)?).strip_prefix(state).ok()?;
        Some(record.file_name()?.to_str()?.to_owned())
    };
    let keepers: Vec<(u32, String)> = all()
        .into_iter()
        .filter_map(|pid| Some((pid, session(pid)?)))
        .filter(|(pid, _)| alive(*pid))
        .collect();
    // What a keeper starts has its arguments for a moment, until it becomes another program.
    let is_copy = |pid: u32| keepers.iter().any(|(keeper, _)| Some(*keeper) == parent(pid));
    let own = keepers.iter().filter(|(pid, _)| !is_copy(*pid));
    own.map(|(keeper, session)| {
        let opencode = descendants(*keeper).into_iter().filter(|pid| is_opencode(*pid)).collect();
        BoxProcess { session: session.clone(), keeper: *keeper, opencode }
    })
    .collect()
}

/// Sessions that have a keeper. One look at every process, and at none of those that they have started.
pub(super) fn hot(state: &Path) -> Vec<String> {
    let session = |pid: u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = line.split('\0').skip_while(|word| *word != "keep");
        let record = Path::new(words.nth(1)?).strip_prefix(state.join("boxes")).ok()?;
        // A process that is just beginning shows a part of its words.
        Some(record.to_str().filter(|name| name.len() == SESSION_ID)?.to_owned())
    };
    // What a keeper starts has its arguments for a moment.
    let found: BTreeSet<String> = all().into_iter().filter_map(session).collect();
    found.into_iter().collect()
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

pub(super) fn is_opencode(pid: u32) -> bool {
    let arguments = arguments(pid);
    let is_program = arguments.first().is_some_and(|program| program.ends_with("/opencode"));
    is_program && arguments.get(1).is_some_and(|word| word == "serve")
}

/// Living processes that have the directory in their arguments.
pub(super) fn with_argument(directory: &Path) -> Vec<u32> {
    let part = directory.to_str().expect("UTF-8");
    let names = |pid: &u32| arguments(*pid).iter().any(|argument| argument.contains(part));
    all().into_iter().filter(|pid| *pid != std::process::id() && alive(*pid)).filter(names).collect()
}

pub(super) fn is_daemon(pid: u32) -> bool {
    arguments(pid).iter().any(|argument| ["serve", "mcp"].contains(&argument.as_str()))
}

pub(super) fn describe(pid: u32) -> String {
    format!("{pid}: {}", arguments(pid).join(" "))
}

/// The groups this process is in, for each of the controllers that a box is held by, in this machine's layout.
fn own_groups() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").expect("its groups");
    let wanted = ["memory", "pids", "cpu", "cpuacct"];
    let split: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let named = controllers.split(',').any(|name| wanted.contains(&name));
            named.then(|| Path::new("/sys/fs/cgroup").join(controllers).join(path.trim_start_matches('/')))
        })
        .collect();
    if split.is_empty() { vec!["/sys/fs/cgroup".into()] } else { split }
}

/// Groups that belong to a user, as a service manager would make them.
pub(super) fn delegate(name: &str, user: u32) -> Vec<PathBuf> {
    let groups: Vec<PathBuf> =
        own_groups().iter().map(|group| group.join(format!("delegated-{name}"))).collect();
    for group in &groups {
        fs::create_dir(group).expect("a group");
        for path in [group.clone(), group.join("cgroup.procs"), group.join("cgroup.subtree_control")] {
            if path.exists() {
                chown(&path, Some(user), Some(user)).expect("it is root who asks");
            }
        }
        let mark = rustix::fs::XattrFlags::empty();
        let _best_effort = rustix::fs::setxattr(group, "user.delegate", b"1", mark);
    }
    groups
}

/// Innermost first. A group can be removed once its last process is gone.
pub(super) fn remove_groups(name: &str, groups: &[PathBuf]) {
    if groups.is_empty() {
        return;
    }
    let mut found = Vec::new();
    let mut waiting = groups.to_vec();
    while let Some(group) = waiting.pop() {
        let below = fs::read_dir(&group).into_iter().flatten().flatten();
        waiting.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
        found.insert(0, group);
    }
    for group in found.iter().filter(|group| group.to_string_lossy().contains(name)) {
        for _ in 0..200 {
            if fs::remove_dir(group).is_ok() || !group.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
