//! Words that several modules use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use testkit::bin;
use testkit::harness::{HttpServer, descendants, wait_until};
use testkit::hosts::{Arrived, Home, arrived};

pub(crate) const CALLSIGN: &str = env!("CARGO_BIN_EXE_callsign");
/// How long a message may take from a host to a server's log.
const SOON: Duration = Duration::from_secs(30);

/// A server that writes down what it gets, once per way: by pipe as `std`, by URL as `rem`.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) home: Arc<Home>,
    pub(crate) http: HttpServer,
}

impl Servers {
    pub(crate) fn new(home: &Arc<Home>) -> Self {
        let log = home.log("http.jsonl");
        let http = HttpServer::start("logging-server", &["--log", text(&log)]);
        Self { home: home.clone(), http }
    }

    /// The command of the stdio server.
    pub(crate) fn command(&self) -> Vec<String> {
        let log = self.home.log("stdio.jsonl");
        vec![bin("logging-server"), "--stdio".to_owned(), "--log".to_owned(), text(&log).to_owned()]
    }

    pub(crate) fn stdio(&self) -> Vec<Arrived> {
        arrived(&self.home.log("stdio.jsonl"))
    }

    pub(crate) fn http(&self) -> Vec<Arrived> {
        arrived(&self.home.log("http.jsonl"))
    }

    /// The calls of both, once there are this many of each.
    pub(crate) async fn calls(&self, each: usize) -> (Vec<Arrived>, Vec<Arrived>) {
        let both = || (calls(self.stdio()), calls(self.http()));
        let there = || {
            let (stdio, http) = both();
            stdio.len() >= each && http.len() >= each
        };
        wait_until(SOON, there).await;
        let (stdio, http) = both();
        assert_eq!((stdio.len(), http.len()), (each, each), "calls at the stdio and at the HTTP server");
        (stdio, http)
    }
}

/// `tools/call` alone.
pub(crate) fn calls(arrived: Vec<Arrived>) -> Vec<Arrived> {
    arrived.into_iter().filter(|arrived| arrived.method() == "tools/call").collect()
}

/// The names in an object, in order.
pub(crate) fn keys(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        object.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default();
    names.sort_unstable();
    names
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A command as a list of words.
pub(crate) fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// Lets Callsign into a host as its user does.
pub(crate) fn install(home: &Home, host: &str) {
    let output = home.run(Path::new(CALLSIGN), &["install", host]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "callsign install {host}: {}\n{stdout}\n{stderr}", output.status);
}

/// Our own configuration of this user.
pub(crate) fn configure(home: &Home, text: &str) {
    let path = home.callsign_toml();
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(path, text).expect("our configuration");
}

/// What a server was told in `_meta` about who calls.
pub(crate) fn identity(call: &Arrived) -> &Value {
    &call.meta()["dev.callsign/identity"]
}

/// Asserts fields of the identity in `_meta`; null: it is left out.
#[track_caller]
pub(crate) fn check_identity(call: &Arrived, expected: &Value) {
    let told = identity(call);
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&told[name], value, "`{name}` in _meta of {}", call.raw);
    }
}

/// Asserts variables of the process that got the call; null: it has no such variable.
#[track_caller]
pub(crate) fn check_env(call: &Arrived, expected: &Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(call.env(name), value.as_str(), "{name} in the environment of {}", call.raw);
    }
}

/// Asserts headers of the request; null: there is no such header.
#[track_caller]
pub(crate) fn check_headers(call: &Arrived, expected: &Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(call.header(name), value.as_str(), "the header {name} of {}", call.raw);
    }
}

/// Every file below a directory that has one of these texts in it.
pub(crate) fn files_with(directory: &Path, texts: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_with(&path, texts)),
            Ok(kind) if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let holds = |text: &&str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
                if texts.iter().any(holds) {
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    found
}

/// The processes of `callsign wrap` that this host started itself; those that supervise servers are further down.
pub(crate) fn wraps(host: u32) -> Vec<u32> {
    let parent = format!("PPid:\t{host}");
    let read = |pid: u32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let started_by_host =
        |pid: &u32| String::from_utf8_lossy(&read(*pid, "status")).lines().any(|line| line == parent);
    let wraps = |pid: &u32| read(*pid, "cmdline").windows(6).any(|window| window == b"\0wrap\0");
    descendants(host).into_iter().filter(started_by_host).filter(wraps).collect()
}
