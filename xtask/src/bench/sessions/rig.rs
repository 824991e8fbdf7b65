//! What is started for sessions: the scripted model, the daemon, and a bare OpenCode to compare with.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::wire::{self, OpenCode, text};
use crate::fixture::{HttpServer, READY, free_port, said, serve_command};
use crate::process::{Ended, Program, alive};
use crate::tools::installed_npm_version;
use crate::workspace::{Profile, Workspace};

/// How long anything may take that waits for an agent.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
/// How often is looked at files. Small against what is measured with it.
const LOOK: Duration = Duration::from_millis(2);
/// One request for health, and the pause after it. A request that is sent while OpenCode starts to listen is never
/// answered, so a long one would make the bare start look slow.
pub(super) const HEALTH: Duration = Duration::from_millis(200);
pub(super) const PAUSE: Duration = Duration::from_millis(10);
pub(super) const PASSWORD: &str = "bench";
const KEY: &str = "BENCH_PROVIDER_KEY";
/// Where a box has what we have elsewhere.
const META: &str = "/session-meta";

pub(super) struct Programs {
    callsign: PathBuf,
    model: PathBuf,
    pub(super) opencode: PathBuf,
    pub(super) version: String,
}

impl Programs {
    pub(super) fn find(workspace: &Workspace, profile: Profile) -> Result<Self> {
        let modules = workspace.tool("npm-hosts/node_modules");
        let wanted = workspace.pins.npm_hosts.get("opencode-ai").context("tools.toml pins no opencode-ai")?;
        let found = installed_npm_version(&workspace.tool("npm-hosts"), "opencode-ai");
        anyhow::ensure!(
            found.as_ref() == Some(wanted),
            "OpenCode {wanted} is not installed; run `cargo xtask tools`"
        );
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        // The program itself, not the script around it.
        let opencode = modules.join(format!("opencode-linux-{architecture}/bin/opencode"));
        Ok(Self {
            callsign: workspace.binary(profile, "callsign")?,
            model: workspace.binary(profile, "scripted-model")?,
            opencode: opencode
                .canonicalize()
                .with_context(|| format!("{} is missing", opencode.display()))?,
            version: wanted.clone(),
        })
    }
}

/// The model, and every request that reached it.
pub(super) struct Model {
    server: HttpServer,
    log: File,
    /// What was read of the log, less what was looked for and found.
    read: Vec<u8>,
    _home: TempDir,
}

impl Model {
    pub(super) fn start(programs: &Programs) -> Result<Self> {
        let home = TempDir::with_prefix("callsign-bench-")?;
        let log = home.path().join("asked");
        let mut command = Command::new(&programs.model);
        command.args(["--port", "0", "--log"]).arg(&log);
        let server = HttpServer::start("scripted-model", &mut command)?;
        Ok(Self { server, log: File::open(log)?, read: Vec::new(), _home: home })
    }

    pub(super) fn url(&self) -> String {
        format!("{}/v1", self.server.url.trim_end_matches('/'))
    }

    /// Whether a request with this word has come.
    fn was_asked(&mut self, word: &str) -> Result<bool> {
        self.log.read_to_end(&mut self.read)?;
        let found = memchr::memmem::find(&self.read, word.as_bytes()).is_some();
        if found {
            self.read.clear();
        }
        Ok(found)
    }

    pub(super) fn until_asked(&mut self, word: &str) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        while !self.was_asked(word)? {
            anyhow::ensure!(Instant::now() < deadline, "the model was not asked {word:?}");
            std::thread::sleep(LOOK);
        }
        Ok(Instant::now())
    }
}

/// When something that was started got where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Its agent answers.
    pub(super) ready: Duration,
    /// The first request reached the model.
    pub(super) asked: Duration,
}

/// A task that the model answers with this word.
pub(super) fn task(word: &str, delay: u32) -> String {
    format!("Please <<<{}>>>", json!([{ "delay": delay, "text": word }]))
}

/// `callsign serve` on a state directory of its own.
pub(super) struct Daemon {
    program: Program,
    home: TempDir,
    pub(super) client: wire::Daemon,
}

/// How its sessions are to be.
#[derive(Clone, Debug)]
pub(super) struct Wish<'a> {
    /// A box without work for so long goes.
    pub(super) idle: &'a str,
    /// Further lines of `[sessions]`.
    pub(super) lines: String,
    /// Where the container engine is.
    pub(super) engine: Option<String>,
}

impl<'a> Wish<'a> {
    /// Boxes of this machine. With the network, so that the agent in them can be looked at; its model and its API are
    /// reached by sockets all the same.
    pub(super) fn local(idle: &'a str) -> Self {
        Self { idle, lines: "egress = \"open\"\n".to_owned(), engine: None }
    }
}

