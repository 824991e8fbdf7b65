//! A private engine, a daemon in a process of its own, and a look at what is left afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{
    BoxName, BoxSpec, BoxState, Ending, Environment, Limits, Network, Started, Strictness, User,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::engine::PrivateEngine;

const PROBE: &str = env!("CARGO_BIN_EXE_containers-probe");
/// For anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) use testkit::engine::{BOTH, IMAGE, Kind};

/// An engine, the boxes in it, and their directories.
pub(crate) struct World {
    engine: PrivateEngine,
    pub(crate) owner: String,
    /// Directories of boxes.
    made: RefCell<Vec<PathBuf>>,
}

/// A part of a test that has an engine to itself, and leaves it as it was.
pub(crate) type Scene = fn(Kind, &World);

pub(crate) fn play(kind: Kind, scenes: &[Scene]) {
    let world = World::new(kind);
    for scene in scenes {
        scene(kind, &world);
    }
}

impl World {
    pub(crate) fn new(kind: Kind) -> Self {
        let engine = PrivateEngine::start(kind);
        Self { owner: engine.name(), engine, made: RefCell::default() }
    }

    pub(crate) fn tell(&mut self, word: &str) {
        self.engine.tell(word);
    }

    pub(crate) fn wait_up(&self) {
        self.engine.wait_up();
    }

    pub(crate) fn api(&self, method: &str, path: &str, body: Option<&Path>) -> String {
        self.engine.api(method, path, body)
    }

    pub(crate) fn inspect(&self, container: &str) -> Value {
        serde_json::from_str(&self.api("GET", &format!("/containers/{container}/json"), None)).unwrap()
    }

    /// A container that somebody else made, which sleeps.
    pub(crate) fn stranger(&self, name: &str, labels: &Value) -> String {
        let body = json!({ "Image": IMAGE, "Entrypoint": ["/bin/sleep"], "Cmd": ["100000"], "Labels": labels,
            "HostConfig": { "NetworkMode": "none", "Ulimits": [
                { "Name": "nofile", "Soft": 1024, "Hard": 1024 }, { "Name": "nproc", "Soft": 4096, "Hard": 4096 },
            ] } });
        let file = self.at(&format!("{name}.json"));
        fs::write(&file, body.to_string()).unwrap();
        let made: Value =
            serde_json::from_str(&self.api("POST", &format!("/containers/create?name={name}"), Some(&file)))
                .unwrap();
        let id = made["Id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let said = self.api("POST", &format!("/containers/{id}/start"), None);
        assert_eq!(self.inspect(&id)["State"]["Running"], json!(true), "{said}");
        id
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.engine.at(name)
    }

    /// A directory that a box may write.
    pub(crate) fn make(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(65534), Some(65534)).unwrap();
        self.made.borrow_mut().push(path.clone());
        path
    }

