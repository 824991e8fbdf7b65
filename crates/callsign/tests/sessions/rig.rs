//! One state directory, one scripted model, and whoever works on them: daemons, clients, boxes.
//!
//! ```text
//! let mut rig = Rig::with("max_hot = 2");
//! rig.serve();
//! let client = rig.client();
//! let session = client.create("a key");
//! let run = client.submit(&session, json!([{ "text": "hello" }]));
//! assert_eq!(client.wait(&session, &run, TURN)["final_output"], "hello");
//! ```
//! Everything here blocks, so that a hundred callers at once are a hundred threads. Drop ends every process that has
//! this state directory in its arguments, and every container of it, and fails the test where one is left.
//!
//! What makes the boxes is the same for a whole run of the tests: see `rig/runtime.rs`.

// Named, so that other binaries of tests can have the rig as well.
#[path = "rig/client.rs"]
mod client;
#[path = "rig/processes.rs"]
mod processes;
#[path = "rig/runtime.rs"]
mod runtime;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::client::Era;
use testkit::harness::{CANARY, alive, descendants, kill};
use testkit::hosts::{Host, binary};
use testkit::llm::ScriptedModel;

pub(crate) use self::client::{Client, text};
pub(crate) use self::processes::BoxProcess;
pub(crate) use self::runtime::{Engine, Runtime};

pub(crate) const CALLSIGN: &str = env!("CARGO_BIN_EXE_callsign");
/// How long a task may take whose box must start first, on two busy cores.
pub(crate) const TURN: Duration = Duration::from_secs(90);
/// How long something may take that happens at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// The variable in which the daemon has the provider's key.
const KEY: &str = "RIG_PROVIDER_KEY";
const NOBODY: u32 = 65534;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whom the daemon runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever runs the tests.
    Myself,
    /// An unprivileged user without a control group.
    Nobody,
    /// The same user, to whom control groups were delegated.
    Delegated,
}

pub(crate) struct Rig {
    /// First of the fields that have something to lose: the others end before it goes.
    model: ScriptedModel,
    who: Who,
    /// None where boxes are local.
    engine: Option<Engine>,
    groups: Vec<PathBuf>,
    daemon: Option<Child>,
    environment: Vec<(String, String)>,
    files: TempDir,
}

impl Rig {
    /// A state directory and a model; nothing runs yet.
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With further lines for `[sessions]`, and further tables after them. What the lines set themselves is theirs.
    pub(crate) fn with(config: &str) -> Self {
        Self::run_by(Who::Myself, config)
    }

    /// As [`Self::with`], for a daemon of somebody else. Only root can be others.
    pub(crate) fn run_by(who: Who, config: &str) -> Self {
        let files = tempfile::Builder::new().prefix("callsign-sessions-").tempdir().expect("a directory");
        let engine = Engine::of_this_run(&files.path().join("state"));
        assert!(
            who == Who::Myself || engine.is_none(),
            "only root may use the engine of these tests: a daemon of somebody else has local boxes"
        );
        let host = engine.iter().map(|engine| ("DOCKER_HOST".to_owned(), engine.socket.host()));
        let (model, environment) = (ScriptedModel::start(), host.collect());
        let mut rig = Self { model, who, engine, groups: Vec::new(), daemon: None, environment, files };
        for (directory, mode) in [(rig.state(), 0o700), (rig.home(), 0o700)] {
            fs::create_dir(&directory).expect("a directory");
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("its mode");
        }
        fs::write(rig.config(), rig.document(config)).expect("the configuration");
        // Others may pass: a daemon of somebody else is beneath.
        fs::set_permissions(rig.files.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        if who != Who::Myself {
            assert!(nix::unistd::geteuid().is_root(), "only root can start a daemon of somebody else");
            for path in [rig.state(), rig.home(), rig.config()] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("it is root who asks");
            }
        }
        if who == Who::Delegated {
            rig.groups = processes::delegate(&rig.name(), NOBODY);
        }
        rig
    }

    /// Lines of the rig's own under `[sessions]`, but where the test says something else.
    fn document(&self, config: &str) -> String {
        let (before, lines) = config.split_once("[sessions]\n").unwrap_or(("", config));
        let mut own = String::new();
        let lines_of_ours = [
            ("provider", "openai".to_owned()),
            ("model", "openai/mock".to_owned()),
            ("base_url", self.base_url()),
            ("api_key_env", KEY.to_owned()),
            ("command", opencode()),
        ];
        for (key, value) in lines_of_ours.into_iter().chain(Runtime::of_this_run().lines()) {
            let is_set = |line: &str| line.split('=').next().is_some_and(|name| name.trim() == key);
            if !lines.lines().any(is_set) {
                let _infallible = writeln!(own, "{key} = {}", Value::from(value));
            }
        }
        format!("{before}[sessions]\n{own}{lines}\n")
    }

    fn base_url(&self) -> String {
        format!("{}/v1", self.model.url())
    }

