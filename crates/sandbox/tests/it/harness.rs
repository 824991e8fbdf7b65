//! A daemon in a process of its own, as whoever a test needs it to be, and a look at what is left afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{
    BoxName, BoxSpec, BoxState, Environment, Level, Limits, Network, Started, Strictness, User,
};
use nix::unistd::geteuid;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const PROBE: &str = env!("CARGO_BIN_EXE_sandbox-probe");
const NOBODY: u32 = 65534;
/// For anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whom the daemon runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Without a control group.
    Nobody,
    /// An unprivileged user to whom a control group was delegated.
    Delegated,
    Root,
}

/// Whoever runs the tests as a user can only be that user.
pub(crate) fn everyone() -> &'static [Who] {
    if geteuid().is_root() { &[Who::Nobody, Who::Delegated, Who::Root] } else { &[Who::Nobody] }
}

pub(crate) struct World {
    directory: tempfile::TempDir,
    pub(crate) who: Who,
    pub(crate) level: Level,
    pub(crate) path: Vec<PathBuf>,
    owner: String,
    groups: Vec<PathBuf>,
}

impl World {
    pub(crate) fn new(who: Who) -> Self {
        let directory = tempfile::Builder::new().prefix("box").rand_bytes(10).tempdir().unwrap();
        let name = directory.path().file_name().unwrap().to_str().unwrap();
        let owner: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut world = Self {
            who,
            level: Level::Bubblewrap,
            path: vec!["/usr/bin".into(), "/bin".into()],
            groups: Vec::new(),
            owner,
            directory,
        };
        world.make("boxes");
        world.give(world.directory.path());
        if who == Who::Delegated {
            world.groups = delegate(&world.owner);
        }
        world
    }

    /// The state directory of the daemon; root's own is closed to everyone else.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn make(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).unwrap();
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if self.who != Who::Root && geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    pub(crate) fn daemon(&self) -> Daemon {
        let options = json!({
            "root": self.at("boxes"), "owner": self.owner, "path": self.path, "level": self.level,
            "groups": self.who != Who::Nobody,
        });
        let mut command = Command::new("sh");
        let join =
            r#"while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@""#;
        command.args(["-c", join, "sh"]).args(&self.groups).arg("--");
        if self.who != Who::Root && geteuid().is_root() {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        }
        command.args([PROBE, "daemon", &options.to_string()]).env("DAEMON_SECRET", "sk-CANARY-7f3a");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (process.stdin.take(), process.stdout.take().map(BufReader::new));
        let mut daemon = Daemon { process, requests: requests.unwrap(), answers: answers.unwrap() };
        assert_eq!(daemon.ask(&json!("Own")), json!(true), "another daemon owns the boxes");
        daemon
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
            image: None,
            oci_runtime: None,
            tmp: 8 << 20,
            limits: Limits::default(),
            strictness: Strictness::Lenient,
            network: Network::Host,
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
    pub(crate) fn sleepers(&self) -> Vec<i32> {
        processes(&format!("sleep\0{}\0", self.marker()))
    }

    pub(crate) fn keepers(&self) -> Vec<i32> {
        processes(&format!("keep\0{}/", self.at("boxes").display()))
    }

    pub(crate) fn wait_done(&self, name: &str) {
        let done = self.at(&format!("{name}-workspace")).join(".done");
        until(|| done.exists(), "the script to end");
    }

    /// Ends all boxes, and looks for what is left of them.
    pub(crate) fn finish(self, mut daemon: Daemon) {
        let found: Vec<(BoxName, BoxState)> = daemon.get(&json!("FindAll"));
        for (name, _) in found {
            daemon.ask(&json!({ "Kill": name }));
            daemon.ask(&json!({ "Forget": name }));
        }
        drop(daemon);
        assert_eq!(self.sleepers(), Vec::<i32>::new(), "processes of a box are left");
        until(|| self.keepers().is_empty(), "the keepers to go");
        let left: Vec<_> =
            fs::read_dir(self.at("boxes")).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["owner.lock"], "records of a box are left");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.directory.path().to_str().unwrap()), "a mount is left");
        for group in &self.groups {
            until(|| fs::remove_dir(group).is_ok() || !group.exists(), "the delegated group to be empty");
        }
        assert_eq!(groups_of(&self.owner), Vec::<PathBuf>::new(), "a control group is left");
    }
}

impl Drop for World {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        for keeper in self.keepers() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(keeper), nix::sys::signal::Signal::SIGKILL);
        }
        for group in groups_of(&self.owner) {
            for _ in 0..200 {
                if fs::remove_dir(&group).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

pub(crate) struct Daemon {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Daemon {
    pub(crate) fn send(&mut self, request: &Value) {
        writeln!(self.requests, "{request}").unwrap();
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.send(request);
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{request} was answered {line:?}"))
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
        let answer = self.ask(&json!({ "Start": spec }));
        answer["error"].as_str().unwrap_or_else(|| panic!("it started: {answer}")).to_owned()
    }

    /// Ends the box: only then everything it printed is in its log.
    pub(crate) fn log(&mut self, world: &World, name: &str) -> String {
        self.ask(&json!({ "Kill": name }));
        fs::read_to_string(world.at("boxes").join(name).join("box.log")).unwrap()
    }

    pub(crate) fn state(&mut self, name: &str) -> BoxState {
        self.get(&json!({ "State": name }))
    }

    pub(crate) fn ended(&mut self, name: &str) -> model::ports::sandbox::Ending {
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
        thread::sleep(Duration::from_millis(5));
    }
}

/// Living processes whose command line contains this.
fn processes(part: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let lines = numbers.filter_map(|pid| Some((pid, fs::read(format!("/proc/{pid}/cmdline")).ok()?)));
    lines.filter(|(_, line)| String::from_utf8_lossy(line).contains(part)).map(|(pid, _)| pid).collect()
}

/// The group this process is in, for each of the controllers, in the layout that this machine has.
fn own_groups() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap();
    let wanted = ["memory", "pids", "cpu", "cpuacct"];
    let split: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let named = controllers.split(',').any(|name| wanted.contains(&name));
            named.then(|| Path::new("/sys/fs/cgroup").join(controllers).join(path.trim_start_matches('/')))
        })
        .collect();
    if split.is_empty() { vec!["/sys/fs/cgroup".into()] } else { split }
}

/// Groups that belong to the user, as systemd would make them.
fn delegate(owner: &str) -> Vec<PathBuf> {
    let groups: Vec<PathBuf> =
        own_groups().iter().map(|group| group.join(format!("delegated-{owner}"))).collect();
    for group in &groups {
        fs::create_dir(group).unwrap();
        for path in [group.clone(), group.join("cgroup.procs"), group.join("cgroup.subtree_control")] {
            if path.exists() {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        rustix::fs::setxattr(group, "user.delegate", b"1", rustix::fs::XattrFlags::empty()).ok();
    }
    groups
}

/// Whatever has the owner's name in it, innermost first.
fn groups_of(owner: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = own_groups();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().contains(owner) {
                waiting.push(path.clone());
                found.insert(0, path);
            } else if directory.to_string_lossy().contains(owner) && path.is_dir() {
                found.insert(0, path);
            }
        }
    }
    found
}
