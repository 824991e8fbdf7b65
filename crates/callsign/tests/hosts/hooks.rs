//! The plugin that hooks were asked for, as it was written down there, under the real hosts: headers of each
//! call's own on a transport that sessions share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::harness::{HttpServer, wait_until};
use testkit::hosts::codex::AppServer;
use testkit::hosts::opencode::OpenCode;
use testkit::hosts::{Arrived, Home, arrived, codex, opencode};
use testkit::llm::{ScriptedModel, script};
use tokio::task::JoinSet;

use crate::support::{calls, check_headers, configure, install, text, wraps};

/// Word for word, its indentation too.
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

/// Tells the server all that hooks see of the environment.
const SHOWN: &str = r#"
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-Shown"] = JSON.stringify(process.env)
  },
}
"#;

const SETTINGS: &str = r#"
[hooks]
files = ["hooks/session-header.js", "hooks/shown.js"]
env = ["USER_ID"]
"#;

const SERVERS: [&str; 2] = ["my-server", "other"];
const USER: &str = "user-4711";
/// Beside the user in the host's environment, and not for hooks.
const SECRET: &str = "a-secret-of-the-host";

const TURNS: usize = 2;
/// At each server, in parallel.
const CALLS: usize = 3;
/// Each turn takes this long, so that the other session's falls into it.
const PAUSE_MS: u64 = 1000;
const SOON: Duration = Duration::from_secs(30);

/// Calls as a host knows them: server, session, id.
type Made = BTreeSet<(String, String, String)>;

#[tokio::test]
async fn two_opencode_sessions_on_one_transport_have_headers_of_each_calls_own() {
    let (rig, model) = (Rig::new(), ScriptedModel::start());
    let mut settings = opencode::Settings::new();
    for (name, server) in SERVERS.iter().zip(&rig.servers) {
        settings = settings.remote(name, &server.url, &json!({ "X-Static": *name }));
    }
    settings.write(&rig.home, &model);
    install(&rig.home, "opencode");
    let opencode = Arc::new(OpenCode::start(&rig.home).await);
    let sessions = [opencode.session("one").await, opencode.session("two").await];
    let mut busy = JoinSet::new();
    for session in sessions.clone() {
        let opencode = opencode.clone();
        busy.spawn(async move {
            for _ in 0..TURNS {
                opencode.prompt(&session, &turn(&SERVERS)).await;
            }
        });
    }
    while let Some(done) = busy.join_next().await {
        done.expect("a session's turns");
    }

    let mut made = Made::new();
    for session in &sessions {
        let messages = opencode.messages(session).await;
        let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
        for part in parts.filter(|part| part["type"] == "tool") {
            let (name, id) = (plain(&part["tool"]), plain(&part["callID"]));
            let (server, tool) = name.rsplit_once('_').expect("the tool of a server");
            if tool == "whoami" {
                check_answer(&plain(&part["state"]["output"]), session, &id);
            }
            made.insert((server.to_owned(), session.clone(), id));
        }
    }
    rig.check(&made).await;
    assert_eq!(wraps(opencode.pid()).len(), SERVERS.len(), "one of us for each server, whoever calls");
    for calls in rig.calls() {
        check_interleaved(&calls);
        let transports: BTreeSet<Option<&str>> =
            calls.iter().map(|call| call.header("mcp-session-id")).collect();
        assert_eq!(transports.len(), 1, "both sessions call over one session of MCP: {transports:?}");
        assert!(!transports.contains(&None), "the server gave no session");
    }
}

#[tokio::test]
async fn two_codex_threads_have_headers_of_each_calls_own() {
    let (rig, model) = (Rig::new(), ScriptedModel::start());
    let mut settings = codex::Settings::new();
    for (name, server) in SERVERS.iter().zip(&rig.servers) {
        settings = settings.http(name, &server.url, &format!("http_headers = {{ X-Static = \"{name}\" }}"));
    }
    settings.write(&rig.home, &model);
    install(&rig.home, "codex");
    println!("{}", std::fs::read_to_string(rig.home.codex().join("config.toml")).unwrap());
    let codex = AppServer::start(&rig.home).await;
    let threads = [codex.thread().await, codex.thread().await];
    println!("{:?}", codex.servers().await);
    for _ in 0..TURNS {
        let prompt = turn(&["my_server", "other"]);
        let turns = [codex.begin(&threads[0], &prompt).await, codex.begin(&threads[1], &prompt).await];
        for (thread, turn) in threads.iter().zip(&turns) {
            codex.finish(thread, turn).await;
        }
    }
    println!("{}", wraps(codex.pid()).len());
    let mut made = Made::new();
    for thread in &threads {
        let read = codex.request("thread/read", json!({ "threadId": thread, "includeTurns": true })).await;
        println!("{read:#}");
    }
    rig.check(&made).await;
}