    /// The settings of a host's entry, as people write them.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        [
            ("MCP_OPENCODE_PROVIDER", "openai".to_owned()),
            ("MCP_OPENCODE_MODEL", "openai/mock".to_owned()),
            ("MCP_OPENCODE_BASE_URL", self.base_url()),
            ("MCP_OPENCODE_API_KEY", CANARY.to_owned()),
            ("MCP_OPENCODE_COMMAND", opencode()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    pub(crate) fn model(&self) -> &ScriptedModel {
        &self.model
    }

    /// How often a prompt with this text began a turn. Later steps of a turn end with what a tool said.
    pub(crate) fn begun(&self, text: &str) -> usize {
        let begins = |body: &Value| {
            let last = body["messages"].as_array().and_then(|messages| messages.last());
            let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
            has_tools && last.is_some_and(|last| last["role"] == "user" && last.to_string().contains(text))
        };
        self.model.asked().iter().filter(|asked| begins(&asked.body)).count()
    }

    /// How many prompts with this text are in one conversation, at most.
    pub(crate) fn prompts_with(&self, text: &str) -> usize {
        let prompts = |body: &Value| {
            let messages = body["messages"].as_array().into_iter().flatten();
            messages.filter(|one| one["role"] == "user" && one.to_string().contains(text)).count()
        };
        self.model.asked().iter().map(|asked| prompts(&asked.body)).max().unwrap_or(0)
    }

    /// Waits until a prompt with this text has reached the model.
    #[track_caller]
    pub(crate) fn wait_begun(&self, text: &str) {
        self.until(TURN, "the prompt to reach the model", || self.begun(text) > 0);
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.files.path().join("state")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.files.path().join("callsign.toml")
    }

    fn home(&self) -> PathBuf {
        self.files.path().join("home")
    }

    /// A place that goes with the rig.
    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    fn name(&self) -> String {
        let name = self.files.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.chars().filter(char::is_ascii_alphanumeric).collect()
    }

    /// What the daemons said so far: those that the rig started, and those that `callsign mcp` did.
    pub(crate) fn log(&self) -> String {
        let read = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        format!("{}{}", read(self.files.path().join("stderr.log")), read(self.state().join("daemon.log")))
    }

    /// `callsign ARGS… --state-dir …`, as whoever runs the tests.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CALLSIGN);
        command.args(arguments).arg("--state-dir").arg(self.state());
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        command.current_dir(self.files.path()).env_clear();
        command.env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", self.home()).env(KEY, CANARY);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }

    /// Another variable for everything that is started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Runs a command to its end: exit code, stdout, stderr.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(arguments).stdin(Stdio::null()).output().expect("callsign runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// Starts the daemon and waits until it says where it is. Its pid.
    pub(crate) fn serve(&mut self) -> u32 {
        self.try_serve().unwrap_or_else(|log| panic!("callsign serve did not come up:\n{log}"))
    }

    /// As [`Self::serve`]; a daemon that ends instead gives what it said.
    pub(crate) fn try_serve(&mut self) -> Result<u32, String> {
        assert!(self.daemon_pid().is_none(), "a daemon runs already");
        let log = fs::File::options().create(true).append(true).open(self.files.path().join("stderr.log"));
        let child = self
            .serve_command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log file"))
            .spawn()
            .expect("callsign starts");
        let (pid, daemon) = (child.id(), self.daemon.insert(child));
        let end = Instant::now() + Duration::from_secs(30);
        let info = self.files.path().join("state/daemon.json");
        loop {
            if read_json(&info)["pid"] == pid {
                return Ok(pid);
            }
            if daemon.try_wait().expect("our child").is_some() || Instant::now() > end {
                self.kill();
                return Err(self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn serve_command(&self) -> Command {
        // Joins the groups that were delegated, then becomes the user, then the daemon: one process all the way.
        let join =
            r#"while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", join, "sh"]).args(&self.groups).arg("--");
        if self.who != Who::Myself {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        }
        command.args([CALLSIGN, "serve", "--listen", "127.0.0.1:0", "--config"]).arg(self.config());
        command.arg("--state-dir").arg(self.state());
        self.surround(&mut command);
        command
    }

    /// The daemon on this state directory, whoever started it.
    pub(crate) fn daemon_pid(&self) -> Option<u32> {
        let pid = u32::try_from(read_json(&self.state().join("daemon.json"))["pid"].as_u64()?).ok()?;
        alive(pid).then_some(pid)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::SIGKILL);
    }

    /// SIGTERM, and its end.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        if let Some(status) = self.end(Signal::SIGTERM) {
            assert!(status.success(), "the daemon ended with {status}:\n{}", self.log());
        }
    }

    /// How it ended, where it was started here.
    #[track_caller]
    fn end(&mut self, signal: Signal) -> Option<ExitStatus> {
        let pid = self.daemon.as_ref().map(Child::id).or_else(|| self.daemon_pid())?;
        kill(pid, signal);
        let mut child = self.daemon.take();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let ended = child.as_mut().map(|child| child.try_wait().expect("our child"));
            match ended {
                Some(Some(status)) => return Some(status),
                None if !alive(pid) => return None,
                Some(None) | None => {}
            }
            assert!(Instant::now() < deadline, "the daemon does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The daemon by its socket, as `callsign mcp` and the commands reach it.
    pub(crate) fn client(&self) -> Client {
        self.client_with(&self.variables())
    }

    /// The same with other settings.
    pub(crate) fn client_with(&self, variables: &BTreeMap<String, String>) -> Client {
        Client::socket(&self.state(), variables)
    }

    /// The daemon by its address, with its own first token.
    pub(crate) fn http(&self) -> Client {
        let daemon = read_json(&self.state().join("daemon.json"));
        let file = daemon["token_file"].as_str().unwrap_or_else(|| panic!("no token: {daemon}"));
        let token = fs::read_to_string(self.state().join(file)).expect("a token");
        self.http_as(&token)
    }

    pub(crate) fn http_as(&self, token: &str) -> Client {
        let daemon = read_json(&self.state().join("daemon.json"));
        let url = daemon["url"].as_str().unwrap_or_else(|| panic!("no url: {daemon}"));
        Client::http(url, token)
    }

    /// `callsign mcp` as a host starts it, in a process group of its own; not yet connected.
    pub(crate) fn mcp(&self, era: Era) -> testkit::client::Client {
        testkit::client::Client::stdio(self.mcp_command().into(), era)
    }

    pub(crate) fn mcp_command(&self) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(CALLSIGN);
        command.arg("mcp").arg("--config").arg(self.config()).arg("--state-dir").arg(self.state());
        self.surround(&mut command);
        command.envs(self.variables()).process_group(0);
        command
    }

    /// The engine that has the boxes; None where they are local.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Every box of this state directory that is there right now: by `/proc`, or by the engine that has them.
    pub(crate) fn boxes(&self) -> Vec<BoxProcess> {
        self.engine.as_ref().map_or_else(|| processes::boxes(&self.state()), Engine::boxes)
    }

    /// The sessions that have a box right now. Cheap enough to be asked all the time.
    pub(crate) fn hot(&self) -> Vec<String> {
        let mut hot = self.engine.as_ref().map_or_else(|| processes::hot(&self.state()), Engine::hot);
        hot.sort();
        hot
    }

    /// Waits for a state.
    #[track_caller]
    pub(crate) fn until(&self, deadline: Duration, what: &str, mut reached: impl FnMut() -> bool) {
        let end = Instant::now() + deadline;
        while !reached() {
            assert!(Instant::now() < end, "waited {deadline:?} in vain for {what}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The key is nowhere but where it has to be: beside its session, and in the start of its box.
    #[track_caller]
    pub(crate) fn check_canary(&self) {
        assert!(!self.log().contains(CANARY), "the key is in the log");
        let mut waiting = vec![self.state()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let kind = entry.file_type().expect("a kind");
                // The agent's own home is the box's business.
                if kind.is_dir() && name != "meta" {
                    waiting.push(path);
                } else if kind.is_file() && name != "key" && name != "job.json" {
                    let bytes = fs::read(&path).unwrap_or_default();
                    let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
                    assert!(!found, "the key is in {}", path.display());
                }
            }
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            println!("the log of the daemon:\n{}", self.log());
        }
        // Daemons first: they would start boxes again. What they and the keepers have started is noted before.
        let mut known = Vec::new();
        for daemons_only in [true, false] {
            for pid in processes::with_argument(&self.state()) {
                if !daemons_only || processes::is_daemon(pid) {
                    known.extend(descendants(pid));
                    known.push(pid);
                    kill(pid, Signal::SIGKILL);
                }
            }
        }
        if let Some(mut daemon) = self.daemon.take() {
            drop(daemon.kill());
            drop(daemon.wait());
        }
        let left = || -> Vec<u32> {
            let named = processes::with_argument(&self.state());
            named.into_iter().chain(known.iter().copied().filter(|pid| alive(*pid))).collect()
        };
        let end = Instant::now() + SOON;
        while !left().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut left: Vec<String> = left().into_iter().map(processes::describe).collect();
        if let Some(engine) = &self.engine {
            left.extend(engine.clear(SOON * 2));
        }
        processes::remove_groups(&self.name(), &self.groups);
        if !failed {
            assert!(left.is_empty(), "these are left: {left:#?}");
        }
    }
}

/// The real program, as `tools.toml` pins it.
pub(crate) fn opencode() -> String {
    binary(Host::OpenCode).canonicalize().expect("it is there").to_str().expect("UTF-8").to_owned()
}

/// A call of `OpenCode`'s shell.
pub(crate) fn bash(command: &str) -> Value {
    bash_titled(command, "a command of a test")
}

pub(crate) fn bash_titled(command: &str, title: &str) -> Value {
    serde_json::json!({ "tool": "bash", "args": { "command": command, "description": title } })
}

fn read_json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
