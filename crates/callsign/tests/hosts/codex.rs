//! Codex: a server that demands `CODEX_THREAD_ID` at its start gets the thread that calls, and no other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::harness::wait_until;
use testkit::hosts::codex::{AppServer, Settings, exec};
use testkit::hosts::{Arrived, Home, Host, arrived, binary};
use testkit::llm::{ScriptedModel, script};

use crate::support::{
    Servers, calls, check_env, check_headers, check_identity, configure, identity, install, text, words,
    wraps,
};

/// The variable of another Codex, outside of this one.
const OUTER: &str = "of-an-outer-codex";

/// Servers that exit without the variable, each asked for in another of the ways that people write.
const DEMANDING: [&str; 3] = ["plain", "first", "source"];

/// As servers do that record whose rules they apply.
const DEMAND: &str = r#"test -n "$CODEX_THREAD_ID" || { echo "no session id" >&2; exit 1; }; exec "$@""#;

#[tokio::test]
async fn threads_at_once_and_a_subagent_each_see_their_own_thread() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    demanding(&home).http("rem", &servers.http.url, "").write(&home, &model);
    install(&home, "codex");
    let codex = AppServer::start_with(&home, &[("CODEX_THREAD_ID", OUTER)]).await;
    let status = codex.servers().await;
    for name in DEMANDING {
        let server = status.iter().find(|server| server["name"] == name);
        let server = server.unwrap_or_else(|| panic!("{name} is not in Codex's status: {status:?}"));
        assert!(server["tools"]["whoami"].is_object(), "Codex shows no tools of {name}: {server}");
    }

    let every: Vec<Value> = DEMANDING
        .iter()
        .chain(&["rem"])
        .map(|server| json!({ "tool": format!("{server}/whoami"), "args": { "prefix": "CODEX_" } }))
        .collect();
    let turn = script(&json!([{ "calls": every }, { "text": "end" }]));
    let spawning = script(&json!([{ "calls": every }, { "spawn": turn }, { "text": "end" }]));
    let threads = [codex.thread().await, codex.thread().await];
    let turns = [codex.begin(&threads[0], &spawning).await, codex.begin(&threads[1], &turn).await];
    for (thread, turn) in threads.iter().zip(&turns) {
        codex.finish(thread, turn).await;
    }
    let logs: Vec<Vec<Arrived>> = {
        let read = || DEMANDING.map(|name| calls(arrived(&home.log(name)))).to_vec();
        let complete = || read().iter().all(|calls| calls.len() >= 3) && calls(servers.http()).len() >= 3;
        assert!(wait_until(Duration::from_secs(30), complete).await, "not all calls arrived");
        read().into_iter().chain([calls(servers.http())]).collect()
    };
    for calls in &logs {
        assert_eq!(calls.len(), 3, "calls at one server");
        let named: BTreeSet<&str> =
            calls.iter().filter_map(|call| identity(call)["thread"].as_str()).collect();
        assert_eq!(named.len(), 3, "threads that one server was told of");
        for call in calls {
            check_call(call, &threads);
        }
    }
    for calls in &logs[..DEMANDING.len()] {
        let processes: BTreeSet<u64> = calls.iter().map(|call| call.pid).collect();
        assert_eq!(processes.len(), 3, "processes of one server");
    }

    // Codex names nobody when it reads a resource.
    let reading =
        json!({ "tool": "read_mcp_resource", "args": { "server": "plain", "uri": "test://static" } });
    codex.turn(&threads[1], &script(&json!([reading, { "text": "end" }]))).await;
    let reads: Vec<Arrived> =
        arrived(&home.log("plain")).into_iter().filter(|read| read.method() == "resources/read").collect();
    assert_eq!(reads.len(), 1, "the resource was read once");
    check_env(&reads[0], &json!({ "CODEX_THREAD_ID": threads[1] }));
    assert!(identity(&reads[0])["thread"].is_null(), "a request without evidence was given an identity");
}

/// One call at any of the servers, held against what Codex itself said about it.
fn check_call(call: &Arrived, roots: &[String]) {
    let meta = call.meta();
    let thread = meta["threadId"].as_str().unwrap_or_else(|| panic!("Codex named no thread: {}", call.raw));
    let root = roots.iter().any(|root| root == thread);
    let (session, parent) =
        if root { (json!(thread), Value::Null) } else { (json!(roots[0]), json!(roots[0])) };
    check_identity(
        call,
        &json!({
            "host": "codex", "session": session, "thread": thread, "parent": parent, "call": meta["callId"],
            "turn": meta["x-codex-turn-metadata"]["turn_id"], "tool": "whoami", "trust": "host", "source": "meta",
        }),
    );
    if call.headers.is_empty() {
        let own =
            json!({ "CODEX_THREAD_ID": thread, "CODEX_SESSION_ID": session, "CALLSIGN_PARENT_ID": parent });
        check_env(call, &own);
    } else {
        let own =
            json!({ "callsign-thread": thread, "callsign-session": session, "callsign-parent": parent });
        check_headers(call, &own);
    }
}

