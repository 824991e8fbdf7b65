//! A private container engine: Docker or Podman, started for one test, with one image and without a network.
//!
//! One of a whole run of tests is kept by the program `private-engine`; its tests reach it by [`EngineSocket`].
//!
//! Everything that it has lies in one directory. Its guard, a process of its own, ends it and clears up when the test
//! lets go, however that ends; so no engine of the machine is used or touched. See `containers/probe/guard.rs`.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::bin;

/// The same name on both: Podman looks for short names where Docker's registry would have them.
pub const IMAGE: &str = "localhost/callsign-base:test";

/// For an engine to start: on a machine that is busy with other things it takes long.
const PATIENCE: Duration = Duration::from_secs(90);
/// For an engine to answer: it may have a container to end first.
const SILENCE: Duration = Duration::from_mins(1);
const HELP: &str =
    "run `cargo xtask tools` as root; CALLSIGN_ENGINES=none lets `cargo xtask test` do without engines";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Docker,
    /// Its boxes go on when it is restarted.
    DockerLive,
    Podman,
}

pub const BOTH: [Kind; 2] = [Kind::Docker, Kind::Podman];

/// With [`IMAGE`], a small Debian with what `[base-image]` of `tools.toml` adds. Ends with the test.
#[derive(Debug)]
pub struct PrivateEngine {
    directory: PathBuf,
    guard: Child,
    words: Option<ChildStdin>,
}

impl PrivateEngine {
    /// Panics where there cannot be one, and says what to do.
    pub fn start(kind: Kind) -> Self {
        let (guard, base) = (bin("containers-probe"), base(Path::new(&bin("containers-probe"))));
        assert!(nix::unistd::geteuid().is_root(), "a private engine needs root; {HELP}");
        assert!(base.is_file(), "there is no {}; {HELP}", base.display());
        let made = tempfile::Builder::new().prefix("csengine").rand_bytes(8).tempdir_in("/tmp");
        let directory = made.expect("a directory in /tmp").keep();
        let word = match kind {
            Kind::Docker => "docker",
            Kind::DockerLive => "docker-live",
            Kind::Podman => "podman",
        };
        let mut command = Command::new(guard);
        command.args(["guard", word]).arg(&directory);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut guard = command.spawn().expect("the engine's guard");
        let words = guard.stdin.take();
        let engine = Self { directory, guard, words };
        engine.wait_up();
        engine.import(&base);
        engine
    }

    /// In the directory that goes with the engine.
    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.at("engine.sock")
    }

    /// What `DOCKER_HOST` would be.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Letters and digits that no other engine of a test has.
    pub fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        name.chars().filter(char::is_ascii_alphanumeric).collect()
    }

    /// Tells the guard: `kill`, `start`.
    pub fn tell(&mut self, word: &str) {
        let words = self.words.as_mut().expect("the guard listens as long as we are here");
        writeln!(words, "{word}").expect("the guard lives");
    }

    pub fn wait_up(&self) {
        let log = || fs::read_to_string(self.at("engine.log")).unwrap_or_default();
        let deadline = Instant::now() + PATIENCE;
        while self.api("GET", "/_ping", None).trim() != "OK" {
            let hopeless = log().contains("cannot be run") || Instant::now() > deadline;
            assert!(!hopeless, "the engine does not start: {}", log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn import(&self, base: &Path) {
        let answer = self.api("POST", "/images/create?fromSrc=-&repo=imported&tag=test", Some(base));
        let line = answer.lines().rfind(|line| line.contains("sha256:"));
        let status: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{answer}"))).expect("JSON");
        let id = status["status"].as_str().expect("an id");
        self.api("POST", &format!("/images/{id}/tag?repo=localhost/callsign-base&tag=test"), None);
    }

    /// Without any code of ours between: what others do to the engine. A body that is no `.json` is a tar.
    pub fn api(&self, method: &str, path: &str, body: Option<&Path>) -> String {
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "120", "--request", method, "--unix-socket"]);
        command.arg(self.socket());
        if let Some(body) = body {
            let is_json = body.extension().is_some_and(|end| end == "json");
            let kind = if is_json { "application/json" } else { "application/x-tar" };
            command.arg("--header").arg(format!("Content-Type: {kind}")).arg("--upload-file").arg(body);
        }
        let output = command.arg(format!("http://engine{path}")).output().expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        drop(self.words.take());
        self.guard.wait().ok();
    }
}

/// An engine that somebody else keeps, without any code of ours between.
#[derive(Debug, Clone)]
pub struct EngineSocket(PathBuf);

impl EngineSocket {
    /// Of what `DOCKER_HOST` says.
    pub fn of_host(host: &str) -> Self {
        let path = host.strip_prefix("unix://").unwrap_or_else(|| panic!("`{host}` is no unix:// socket"));
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `DOCKER_HOST` for others.
    pub fn host(&self) -> String {
        format!("unix://{}", self.0.display())
    }

    /// Status and answer. One request a connection, cheap enough to be made all the time.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<(u16, Value)> {
        let mut stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        // The older version: its answers are not cut into chunks.
        let head = format!("{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        Ok((status, serde_json::from_str(body).unwrap_or_else(|_| Value::from(body))))
    }

    /// What has to succeed.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, None).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// A container of somebody else, which sleeps; its id.
    #[track_caller]
    pub fn stranger(&self, name: &str, labels: &Value) -> String {
        let ulimits = json!([
            { "Name": "nofile", "Soft": 1024, "Hard": 1024 }, { "Name": "nproc", "Soft": 4096, "Hard": 4096 },
        ]);
        let body = json!({ "Image": IMAGE, "Entrypoint": ["/bin/sleep"], "Cmd": ["100000"], "Labels": labels,
            "HostConfig": { "NetworkMode": "none", "Ulimits": ulimits } });
        let made = self.ask("POST", &format!("/containers/create?name={name}"), Some(&body));
        let (_, made) = made.expect("the engine answers");
        let id = made["Id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let started = self.ask("POST", &format!("/containers/{id}/start"), None).expect("the engine answers");
        assert_eq!(started.0, 204, "{started:?}");
        id
    }

    /// Ends it, and takes it away with everything that it has.
    pub fn remove(&self, id: &str) {
        let _gone = self.ask("DELETE", &format!("/containers/{id}?force=true&v=true"), None);
    }
}

/// Made by `cargo xtask tools`, beside the build that runs.
fn base(guard: &Path) -> PathBuf {
    let target = guard.ancestors().nth(2).unwrap_or(Path::new("/"));
    target.join("tools/engines/base.tar")
}
