//! Starts the real `callsign` binary for a test and ends it afterwards.
//!
//! ```text
//! let gateway = Setup::new(env!("CARGO_BIN_EXE_callsign")).server("echo", &[&bin("echo-server")], "").serve().await;
//! let client = gateway.connect("echo", Era::Legacy).await;
//! ```
//! The environment of the gateway is built here, never inherited: a test does not depend on who runs it.
//! It holds [`CANARY`], which must not turn up anywhere (see [`Standing`]).

mod process;
mod standing;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use self::process::{
    alive, descendants, fd_count, kill, peak, pss, reset_peak, rss, wait_until, zombies,
};
pub use self::standing::Standing;
use crate::client::{Client, Era, Http};

/// A secret in the gateway's environment, as a host would have one.
pub const CANARY: &str = "sk-CANARY-7f3a";
/// The name of a well-behaved server that is in every configuration made here.
pub const GOOD: &str = "good";

/// The path of a program of this crate, built beside the running test.
pub fn bin(name: &str) -> String {
    let test = std::env::current_exe().expect("the test's own path");
    let target = test.ancestors().find(|path| path.join("deps").is_dir() || path.join(name).is_file());
    let path = target.unwrap_or_else(|| panic!("no target directory above {}", test.display())).join(name);
    assert!(path.is_file(), "{} is missing: build it with cargo build --workspace --bins", path.display());
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// What a gateway is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    binary: PathBuf,
    servers: String,
    extra: String,
    environment: Vec<(String, String)>,
}

