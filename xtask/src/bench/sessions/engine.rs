//! A Docker engine of the bench's own: everything it has lies in one directory, and its guard
//! (`crates/containers/probe/guard.rs`) leaves nothing of it, however we end.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::rig::words_of;
use super::wire::exchange;
use crate::bench::usage;
use crate::engines;
use crate::workspace::{Profile, Workspace};

pub(super) const IMAGE: &str = "localhost/callsign-base:bench";
const PATIENCE: Duration = Duration::from_mins(2);
/// As the kernel cuts the name of `containerd-shim-runc-v2`.
const SHIM: &str = "containerd-shim";

/// With [`IMAGE`], the smallest Debian.
pub(super) struct Engine {
    directory: PathBuf,
    guard: Child,
}

/// What a request to the engine carries.
pub(super) enum Sent<'a> {
    Nothing,
    Json(&'a Value),
    Tar(Vec<u8>),
}

impl Engine {
    /// Why there can be none here.
    pub(super) fn obstacle(workspace: &Workspace) -> Option<String> {
        let help = "run `cargo xtask tools` as root";
        engines::left_out().or_else(|| {
            if !nix::unistd::geteuid().is_root() {
                Some("only root can have a container engine of its own".to_owned())
            } else if workspace.which("dockerd").is_none() {
                Some(format!("there is no dockerd; {help}"))
            } else if !workspace.tool("engines/base.tar").is_file() {
                Some(format!("there is no image to start from; {help}"))
            } else {
                None
            }
        })
    }

    pub(super) fn start(workspace: &Workspace, profile: Profile) -> Result<Self> {
        let directory = TempDir::with_prefix_in("csengine", "/tmp")?.keep();
        let mut command = Command::new(workspace.binary(profile, "containers-probe")?);
        command.args(["guard", "docker"]).arg(&directory);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let engine = Self { directory, guard: command.spawn()? };
        let deadline = Instant::now() + PATIENCE;
        while !engine.ask("GET", "/version", &Sent::Nothing).is_ok_and(|(status, _)| status == 200) {
            let log = std::fs::read_to_string(engine.directory.join("engine.log")).unwrap_or_default();
            let hopeless = log.contains("cannot be run") || Instant::now() > deadline;
            anyhow::ensure!(!hopeless, "the engine does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let base = std::fs::read(workspace.tool("engines/base.tar"))?;
        let (repository, tag) = IMAGE.rsplit_once(':').context("a name and a tag")?;
        let path = format!("/images/create?fromSrc=-&repo={repository}&tag={tag}");
        engine.ask("POST", &path, &Sent::Tar(base)).context("the image is imported")?;
        engine.done("GET", &format!("/images/{IMAGE}/json"), &Sent::Nothing)?;
        Ok(engine)
    }

    /// What `DOCKER_HOST` is to be.
    pub(super) fn host(&self) -> String {
        format!("unix://{}", self.directory.join("engine.sock").display())
    }

    fn ask(&self, method: &str, path: &str, sent: &Sent<'_>) -> Result<(u16, Value)> {
        let stream = UnixStream::connect(self.directory.join("engine.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (kind, body) = match sent {
            Sent::Nothing => ("application/json", Vec::new()),
            Sent::Json(value) => ("application/json", value.to_string().into_bytes()),
            Sent::Tar(bytes) => ("application/x-tar", bytes.clone()),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        exchange(stream, &[head.into_bytes(), body].concat())
    }

    /// As it must be answered for us to go on.
    pub(super) fn done(&self, method: &str, path: &str, sent: &Sent<'_>) -> Result<Value> {
        let (status, answer) = self.ask(method, path, sent)?;
        anyhow::ensure!((200..300).contains(&status), "{method} {path} was answered {status}: {answer}");
        Ok(answer)
    }

    /// One for each container; what runs in it is beneath.
    pub(super) fn shims(&self) -> Vec<i32> {
        let directory = self.directory.to_string_lossy().into_owned();
        let is_ours = |pid: &i32| words_of(*pid).iter().any(|word| word.contains(&directory));
        usage::named(SHIM).into_iter().filter(is_ours).collect()
    }

    /// What runs in containers: the first process of each.
    pub(super) fn firsts(&self) -> Result<Vec<i32>> {
        let listed = self.done("GET", "/containers/json", &Sent::Nothing)?;
        let ids = listed.as_array().into_iter().flatten().filter_map(|one| one["Id"].as_str());
        ids.map(|id| self.pid(id)).collect()
    }

    pub(super) fn pid(&self, container: &str) -> Result<i32> {
        let shown = self.done("GET", &format!("/containers/{container}/json"), &Sent::Nothing)?;
        let pid = shown["State"]["Pid"].as_i64().filter(|pid| *pid > 0);
        Ok(i32::try_from(pid.with_context(|| format!("it has ended: {}", shown["State"]))?)?)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        self.guard.wait().ok();
    }
}
