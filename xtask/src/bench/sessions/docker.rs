//! Sessions in containers, beside the same image with nothing but OpenCode in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns};
use serde_json::json;
use tempfile::TempDir;

use super::boxes::{Aim, Row};
use super::engine::{Engine, IMAGE, Sent};
use super::rig::{Daemon, HEALTH, Model, PASSWORD, PATIENCE, PAUSE, Programs, Wish, variables_of, words_of};
use super::wire::{OpenCode, text};
use super::{Extent, milliseconds, rest};
use crate::bench::usage::{family, named};
use crate::workspace::Workspace;

/// As whom a box of root's daemon runs.
const NOBODY: u32 = 65534;
/// In a network of its own every agent has this one.
const PORT: u16 = 4096;

/// An engine cannot be had everywhere: that is said, and no error.
pub(super) fn measure(
    workspace: &Workspace,
    programs: &Programs,
    model: &mut Model,
    extent: Extent,
) -> Result<Vec<Row>> {
    let obstacle = match extent {
        Extent::Smoke => Some("the smoke starts no container engine".to_owned()),
        Extent::Full => Engine::obstacle(workspace),
    };
    if let Some(reason) = obstacle {
        println!("  no container: {reason}");
        let rows = rows(Vec::new(), Vec::new(), Vec::new(), Vec::new());
        return Ok(rows.map(|row| row.missing(&reason)).to_vec());
    }
    let engine = Engine::start(workspace, extent.profile())?;
    let wish = Wish {
        idle: "30m",
        lines: format!("runtime = \"docker\"\nimage = \"{IMAGE}\"\n"),
        engine: Some(engine.host()),
    };
    let daemon = Daemon::start(programs, model, &wish)?;
    let ours = || {
        let roots: Vec<i32> = engine.firsts()?.into_iter().chain([daemon.pid()]).collect();
        // Each by itself: what it started is counted above, or is the agent.
        let alone = |shim: &i32| rest::memory(&[*shim]).map(|all| all.get("containerd-shim").copied());
        let shims: f64 =
            engine.shims().iter().map(alone).collect::<Result<Vec<_>>>()?.into_iter().flatten().sum();
        Ok(vec![rest::memory(&roots)?, BTreeMap::from([("containerd-shim".to_owned(), shims)])])
    };
    let (mut grown, sessions) = rest::growth(&daemon, extent.boxes(), ours)?;
    let shims = grown.pop().context("shims")?;
    let at_rest = grown.pop().context("boxes")?;
    let bare = Bare::like(&engine)?;
    for session in sessions {
        daemon.client.terminate(&session)?;
    }
    let (mut boxed, mut alone) = (Vec::new(), Vec::new());
    for round in 0..extent.size().starts {
        for is_ours in [round % 2 == 0, round % 2 != 0] {
            let (who, time) = if is_ours {
                let session = daemon.client.create()?;
                let word = format!("container-{round}-");
                let times = daemon.starts(model, &session, &word).with_context(|| daemon.said())?;
                daemon.client.terminate(&session)?;
                ("callsign", milliseconds(times.ready))
            } else {
                ("bare", bare.starts(&engine, programs)?)
            };
            println!("  container {who:<8} ready {time:>6.0} ms");
            if is_ours { &mut boxed } else { &mut alone }.push(time);
        }
    }
    daemon.stop()?;
    Ok(rows(boxed, alone, at_rest, shims).to_vec())
}

fn rows(boxed: Vec<f64>, alone: Vec<f64>, at_rest: Vec<f64>, shims: Vec<f64>) -> [Row; 3] {
    [
        Row::new("container: agent ready", Aim::Times(1.15), boxed, alone),
        Row::memory("container at rest", Aim::Most(4.0), at_rest),
        Row::memory("container at rest: the engine's shim", Aim::None, shims),
    ]
}

/// A container with OpenCode alone.
struct Bare {
    /// Where a box has the program.
    program: String,
    variables: BTreeMap<String, String>,
}

impl Bare {
    /// The same as in a container that runs now.
    fn like(engine: &Engine) -> Result<Self> {
        let agents = named("opencode");
        let inside: Vec<i32> = engine.firsts()?.into_iter().flat_map(family).collect();
        let is_agent =
            |pid: &&i32| agents.contains(pid) && words_of(**pid).iter().any(|word| word == "serve");
        let pid = inside.iter().find(is_agent).context("no OpenCode runs in a container")?;
        let mut variables = variables_of(*pid)?;
        variables.insert("OPENCODE_SERVER_PASSWORD".into(), PASSWORD.into());
        // Nothing of ours: it has no plugin.
        variables.insert("XDG_CONFIG_HOME".into(), "/session-meta/config".into());
        variables.remove("PWD");
        let program = words_of(*pid).into_iter().next().context("it has no name")?;
        Ok(Self { program, variables })
    }

    /// In milliseconds, with a new home. It is gone afterwards.
    fn starts(&self, engine: &Engine, programs: &Programs) -> Result<f64> {
        let home = TempDir::with_prefix("callsign-bench-")?;
        let at = |name: &str| -> Result<PathBuf> {
            let path = home.path().join(name);
            std::fs::create_dir(&path)?;
            chown(&path, Some(NOBODY), Some(NOBODY))?;
            Ok(path)
        };
        let bind = |source: PathBuf, target: &str, read_only: bool| json!({ "Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only });
        let body = json!({
            "Image": IMAGE,
            "Entrypoint": [self.program],
            "Cmd": ["serve", "--hostname", "127.0.0.1", "--port", PORT.to_string()],
            "Env": self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
            "User": format!("{NOBODY}:{NOBODY}"),
            "WorkingDir": "/workspace",
            "HostConfig": { "NetworkMode": "none", "Mounts": [
                bind(programs.opencode.clone(), &self.program, true),
                bind(at("meta")?, "/session-meta", false),
                bind(at("workspace")?, "/workspace", false),
            ]},
        });
        let clock = Instant::now();
        let made = engine.done("POST", "/containers/create", &Sent::Json(&body))?;
        let container = text(&made["Id"])?;
        let started = engine
            .done("POST", &format!("/containers/{container}/start"), &Sent::Nothing)
            .and_then(|_| until_healthy(engine.pid(&container)?, clock));
        let took = clock.elapsed();
        engine.done("DELETE", &format!("/containers/{container}?force=true"), &Sent::Nothing)?;
        started.map(|()| milliseconds(took))
    }
}

/// Asked from a thread that is in the container's network.
fn until_healthy(pid: i32, clock: Instant) -> Result<()> {
    let asking = std::thread::spawn(move || -> Result<()> {
        setns(File::open(format!("/proc/{pid}/ns/net"))?, CloneFlags::CLONE_NEWNET)?;
        let agent = OpenCode::new(PORT, PASSWORD);
        while !agent.healthy(HEALTH) {
            anyhow::ensure!(clock.elapsed() < PATIENCE, "OpenCode alone does not answer");
            std::thread::sleep(PAUSE);
        }
        Ok(())
    });
    asking.join().map_err(|_| anyhow::anyhow!("asking for health failed"))?
}
