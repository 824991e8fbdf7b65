//! What makes the boxes of this run of the tests, and what it says of those of one state directory.
//!
//! ```text
//! CALLSIGN_TEST_RUNTIME=docker DOCKER_HOST=unix://… ─▶ every rig: `runtime`, `image` in its configuration, DOCKER_HOST
//! ```
//!
//! Without it boxes are local. `cargo xtask sessions --runtime docker` starts an engine for a whole run and sets both.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::Digest as _;
use testkit::engine::{EngineSocket, IMAGE};
use testkit::harness::{alive, descendants};

use super::processes::{BoxProcess, is_opencode};

const VARIABLE: &str = "CALLSIGN_TEST_RUNTIME";
/// What the product writes on its containers.
const OWNER: &str = "dev.callsign.owner";
const BOX: &str = "dev.callsign.box";
/// Where engines keep what their images are made of: large, and the same for everybody.
const LAYERS: [&str; 4] = ["overlay", "overlay2", "vfs", "image"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    Local,
    Docker,
    Podman,
}

impl Runtime {
    pub(crate) fn of_this_run() -> Self {
        match std::env::var_os(VARIABLE).as_ref().map(|word| word.to_str()) {
            None | Some(Some("" | "local")) => Self::Local,
            Some(Some("docker")) => Self::Docker,
            Some(Some("podman")) => Self::Podman,
            Some(other) => panic!("{VARIABLE} is {other:?}; there are local, docker and podman"),
        }
    }

    /// As sessions name it: both engines are reached in one way.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker | Self::Podman => "docker",
        }
    }

    /// Lines for `[sessions]`.
    pub(super) fn lines(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Local => vec![("runtime", self.word().to_owned())],
            Self::Docker | Self::Podman => {
                vec![("runtime", self.word().to_owned()), ("image", IMAGE.to_owned())]
            }
        }
    }
}

/// The engine of this run, and whose containers a rig's are.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(crate) socket: EngineSocket,
    owner: String,
}

impl Engine {
    /// None where boxes are local.
    pub(super) fn of_this_run(state: &Path) -> Option<Self> {
        if Runtime::of_this_run() == Runtime::Local {
            return None;
        }
        let host = std::env::var_os("DOCKER_HOST").and_then(|host| host.into_string().ok());
        let host =
            host.unwrap_or_else(|| panic!("{VARIABLE} needs DOCKER_HOST: an engine that tests may use"));
        let digest = sha2::Sha256::digest(state.as_os_str().as_encoded_bytes());
        let owner = digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        Some(Self { socket: EngineSocket::of_host(&host), owner })
    }

    /// Every container of the state directory, in whatever state.
    fn containers(&self) -> Vec<Value> {
        let filters = json!({ "label": [format!("{OWNER}={}", self.owner)] }).to_string();
        let encoded: String = filters.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02x}"));
        let Value::Array(found) = self.socket.get(&format!("/containers/json?all=true&filters={encoded}"))
        else {
            panic!("no list of containers")
        };
        found
    }

    /// Sessions whose containers run.
    pub(super) fn hot(&self) -> Vec<String> {
        let running = self.containers().into_iter().filter(|container| container["State"] == "running");
        running.filter_map(|container| Some(container["Labels"][BOX].as_str()?.to_owned())).collect()
    }

    /// Containers that run, by the processes that the engine started for them.
    pub(super) fn boxes(&self) -> Vec<BoxProcess> {
        let running = self.containers().into_iter().filter(|container| container["State"] == "running");
        running.filter_map(|container| self.process(&container)).collect()
    }

    /// None: it has ended meanwhile.
    fn process(&self, container: &Value) -> Option<BoxProcess> {
        let id = container["Id"].as_str()?;
        let (_, seen) = self.socket.ask("GET", &format!("/containers/{id}/json"), None).ok()?;
        let init =
            u32::try_from(seen["State"]["Pid"].as_u64()?).ok().filter(|pid| *pid > 0 && alive(*pid))?;
        let opencode = descendants(init).into_iter().filter(|pid| is_opencode(*pid)).collect();
        let session = container["Labels"][BOX].as_str()?.to_owned();
        Some(BoxProcess { session, keeper: init, opencode })
    }

    /// Everything that the engine says of the containers of this state directory: how they are made, and what they said.
    pub(crate) fn told(&self) -> String {
        let ids = self.containers().into_iter().filter_map(|one| Some(one["Id"].as_str()?.to_owned()));
        ids.fold(String::new(), |told, id| {
            let said = self.socket.get(&format!("/containers/{id}/json"));
            let log = self.socket.get(&format!("/containers/{id}/logs?stdout=true&stderr=true"));
            format!("{told}{said}\n{log}\n")
        })
    }

    /// The files that the engine has written down about containers.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let root = self.socket.path().parent().expect("a socket lies in a directory");
        let (mut waiting, mut found) = (vec![root.to_owned()], Vec::new());
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let kind = entry.file_type();
                let is_layer = LAYERS.iter().any(|name| entry.file_name() == *name);
                match kind {
                    Ok(kind) if kind.is_dir() && !is_layer => waiting.push(entry.path()),
                    Ok(kind) if kind.is_file() => found.push(entry.path()),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        found
    }

    /// Takes every container of the state directory away; what is left of them after all.
    pub(super) fn clear(&self, within: Duration) -> Vec<String> {
        let end = Instant::now() + within;
        loop {
            let left = self.containers();
            if left.is_empty() || Instant::now() > end {
                return left.iter().map(|one| format!("{} {}", one["Names"], one["Status"])).collect();
            }
            for container in left {
                self.socket.remove(container["Id"].as_str().unwrap_or_default());
            }
        }
    }
}