/// A user with our hooks and a secret, and a server that writes down what it gets for each of [`SERVERS`].
struct Rig {
    home: Arc<Home>,
    servers: Vec<HttpServer>,
}

impl Rig {
    fn new() -> Self {
        assert!(RECIPE.contains(PLUGIN), "the recipe is no longer the plugin as it was asked for:\n{RECIPE}");
        let home = Home::with(&[("USER_ID", USER), ("SECRET_TOKEN", SECRET)]);
        configure(&home, SETTINGS);
        let toml = home.callsign_toml();
        let directory = toml.parent().expect("a directory").join("hooks");
        std::fs::create_dir_all(&directory).expect("a directory");
        for (file, source) in [("session-header.js", RECIPE), ("shown.js", SHOWN)] {
            std::fs::write(directory.join(file), source).expect("a hook");
        }
        let start = |name: &&str| HttpServer::start("logging-server", &["--log", text(&home.log(name))]);
        let servers = SERVERS.iter().map(start).collect();
        Self { home, servers }
    }

    fn calls(&self) -> [Vec<Arrived>; 2] {
        SERVERS.map(|name| calls(arrived(&self.home.log(name))))
    }

    /// What arrived is what the host made, each under its own session and id, and nothing else is told.
    async fn check(&self, made: &Made) {
        let each = 2 * TURNS * CALLS;
        assert_eq!(made.len(), each * SERVERS.len(), "calls that the host knows of: {made:?}");
        wait_until(SOON, || self.calls().iter().all(|calls| calls.len() >= each)).await;
        let mut told: Vec<(String, String, String)> = Vec::new();
        for name in SERVERS {
            let user = (name == "my-server").then_some(USER);
            let shown = json!({ "USER_ID": USER }).to_string();
            for message in arrived(&self.home.log(name)) {
                let hooked = json!({ "x-user-id": user, "x-shown": shown, "x-static": name });
                match message.method() {
                    "tools/call" => {
                        check_headers(&message, &hooked);
                        let [session, call] = ["x-session-id", "x-call-id"].map(|it| only(&message, it));
                        told.push((name.to_owned(), session, call));
                    }
                    // The host lists for all of its sessions.
                    "tools/list" => {
                        check_headers(&message, &hooked);
                        check_headers(&message, &json!({ "x-session-id": null }));
                        only(&message, "x-call-id");
                    }
                    _ => {
                        let names = ["x-session-id", "x-call-id", "x-user-id", "x-shown"];
                        let some = names.iter().find(|name| message.header(name).is_some());
                        assert_eq!(some, None, "a hook ran for {}", message.raw);
                    }
                }
            }
            let log = std::fs::read_to_string(self.home.log(name)).expect("a log");
            assert!(!log.contains(SECRET), "a secret of the host reached {name}");
        }
        assert_eq!(told.len(), made.len(), "calls at the servers");
        let told: Made = told.into_iter().collect();
        assert_eq!(&told, made, "the calls that arrived and those that the host made");
    }
}

/// One turn: calls of all servers at once. The names are those in the host's tools.
fn turn(servers: &[&str]) -> String {
    let mut calls = Vec::new();
    for server in servers {
        calls.push(json!({ "tool": format!("{server}/sleep"), "args": { "ms": PAUSE_MS } }));
        calls.extend(
            (1..CALLS).map(|_| json!({ "tool": format!("{server}/whoami"), "args": { "prefix": "-" } })),
        );
    }
    script(&json!([{ "calls": calls }, { "text": "end" }]))
}

/// The answer of `whoami` went to the call whose headers the server saw.
#[track_caller]
fn check_answer(answer: &str, session: &str, call: &str) {
    let answer: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("a call failed: {answer}"));
    let headers = answer["headers"].as_array().expect("headers");
    for (name, value) in [("x-session-id", session), ("x-call-id", call)] {
        assert!(headers.contains(&json!([name, value])), "an answer went astray: {name} {value} {answer}");
    }
}

/// A header that is there once.
#[track_caller]
fn only(message: &Arrived, name: &str) -> String {
    let values: Vec<&String> =
        message.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value).collect();
    let [value] = values[..] else { panic!("{name} is there {} times: {:?}", values.len(), message.headers) };
    value.clone()
}

/// The sessions did call at the same time: neither waited for the end of the other.
#[track_caller]
fn check_interleaved(calls: &[Arrived]) {
    let mut order: Vec<Option<&str>> = calls.iter().map(|call| call.header("x-session-id")).collect();
    order.dedup();
    assert!(order.len() > 2, "one session called after the other");
}

fn plain(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
