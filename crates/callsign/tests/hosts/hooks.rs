//! The first recipe, byte for byte, under the real hosts: sessions share a transport, and each
//! call on it has headers of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::harness::{HttpServer, wait_until};
use testkit::hosts::codex::AppServer;
use testkit::hosts::opencode::OpenCode;
use testkit::hosts::{Arrived, Home, arrived, codex, opencode};
use testkit::llm::{ScriptedModel, script};

use crate::support::{calls, check_headers, configure, install, text, wraps};

/// The plugin of the recipe, indentation included.
const PLUGIN: &str = r#"  export default {
    "mcp.call.before": async (input, output) => {
      output.headers["X-Session-Id"] = input.sessionID
      output.headers["X-Call-Id"]    = input.callID
      if (input.server === "my-server") {
        output.headers["X-User-Id"] = process.env.USER_ID ?? ""
      }
    },
  }
"#;
const RECIPE: &str = include_str!("../../../hooks/recipes/session-header.js");

/// Runs after it, and tells the server all that a hook sees of the environment.
const SHOWN: &str = r#"
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-Shown"] = JSON.stringify(process.env)
  },
}
"#;

const CONFIGURATION: &str = r#"
[hooks]
files = ["hooks/session-header.js", "hooks/shown.js"]
env = ["USER_ID"]
"#;

const SERVERS: [&str; 2] = ["my-server", "other"];
const USER: &str = "user-4711";
/// In the host's environment beside the user, and not for hooks.
const SECRET: &str = "a-secret-of-the-host";

const TURNS: usize = 2;
/// In each turn at each server, at once.
const CALLS: usize = 3;
/// How long one of them takes, so that others fall into it.
const PAUSE_MS: u64 = 1000;
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn two_opencode_sessions_on_one_transport_have_headers_of_each_calls_own() {
    let (rig, model) = (Rig::new(), ScriptedModel::start());
    let mut settings = opencode::Settings::new();
    for (name, server) in SERVERS.iter().zip(&rig.servers) {
        settings = settings.remote(name, &server.url, &json!({ "X-Static": name }));
    }
    settings.write(&rig.home, &model);
    install(&rig.home, "opencode");
    let opencode = OpenCode::start(&rig.home).await;
    let sessions = [opencode.session("one").await, opencode.session("two").await];
    let prompt = turn(&SERVERS);
    let turns = async |session: &str| {
        for _ in 0..TURNS {
            opencode.prompt(session, &prompt).await;
        }
    };
    tokio::join!(turns(&sessions[0]), turns(&sessions[1]));

    let mut made = Vec::new();
    for session in &sessions {
        let messages = opencode.messages(session).await;
        let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
        for part in parts.filter(|part| part["type"] == "tool") {
            let (name, state) = (string(&part["tool"]), &part["state"]);
            let (server, tool) = name.rsplit_once('_').expect("a server and its tool");
            let made_here = Made {
                server: server.to_owned(),
                session: session.clone(),
                call: string(&part["callID"]),
                began: number(&state["time"]["start"]),
                ended: number(&state["time"]["end"]),
            };
            made_here.check_answer(tool, &string(&state["output"]));
            made.push(made_here);
        }
    }
    rig.check(&made).await;
    assert_eq!(wraps(opencode.pid()).len(), SERVERS.len(), "one of us for each server, whoever calls");
    for name in SERVERS {
        let pairs = rig.transports(name);
        let over: BTreeSet<&Option<String>> = pairs.iter().map(|(over, _)| over).collect();
        assert_eq!((over.len(), pairs.len()), (1, 2), "both sessions call {name} over one: {pairs:?}");
        assert!(!over.contains(&None), "{name} gave no session of MCP");
    }
}

#[tokio::test]
async fn two_codex_threads_have_headers_of_each_calls_own() {
    let (rig, codex) = under_codex(Pipes::OfEachThread).await;
    assert_eq!(wraps(codex.pid()).len(), 2 * SERVERS.len(), "one of us for each server and thread");
    for name in SERVERS {
        let pairs = rig.transports(name);
        let over: BTreeSet<&Option<String>> = pairs.iter().map(|(over, _)| over).collect();
        assert_eq!((over.len(), pairs.len()), (2, 2), "each thread has its own to {name}: {pairs:?}");
    }
}