    pub(crate) fn container(&self, name: &str) -> String {
        format!("callsign-{}-{name}", self.owner)
    }

    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_of(&self.owner, &self.engine.socket(), None)
    }

    pub(crate) fn daemon_of(&self, owner: &str, socket: &Path, user: Option<u32>) -> Daemon {
        let root = self.at(&format!("boxes-{owner}"));
        let host = format!("unix://{}", socket.display());
        let options = json!({ "root": root, "owner": owner, "host": host });
        let command = match user {
            None => Command::new(PROBE),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([&format!("--reuid={user}"), "--clear-groups", "--", PROBE]);
                command
            }
        };
        Daemon::spawn(command, &options)
    }

    /// A box that runs this and then waits.
    pub(crate) fn spec(&self, name: &str, script: &str) -> BoxSpec {
        BoxSpec {
            name: BoxName::new(name).unwrap(),
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), format!("{script}\n: > .done; exec sleep {}", self.marker())],
            env: Environment(BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())])),
            workspace: self.make(&format!("{name}-workspace")),
            meta: self.make(&format!("{name}-meta")),
            sockets: None,
            binds: Vec::new(),
            image: Some(IMAGE.to_owned()),
            oci_runtime: None,
            tmp: 8 << 20,
            limits: Limits::default(),
            strictness: Strictness::Lenient,
            network: Network::None,
            user: User::NOBODY,
            orphan_grace: Duration::from_mins(10),
            labels: BTreeMap::new(),
        }
    }

    /// A number of seconds that only this world's boxes sleep.
    fn marker(&self) -> u64 {
        let sum = self.owner.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(byte.into()));
        100_000_000 + sum % 899_999_999
    }

    /// Processes of boxes of this world that sleep.
    pub(crate) fn sleepers(&self) -> usize {
        let part = format!("sleep\0{}\0", self.marker());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .filter(|line| String::from_utf8_lossy(line) == part)
            .count()
    }

    pub(crate) fn wait_done(&self, name: &str) {
        let done = self.at(&format!("{name}-workspace")).join(".done");
        until(|| done.exists(), "the script to end");
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.at(&format!("boxes-{}", self.owner)).join(name).join("box.log"))
            .unwrap_or_default()
    }

    /// What the script printed in a box.
    pub(crate) fn printed(&self, daemon: &mut Daemon, spec: &BoxSpec) -> String {
        let name = spec.name.as_str();
        daemon.start(spec);
        self.wait_done(name);
        daemon.ask(&json!({ "Kill": name }));
        self.log(name)
    }

    /// Where nothing started but locks.
    pub(crate) fn finish_unstarted(self, mut daemon: Daemon) {
        assert_eq!(daemon.found(), []);
        daemon.ask(&json!({ "Forget": "one" }));
        self.finish(daemon);
    }

    pub(crate) fn finish(self, daemon: Daemon) {
        self.clear(daemon);
    }

    /// Ends all boxes, and looks for what is left of them.
    pub(crate) fn clear(&self, mut daemon: Daemon) {
        let found: Vec<(BoxName, BoxState)> = daemon.get(&json!("FindAll"));
        for (name, _) in found {
            daemon.ask(&json!({ "Kill": name }));
            assert_eq!(daemon.ask(&json!({ "Forget": name })), Value::Null, "{name}");
        }
        drop(daemon);
        assert_eq!(self.sleepers(), 0, "processes of a box are left");
        let root = self.at(&format!("boxes-{}", self.owner));
        let left: Vec<_> =
            fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, Vec::<std::ffi::OsString>::new(), "records of a box are left");
        let listed = self.api("GET", "/containers/json?all=1", None);
        assert!(!listed.contains(&format!("callsign-{}-", self.owner)), "a container is left: {listed}");
        for path in self.made.borrow_mut().drain(..) {
            fs::remove_dir_all(path).ok();
        }
    }
}

pub(crate) struct Daemon {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Daemon {
    /// Without a world: nothing is started.
    pub(crate) fn alone(root: &Path, socket: &Path) -> Self {
        let host = format!("unix://{}", socket.display());
        let options = json!({ "root": root, "owner": "alone", "host": host });
        Self::spawn(Command::new(PROBE), &options)
    }

    fn spawn(mut command: Command, options: &Value) -> Self {
        command.args(["daemon", &options.to_string()]).env("DAEMON_SECRET", "sk-CANARY-7f3a");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (process.stdin.take(), process.stdout.take().map(BufReader::new));
        Self { process, requests: requests.unwrap(), answers: answers.unwrap() }
    }

    pub(crate) fn send(&mut self, request: &Value) {
        writeln!(self.requests, "{request}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("it was answered {line:?}"))
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.send(request);
        self.hear()
    }

    pub(crate) fn get<T: DeserializeOwned>(&mut self, request: &Value) -> T {
        let answer = self.ask(request);
        serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{request}: {answer}: {error}"))
    }

    pub(crate) fn start(&mut self, spec: &BoxSpec) -> Started {
        self.get(&json!({ "Start": spec }))
    }

    /// Why it did not start.
    pub(crate) fn refused(&mut self, spec: &BoxSpec) -> String {
        self.error(&json!({ "Start": spec }))
    }

    pub(crate) fn error(&mut self, request: &Value) -> String {
        let answer = self.ask(request);
        answer["error"].as_str().unwrap_or_else(|| panic!("no error: {answer}")).to_owned()
    }

    pub(crate) fn state(&mut self, name: &str) -> BoxState {
        self.get(&json!({ "State": name }))
    }

    /// All boxes, once the engine says so: one that is slow is not waited for, and looked at again here.
    pub(crate) fn found(&mut self) -> Vec<(BoxName, BoxState)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let found: Vec<(BoxName, BoxState)> = self.get(&json!("FindAll"));
            if Instant::now() > until || !found.iter().any(|(_, state)| *state == BoxState::Unknown) {
                return found;
            }
        }
    }

    pub(crate) fn ended(&mut self, name: &str) -> Ending {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.state(name) {
                BoxState::Ended(ending) => return ending,
                state
                @ (BoxState::Absent | BoxState::Starting | BoxState::Running(_) | BoxState::Unknown) => {
                    assert!(Instant::now() < until, "it does not end: {state:?}");
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    /// SIGKILL, as a person or the kernel would.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
