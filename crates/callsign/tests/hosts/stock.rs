//! The hosts alone, without us: the facts that identity rests on, one test per host and fact.

use serde_json::{Value, json};
use testkit::hosts::claude::{Claude, Scope};
use testkit::hosts::codex::AppServer;
use testkit::hosts::opencode::OpenCode;
use testkit::hosts::{Home, claude, codex, opencode, starts};
use testkit::llm::{ScriptedModel, script};

use crate::support::{Servers, calls, keys, text, words};

/// Waits for the part's `running` event, then adds an argument, as our plugin does.
const PROBE: &str = r#"
const running = new Set(), waiting = new Map()
export const Probe = async () => ({
  event: async ({ event }) => {
    const part = event.type === "message.part.updated" && event.properties.part
    if (part && part.type === "tool" && part.state.status === "running") {
      running.add(part.callID)
      waiting.get(part.callID)?.()
    }
  },
  "tool.execute.before": async (input, output) => {
    if (!running.has(input.callID)) {
      await new Promise((go) => { waiting.set(input.callID, () => go()); setTimeout(go, 5000) })
    }
    const seen = running.has(input.callID)
    output.args.probe = `LATE-${seen}-${input.sessionID}-${input.callID}`
  },
})
"#;

#[tokio::test]
async fn opencode_tells_servers_nothing_and_forgets_what_a_plugin_adds_late() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    opencode::Settings::new()
        .local("std", &words(&command), &json!({}))
        .remote("rem", &servers.http.url, &json!({ "X-Static": "yes" }))
        .write(&home, &model);
    let opencode = OpenCode::start(&home).await;
    let sessions = [opencode.session("first").await, opencode.session("second").await];
    for session in &sessions {
        opencode.prompt(session, &script(&json!([both_ways(), { "text": "end" }]))).await;
    }
    let (stdio, http) = servers.calls(2).await;
    for call in stdio.iter().chain(&http) {
        assert_eq!(keys(call.meta()), ["progressToken"], "OpenCode now says more in _meta: {}", call.meta());
    }
    assert_eq!(stdio[0].pid, stdio[1].pid, "OpenCode no longer shares one stdio server between sessions");
    assert_eq!(http[0].header("x-static"), Some("yes"), "OpenCode no longer sends an entry's headers");
    let all: Vec<String> = [servers.home.log("stdio.jsonl"), servers.home.log("http.jsonl")]
        .map(|log| std::fs::read_to_string(log).expect("a log"))
        .into();
    for session in &sessions {
        let told = all.iter().any(|log| log.contains(session));
        assert!(!told, "OpenCode now tells a server the session, somewhere in its log");
    }
    drop(opencode);

    std::fs::create_dir_all(home.opencode().join("plugin")).expect("a directory");
    std::fs::write(home.opencode().join("plugin/probe.js"), PROBE).expect("a plugin");
    let opencode = OpenCode::start(&home).await;
    let session = opencode.session("probed").await;
    opencode.prompt(&session, &script(&json!([both_ways(), { "text": "end" }]))).await;
    let (stdio, http) = servers.calls(3).await;
    for call in [&stdio[2], &http[2]] {
        let probe = call.arguments()["probe"].as_str().unwrap_or_default().to_owned();
        let wanted = format!("LATE-true-{session}-");
        assert!(probe.starts_with(&wanted), "a late argument no longer reaches the server: {}", call.raw);
    }
    let history = json!(opencode.messages(&session).await).to_string();
    assert!(history.contains("std_whoami"), "the history no longer shows calls");
    assert!(!history.contains("LATE-"), "a late argument is now stored in the history");
    assert!(!model.everything().contains("LATE-"), "a late argument is now shown to the model");
}

#[tokio::test]
async fn opencode_gives_a_subagent_a_session_of_its_own_and_fetches_nothing() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    opencode::Settings::new().local("std", &words(&command), &json!({})).write(&home, &model);
    let opencode = OpenCode::start(&home).await;
    let session = opencode.session("parent").await;
    let inner = script(&json!([{ "tool": "std/whoami" }, { "text": "child done" }]));
    opencode.prompt(&session, &script(&json!([{ "spawn": inner }, { "text": "end" }]))).await;
    let children = opencode.children(&session).await;
    assert_eq!(children.len(), 1, "OpenCode no longer makes a child session for a subagent");
    assert_eq!(children[0]["parentID"], session, "a child session no longer names its parent");
    assert_eq!(calls(servers.stdio()).len(), 1, "the subagent's call did not arrive");
    let linked = std::fs::symlink_metadata(home.opencode().join("node_modules")).expect("node_modules");
    assert!(linked.file_type().is_symlink(), "OpenCode now fetches its plugin library all the same");
}

