//! What the engine is told of a box. Pure.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use model::ports::sandbox::{BoxName, BoxSpec, Hold, Holds, Inside, Limits, Network, User};
use serde::{Deserialize, Serialize};

use crate::engine::{Facts, Kind};

/// Where a box finds its own things.
pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const META: &str = "/session-meta";
pub(crate) const SOCKETS: &str = "/run/callsign";

pub(crate) const OWNER: &str = "dev.callsign.owner";
pub(crate) const BOX: &str = "dev.callsign.box";
const KEPT: &str = "dev.callsign.kept";
const OURS: &str = "dev.callsign.";

/// With this code the init of a box ends that had no daemon for `orphan_grace`.
pub const ORPHANED: i32 = 75;

const SHARED_MEMORY: i64 = 64 << 20;
/// Of an image's volumes: more are a mistake, or an attempt.
pub(crate) const MOST_VOLUMES: usize = 64;
const MOST_FILES: i64 = 65_536;
/// Of all boxes of one user together; a box by itself has `limits.pids`.
const MOST_PROCESSES: i64 = 32_768;

pub(crate) fn container_name(owner: &str, name: &BoxName) -> String {
    format!("callsign-{owner}-{name}")
}

/// What we want to know of a box later, kept in a label. Labels of the image appear among the container's own, so those
/// of the spec are kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) holds: Holds,
    pub(crate) limits: Limits,
    pub(crate) sockets: bool,
    pub(crate) workspace: std::path::PathBuf,
    pub(crate) meta: std::path::PathBuf,
}

impl Kept {
    pub(crate) fn of(labels: &HashMap<String, String>) -> Option<Self> {
        serde_json::from_str(labels.get(KEPT)?).ok()
    }

    pub(crate) fn inside(&self) -> Inside {
        Inside {
            workspace: WORKSPACE.into(),
            meta: META.into(),
            sockets: self.sockets.then(|| SOCKETS.into()),
        }
    }
}

/// This process and the engine's, as far as they matter for a box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Us {
    pub(crate) user: User,
    /// Hard limits: an engine that goes beyond its own fails, and Podman lowers its own when it starts. None is no
    /// limit.
    pub(crate) files: Option<u64>,
    pub(crate) processes: Option<u64>,
}

impl Us {
    pub(crate) fn beside(engine: &Facts) -> Self {
        use rustix::process::{Resource, getegid, geteuid, getrlimit};
        let theirs = engine.pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok());
        let theirs = theirs.unwrap_or_default();
        let least = |ours: Option<u64>, name: &str| ours.into_iter().chain(hard_limit(&theirs, name)).min();
        Self {
            user: User { uid: geteuid().as_raw(), gid: getegid().as_raw() },
            files: least(getrlimit(Resource::Nofile).maximum, "Max open files"),
            processes: least(getrlimit(Resource::Nproc).maximum, "Max processes"),
        }
    }
}

/// In the words of `/proc/PID/limits`.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().nth(1)?.parse().ok())
}

/// Whom the box runs as, and in which mapping of users.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) user: String,
    pub(crate) mapping: Option<&'static str>,
}

impl Person {
    /// Always one who can write the session's directories and is nobody in particular on the host.
    pub(crate) fn new(facts: &Facts, us: Us, spec: &BoxSpec) -> Self {
        let plain = |User { uid, gid }: User| format!("{uid}:{gid}");
        match (facts.rootless, facts.kind) {
            (true, Kind::Podman) => Self { user: plain(us.user), mapping: Some("keep-id") },
            // Root of its namespace is the engine's own user outside; everybody else owns nothing there.
            (true, Kind::Docker) => Self { user: "0:0".to_owned(), mapping: None },
            (false, _) if us.user.uid == 0 => Self { user: plain(spec.user), mapping: None },
            (false, _) => Self { user: plain(us.user), mapping: None },
        }
    }
}

/// Everything besides the spec that decides what a container is like.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) owner: &'a str,
    pub(crate) facts: &'a Facts,
    pub(crate) us: Us,
    /// Places for which the image wants volumes.
    pub(crate) volumes: &'a [String],
}