#[tokio::test]
async fn a_codex_in_the_shell_of_a_codex_gets_the_inner_thread() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    demanding(&home).write(&home, &model);
    install(&home, "codex");
    let inner = script(&json!([{ "tool": "first/whoami" }, { "text": "inner end" }]));
    let prompt = home.log("inner.txt");
    std::fs::write(&prompt, inner).expect("the inner prompt");
    // The outer thread's id goes into a file first: what the shell has is what must not be told.
    let (outer, inside) = (home.log("outer.id"), home.log("inner.jsonl"));
    let command = format!(
        r#"printf %s "$CODEX_THREAD_ID" > {}; {} exec --skip-git-repo-check --json "$(cat {})" < /dev/null > {} 2>&1"#,
        text(&outer),
        text(&binary(Host::Codex)),
        text(&prompt),
        text(&inside),
    );
    let shell = json!({ "tool": "exec_command", "args": { "cmd": command, "yield_time_ms": 30_000 } });
    let said = exec(&home, &[&script(&json!([shell, { "text": "end" }]))], &[]).await;
    let outer =
        std::fs::read_to_string(&outer).unwrap_or_else(|error| panic!("no shell ran ({error}): {said:?}"));
    let call = {
        let there = || !calls(arrived(&home.log("first"))).is_empty();
        let arrived_there = wait_until(Duration::from_secs(30), there).await;
        assert!(arrived_there, "no call of the inner Codex: {:?}", std::fs::read_to_string(&inside));
        calls(arrived(&home.log("first"))).remove(0)
    };
    let inner = call.meta()["threadId"].as_str().expect("the inner thread").to_owned();
    assert!(!outer.is_empty() && outer != inner, "the outer thread {outer} and the inner one {inner}");
    check_identity(&call, &json!({ "thread": inner, "trust": "host" }));
    check_env(&call, &json!({ "CODEX_THREAD_ID": inner }));
}

#[tokio::test]
async fn with_connection_sharing_each_call_still_gets_its_own_thread() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    Settings::new()
        .stdio("std", &words(&command), "env = { CODEX_MCP_PROTOCOL_VERSION = \"2026-07-28\" }")
        .feature("mcp_2026_07_28")
        .feature("mcp_connection_sharing")
        .write(&home, &model);
    install(&home, "codex");
    let codex = AppServer::start(&home).await;
    let threads = [codex.thread().await, codex.thread().await];
    let turn = script(
        &json!([{ "calls": [{ "tool": "std/whoami" }, { "tool": "std/whoami" }] }, { "text": "end" }]),
    );
    let turns = [codex.begin(&threads[0], &turn).await, codex.begin(&threads[1], &turn).await];
    for (thread, turn) in threads.iter().zip(&turns) {
        codex.finish(thread, turn).await;
    }
    let calls = calls(servers.stdio());
    assert_eq!(calls.len(), 4, "calls at the server");
    for call in &calls {
        check_call(call, &threads);
    }
    let processes: BTreeSet<u64> = calls.iter().map(|call| call.pid).collect();
    assert_eq!(processes.len(), 2, "a process per thread behind the shared connection");
    let wraps = wraps(codex.pid());
    assert_eq!(wraps.len(), 1, "Codex started one of us for both threads");
}

/// The servers that exit without the variable: nothing said about it, its first form, and the one with a source.
fn demanding(home: &Arc<Home>) -> Settings {
    configure(home, "[servers.source]\nenv_vars = [{ name = \"CODEX_THREAD_ID\", source = \"thread\" }]\n");
    let mut settings = Settings::new();
    for name in DEMANDING {
        let log = home.log(name);
        let server = testkit::bin("logging-server");
        let command = ["sh", "-c", DEMAND, "sh", &server, "--stdio", "--log", text(&log)];
        let more = if name == "first" { "env_vars = [\"CODEX_THREAD_ID\"]" } else { "" };
        settings = settings.stdio(name, &command, more);
    }
    settings
}