#[tokio::test]
async fn codex_names_the_thread_in_every_call_and_nowhere_else() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    codex::Settings::new()
        .stdio("std", &words(&command), "env_vars = [\"CODEX_THREAD_ID\"]")
        .http("rem", &servers.http.url, "")
        .write(&home, &model);
    let codex = AppServer::start_with(&home, &[("CODEX_THREAD_ID", "of-an-outer-codex")]).await;
    let threads = [codex.thread().await, codex.thread().await];
    let prompt = script(&json!([both_ways(), { "text": "end" }]));
    let turns = [codex.begin(&threads[0], &prompt).await, codex.begin(&threads[1], &prompt).await];
    for (thread, turn) in threads.iter().zip(&turns) {
        codex.finish(thread, turn).await;
    }
    let fork = codex.fork(&threads[0]).await;
    codex.turn(&fork, &prompt).await;
    let (stdio, http) = servers.calls(3).await;
    for (index, thread) in threads.iter().chain([&fork]).enumerate() {
        for (way, calls) in [("stdio", &stdio), ("HTTP", &http)] {
            let mut own = calls.iter().filter(|call| call.meta()["threadId"] == **thread);
            let call =
                own.next().unwrap_or_else(|| panic!("no {way} call names thread {index} in _meta.threadId"));
            assert!(own.next().is_none(), "two {way} calls name thread {index}");
            let meta = call.meta();
            assert_eq!(
                meta["sessionId"], **thread,
                "_meta.sessionId of a root thread is no longer its own id"
            );
            let id = meta["callId"].as_str().unwrap_or_default();
            assert!(id.starts_with("call_"), "_meta.callId is no longer the model's id of the call: {meta}");
            let turn = &meta["x-codex-turn-metadata"];
            assert_eq!(turn["thread_id"], **thread, "the turn metadata no longer name the thread: {meta}");
        }
    }
    let pids: std::collections::BTreeSet<u64> = stdio.iter().map(|call| call.pid).collect();
    assert_eq!(pids.len(), 3, "Codex no longer starts a stdio server per thread");
    for arrived in servers.stdio().iter().chain(&servers.http()) {
        if arrived.method() == "initialize" {
            assert!(arrived.meta().is_null(), "Codex now sends _meta in initialize: {}", arrived.raw);
        }
        if arrived.method() == "tools/list" {
            assert_eq!(keys(arrived.meta()), ["progressToken"], "Codex now says more in tools/list");
        }
        let header = arrived.headers.iter().find(|(_, value)| threads.contains(value));
        assert!(header.is_none(), "Codex now names the thread in a header: {header:?}");
    }
    for start in starts(&home.log("stdio.jsonl")) {
        let names: Vec<&String> = start["env"]
            .as_object()
            .expect("an environment")
            .keys()
            .filter(|name| name.starts_with("CODEX_"))
            .collect();
        assert_eq!(names, ["CODEX_THREAD_ID"], "Codex now gives a stdio server more of its own variables");
        let inherited = &start["env"]["CODEX_THREAD_ID"];
        assert_eq!(inherited, "of-an-outer-codex", "env_vars is no longer a copy of Codex's own environment");
    }
}

#[tokio::test]
async fn codex_names_a_subagent_with_its_parent_and_resources_with_nobody() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    codex::Settings::new().stdio("std", &words(&command), "").write(&home, &model);
    let codex = AppServer::start(&home).await;
    let listed = codex.servers().await;
    let std = listed.iter().find(|server| server["name"] == "std").expect("std in Codex's status");
    assert!(std["tools"]["whoami"].is_object(), "Codex's status no longer lists the tools: {std}");
    let thread = codex.thread().await;
    let inner = script(&json!([{ "tool": "std/whoami" }, { "text": "child done" }]));
    let resources = json!({ "tool": "list_mcp_resources", "args": { "server": "std" } });
    codex.turn(&thread, &script(&json!([resources, { "spawn": inner }, { "text": "end" }]))).await;
    let there = || !calls(servers.stdio()).is_empty();
    assert!(
        testkit::harness::wait_until(std::time::Duration::from_secs(30), there).await,
        "no subagent's call"
    );
    let call = &calls(servers.stdio())[0];
    let (meta, turn) = (call.meta(), &call.meta()["x-codex-turn-metadata"]);
    assert_ne!(meta["threadId"], *thread, "a subagent's call no longer has a thread of its own");
    assert_eq!(meta["sessionId"], *thread, "a subagent's _meta.sessionId is no longer the root thread");
    assert_eq!(
        turn["parent_thread_id"], *thread,
        "a subagent's turn metadata no longer name its parent: {meta}"
    );
    let resources: Vec<Value> = servers
        .stdio()
        .iter()
        .filter(|arrived| arrived.method() == "resources/list")
        .map(|arrived| arrived.meta().clone())
        .collect();
    assert!(!resources.is_empty(), "Codex no longer lists resources for the model");
    for meta in resources {
        assert!(meta["threadId"].is_null(), "Codex now names the thread in resources/list: {meta}");
    }
}