impl Daemon {
    pub(super) fn start(programs: &Programs, model: &Model, wish: &Wish<'_>) -> Result<Self> {
        let home = TempDir::with_prefix("callsign-bench-")?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let Wish { idle, lines, engine } = wish;
        // Boxes that we could not end, being killed ourselves, end soon.
        let sessions = format!(
            "[sessions]\nprovider = \"openai\"\nmodel = \"openai/mock\"\nbase_url = \"{}\"\napi_key_env = \"{KEY}\"\n\
             command = {}\nidle = \"{idle}\"\norphan_grace = \"20s\"\n{lines}",
            model.url(),
            crate::fixture::quoted(&programs.opencode),
        );
        let mut command = serve_command(&programs.callsign, home.path(), &address, &sessions)?;
        command.env(KEY, "bench").envs(engine.as_ref().map(|host| ("DOCKER_HOST", host)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(home.path().join("stderr"))?);
        let program = Program::start("callsign serve", &mut command)?;
        let client = wire::Daemon::new(&home.path().join("state"));
        let mut daemon = Self { program, home, client };
        let (ready, deadline) = (daemon.state().join("daemon.json"), Instant::now() + READY);
        while !ready.is_file() {
            daemon.program.still_runs().with_context(|| daemon.said())?;
            anyhow::ensure!(Instant::now() < deadline, "no daemon.json; {}", daemon.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The directory of a session.
    pub(super) fn session(&self, session: &str) -> PathBuf {
        self.state().join("sessions").join(session)
    }

    /// What is there of sessions, of those that are to come as well.
    pub(super) fn sessions(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.state().join("sessions")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    pub(super) fn pid(&self) -> i32 {
        self.program.pid()
    }

    pub(super) fn said(&self) -> String {
        said(&self.home.path().join("stderr"))
    }

    /// A task for a session without a box, from before it is submitted until its answer is there.
    pub(super) fn starts(&self, model: &mut Model, session: &str, word: &str) -> Result<Times> {
        let clock = Instant::now();
        let run = self.client.submit(session, &task(word, 0))?;
        let log = self.session(session).join("runs").join(&run).join("run.log");
        let (mut ready, mut asked) = (None, None);
        let deadline = clock + PATIENCE;
        while ready.is_none() || asked.is_none() {
            if ready.is_none()
                && std::fs::read_to_string(&log).is_ok_and(|text| text.contains("box started in"))
            {
                ready = Some(clock.elapsed());
            }
            if asked.is_none() && model.was_asked(word)? {
                asked = Some(clock.elapsed());
            }
            if Instant::now() > deadline {
                let run = self.client.run(session, &run);
                anyhow::bail!("the box was ready: {ready:?}, the model was asked: {asked:?}; {run:?}");
            }
            std::thread::sleep(LOOK);
        }
        self.client.completed(session, &run, word)?;
        Ok(Times { ready: ready.unwrap_or_default(), asked: asked.unwrap_or_default() })
    }

    /// How the box of a session is reached.
    pub(super) fn access(&self, session: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.session(session).join("access.json"))?)?)
    }

    /// The agent in the box of a session.
    pub(super) fn agent(&self, session: &str) -> Result<(OpenCode, u64)> {
        let access = self.access(session)?;
        let port = access["ports"]["agent"].as_u64().context("access.json has no port of the agent")?;
        Ok((OpenCode::new(u16::try_from(port)?, &text(&access["password"])?), port))
    }

    /// The variables of the agent in the box of a session, as the agent itself has them.
    pub(super) fn variables(&self, session: &str) -> Result<BTreeMap<String, String>> {
        let (_, port) = self.agent(session)?;
        let port = port.to_string();
        let is_agent = |words: &[String]| {
            words.first().is_some_and(|program| program.ends_with("/opencode"))
                && words.get(1).is_some_and(|word| word == "serve")
                && words.contains(&port)
        };
        let pid = processes().into_iter().find(|pid| is_agent(&words_of(*pid)));
        let pid = pid.context("the box's OpenCode is not in /proc")?;
        variables_of(pid)
    }

    pub(super) fn stop(mut self) -> Result<()> {
        let ended = self.program.stop(Duration::from_secs(20))?;
        anyhow::ensure!(ended == Ended::ByItself, "it did not end within 20 s of SIGTERM; {}", self.said());
        let left = self.keepers();
        anyhow::ensure!(left.is_empty(), "{} boxes are left", left.len());
        Ok(())
    }

    /// The processes that keep our boxes: they are told where the state directory is, and are not the daemon.
    pub(super) fn keepers(&self) -> Vec<i32> {
        let state = self.state().to_string_lossy().into_owned();
        let names_it = |pid: &i32| words_of(*pid).iter().any(|word| word.contains(&state));
        processes()
            .into_iter()
            .filter(|pid| *pid != self.program.pid() && alive(*pid))
            .filter(names_it)
            .collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Boxes outlive their daemon, and must not outlive us.
        self.program.stop(Duration::from_secs(20)).ok();
        for keeper in self.keepers() {
            kill(Pid::from_raw(keeper), Signal::SIGKILL).ok();
        }
    }
}

/// `opencode serve` by hand, with the variables of a box and a home of its own.
pub(super) struct Bare<'a> {
    programs: &'a Programs,
    home: TempDir,
    variables: BTreeMap<String, String>,
    /// Its conversation, once there is one.
    session: Option<String>,
}

impl<'a> Bare<'a> {
    pub(super) fn new(
        programs: &'a Programs,
        model: &Model,
        of_box: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let home = TempDir::with_prefix("callsign-bench-")?;
        let path = home.path().to_string_lossy().into_owned();
        let mut variables = of_box.clone();
        for value in variables.values_mut() {
            if value.starts_with(META) {
                *value = value.replacen(META, &path, 1);
            }
        }
        variables.insert("TMPDIR".into(), format!("{path}/tmp"));
        // Nothing of ours: it asks the model itself, and has no plugin.
        variables.insert("XDG_CONFIG_HOME".into(), format!("{path}/config"));
        let told =
            variables.get("OPENCODE_CONFIG_CONTENT").context("the box's OpenCode has no configuration")?;
        let mut config: Value = serde_json::from_str(told)?;
        for provider in config["provider"].as_object_mut().context("it has no provider")?.values_mut() {
            provider["options"]["baseURL"] = json!(model.url());
        }
        variables.insert("OPENCODE_CONFIG_CONTENT".into(), config.to_string());
        variables.insert("OPENCODE_SERVER_PASSWORD".into(), PASSWORD.into());
        variables.remove("PWD");
        for directory in ["tmp", "workspace", "config"] {
            std::fs::create_dir(home.path().join(directory))?;
        }
        Ok(Self { programs, home, variables, session: None })
    }

