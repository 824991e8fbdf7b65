//! The twelve properties on which a container's walls rest: read back from the engine, and compared. Pure.
//!
//! An engine that does not know a setting leaves it out without a word; a proxy before it may take one away.

use std::collections::BTreeMap;
use std::path::Path;

use bollard::models::{ContainerInspectResponse, HostConfig, RestartPolicyNameEnum};
use model::ports::sandbox::{BoxSpec, Hold};
use serde::Serialize;

use crate::body::{Person, Plan, network, targets};

/// What engines give a container that asks for nothing. Podman lists these where Docker says `ALL`.
const USUAL: [&str; 11] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own that an engine tells")]
pub struct Properties {
    /// 1. Nothing of the image can be changed.
    pub read_only: bool,
    /// 2. None is left, and none was added.
    pub no_capabilities: bool,
    /// 3.
    pub no_new_privileges: bool,
    /// 4.
    pub user: String,
    /// 5. `none`, or the engine's bridge.
    pub network: String,
    /// 6.
    pub pids: Option<i64>,
    /// 7. Memory, and memory with swap.
    pub memory: (Option<i64>, Option<i64>),
    /// 8. In billionths of a processor.
    pub cpus: Option<i64>,
    /// 9. The engine's filter of system calls is on, and so are the masks over `/proc`.
    pub filtered: bool,
    /// 10. Neither privileged nor with any device.
    pub no_devices: bool,
    /// 11. Processes, IPC, users and names of its own, and nobody starts it again.
    pub own_namespaces: bool,
    /// 12. What is bound where; true if it can be written.
    pub mounts: BTreeMap<String, (String, bool)>,
}

impl Properties {
    /// As they must be.
    pub(crate) fn wanted(spec: &BoxSpec, plan: &Plan<'_>) -> Self {
        let holds = plan.facts.holds;
        let held = |hold: Hold, limit: Option<i64>| limit.filter(|_| hold == Hold::Enforced);
        let memory = held(holds.memory, spec.limits.memory.and_then(|bytes| i64::try_from(bytes).ok()));
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Self {
            read_only: true,
            no_capabilities: true,
            no_new_privileges: true,
            user: Person::new(plan.facts, plan.us, spec).user,
            network: network(spec.network).to_owned(),
            pids: held(holds.pids, spec.limits.pids.map(i64::from)),
            memory: (memory, memory),
            cpus: held(holds.cpus, spec.limits.cpus.map(|thousandths| i64::from(thousandths) * 1_000_000)),
            filtered: true,
            no_devices: true,
            own_namespaces: true,
            mounts: targets(spec)
                .map(|(source, target, read_only)| (text(target), (text(source), !read_only)))
                .collect(),
        }
    }

    /// The names of those that differ, with both values.
    pub(crate) fn differences(&self, wanted: &Self) -> Vec<String> {
        let (found, wanted) = (fields(self), fields(wanted));
        let pairs = wanted.iter().filter(|(name, value)| found.get(*name) != Some(value));
        pairs
            .map(|(name, value)| {
                format!("{name} is {}, not {value}", found.get(name).unwrap_or(&serde_json::Value::Null))
            })
            .collect()
    }
}

fn fields(properties: &Properties) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(properties) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    }
}

/// As the engine tells them. What it does not tell counts as absent.
pub fn properties(inspect: &ContainerInspectResponse) -> Properties {
    let none = HostConfig::default();
    let host = inspect.host_config.as_ref().unwrap_or(&none);
    let config = inspect.config.as_ref();
    // Zero is how engines write that there is no limit.
    let limit = |value: Option<i64>| value.filter(|value| *value > 0);
    let security = host.security_opt.as_deref().unwrap_or_default();
    let cpus = limit(host.nano_cpus).or_else(|| {
        let (quota, period) = (limit(host.cpu_quota)?, limit(host.cpu_period)?);
        quota.checked_mul(1_000_000_000)?.checked_div(period)
    });
    let mounts = inspect.mounts.iter().flatten().map(|mount| {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        (text(&mount.destination), (text(&mount.source), mount.rw != Some(false)))
    });
    Properties {
        read_only: host.readonly_rootfs == Some(true),
        no_capabilities: no_capabilities(host),
        no_new_privileges: security.iter().any(|option| {
            ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"]
                .contains(&option.as_str())
        }),
        user: config.and_then(|config| config.user.clone()).unwrap_or_default(),
        network: match host.network_mode.as_deref() {
            Some("bridge" | "default" | "slirp4netns" | "pasta") => "default".to_owned(),
            other => other.unwrap_or_default().to_owned(),
        },
        pids: limit(host.pids_limit),
        memory: (limit(host.memory), limit(host.memory).and_then(|_| limit(host.memory_swap))),
        cpus,
        filtered: !security.iter().any(|option| option.contains("unconfined") || option.contains("unmask")),
        no_devices: host.privileged != Some(true)
            && host.devices.as_ref().is_none_or(Vec::is_empty)
            && host.device_requests.as_ref().is_none_or(Vec::is_empty)
            && host.device_cgroup_rules.as_ref().is_none_or(Vec::is_empty),
        own_namespaces: own_namespaces(host),
        mounts: mounts.collect(),
    }
}

fn no_capabilities(host: &HostConfig) -> bool {
    let dropped: Vec<&str> =
        host.cap_drop.iter().flatten().map(|name| name.strip_prefix("CAP_").unwrap_or(name)).collect();
    let all = dropped.iter().any(|name| name.eq_ignore_ascii_case("all"));
    host.cap_add.as_ref().is_none_or(Vec::is_empty)
        && (all || USUAL.iter().all(|name| dropped.contains(name)))
}

fn own_namespaces(host: &HostConfig) -> bool {
    let shared = |mode: &Option<String>| {
        mode.as_deref().is_some_and(|mode| mode == "host" || mode.starts_with("container:"))
    };
    let restarts = host.restart_policy.as_ref().and_then(|policy| policy.name);
    let stays = matches!(restarts, None | Some(RestartPolicyNameEnum::NO | RestartPolicyNameEnum::EMPTY));
    ![&host.pid_mode, &host.ipc_mode, &host.uts_mode, &host.userns_mode].into_iter().any(shared) && stays
}