#[tokio::test]
async fn codex_with_connection_sharing_names_each_thread_on_one_pipe() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    let modern = "env = { CODEX_MCP_PROTOCOL_VERSION = \"2026-07-28\" }";
    codex::Settings::new()
        .stdio("std", &words(&command), modern)
        .feature("mcp_2026_07_28")
        .feature("mcp_connection_sharing")
        .write(&home, &model);
    let codex = AppServer::start(&home).await;
    let threads = [codex.thread().await, codex.thread().await];
    for thread in &threads {
        codex.turn(thread, &script(&json!([{ "tool": "std/whoami" }, { "text": "end" }]))).await;
    }
    let calls = calls(servers.stdio());
    let named: Vec<&str> = calls.iter().filter_map(|call| call.meta()["threadId"].as_str()).collect();
    assert_eq!(named, [&threads[0], &threads[1]], "shared calls are no longer named by their threads");
    assert_eq!(calls[0].pid, calls[1].pid, "Codex no longer shares a modern server between threads");
}

#[tokio::test]
async fn claude_code_joins_its_hook_to_the_call_and_keeps_a_stale_environment() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    let hooks = home.log("hooks.jsonl");
    let hook = format!("cat >> {0}; echo >> {0}", text(&hooks));
    claude::Settings::new()
        .stdio("std", &words(&command), &json!({}))
        .http("rem", &servers.http.url)
        .before_mcp_calls(&hook)
        .write(&home, Scope::Flags);
    let claude = Claude::start(&home, &model, Scope::Flags);
    let prompt = script(&json!([both_ways(), { "text": "end" }]));
    let first = claude.say(&prompt).await.session;
    claude.clear().await;
    let second = claude.say(&prompt).await.session;
    assert_ne!(first, second, "/clear no longer makes a new session");
    let spawned = claude.say(&script(&json!([{ "spawn": prompt }, { "text": "end" }]))).await.session;
    assert_eq!(spawned, second, "a subagent changed the session");
    let (stdio, http) = servers.calls(3).await;
    let announced: Vec<Value> = std::fs::read_to_string(&hooks)
        .expect("the hook ran")
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(announced.len(), 6, "the hook no longer runs once per call");
    for (index, calls) in stdio.iter().zip(&http).enumerate() {
        let session = if index == 0 { &first } else { &second };
        for call in [calls.0, calls.1] {
            let id = &call.meta()["claudecode/toolUseId"];
            let matching: Vec<&Value> = announced.iter().filter(|hook| hook["tool_use_id"] == *id).collect();
            let [hook] = matching[..] else {
                panic!(
                    "_meta[\"claudecode/toolUseId\"] {id} no longer equals one hook's tool_use_id: {announced:?}"
                )
            };
            assert_eq!(hook["session_id"], **session, "the hook no longer gives the current session");
            assert_eq!(
                hook["agent_id"].is_string(),
                index == 2,
                "agent_id no longer tells subagents: {hook}"
            );
            let more: Vec<&str> = keys(call.meta())
                .into_iter()
                .filter(|key| !key.starts_with("io.modelcontextprotocol/"))
                .collect();
            assert_eq!(more, ["claudecode/toolUseId", "progressToken"], "Claude Code now says more in _meta");
        }
        let env = calls.0.env("CLAUDE_CODE_SESSION_ID");
        assert_eq!(
            env,
            Some(first.as_str()),
            "a stdio server's environment no longer holds the first session"
        );
    }
    claude.close().await;
}

/// One step: a call by pipe and one by URL, at once.
fn both_ways() -> Value {
    json!({ "calls": [{ "tool": "std/whoami" }, { "tool": "rem/whoami" }] })
}
