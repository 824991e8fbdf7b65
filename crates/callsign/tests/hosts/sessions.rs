//! Codex and Claude Code with `callsign mcp` as their MCP server: the example workflow of opencode-as-mcp, turn by turn.
//!
//! The host's model and the model of the agent in the box are one scripted model. What the box worked out is in no
//! script: where it stands in the host's conversation, it came through the tools.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::harness::wait_until;
use testkit::hosts::Home;
use testkit::hosts::claude::{Claude, Scope, Settings as ClaudeSettings};
use testkit::hosts::codex::{AppServer, Settings as CodexSettings};
use testkit::llm::script;

use self::rig::{CALLSIGN, Rig, SOON, TURN, bash, text};

#[path = "../sessions/rig.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "the other tests of sessions use the rest; a failure tells its log"
)]
mod rig;

/// A host that has been told of our server.
trait Turns {
    /// One turn to its end.
    async fn turn(&self, prompt: &str);
}

/// What the box works out.
const WORKED_OUT: &str = "answer-42-of-3";

async fn call(host: &impl Turns, tool: &str, arguments: Value) {
    let tool = format!("sessions/{tool}");
    host.turn(&script(&json!([{ "tool": tool, "args": arguments }, { "text": "seen" }]))).await;
}

/// Returns what was written down of who asked for the run.
async fn walk(rig: &Rig, host: &impl Turns) -> Value {
    let key = json!({ "name": "analysis-session", "reuse_key": "customer-dataset-a" });
    call(host, "create_or_reuse_session", key.clone()).await;
    // The same key leads whoever else asks to the host's own session.
    let look = rig.client();
    let made = look.call("create_or_reuse_session", key)["session"].clone();
    let session = text(&made["id"]);
    assert_eq!(made["reused"], true, "the host has made none: {made}");
    assert!(rig.model().everything().contains(&session), "the host was not told of its session");
    let workspace = text(&made["workspace"]);
    std::fs::write(Path::new(&workspace).join("customers.csv"), "1\n2\n3\n").expect("a file");

    let work = "echo answer-$((6*7))-of-$(wc -l < /workspace/customers.csv) | tee /workspace/report.txt";
    call(host, "submit_task", json!({ "session_id": session, "task": script(&json!([bash(work)])) })).await;
    let run = text(&look.call("get_status", json!({ "session_id": session }))["run"]["id"]);
    let wanted = json!({ "session_id": session, "run_id": run, "wait_seconds": 20 });
    let end = Instant::now() + TURN;
    let ended = loop {
        call(host, "get_status", wanted.clone()).await;
        let status = look.call("get_status", json!({ "session_id": session, "run_id": run }))["run"].clone();
        if status["status"] != "queued" && status["status"] != "running" {
            break status;
        }
        assert!(Instant::now() < end, "it does not end: {status}");
    };
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(text(&ended["final_output"]).contains(WORKED_OUT), "{ended}");
    call(host, "get_status", wanted).await;
    assert!(told(rig).contains(WORKED_OUT), "the host does not know the result");

    call(host, "get_run_logs", json!({ "run_id": run })).await;
    assert!(told(rig).contains("run 1 begins"), "the host did not get the log");
    call(host, "list_artifacts", json!({ "session_id": session })).await;
    assert!(told(rig).contains("report.txt"), "the host did not get the list");
    call(host, "read_artifact", json!({ "path": format!("{session}/workspace/report.txt") })).await;
    assert!(told(rig).contains(WORKED_OUT), "the host did not get the file");
    let context = json!({ "path": format!("{session}/runs/{run}/context.json") });
    let context = text(&look.call("read_artifact", context)["text"]);

    let long = script(&json!([{ "delay": 120_000 }, { "text": "much later" }]));
    call(host, "submit_task", json!({ "session_id": session, "task": long })).await;
    let long = text(&look.call("get_status", json!({ "session_id": session }))["run"]["id"]);
    assert!(wait_until(TURN, || rig.begun("much later") > 0).await, "{}", rig.log());
    call(host, "cancel_run", json!({ "run_id": long })).await;
    let status = look.call("get_status", json!({ "session_id": session, "run_id": long }));
    assert_eq!(status["run"]["status"], "canceled", "{status}");
    call(host, "terminate_session", json!({ "session_id": session })).await;
    let over = || look.session(&session)["status"] == "terminated";
    assert!(wait_until(SOON * 2, over).await, "the session does not end");
    rig.check_canary();
    serde_json::from_str(&context).expect("JSON")
}

/// The last thing that the host's model was asked: it ends with what a tool said.
fn told(rig: &Rig) -> String {
    let asked = rig.model().asked();
    let of_host = |path: &str| path.ends_with("/responses") || path.ends_with("/messages");
    let last =
        asked.iter().rfind(|asked| of_host(&asked.path) && asked.body.to_string().contains("sessions"));
    let body = &last.expect("the host asked its model").body;
    let items = body["input"].as_array().or_else(|| body["messages"].as_array()).expect("a conversation");
    items.last().map(ToString::to_string).unwrap_or_default()
}

struct Codex {
    server: AppServer,
    thread: String,
}

impl Turns for Codex {
    async fn turn(&self, prompt: &str) {
        self.server.turn(&self.thread, prompt).await;
    }
}

#[tokio::test]
async fn codex_completes_the_example_workflow() {
    let (home, rig) = (Home::new(), Rig::new());
    let mut entry: Vec<String> =
        rig.variables().iter().map(|(name, value)| format!("{name} = {}", json!(value))).collect();
    entry.push(format!("MCP_STATE_DIR = {}", json!(rig.state())));
    let more = format!("env = {{ {} }}", entry.join(", "));
    CodexSettings::new().stdio("sessions", &[CALLSIGN, "mcp"], &more).write(&home, rig.model());
    let server = AppServer::start(&home).await;
    let thread = server.thread().await;
    let codex = Codex { server, thread };
    let context = walk(&rig, &codex).await.to_string();
    assert!(context.contains("codex") && context.contains(&codex.thread), "who asked: {context}");
}

struct ClaudeCode(Claude);

impl Turns for ClaudeCode {
    async fn turn(&self, prompt: &str) {
        self.0.say(prompt).await;
    }
}

#[tokio::test]
async fn claude_code_completes_the_example_workflow() {
    let (home, rig) = (Home::new(), Rig::new());
    let mut entry = json!(rig.variables());
    entry["MCP_STATE_DIR"] = json!(rig.state());
    ClaudeSettings::new().stdio("sessions", &[CALLSIGN, "mcp"], &entry).write(&home, Scope::Flags);
    let claude = ClaudeCode(Claude::start(&home, rig.model(), Scope::Flags));
    let context = walk(&rig, &claude).await.to_string();
    assert!(context.contains("claude"), "who asked: {context}");
    claude.0.close().await;
    // It goes, and the daemon stays.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(rig.daemon_pid().is_some(), "{}", rig.log());
}
