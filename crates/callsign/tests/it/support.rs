//! Words that several modules use.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Failure, text};
use testkit::harness::{Files, Gateway, HttpServer, Setup};

pub(crate) const CALLSIGN: &str = env!("CARGO_BIN_EXE_callsign");
/// How long something may take that happens at once.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn setup() -> Setup {
    Setup::new(CALLSIGN)
}

/// Whether the long sizes are wanted.
pub(crate) fn full() -> bool {
    std::env::var_os("CALLSIGN_FULL").is_some_and(|value| value == "1")
}

/// A gateway with the echo server as `echo`.
pub(crate) fn echo(more: &str) -> Setup {
    setup().server("echo", &[&bin("echo-server"), "--stdio"], more)
}

/// A gateway with the hostile server in this mode as `bad`.
pub(crate) fn hostile(mode: &[&str], more: &str) -> Setup {
    let program = bin("hostile-server");
    let mut command = vec![program.as_str(), "--stdio", "--mode"];
    command.extend_from_slice(mode);
    setup().server("bad", &command, more)
}

/// The stable name of a gateway's own error.
pub(crate) fn name_of(failure: &Failure) -> String {
    match failure {
        Failure::Rpc(error) => error["data"]["code"].as_str().unwrap_or_default().to_owned(),
        Failure::Status(_, body) => {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            body["error"]["data"]["code"].as_str().unwrap_or_default().to_owned()
        }
        Failure::Closed | Failure::Deadline => String::new(),
    }
}

/// The pids that a hostile server with `--count` wrote down, in the order of their starts.
pub(crate) fn started(count: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(count).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// What Codex calls itself.
pub(crate) const CODEX: &str = "codex-mcp-client";

/// What a client of this name adds to `initialize`.
pub(crate) fn named(client: &str) -> Value {
    json!({ "clientInfo": { "name": client, "version": "1" } })
}

/// `_meta` of a call in a thread, as Codex writes it.
pub(crate) fn codex(thread: &str) -> Value {
    codex_subagent(thread, thread)
}

/// The same for a thread that `root` started.
pub(crate) fn codex_subagent(thread: &str, root: &str) -> Value {
    let mut turn = json!({ "session_id": root, "thread_id": thread, "turn_id": format!("turn-of-{thread}") });
    if thread != root {
        turn["parent_thread_id"] = root.into();
    }
    json!({
        "threadId": thread,
        "sessionId": root,
        "windowId": format!("{thread}:0"),
        "callId": format!("call-of-{thread}"),
        "x-codex-turn-metadata": turn,
    })
}

/// Calls a tool with this `_meta`.
pub(crate) async fn call_as(
    client: &Client,
    meta: &Value,
    tool: &str,
    arguments: Value,
) -> Result<Value, Failure> {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    client.request("tools/call", params).await
}

/// What the echo server says it was given, its whole environment included.
pub(crate) async fn whoami_as(client: &Client, meta: &Value) -> Value {
    match call_as(client, meta, "whoami", json!({ "prefix": "" })).await {
        Ok(result) => serde_json::from_str(&text(&result)).expect("whoami answers with JSON"),
        Err(failure) => panic!("whoami failed: {failure:?}\n{}", client.stderr()),
    }
}

/// The same by reading a resource, which hosts do without saying for whom.
pub(crate) async fn read_as(client: &Client, meta: &Value) -> Result<Value, Failure> {
    let params = json!({ "uri": "test://whoami", "_meta": meta });
    let result = client.request("resources/read", params).await?;
    let text = result["contents"][0]["text"].as_str().unwrap_or_default();
    Ok(serde_json::from_str(text).expect("whoami answers with JSON"))
}

/// Who called, as the server was told.
pub(crate) fn told(whoami: &Value) -> &Value {
    &whoami["meta"]["dev.callsign/identity"]
}

/// The values of a header, as the server got them.
pub(crate) fn header<'a>(whoami: &'a Value, name: &str) -> Vec<&'a str> {
    let pairs = whoami["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    pairs.iter().filter(|pair| pair[0] == name).filter_map(|pair| pair[1].as_str()).collect()
}