pub(crate) fn body(spec: &BoxSpec, image: &str, plan: &Plan<'_>) -> ContainerCreateBody {
    let person = Person::new(plan.facts, plan.us, spec);
    ContainerCreateBody {
        hostname: Some("callsign".to_owned()),
        user: Some(person.user),
        env: Some(spec.env.0.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        entrypoint: Some(vec![spec.command.clone()]),
        cmd: Some(spec.args.clone()),
        // One that the image brings would run beside the command.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        image: Some(image.to_owned()),
        working_dir: Some(WORKSPACE.to_owned()),
        labels: Some(labels(spec, plan)),
        stop_signal: Some("SIGTERM".to_owned()),
        tty: Some(false),
        open_stdin: Some(false),
        host_config: Some(host(spec, plan, person.mapping)),
        ..ContainerCreateBody::default()
    }
}

fn labels(spec: &BoxSpec, plan: &Plan<'_>) -> HashMap<String, String> {
    let kept = Kept {
        labels: spec.labels.clone(),
        holds: plan.facts.holds,
        limits: spec.limits,
        sockets: spec.sockets.is_some(),
        workspace: spec.workspace.clone(),
        meta: spec.meta.clone(),
    };
    let others = spec.labels.iter().filter(|(name, _)| !name.starts_with(OURS));
    let mut labels: HashMap<_, _> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    labels.insert(OWNER.to_owned(), plan.owner.to_owned());
    labels.insert(BOX.to_owned(), spec.name.to_string());
    labels.insert(KEPT.to_owned(), serde_json::to_string(&kept).unwrap_or_default());
    labels
}

fn host(spec: &BoxSpec, plan: &Plan<'_>, mapping: Option<&str>) -> HostConfig {
    let (limits, holds) = (&spec.limits, plan.facts.holds);
    let held = |hold: Hold, limit: Option<i64>| limit.filter(|_| hold == Hold::Enforced);
    let memory = held(holds.memory, limits.memory.map(signed));
    let mut security = vec!["no-new-privileges".to_owned()];
    if plan.facts.selinux {
        // Its types keep a container from the daemon's sockets and from every directory of a person.
        security.push("label=disable".to_owned());
    }
    HostConfig {
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(security),
        privileged: Some(false),
        network_mode: Some(network(spec.network).to_owned()),
        ipc_mode: Some("private".to_owned()),
        userns_mode: mapping.map(str::to_owned),
        memory,
        // All of it: a box that may swap takes the machine along.
        memory_swap: memory,
        // Podman has a limit of its own where none is given.
        pids_limit: held(holds.pids, Some(limits.pids.map_or(-1, i64::from))),
        nano_cpus: held(holds.cpus, limits.cpus.map(|thousandths| i64::from(thousandths) * 1_000_000)),
        oom_score_adj: (!plan.facts.rootless).then_some(500),
        ulimits: Some(ulimits(plan)),
        tmpfs: Some(tmpfs(spec, plan.volumes)),
        shm_size: Some(SHARED_MEMORY),
        mounts: Some(mounts(spec)),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        // The bridge is the init.
        init: Some(false),
        runtime: spec.oci_runtime.clone().filter(|_| plan.facts.kind == Kind::Docker),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(
                [("max-size", "4m"), ("max-file", "2")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
        }),
        ..HostConfig::default()
    }
}

/// Never the host's own network: what is open to a box is the engine's bridge.
pub(crate) fn network(network: Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Host => "default",
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn ulimits(plan: &Plan<'_>) -> Vec<ResourcesUlimits> {
    let limit = |name: &str, value: i64| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    };
    let mut all = vec![
        limit("core", 0),
        limit("nofile", plan.us.files.map_or(MOST_FILES, |hard| signed(hard).min(MOST_FILES))),
    ];
    if plan.facts.kind == Kind::Podman {
        // It sets a million of its own accord, and fails where that is more than it may.
        all.push(limit(
            "nproc",
            plan.us.processes.map_or(MOST_PROCESSES, |hard| signed(hard).min(MOST_PROCESSES)),
        ));
    }
    all
}

fn tmpfs(spec: &BoxSpec, volumes: &[String]) -> HashMap<String, String> {
    // A volume would be a place to write without any limit, and outlive the box. What its image wants there is empty.
    let empty = volumes.iter().filter(|path| !taken(Path::new(path)));
    let mut all: HashMap<_, _> =
        empty.map(|path| (path.clone(), "ro,nosuid,nodev,size=4096".to_owned())).collect();
    all.insert("/tmp".to_owned(), format!("rw,nosuid,nodev,exec,size={},mode=1777", spec.tmp));
    all
}

fn mounts(spec: &BoxSpec) -> Vec<Mount> {
    targets(spec)
        .map(|(source, target, read_only)| Mount {
            typ: Some(MountType::BIND),
            source: Some(source.to_string_lossy().into_owned()),
            target: Some(target.to_string_lossy().into_owned()),
            read_only: Some(read_only),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        })
        .collect()
}

/// Source, target, and whether it can only be read.
pub(crate) fn targets(spec: &BoxSpec) -> impl Iterator<Item = (&Path, &Path, bool)> {
    let own = [
        (spec.workspace.as_path(), Path::new(WORKSPACE), false),
        (spec.meta.as_path(), Path::new(META), false),
    ];
    let sockets = spec.sockets.iter().map(|source| (source.as_path(), Path::new(SOCKETS), true));
    let binds = spec.binds.iter().map(|bind| (bind.source.as_path(), bind.target.as_path(), true));
    own.into_iter().chain(sockets).chain(binds)
}

fn taken(target: &Path) -> bool {
    ["/", "/proc", "/sys", "/dev", "/tmp", WORKSPACE, META, SOCKETS]
        .iter()
        .any(|taken| target == Path::new(taken))
}

/// What a spec may not say: it would undo what is said above.
pub(crate) fn refusal(spec: &BoxSpec) -> Option<String> {
    let texts = spec.args.iter().chain(spec.env.0.keys()).chain(spec.env.0.values()).chain([&spec.command]);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Some("its command, arguments and environment must not contain a NUL".to_owned());
    }
    if let Some(name) = spec.env.0.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Some(format!("`{name}` is no name of a variable"));
    }
    if spec.command.is_empty() {
        return Some("there is no command".to_owned());
    }
    if spec.image.as_deref().is_none_or(str::is_empty) {
        return Some("a container needs an image (`image`, or MCP_RUNTIME_IMAGE)".to_owned());
    }
    if spec.user.uid == 0 || spec.user.gid == 0 {
        return Some("its user is root".to_owned());
    }
    if let Some((path, ..)) = targets(spec).find(|(path, ..)| !path.is_absolute() || path.to_str().is_none())
    {
        return Some(format!("`{}` is no absolute path that can be told to an engine", path.display()));
    }
    let bad = |target: &Path| {
        let plain = target.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        !target.is_absolute()
            || !plain
            || target.to_str().is_none()
            || taken(target)
            || target.starts_with("/proc")
            || target.starts_with("/sys")
    };
    let bind = spec.binds.iter().find(|bind| bad(&bind.target))?;
    Some(format!("nothing can be bound at `{}`", bind.target.display()))
}

/// Which limits that are asked for are not enforced.
pub(crate) fn not_enforced(limits: &Limits, holds: Holds) -> Vec<&'static str> {
    let asked = [
        ("memory", limits.memory.is_some(), holds.memory),
        ("pids", limits.pids.is_some(), holds.pids),
        ("cpus", limits.cpus.is_some(), holds.cpus),
        ("disk", limits.disk.is_some(), holds.disk),
    ];
    asked
        .into_iter()
        .filter(|(_, asked, hold)| *asked && *hold != Hold::Enforced)
        .map(|(name, ..)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_limits_are_read_as_the_kernel_writes_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             100                  32768                processes \n\
                    Max open files            20000                unlimited            files     \n";
        assert_eq!(hard_limit(text, "Max processes"), Some(32_768));
        assert_eq!(hard_limit(text, "Max open files"), None);
    }
}
