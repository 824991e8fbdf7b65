//! Words for tests of hooks: files of hooks, and every way from a client to a server.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::bin;
use testkit::client::{Client, Era, Failure, Http};
use testkit::harness::{Files, Gateway, HttpServer, Setup, wait_until};
use testkit::record;
use tokio::task::JoinSet;

use crate::support::{SOON, messages, name_of, setup};

/// A host whose sessions and calls a test names as it likes, in both eras.
pub(super) const MINE: &str = r#"[hosts.mine]
client = "testkit"
session = { meta = "mine/session" }
call = { meta = "mine/call" }
"#;

/// `_meta` of a call in this session.
pub(super) fn mine(session: &str) -> Value {
    json!({ "mine/session": session, "mine/call": format!("call-of-{session}") })
}

/// A directory with files of hooks.
#[derive(Debug)]
pub(super) struct Hooks {
    directory: TempDir,
}

impl Hooks {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let hooks = Self { directory: tempfile::tempdir().expect("a directory") };
        for (name, text) in files {
            hooks.write(name, text);
        }
        hooks
    }

    /// The way editors do it: beside the old one, then in its place.
    pub(super) fn write(&self, name: &str, text: &str) {
        let new = self.directory.path().join(format!("{name}.new"));
        std::fs::write(&new, text).expect("a file of hooks");
        std::fs::rename(new, self.directory.path().join(name)).expect("in its place");
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// What a message says of a line of a file.
    pub(super) fn at(&self, name: &str, line: usize) -> String {
        format!("{}:{line}: ", self.path(name))
    }

    /// A list of files, as the configuration has it.
    pub(super) fn list(&self, names: &[&str]) -> String {
        let quoted: Vec<String> = names.iter().map(|name| format!("{:?}", self.path(name))).collect();
        format!("[{}]", quoted.join(", "))
    }

    /// `[hooks]` with these files for every server. Further lines can follow.
    pub(super) fn toml(&self, names: &[&str]) -> String {
        format!("[hooks]\nfiles = {}\n", self.list(names))
    }
}

/// A gateway with one file of hooks for every server.
pub(super) fn one(text: &str) -> (Hooks, Setup) {
    let hooks = Hooks::new(&[("hook.js", text)]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
    (hooks, setup)
}

/// What one side of the gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Pipe,
    Http,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Pipe, Self::Http];
}

/// The server of a way.
pub(super) const LANE: &str = "lane";

/// One way through a gateway with hooks: a client, and a server that writes down what it gets.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) client: Client,
    /// `Pipe → Http, Modern`, for messages.
    pub(super) name: String,
    pub(super) back: Side,
    setup: Setup,
    keep: Keep,
    log: String,
    _directory: TempDir,
    _server: Option<HttpServer>,
}

#[derive(Debug)]
enum Keep {
    Serve(Gateway),
    Wrap(Files),
}

impl Way {
    /// All combinations in both eras, connected.
    pub(super) async fn all(setup: &Setup) -> Vec<Self> {
        let mut ways = Self::of(Era::Legacy, setup).await;
        ways.extend(Self::of(Era::Modern, setup).await);
        ways
    }

    /// The four combinations in one era.
    pub(super) async fn of(era: Era, setup: &Setup) -> Vec<Self> {
        let mut ways = Vec::new();
        for sides in sides() {
            ways.push(Self::open(sides, era, setup, "").await);
        }
        ways
    }

    /// Connected; `more` are further lines of the server's table.
    pub(super) async fn open(sides: (Side, Side), era: Era, setup: &Setup, more: &str) -> Self {
        let way = Self::start(sides, era, setup, more).await;
        way.connect(json!({})).await;
        way
    }

    /// Not yet connected.
    pub(super) async fn start((front, back): (Side, Side), era: Era, setup: &Setup, more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log").to_str().expect("UTF-8").to_owned();
        let server = (back == Side::Http).then(|| HttpServer::start("logging-server", &["--log", &log]));
        let setup = match &server {
            Some(server) => setup.clone().url(LANE, &server.url, more),
            None => setup.clone().server(LANE, &[&bin("logging-server"), "--stdio", "--log", &log], more),
        };
        let (client, keep) = front_of(front, era, &setup).await;
        let name = format!("{front:?} → {back:?}, {era:?}");
        Self { client, name, back, setup, keep, log, _directory: directory, _server: server }
    }

    pub(super) async fn connect(&self, extra: Value) {
        if let Err(failure) = self.client.connect_with(extra).await {
            panic!("{}: could not connect: {failure:?}\n{}", self.name, self.stderr());
        }
    }

    pub(super) fn log(&self) -> &Path {
        self.log.as_ref()
    }

    /// What arrived at the server, in order: messages, or requests with a body.
    pub(super) fn arrived(&self) -> Vec<Value> {
        record::read(self.log()).into_iter().filter(|record| message(record).is_some()).collect()
    }

    /// The records of this method.
    pub(super) fn records(&self, method: &str) -> Vec<Value> {
        let mut records = self.arrived();
        records.retain(|record| message(record).is_some_and(|message| message["method"] == method));
        records
    }

