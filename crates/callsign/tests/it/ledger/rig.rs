//! Words for tests of the ledger: a state directory that a daemon and any number of `wrap` write to, every way from a
//! client to a server, and the rows as a user reads them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Failure};
use testkit::harness::{GOOD, Gateway, Setup};
use tokio::task::JoinSet;

use super::played::Played;
use crate::support::{CALLSIGN, SOON, setup};

/// A host whose ids a test chooses, in both eras.
pub(super) const MINE: &str = r#"[hosts.mine]
client = "testkit"
session = { meta = "mine/session" }
thread = { meta = "mine/thread" }
parent = { meta = "mine/parent" }
run = { meta = "mine/run" }
turn = { meta = "mine/turn" }
call = { meta = "mine/call" }
"#;

/// `_meta` of a call with this name in this session.
pub(super) fn mine(session: &str, call: &str) -> Value {
    json!({ "mine/session": session, "mine/call": call })
}

/// The keys of a row, in their order.
pub(super) const KEYS: [&str; 17] = [
    "at",
    "host",
    "session",
    "thread",
    "parent",
    "run",
    "turn",
    "call",
    "server",
    "tool",
    "method",
    "workspace",
    "trust",
    "source",
    "outcome",
    "duration_ms",
    "spoof",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    Wrap,
    Serve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    Pipe,
    /// By HTTP, answers in JSON.
    Json,
    /// By HTTP, answers in events.
    Events,
    /// HTTP+SSE of 2024-11-05.
    Old,
}

impl Back {
    pub(super) const ALL: [Self; 4] = [Self::Pipe, Self::Json, Self::Events, Self::Old];

    /// The name of the server in the configuration.
    pub(super) fn server(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Json => "json",
            Self::Events => "events",
            Self::Old => "old",
        }
    }
}

/// One way from a client to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) front: Front,
    pub(super) back: Back,
    pub(super) era: Era,
}

impl Way {
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for front in [Front::Wrap, Front::Serve] {
            for back in Back::ALL {
                for era in Era::BOTH {
                    // The new era has no HTTP+SSE.
                    if back != Back::Old || era == Era::Legacy {
                        all.push(Self { front, back, era });
                    }
                }
            }
        }
        all
    }

    /// Also the session that calls on it.
    pub(super) fn name(self) -> String {
        format!("{:?}-{:?}-{:?}", self.front, self.back, self.era).to_lowercase()
    }

    /// The name of a call on it.
    pub(super) fn call(self, what: &str) -> String {
        format!("{}-{what}", self.name())
    }

    /// Whether a client of this way cancels by going away.
    pub(super) fn cancels_by_leaving(self) -> bool {
        self.front == Front::Serve && self.era == Era::Modern
    }
}

/// A state directory with a daemon, and the servers of [`Back`] played by the test.
pub(super) struct House {
    pub(super) gateway: Gateway,
    pub(super) played: Played,
    environment: Vec<(String, String)>,
}

impl House {
    /// `more` are further lines of each server.
    pub(super) async fn open(more: &str) -> Self {
        Self::with(setup(), more).await
    }

    pub(super) async fn with(setup: Setup, more: &str) -> Self {
        let played = Played::start().await;
        let setup = served(setup.toml(MINE), &played, more);
        Self::around(setup, played, &[]).await
    }

    /// Servers that are in the configuration already; the daemon and every `wrap` have these variables.
    pub(super) async fn around(setup: Setup, played: Played, environment: &[(&str, &str)]) -> Self {
        let setup = environment.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { gateway: setup.serve().await, played, environment: environment.iter().map(owned).collect() }
    }

    /// A host's `wrap` on this state directory, not yet connected.
    pub(super) fn wrap(&self, server: &str, era: Era, arguments: &[&str]) -> Client {
        let files = &self.gateway.files;
        let mut command = Command::new(CALLSIGN);
        command.args(["wrap", "--name", server, "--config"]).arg(files.config());
        command.arg("--state-dir").arg(files.state()).args(arguments);
        command.current_dir(files.path()).env_clear().env("HOME", files.path().join("home"));
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Client::stdio(command.into(), era)
    }

    /// A client of this server, connected.
    pub(super) async fn connect(&self, front: Front, server: &str, era: Era) -> Client {
        let client = match front {
            Front::Wrap => self.wrap(server, era, &[]),
            Front::Serve => self.gateway.client(server, era),
        };
        if let Err(failure) = client.connect().await {
            panic!("{front:?} → {server}, {era:?}: {failure:?}\n{}{}", client.stderr(), self.gateway.log());
        }
        client
    }