impl Setup {
    pub fn new(binary: &str) -> Self {
        let setup = Self {
            binary: PathBuf::from(binary),
            servers: String::new(),
            extra: String::new(),
            environment: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("LANG".into(), "C.UTF-8".into()),
                ("OPENAI_API_KEY".into(), CANARY.into()),
            ],
        };
        setup.server(GOOD, &[&bin("echo-server"), "--stdio"], "")
    }

    /// A stdio server; `more` are further lines of its table.
    #[must_use]
    pub fn server(mut self, name: &str, command: &[&str], more: &str) -> Self {
        let (program, arguments) = command.split_first().expect("a command");
        let list: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
        let _ = write!(
            self.servers,
            "[servers.{name}]\ncommand = {}\nargs = [{}]\n{more}\n\n",
            quote(program),
            list.join(", ")
        );
        self
    }

    /// A server behind a URL.
    #[must_use]
    pub fn url(mut self, name: &str, url: &str, more: &str) -> Self {
        let _ = write!(self.servers, "[servers.{name}]\nurl = {}\n{more}\n\n", quote(url));
        self
    }

    /// Lines before the servers, such as `[serve]`.
    #[must_use]
    pub fn toml(mut self, lines: &str) -> Self {
        self.extra += lines;
        self.extra.push('\n');
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn config(&self) -> String {
        format!("{}\n{}", self.extra, self.servers)
    }

    fn files(&self) -> Files {
        let directory = tempfile::Builder::new().prefix("callsign-").tempdir().expect("a directory");
        let files = Files { directory };
        std::fs::write(files.config(), self.config()).expect("the configuration");
        std::fs::create_dir(files.home()).expect("a home");
        files
    }

    /// `callsign ARGS… --state-dir …` in this environment.
    fn command(&self, files: &Files, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--state-dir").arg(files.state()).current_dir(files.directory.path());
        command.env_clear().env("HOME", files.home()).envs(self.environment.iter().cloned());
        command
    }

    /// Starts the daemon and waits until it says where it is.
    pub async fn serve(&self) -> Gateway {
        match self.try_serve().await {
            Ok(gateway) => gateway,
            Err(log) => panic!("callsign serve did not come up:\n{log}"),
        }
    }

    /// As [`Self::serve`]; a daemon that ends instead gives its stderr.
    pub async fn try_serve(&self) -> Result<Gateway, String> {
        let files = self.files();
        let log = std::fs::File::create(files.log()).expect("a log file");
        let config = files.config();
        let config = config.to_str().expect("UTF-8");
        let child = self
            .command(&files, &["serve", "--config", config, "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("callsign starts");
        let mut gateway =
            Gateway { child, files, setup: self.clone(), url: String::new(), token: String::new() };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if gateway.read_daemon_file() {
                return Ok(gateway);
            }
            if gateway.child.try_wait().expect("our child").is_some() || Instant::now() > deadline {
                return Err(gateway.log());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `callsign wrap ARGS… -- COMMAND…`, not yet connected. Keep the directory as long as the client.
    pub fn wrap(&self, era: Era, arguments: &[&str], command: &[&str]) -> (Client, Files) {
        let (wrap, files) = self.wrap_command(arguments, command);
        (Client::stdio(wrap.into(), era), files)
    }

    /// `callsign wrap --name NAME ARGS…` of a server of this configuration, not yet connected.
    pub fn wrap_named(&self, era: Era, name: &str, arguments: &[&str]) -> (Client, Files) {
        let files = self.files();
        let config = files.config();
        let mut all = vec!["wrap", "--name", name, "--config", config.to_str().expect("UTF-8")];
        all.extend_from_slice(arguments);
        (Client::stdio(self.command(&files, &all).into(), era), files)
    }

    /// The same, not yet started, for tests that want the bare pipes.
    pub fn wrap_command(&self, arguments: &[&str], command: &[&str]) -> (Command, Files) {
        let files = self.files();
        let mut all = vec!["wrap"];
        all.extend_from_slice(arguments);
        let mut wrap = self.command(&files, &all);
        if !command.is_empty() {
            wrap.arg("--").args(command);
        }
        (wrap, files)
    }

    /// Runs a command to its end: exit code, stdout, stderr.
    pub fn run(&self, files: &Files, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(files, arguments).stdin(Stdio::null()).output().expect("callsign runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// As [`Self::run`], with something to read on stdin.
    pub fn run_with(&self, files: &Files, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        use std::io::Write as _;
        let mut child = self
            .command(files, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("callsign runs");
        let mut stdin = child.stdin.take().expect("piped");
        // It may end before it has read everything.
        drop(stdin.write_all(input));
        drop(stdin);
        let output = child.wait_with_output().expect("callsign ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// Runs a command on a fresh directory with this configuration.
    pub fn run_alone(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let files = self.files();
        let mut all = arguments.to_vec();
        let config = files.config();
        all.extend(["--config", config.to_str().expect("UTF-8")]);
        self.run(&files, &all)
    }
}

/// The directory of one test: configuration, state, home, log. Removed on drop.
#[derive(Debug)]
pub struct Files {
    directory: TempDir,
}

impl Files {
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn config(&self) -> PathBuf {
        self.path().join("callsign.toml")
    }

    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub fn log(&self) -> PathBuf {
        self.path().join("stderr.log")
    }

    fn home(&self) -> PathBuf {
        self.path().join("home")
    }
}

/// A running daemon. Drop ends it: SIGTERM, and SIGKILL after 5 s.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    pub files: Files,
    setup: Setup,
    url: String,
    /// The daemon's own first token.
    pub token: String,
}

impl Gateway {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub fn mcp(&self, server: &str) -> String {
        self.at(&format!("/mcp/{server}"))
    }

    /// A client with the daemon's token, not yet connected.
    pub fn client(&self, server: &str, era: Era) -> Client {
        Client::http(&self.mcp(server), Some(&self.token), era)
    }

    pub async fn connect(&self, server: &str, era: Era) -> Client {
        let client = self.client(server, era);
        if let Err(failure) = client.connect().await {
            panic!("could not connect to {server}: {failure:?}\n{}", self.log());
        }
        client
    }

    pub fn log(&self) -> String {
        std::fs::read(self.files.log())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Runs another `callsign` command on the same state directory.
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.setup.run(&self.files, arguments)
    }

    /// As [`Self::run`], with something to read on stdin.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        self.setup.run_with(&self.files, arguments, input)
    }

    /// A token of a principal of its own, once the daemon has heard of it.
    pub async fn new_token(&self, principal: &str) -> String {
        let (code, token, errors) = self.run(&["token", "create", principal]);
        assert_eq!(code, Some(0), "{errors}");
        let http = Http::new(&self.mcp(GOOD), Some(token.trim()));
        let deadline = Instant::now() + Duration::from_secs(5);
        while http.get(&[]).await.status == 401 {
            assert!(Instant::now() < deadline, "the new token is not accepted");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        token.trim().to_owned()
    }

    /// Writes a new configuration the way editors do: beside the old one, then in its place.
    pub fn rewrite(&self, config: &str) {
        let new = self.files.path().join("callsign.toml.new");
        std::fs::write(&new, config).expect("the new configuration");
        std::fs::rename(new, self.files.config()).expect("the new configuration in place");
    }

    /// SIGTERM, then the exit code; None when a signal ended it or it did not end in time.
    pub async fn terminate(&mut self, deadline: Duration) -> Option<i32> {
        kill(self.pid(), nix::sys::signal::Signal::SIGTERM);
        let child = &mut self.child;
        wait_until(deadline, || matches!(child.try_wait(), Ok(Some(_)))).await;
        child.try_wait().ok().flatten().and_then(|status| status.code())
    }

    /// SIGKILL: what a host does that is in a hurry.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn read_daemon_file(&mut self) -> bool {
        let Ok(bytes) = std::fs::read(self.files.state().join("daemon.json")) else { return false };
        let Ok(daemon) = serde_json::from_slice::<Value>(&bytes) else { return false };
        let (Some(url), Some(token_file)) = (daemon["url"].as_str(), daemon["token_file"].as_str()) else {
            return false;
        };
        let Ok(token) = std::fs::read_to_string(self.files.state().join(token_file)) else { return false };
        assert_eq!(daemon["pid"], self.pid(), "daemon.json names another process");
        url.trim_end_matches('/').clone_into(&mut self.url);
        token.trim().clone_into(&mut self.token);
        true
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        kill(self.pid(), nix::sys::signal::Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }
}

/// A test server of ours that listens on a port of its own choice. Drop kills it.
#[derive(Debug)]
pub struct HttpServer {
    child: Child,
    pub url: String,
}

impl HttpServer {
    /// Runs `PROGRAM --http 127.0.0.1:0 ARGS…` and waits for its `listening on …`.
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        use std::io::BufRead as _;
        let mut child = Command::new(bin(program))
            .args(["--http", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        std::io::BufReader::new(stdout).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ").expect("its address").to_owned();
        Self { child, url }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A TOML basic string; JSON's escapes are a subset of TOML's.
fn quote(text: &str) -> String {
    crate::jsonrpc::quote(text)
}