    /// The last message of this method byte by byte; not all that is JSON can be read here.
    pub(super) fn bytes(&self, method: &str) -> String {
        let is = |raw: &String| raw.contains(&format!(r#""method":"{method}""#));
        let raw = |record: &Value| record["raw"].as_str().map(str::to_owned).filter(is);
        let found = record::read(self.log()).iter().filter_map(raw).next_back();
        found.unwrap_or_else(|| panic!("{}: no {method} arrived", self.name))
    }

    /// The messages of this method as they arrived.
    pub(super) fn messages(&self, method: &str) -> Vec<Value> {
        messages(self.log(), method)
    }

    /// The last of them.
    pub(super) fn last(&self, method: &str) -> Value {
        self.messages(method).pop().unwrap_or_else(|| panic!("{}: no {method} arrived", self.name))
    }

    /// What the gateway has logged.
    pub(super) fn stderr(&self) -> String {
        match &self.keep {
            Keep::Serve(gateway) => gateway.log(),
            Keep::Wrap(_) => self.client.stderr(),
        }
    }

    /// Waits until the gateway has logged something that is wanted.
    pub(super) async fn logged(&self, wanted: impl Fn(&str) -> bool) -> bool {
        wait_until(SOON, || wanted(&self.stderr())).await
    }

    pub(super) fn gateway(&self) -> Option<&Gateway> {
        match &self.keep {
            Keep::Serve(gateway) => Some(gateway),
            Keep::Wrap(_) => None,
        }
    }

    /// Runs another command on the same state directory.
    pub(super) fn run_with(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        match &self.keep {
            Keep::Serve(gateway) => gateway.run_with(arguments, input),
            Keep::Wrap(files) => self.setup.run_with(files, arguments, input),
        }
    }

    /// Sends a request of the old era as it is written and gives its answer. Its id is a text.
    pub(super) async fn raw(&self, id: &str, request: &str) -> Value {
        if let Keep::Serve(_) = self.keep {
            return self.client.raw().post(request.to_owned(), &[VERSION]).await.json();
        }
        assert!(self.client.send_bytes(format!("{request}\n").as_bytes()).await);
        let found = || self.client.strays().into_iter().find(|answer| answer["id"] == id);
        assert!(wait_until(SOON, || found().is_some()).await, "{}: no answer to {request}", self.name);
        found().unwrap_or_default()
    }
}

pub(super) const VERSION: (&str, &str) = ("mcp-protocol-version", "2025-11-25");

/// A client of the server [`LANE`] of this configuration.
async fn front_of(front: Side, era: Era, setup: &Setup) -> (Client, Keep) {
    match front {
        Side::Http => {
            let gateway = setup.serve().await;
            (gateway.client(LANE, era), Keep::Serve(gateway))
        }
        Side::Pipe => {
            let (client, files) = setup.wrap_named(era, LANE, &[]);
            (client, Keep::Wrap(files))
        }
    }
}

/// A client in front of a server that a test plays itself, connected.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) client: Client,
    pub(super) name: String,
    keep: Keep,
}

impl Played {
    pub(super) async fn open(front: Side, era: Era, setup: &Setup, url: &str) -> Self {
        let (client, keep) = front_of(front, era, &setup.clone().url(LANE, url, "")).await;
        let played = Self { client, name: format!("{front:?}, {era:?}"), keep };
        if let Err(failure) = played.client.connect().await {
            panic!("{}: could not connect: {failure:?}\n{}", played.name, played.stderr());
        }
        played
    }

    pub(super) fn stderr(&self) -> String {
        match &self.keep {
            Keep::Serve(gateway) => gateway.log(),
            Keep::Wrap(_) => self.client.stderr(),
        }
    }

    /// Another client of the new era, whose requests have these headers as well.
    pub(super) fn with_headers(&self, headers: &[(&str, &str)]) -> Client {
        let Keep::Serve(gateway) = &self.keep else { panic!("{} is a pipe", self.name) };
        let http = Http::new(&gateway.mcp(LANE), Some(&gateway.token));
        let http = headers.iter().fold(http, |http, (name, value)| http.with_header(name, value));
        Client::over(http, Era::Modern)
    }
}

/// Does the same on several ways at once, since most of it is waiting.
pub(super) async fn at_once<T: Future<Output = ()> + Send + 'static>(all: impl IntoIterator<Item = T>) {
    let mut running: JoinSet<()> = all.into_iter().collect();
    while let Some(done) = running.join_next().await {
        if let Err(error) = done {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// All combinations of what the two sides speak.
pub(super) fn sides() -> impl Iterator<Item = (Side, Side)> {
    Side::BOTH.into_iter().flat_map(|front| Side::BOTH.map(|back| (front, back)))
}

fn message(record: &Value) -> Option<Value> {
    serde_json::from_str(record["raw"].as_str().filter(|raw| !raw.is_empty())?).ok()
}

/// The message of a record.
pub(super) fn message_of(record: &Value) -> Value {
    message(record).unwrap_or_default()
}

/// How a hook stops a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stopped {
    /// It threw.
    Refused,
    /// It went over a limit.
    Failed,
}

/// Checks that a hook stopped the call and that the message says all of this; gives the message.
#[track_caller]
pub(super) fn stopped(answer: Result<Value, Failure>, how: Stopped, says: &[&str]) -> String {
    let failure = match answer {
        Err(failure) => failure,
        Ok(result) => panic!("it was let through: {result}"),
    };
    let (code, name) = match how {
        Stopped::Refused => (-31023, "hook_refused"),
        Stopped::Failed => (-31024, "hook_failed"),
    };
    assert_eq!((failure.code(), name_of(&failure).as_str()), (Some(code), name), "{failure:?}");
    let Failure::Rpc(error) = &failure else { panic!("{failure:?}") };
    let message = error["message"].as_str().unwrap_or_default();
    for part in says {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    message.to_owned()
}