    pub(super) async fn client(&self, way: Way) -> Client {
        self.connect(way.front, way.back.server(), way.era).await
    }

    /// `callsign calls --json --limit 0` with these filters, as it is printed.
    pub(super) fn printed(&self, filters: &[&str]) -> String {
        let (code, output, errors) =
            self.gateway.run(&[&["calls", "--json", "--limit", "0"], filters].concat());
        assert_eq!(code, Some(0), "{filters:?}: {errors}");
        output
    }

    pub(super) fn rows(&self, filters: &[&str]) -> Vec<Value> {
        objects(&self.printed(filters))
    }

    /// The rows of a session once there are this many and all have ended.
    pub(super) async fn ended(&self, filters: &[&str], count: usize) -> Vec<Value> {
        let done = |rows: &[Value]| rows.len() >= count && rows.iter().all(|row| !row["outcome"].is_null());
        self.until(filters, done).await
    }

    /// The rows once they are as wanted, or after a while: what is wrong with them is said by who looks at them.
    pub(super) async fn until(&self, filters: &[&str], wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + SOON;
        loop {
            let rows = self.rows(filters);
            if wanted(&rows) || Instant::now() > deadline {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// All that is kept of these calls.
    pub(super) fn exported(&self, filters: &[&str]) -> Vec<Value> {
        let (code, output, errors) =
            self.gateway.run(&[&["ledger", "export", "--format", "jsonl"], filters].concat());
        assert_eq!(code, Some(0), "{filters:?}: {errors}");
        objects(&output)
    }

    /// The only call of this name, with all that is kept of it.
    pub(super) fn one(&self, call: &str) -> Value {
        let mut rows = self.exported(&["--call", call]);
        assert_eq!(rows.len(), 1, "{call}: {rows:?}");
        rows.remove(0)
    }

    /// The file, once the daemon has written to it: whoever takes it away before that takes half of it.
    pub(super) async fn ledger(&self) -> PathBuf {
        let client = self.connect(Front::Serve, GOOD, Era::Modern).await;
        call(&client, "echo", mine("first", "first"), json!({})).await.expect("answered");
        assert_eq!(self.ended(&["--call", "first"], 1).await.len(), 1, "{}", self.gateway.log());
        self.gateway.files.state().join("ledger.db")
    }

    #[track_caller]
    pub(super) fn verifies(&self) {
        let (code, output, errors) = self.gateway.run(&["ledger", "verify"]);
        assert_eq!(code, Some(0), "{output}{errors}");
    }
}

impl Drop for House {
    /// Tests that care how it ends have ended it already.
    fn drop(&mut self) {
        self.gateway.kill();
    }
}

/// The four servers.
fn served(setup: Setup, played: &Played, more: &str) -> Setup {
    let command = played.command();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut setup = setup.server("pipe", &command, more);
    for back in [Back::Json, Back::Events, Back::Old] {
        setup = setup.url(back.server(), &played.url(&format!("/{}", back.server())), more);
    }
    setup
}

/// The echo server, which says what it was given.
pub(super) fn with_echo(setup: Setup, more: &str) -> Setup {
    setup.server("echo", &[&bin("echo-server"), "--stdio"], more)
}

/// JSON, one object a line.
pub(super) fn objects(text: &str) -> Vec<Value> {
    let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    text.lines().map(object).collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Calls a tool.
pub(super) async fn call(
    client: &Client,
    tool: &str,
    meta: Value,
    arguments: Value,
) -> Result<Value, Failure> {
    client.request("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta })).await
}

/// Tools and outcomes of rows, in order.
pub(super) fn outcomes(rows: &[Value]) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or("null").to_owned();
    rows.iter().map(|row| (word(&row["tool"]), word(&row["outcome"]))).collect()
}

/// Does the same on several ways at once, since most of it is waiting. What went wrong on one of them does not hide
/// what went wrong on the others.
pub(super) async fn at_once<T: Future<Output = ()> + Send + 'static>(all: impl IntoIterator<Item = T>) {
    let mut running: JoinSet<()> = all.into_iter().collect();
    let mut wrong = 0;
    while let Some(done) = running.join_next().await {
        wrong += usize::from(done.is_err());
    }
    assert_eq!(wrong, 0, "ways on which it went wrong; each said why above");
}
