//! The hosts, and what they keep of the calls that were made in them.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::harness::wait_until;
use testkit::hosts::Home;
use testkit::hosts::codex::AppServer;
use testkit::hosts::opencode::OpenCode;
use tokio::task::JoinSet;

use super::told::{Call, string};
use super::{CODEX, FAILS, OPENCODE, SESSIONS, SOON, THREADS};

/// The hosts and what they were told to do.
pub(super) struct Agents {
    opencode: Arc<OpenCode>,
    codex: AppServer,
    sessions: Vec<String>,
    roots: Vec<String>,
}

/// Who calls: a session, or a subagent of one.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) host: &'static str,
    pub(super) id: String,
    pub(super) session: String,
    pub(super) parent: Option<String>,
}

impl Agents {
    /// Starts the hosts with a session each for everybody.
    pub(super) async fn start(home: &Arc<Home>) -> Self {
        let opencode = Arc::new(OpenCode::start(home).await);
        let codex = AppServer::start(home).await;
        trust_hooks(&codex).await;
        // It starts its servers when it is first asked for them.
        opencode.mcp().await;
        let (mut sessions, mut roots) = (Vec::new(), Vec::new());
        for number in 0..SESSIONS {
            sessions.push(opencode.session(&format!("session number {number}")).await);
        }
        for _ in 0..THREADS {
            roots.push(codex.thread().await);
        }
        Self { opencode, codex, sessions, roots }
    }

    /// One turn of everybody, at once and to the end. Codex is quicker, so it begins when `OpenCode` is `under_way`.
    pub(super) async fn turns(&self, prompt: impl Fn(&str, usize) -> String, under_way: impl Fn() -> bool) {
        let mut busy = JoinSet::new();
        for (number, session) in self.sessions.iter().enumerate() {
            let (opencode, session) = (self.opencode.clone(), session.clone());
            let prompt = prompt(OPENCODE, number);
            busy.spawn(async move { opencode.prompt(&session, &prompt).await });
        }
        assert!(wait_until(SOON, under_way).await, "OpenCode made no call");
        let mut turns = Vec::new();
        for (number, thread) in self.roots.iter().enumerate() {
            turns.push(self.codex.begin(thread, &prompt(CODEX, number)).await);
        }
        for (thread, turn) in self.roots.iter().zip(&turns) {
            self.codex.finish(thread, turn).await;
        }
        while let Some(done) = busy.join_next().await {
            done.expect("a session's turn");
        }
    }

    /// Everybody who called, as the hosts say.
    pub(super) async fn threads(&self) -> Vec<Thread> {
        let mut all = Vec::new();
        for session in &self.sessions {
            let beneath = self.opencode.children(session).await;
            all.extend(family(OPENCODE, session, beneath.iter().map(|child| string(&child["id"]))));
        }
        for root in &self.roots {
            let items = self.items(root).await;
            let beneath = items.iter().filter_map(|(_, item)| item["receiverThreadIds"].as_array()).flatten();
            all.extend(family(CODEX, root, beneath.map(string)));
        }
        assert_eq!(all.len(), SESSIONS + THREADS + 2, "one subagent in each host: {all:?}");
        all
    }

    /// The calls to servers in the histories of both hosts.
    pub(super) async fn history(&self, threads: &[Thread]) -> Vec<Call> {
        let mut all = Vec::new();
        for thread in threads {
            if thread.host == CODEX {
                let items = self.items(&thread.id).await;
                let made = items.iter().filter(|(_, item)| item["type"] == "mcpToolCall");
                all.extend(made.map(|(turn, item)| thread.made_in_codex(turn, item)));
            } else {
                let parts = self.parts(&thread.id).await;
                all.extend(parts.iter().filter_map(|part| thread.made_in_opencode(part)));
            }
        }
        all
    }

    /// The calls of one session of `OpenCode`.
    pub(super) async fn parts(&self, session: &str) -> Vec<Value> {
        let messages = self.opencode.messages(session).await;
        let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
        parts.filter(|part| part["type"] == "tool").cloned().collect()
    }

    /// What Codex keeps of a thread, each with its turn.
    async fn items(&self, thread: &str) -> Vec<(String, Value)> {
        let asked = json!({ "threadId": thread, "includeTurns": true });
        let read = self.codex.request("thread/read", asked).await;
        let turns = read["thread"]["turns"].as_array().unwrap_or_else(|| panic!("no turns: {read}"));
        let items = |turn: &Value| {
            let id = string(&turn["id"]);
            let items = turn["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().map(move |item| (id.clone(), item))
        };
        turns.iter().flat_map(items).collect()
    }
}

impl Thread {
    fn made(&self, turn: Option<&str>, call: &Value, tool: (&str, &str), outcome: &str) -> Call {
        Call {
            session: self.session.clone(),
            thread: self.id.clone(),
            parent: self.parent.clone(),
            turn: turn.map(str::to_owned),
            id: string(call),
            server: tool.0.to_owned(),
            tool: tool.1.to_owned(),
            outcome: outcome.to_owned(),
            host: self.host.to_owned(),
        }
    }

    /// None for a tool of `OpenCode` itself. It names no turns.
    fn made_in_opencode(&self, part: &Value) -> Option<Call> {
        let (name, state) = (string(&part["tool"]), &part["state"]);
        let tool = name.split_once('_')?;
        let outcome = match (state["status"].as_str(), state["error"].as_str()) {
            (Some("completed"), _) => "ok",
            (Some("error"), Some(error)) if error.contains(FAILS) => "tool_error",
            (Some("error"), Some(error)) if error.contains("-32602") => "failed",
            _ => panic!("a call ended otherwise: {part}"),
        };
        Some(self.made(None, &part["callID"], tool, outcome))
    }

    fn made_in_codex(&self, turn: &str, item: &Value) -> Call {
        let outcome = match (item["status"].as_str(), item["error"]["message"].as_str()) {
            (Some("completed"), None) => "ok",
            (Some("failed"), None) => "tool_error",
            (Some("failed"), Some(error)) if error.contains("-32602") => "failed",
            _ => panic!("a call ended otherwise: {item}"),
        };
        let (server, tool) = (string(&item["server"]), string(&item["tool"]));
        self.made(Some(turn), &item["id"], (&server, &tool), outcome)
    }
}

/// A session and its subagents.
fn family(host: &'static str, session: &str, beneath: impl Iterator<Item = String>) -> Vec<Thread> {
    let thread = |id: String, parent| Thread { host, id, session: session.to_owned(), parent };
    let root = thread(session.to_owned(), None);
    let beneath = beneath.map(|id| thread(id, Some(session.to_owned())));
    std::iter::once(root).chain(beneath).collect()
}

/// Says yes to the hooks, as a user does once in Codex's list of them.
async fn trust_hooks(codex: &AppServer) {
    let listed = codex.request("hooks/list", json!({ "cwds": [codex.home().project()] })).await;
    let hooks = listed["data"][0]["hooks"].as_array().unwrap_or_else(|| panic!("no hooks: {listed}"));
    assert_eq!(hooks.len(), 2, "Codex found the hooks: {listed}");
    let trusted: serde_json::Map<String, Value> = hooks
        .iter()
        .map(|hook| (string(&hook["key"]), json!({ "trusted_hash": hook["currentHash"] })))
        .collect();
    let edit = json!({ "keyPath": "hooks.state", "value": trusted, "mergeStrategy": "upsert" });
    codex.request("config/batchWrite", json!({ "edits": [edit], "reloadUserConfig": true })).await;
}