#[tokio::test]
async fn two_codex_threads_on_one_connection_have_headers_of_each_calls_own() {
    let (rig, codex) = under_codex(Pipes::Shared).await;
    assert_eq!(wraps(codex.pid()).len(), SERVERS.len(), "one of us for each server, whoever calls");
    for name in SERVERS {
        let pairs = rig.transports(name);
        let none = pairs.iter().all(|(over, _)| over.is_none());
        assert!(none && pairs.len() == 2, "the new era has no sessions of MCP, {name}: {pairs:?}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pipes {
    OfEachThread,
    /// By features of Codex, in the new era of the protocol.
    Shared,
}

/// The turns of two threads, checked.
async fn under_codex(pipes: Pipes) -> (Rig, AppServer) {
    let (rig, model) = (Rig::new(), ScriptedModel::start());
    let mut settings = codex::Settings::new();
    if pipes == Pipes::Shared {
        settings = settings.feature("mcp_2026_07_28").feature("mcp_connection_sharing");
    }
    for (name, server) in SERVERS.iter().zip(&rig.servers) {
        // Codex makes calls one by one where nothing is said.
        let more = format!("supports_parallel_tool_calls = true\nhttp_headers = {{ X-Static = \"{name}\" }}");
        settings = settings.http(name, &server.url, &more);
    }
    settings.write(&rig.home, &model);
    install(&rig.home, "codex");
    complete_entries(&rig.home, pipes);
    let codex = AppServer::start(&rig.home).await;
    let threads = [codex.thread().await, codex.thread().await];
    // In the names of its tools Codex has no hyphens.
    let prompt = turn(&["my_server", "other"]);
    let turns = async |thread: &str| {
        for _ in 0..TURNS {
            codex.turn(thread, &prompt).await;
        }
    };
    tokio::join!(turns(&threads[0]), turns(&threads[1]));

    let mut made = Vec::new();
    for thread in &threads {
        let read = codex.request("thread/read", json!({ "threadId": thread, "includeTurns": true })).await;
        let turns = read["thread"]["turns"].as_array().unwrap_or_else(|| panic!("no turns: {read}"));
        let items = turns.iter().filter_map(|turn| turn["items"].as_array()).flatten();
        for item in items.filter(|item| item["type"] == "mcpToolCall") {
            let made_here = Made {
                server: string(&item["server"]),
                session: thread.clone(),
                call: string(&item["id"]),
                began: number(&item["startedAtMs"]),
                ended: number(&item["completedAtMs"]),
            };
            let answer = string(&item["result"]["content"][0]["text"]);
            made_here.check_answer(&string(&item["tool"]), &answer);
            made.push(made_here);
        }
    }
    rig.check(&made).await;
    (rig, codex)
}

/// Codex starts servers with next to nothing of its environment, so the entries have to name what hooks shall see.
/// They name the secret too: it is there for us, and still not for a hook.
fn complete_entries(home: &Home, pipes: Pipes) {
    let path = home.codex().join("config.toml");
    let mut entries = std::fs::read_to_string(&path).expect("config.toml");
    let mut put_before = |word: &str, more: &str| {
        assert_eq!(entries.matches(word).count(), SERVERS.len(), "`{word}` in each entry:\n{entries}");
        entries = entries.replace(word, &format!("{more}{word}"));
    };
    put_before("default_tools_approval_mode", "env_vars = [\"USER_ID\", \"SECRET_TOKEN\"]\n");
    if pipes == Pipes::Shared {
        put_before("CALLSIGN_ENTRY_HEADERS = ", "CODEX_MCP_PROTOCOL_VERSION = \"2026-07-28\", ");
    }
    std::fs::write(path, entries).expect("config.toml");
}

/// A user with hooks and a secret, and behind each of [`SERVERS`] one that writes down what it gets.
struct Rig {
    home: Arc<Home>,
    servers: Vec<HttpServer>,
}

impl Rig {
    fn new() -> Self {
        assert!(RECIPE.contains(PLUGIN), "the recipe is no longer this plugin:\n{RECIPE}");
        let home = Home::with(&[("USER_ID", USER), ("SECRET_TOKEN", SECRET)]);
        configure(&home, CONFIGURATION);
        let directory = home.callsign_toml().with_file_name("hooks");
        std::fs::create_dir_all(&directory).expect("a directory");
        for (file, source) in [("session-header.js", RECIPE), ("shown.js", SHOWN)] {
            std::fs::write(directory.join(file), source).expect("a hook");
        }
        let start = |name: &&str| HttpServer::start("logging-server", &["--log", text(&home.log(name))]);
        let servers = SERVERS.iter().map(start).collect();
        Self { home, servers }
    }

    fn calls(&self, server: &str) -> Vec<Arrived> {
        calls(arrived(&self.home.log(server)))
    }

    /// Which session of MCP brought calls of which session of the host.
    fn transports(&self, server: &str) -> BTreeSet<(Option<String>, String)> {
        let pair =
            |call: &Arrived| (call.header("mcp-session-id").map(str::to_owned), only(call, "x-session-id"));
        self.calls(server).iter().map(pair).collect()
    }

    /// What arrived is what the host made, each call under its own session and id, and nothing more is told.
    async fn check(&self, made: &[Made]) {
        let each = 2 * TURNS * CALLS;
        wait_until(SOON, || SERVERS.iter().all(|name| self.calls(name).len() >= each)).await;
        let mut told = Vec::new();
        for name in SERVERS {
            for message in arrived(&self.home.log(name)) {
                if let Some((session, call)) = check_message(name, &message) {
                    told.push((name.to_owned(), session, call));
                }
            }
            let log = std::fs::read_to_string(self.home.log(name)).expect("a log");
            assert!(!log.contains(SECRET), "a secret of the host reached {name}");
        }
        let mut known: Vec<_> = made.iter().map(Made::row).collect();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known, "the calls that arrived and those that the host made");
        let different: BTreeSet<_> = told.iter().collect();
        assert_eq!(different.len(), each * SERVERS.len(), "calls with a session and an id of their own");
        check_at_once(made);
    }
}

/// The session and the id that a call was sent with; None for what is no call.
#[track_caller]
fn check_message(server: &str, message: &Arrived) -> Option<(String, String)> {
    let user = (server == "my-server").then_some(USER);
    // The whole of `process.env`.
    let shown = json!({ "USER_ID": USER }).to_string();
    let hooked = json!({ "x-user-id": user, "x-shown": shown, "x-static": server });
    match message.method() {
        "tools/call" => {
            check_headers(message, &hooked);
            Some((only(message, "x-session-id"), only(message, "x-call-id")))
        }
        // Hosts list for all of their sessions. The id is ours.
        "tools/list" => {
            check_headers(message, &hooked);
            check_headers(message, &json!({ "x-session-id": null }));
            only(message, "x-call-id");
            None
        }
        _ => {
            let none = json!({ "x-session-id": null, "x-call-id": null, "x-user-id": null, "x-shown": null });
            check_headers(message, &none);
            None
        }
    }
}

/// One call in the host's own history.
#[derive(Debug)]
struct Made {
    server: String,
    session: String,
    call: String,
    /// In milliseconds.
    began: u64,
    ended: u64,
}

impl Made {
    fn row(&self) -> (String, String, String) {
        (self.server.clone(), self.session.clone(), self.call.clone())
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.server == other.server && self.began < other.ended && other.began < self.ended
    }

    /// `whoami` says which headers it was asked with: they are those of this call.
    #[track_caller]
    fn check_answer(&self, tool: &str, answer: &str) {
        if tool != "whoami" {
            return;
        }
        let said: Value =
            serde_json::from_str(answer).unwrap_or_else(|_| panic!("{self:?} failed: {answer}"));
        let headers = said["headers"].as_array().unwrap_or_else(|| panic!("no headers: {answer}"));
        for (name, value) in [("x-session-id", &self.session), ("x-call-id", &self.call)] {
            assert!(headers.contains(&json!([name, value])), "an answer went astray: {self:?} got {answer}");
        }
    }
}

/// By the host's own clock: within each session, and across the two.
#[track_caller]
fn check_at_once(made: &[Made]) {
    for server in SERVERS {
        let pairs = || {
            let here = made.iter().filter(move |call| call.server == server);
            let pairs = here.flat_map(|one| made.iter().map(move |other| (one, other)));
            pairs.filter(|(one, other)| one.call != other.call && one.overlaps(other))
        };
        let sessions: BTreeSet<&str> = made.iter().map(|call| call.session.as_str()).collect();
        for session in sessions {
            let own = pairs().any(|(one, other)| one.session == session && other.session == session);
            assert!(own, "{session} made no two calls to {server} at once: {made:#?}");
        }
        let across = pairs().any(|(one, other)| one.session != other.session);
        assert!(across, "the sessions did not call {server} at once: {made:#?}");
    }
}

/// A header that is there once.
#[track_caller]
fn only(message: &Arrived, name: &str) -> String {
    let headers = &message.headers;
    let values: Vec<&String> =
        headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value).collect();
    let [value] = values[..] else { panic!("{name} is there {} times: {headers:?}", values.len()) };
    value.clone()
}

/// One turn: calls to all servers at once, which the host's tools know by these names.
fn turn(servers: &[&str]) -> String {
    let mut calls = Vec::new();
    for server in servers {
        calls.push(json!({ "tool": format!("{server}/sleep"), "args": { "ms": PAUSE_MS } }));
        // No variable begins so: the answer stays short.
        let whoami = json!({ "tool": format!("{server}/whoami"), "args": { "prefix": "=" } });
        calls.extend(std::iter::repeat_n(whoami, CALLS - 1));
    }
    script(&json!([{ "calls": calls }, { "text": "end" }]))
}

#[track_caller]
fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}