    /// Starts it, does what a driver must do for the first answer, and stops it.
    pub(super) fn starts(&mut self, model: &mut Model, word: &str) -> Result<Times> {
        let log = self.home.path().join("stderr");
        let port = free_port()?;
        let mut command = Command::new(&self.programs.opencode);
        command.args(["serve", "--hostname", "127.0.0.1", "--port", &port.to_string()]);
        command.env_clear().envs(&self.variables).current_dir(self.workspace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let agent = OpenCode::new(port, PASSWORD);
        let clock = Instant::now();
        let mut program = Program::start("opencode serve", &mut command)?;
        while !agent.healthy(HEALTH) {
            program.still_runs().with_context(|| said(&log))?;
            anyhow::ensure!(clock.elapsed() < PATIENCE, "opencode serve does not answer; {}", said(&log));
            std::thread::sleep(PAUSE);
        }
        let ready = clock.elapsed();
        let asked = self.prompt(&agent, model, word).with_context(|| said(&log))? - clock;
        program.stop(Duration::from_secs(10))?;
        Ok(Times { ready, asked })
    }

    fn prompt(&mut self, agent: &OpenCode, model: &mut Model, word: &str) -> Result<Instant> {
        let directory = self.workspace();
        let directory = directory.to_string_lossy();
        let session = if let Some(session) = &self.session {
            session.clone()
        } else {
            let made =
                agent.post(&format!("/session?directory={directory}"), &json!({ "title": "bench" }))?;
            self.session.insert(text(&made["id"])?).clone()
        };
        let path = format!("/session/{session}/prompt_async?directory={directory}");
        let parts = json!({ "parts": [{ "type": "text", "text": task(word, 0) }] });
        agent.post(&path, &parts)?;
        let asked = model.until_asked(word)?;
        let deadline = Instant::now() + PATIENCE;
        // It is busy since it asked; so it is done when it is not busy any more.
        while !agent.get(&format!("/session/status?directory={directory}"))?[&session].is_null() {
            anyhow::ensure!(Instant::now() < deadline, "OpenCode does not end its turn");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(asked)
    }

    fn workspace(&self) -> PathBuf {
        self.home.path().join("workspace")
    }
}

/// Of an OpenCode that we have configured.
pub(super) fn variables_of(pid: i32) -> Result<BTreeMap<String, String>> {
    let environment = std::fs::read(format!("/proc/{pid}/environ"))?;
    let environment = String::from_utf8(environment).context("its variables are no text")?;
    let pairs = environment.split('\0').filter_map(|pair| pair.split_once('='));
    let variables: BTreeMap<String, String> =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    anyhow::ensure!(variables.contains_key("OPENCODE_CONFIG_CONTENT"), "{:?}", variables.keys());
    Ok(variables)
}

fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(super) fn words_of(pid: i32) -> Vec<String> {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