/// Whether a process was told nothing of anybody, not even a placeholder.
#[track_caller]
pub(crate) fn assert_anonymous(whoami: &Value) {
    assert_eq!(told(whoami)["trust"], "none", "{whoami}");
    for field in ["host", "session", "thread", "parent", "run", "turn", "title"] {
        assert!(told(whoami).get(field).is_none(), "{field}: {whoami}");
    }
    assert!(whoami["meta"].get("dev.callsign/assertion").is_none(), "{whoami}");
    let env = whoami["env"].as_object().expect("an environment");
    for (name, value) in env {
        let ours = name.starts_with("CALLSIGN_") && name != "CALLSIGN_JWKS_FILE";
        let names_somebody = name.ends_with("_SESSION_ID") || name.ends_with("_THREAD_ID");
        assert!(!ours && !names_somebody, "{name} = {value}");
        assert!(value != PROBE && value != NIL, "{name} = {value}");
    }
}

/// What variables hold in a process that answers discovery only.
pub(crate) const PROBE: &str = "callsign-probe";
pub(crate) const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// The environment of every process that wrote to this log, in the order of their starts.
pub(crate) fn started_with(log: &Path) -> Vec<Value> {
    let records = testkit::record::read(log);
    records.iter().filter(|record| record["event"] == "start").map(|record| record["env"].clone()).collect()
}

/// The messages of this method in a log.
pub(crate) fn messages(log: &Path, method: &str) -> Vec<Value> {
    let records = testkit::record::read(log);
    let message = |record: &Value| serde_json::from_str::<Value>(record["raw"].as_str()?).ok();
    records.iter().filter_map(message).filter(|message| message["method"] == method).collect()
}

/// A log file for a server, in a directory that goes with it.
pub(crate) fn log_file() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log").to_str().expect("UTF-8").to_owned();
    (directory, log)
}

/// One way through the gateway: a client of one era, and what has to live as long.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) client: Client,
    /// `stdio → http, Modern`, for messages.
    pub(crate) name: String,
    pub(crate) http_client: bool,
    /// The server behind, where it is reached by HTTP.
    _server: Option<HttpServer>,
    _keep: Keep,
}

#[derive(Debug)]
enum Keep {
    Serve { _gateway: Gateway },
    Wrap { _files: Files },
}

impl Lane {
    /// All four combinations in both eras, connected, to an echo server with these arguments.
    pub(crate) async fn all(arguments: &[&str]) -> Vec<Self> {
        let mut lanes = Vec::new();
        for era in Era::BOTH {
            lanes.extend(Self::of(era, arguments).await);
        }
        lanes
    }

    /// The four combinations in one era.
    pub(crate) async fn of(era: Era, arguments: &[&str]) -> Vec<Self> {
        let mut lanes = Vec::new();
        for (http_client, http_server) in [(false, false), (false, true), (true, false), (true, true)] {
            lanes.push(Self::open(era, http_client, http_server, arguments).await);
        }
        lanes
    }

    async fn open(era: Era, http_client: bool, http_server: bool, arguments: &[&str]) -> Self {
        let program = bin("echo-server");
        let mut command = vec![program.as_str(), "--stdio"];
        command.extend_from_slice(arguments);
        let server = http_server.then(|| HttpServer::start("echo-server", arguments));
        let word = |http: bool| if http { "http" } else { "stdio" };
        let name = format!("{} → {}, {era:?}", word(http_client), word(http_server));
        let (client, keep) = match (&server, http_client) {
            (Some(server), true) => serve(&setup().url("lane", &server.url, ""), era).await,
            (None, true) => serve(&setup().server("lane", &command, ""), era).await,
            (Some(server), false) => wrap(era, &["--url", &server.url], &[]),
            (None, false) => wrap(era, &[], &command),
        };
        if let Err(failure) = client.connect().await {
            panic!("{name}: could not connect: {failure:?}\n{}", client.stderr());
        }
        Self { client, name, http_client, _server: server, _keep: keep }
    }

    pub(crate) fn era(&self) -> Era {
        self.client.era()
    }
}

async fn serve(setup: &Setup, era: Era) -> (Client, Keep) {
    let gateway = setup.serve().await;
    (gateway.client("lane", era), Keep::Serve { _gateway: gateway })
}

fn wrap(era: Era, arguments: &[&str], command: &[&str]) -> (Client, Keep) {
    let (client, files) = setup().wrap(era, arguments, command);
    (client, Keep::Wrap { _files: files })
}
