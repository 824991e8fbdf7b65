//! `OpenCode` with our plugin: every call of every session reaches its server under its own name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use identity::seal::{BadSeal, SealKey, Seals};
use serde_json::{Value, json};
use testkit::harness::descendants;
use testkit::hosts::opencode::{OpenCode, Settings};
use testkit::hosts::{Arrived, Home};
use testkit::llm::{ScriptedModel, script};
use tokio::task::JoinSet;

use crate::support::{
    Servers, calls, check_env, check_headers, check_identity, configure, files_with, identity, install,
    words, wraps,
};

const SESSIONS: usize = 15;
const TURNS: usize = 2;
/// Parallel and identical, half of them by pipe.
const CALLS: usize = 8;

/// The reserved argument, and how a seal begins: `v1.` and the first bytes of `{"session":"ses_…` in base64.
const TRACES: [&str; 2] = ["__callsign", "v1.eyJzZXNzaW9uIjoic2Vz"];
const KEY: &str = "CALLSIGN_SEAL_KEY";

/// Writes down the seal that our plugin put in: proof that [`TRACES`] is what to look for.
const SPY: &str = r#"
import { appendFileSync } from "node:fs"
export const Spy = async () => ({
  "tool.execute.before": async (input, output) => {
    appendFileSync(`${process.env.HOME}/spied.jsonl`, JSON.stringify(output.args) + "\n")
  },
})
"#;

#[tokio::test]
async fn all_240_calls_of_15_sessions_carry_their_own_session_and_call() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let opencode = Arc::new(start(&home, &model, &servers).await);
    let mut sessions: BTreeMap<String, String> = BTreeMap::new();
    for number in 0..SESSIONS {
        let title = format!("session number {number}");
        sessions.insert(opencode.session(&title).await, title);
    }
    let mut busy = JoinSet::new();
    for session in sessions.keys() {
        let (opencode, session) = (opencode.clone(), session.clone());
        busy.spawn(async move {
            for _ in 0..TURNS {
                opencode.prompt(&session, &burst()).await;
            }
        });
    }
    while let Some(done) = busy.join_next().await {
        done.expect("a session's turns");
    }

    let each = SESSIONS * TURNS * CALLS / 2;
    let (stdio, http) = servers.calls(each).await;
    for call in stdio.iter().chain(&http) {
        let thread = identity(call)["thread"].as_str().unwrap_or_default();
        let title = sessions.get(thread).unwrap_or_else(|| panic!("no session of ours calls: {}", call.raw));
        check_identity(
            call,
            &json!({
                "host": "opencode", "session": thread, "parent": null, "title": title, "tool": "whoami",
                "trust": "host", "source": "seal",
            }),
        );
        assert_eq!(call.arguments(), &json!({ "prefix": "OPENCODE_SESSION" }), "the arguments changed");
        assert!(call.meta()["dev.callsign/assertion"].is_string(), "no assertion: {}", call.raw);
    }
    for call in &stdio {
        let told = identity(call);
        let title = &told["title"];
        check_env(
            call,
            &json!({
                "CALLSIGN_HOST": "opencode", "CALLSIGN_SESSION_ID": told["session"],
                "CALLSIGN_THREAD_ID": told["thread"], "CALLSIGN_SESSION_TITLE": title,
                "OPENCODE_SESSION_ID": told["thread"], "OPENCODE_SESSION_TITLE": title, KEY: null,
            }),
        );
    }
    let processes: BTreeSet<u64> = stdio.iter().map(|call| call.pid).collect();
    assert_eq!(processes.len(), SESSIONS, "processes of the stdio server");
    for call in &http {
        let told = identity(call);
        check_headers(
            call,
            &json!({
                "callsign-host": "opencode", "callsign-session": told["session"],
                "callsign-thread": told["thread"], "callsign-call": told["call"], "callsign-parent": null,
            }),
        );
        assert!(call.header("callsign-assertion").is_some(), "no assertion in the headers: {}", call.raw);
    }
    check_history(&opencode, &sessions, &stdio, &http).await;
    check_no_traces(&opencode, &model, sessions.keys()).await;
}

/// The calls in the servers' logs are those of the history, and each part has the answer to its own call.
async fn check_history(
    opencode: &OpenCode,
    sessions: &BTreeMap<String, String>,
    stdio: &[Arrived],
    http: &[Arrived],
) {
    let mut made: BTreeSet<(String, String, String)> = BTreeSet::new();
    for session in sessions.keys() {
        for part in tool_parts(&opencode.messages(session).await) {
            let (tool, id) =
                (part["tool"].as_str().expect("a tool"), part["callID"].as_str().expect("an id"));
            let output = part["state"]["output"].as_str().unwrap_or_else(|| panic!("a call failed: {part}"));
            let answer: Value = serde_json::from_str(output).expect("the answer of whoami");
            let told = &answer["meta"]["dev.callsign/identity"];
            assert_eq!(
                (&told["thread"], &told["call"]),
                (&json!(session), &json!(id)),
                "an answer went astray"
            );
            made.insert((tool.to_owned(), session.clone(), id.to_owned()));
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let arrived = |tool: &str, calls: &[Arrived]| -> Vec<(String, String, String)> {
        let row = |call: &Arrived| {
            (tool.to_owned(), text(&identity(call)["thread"]), text(&identity(call)["call"]))
        };
        calls.iter().map(row).collect()
    };
    let arrived: BTreeSet<_> =
        arrived("std_whoami", stdio).into_iter().chain(arrived("rem_whoami", http)).collect();
    assert_eq!(arrived.len(), SESSIONS * TURNS * CALLS, "calls with a session and an id of their own");
    assert_eq!(arrived, made, "the calls that arrived and those of the history");
}

/// Nothing of a seal is in the history, at the model, in what we keep, or at a server.
async fn check_no_traces(
    opencode: &OpenCode,
    model: &ScriptedModel,
    sessions: impl Iterator<Item = &String>,
) {
    let said = model.everything();
    for session in sessions {
        let history = json!(opencode.messages(session).await).to_string();
        for trace in TRACES {
            assert!(!history.contains(trace), "{trace} is in the stored history");
        }
    }
    for trace in TRACES {
        assert!(!said.contains(trace), "{trace} was sent to the model");
    }
    let home = opencode.home();
    // The argument's name is there in the plugin that `install` remembers; no seal is.
    let kept = files_with(&home.state(), &TRACES[1..]);
    assert!(kept.is_empty(), "traces of the seal in what we keep: {kept:?}");
    for log in ["stdio.jsonl", "http.jsonl"] {
        let text = std::fs::read_to_string(home.log(log)).expect("a server's log");
        for trace in TRACES.iter().chain([&KEY]) {
            assert!(!text.contains(trace), "{trace} reached a server: {log}");
        }
    }
}

#[tokio::test]
async fn renames_subagents_and_the_shell_are_told_right_and_the_key_to_nobody() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    configure(&home, "[servers.rem]\nheaders = { X-Title = \"{session.title}\" }\n");
    std::fs::create_dir_all(home.opencode().join("plugin")).expect("a directory");
    std::fs::write(home.opencode().join("plugin/zz-spy.js"), SPY).expect("a plugin");
    let opencode = start(&home, &model, &servers).await;

    let session = opencode.session("first title").await;
    let once = script(&json!([one_each(), { "text": "end" }]));
    opencode.prompt(&session, &once).await;
    let renamed = "zweiter Titel, größer";
    opencode.rename(&session, renamed).await;
    opencode.prompt(&session, &once).await;
    let (stdio, http) = servers.calls(2).await;
    for (index, title) in ["first title", renamed].into_iter().enumerate() {
        check_identity(&stdio[index], &json!({ "thread": session, "title": title }));
        check_identity(&http[index], &json!({ "thread": session, "title": title }));
        // The process is the same, so its environment still has the title that it was started with.
        check_env(&stdio[index], &json!({ "OPENCODE_SESSION_TITLE": "first title" }));
    }
    let encoded = format!("=?base64?{}?=", STANDARD.encode(renamed));
    check_headers(&http[0], &json!({ "x-title": "first title" }));
    check_headers(&http[1], &json!({ "x-title": encoded }));

    opencode.prompt(&session, &script(&json!([{ "spawn": once }, { "text": "end" }]))).await;
    let child = opencode.children(&session).await[0]["id"].clone();
    let (stdio, http) = servers.calls(3).await;
    let expected = json!({ "session": session, "thread": child, "parent": session, "trust": "host" });
    check_identity(&stdio[2], &expected);
    check_identity(&http[2], &expected);
    let told = json!({
        "CALLSIGN_SESSION_ID": session, "CALLSIGN_THREAD_ID": child, "CALLSIGN_PARENT_ID": session,
        "OPENCODE_SESSION_ID": child,
    });
    check_env(&stdio[2], &told);
    check_headers(
        &http[2],
        &json!({ "callsign-session": session, "callsign-thread": child, "callsign-parent": session }),
    );

    check_the_shell(&opencode, &session, renamed).await;
    let seals = spied(&home);
    check_the_key(&opencode, &seals).await;
    check_no_traces(&opencode, &model, [&session].into_iter()).await;
    check_a_forged_seal(&opencode, &session).await;
}

/// The agent's shell has the same names as the servers, and not the key.
async fn check_the_shell(opencode: &OpenCode, session: &str, title: &str) {
    let file = opencode.home().log("shell.env");
    let command = format!("env > {}", file.display());
    let step =
        json!({ "tool": "bash", "args": { "command": command, "description": "Shows the environment" } });
    opencode.prompt(session, &script(&json!([step, { "text": "end" }]))).await;
    let environment = std::fs::read_to_string(&file).expect("the shell ran");
    for line in [format!("OPENCODE_SESSION_ID={session}"), format!("OPENCODE_SESSION_TITLE={title}")] {
        assert!(environment.lines().any(|other| other == line), "no {line} in the shell:\n{environment}");
    }
    assert!(!environment.contains(KEY), "the key is in the agent's shell");
}

/// Where the agent could look: `OpenCode`'s configuration, and `/proc`.
async fn check_the_key(opencode: &OpenCode, seals: &[Value]) {
    assert_eq!(wraps(opencode.pid()).len(), 2, "both servers are wrapped");
    let named = format!("{KEY}=").into_bytes();
    for pid in descendants(opencode.pid()) {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut rest = environment.windows(named.len() + 1);
        let has = rest.any(|window| window.starts_with(&named) && !window.ends_with(b"\0"));
        assert!(!has, "the key is in the environment of process {pid}");
    }
    // The configuration shows a key, and it is not the one that seals.
    let config = opencode.config().await;
    for (server, sealed) in
        ["std", "rem"].into_iter().flat_map(|server| seals.iter().map(move |seal| (server, seal)))
    {
        let shown = config["mcp"][server]["environment"][KEY].as_str().expect("a key in the configuration");
        let opener = Seals::new(SealKey::parse(shown).expect("a key"), server);
        let opened = opener.open(sealed.as_str().expect("a seal"), "whoami", 0);
        assert_eq!(opened, Err(BadSeal::Forged), "the key that OpenCode shows opens seals");
    }
}

/// A model that writes the argument itself speaks for nobody else.
async fn check_a_forged_seal(opencode: &OpenCode, session: &str) {
    let forged = json!({ "prefix": "x", "__callsign": "v1.eyJzZXNzaW9uIjoic2VzX290aGVyIn0.AAAA" });
    let step = json!({ "tool": "std/whoami", "args": forged });
    opencode.prompt(session, &script(&json!([step, { "text": "end" }]))).await;
    let home = opencode.home();
    let last = calls(testkit::hosts::arrived(&home.log("stdio.jsonl"))).pop().expect("a call");
    check_identity(&last, &json!({ "thread": session, "trust": "host" }));
    assert_eq!(last.arguments(), &json!({ "prefix": "x" }), "a forged seal reached the server");
}

/// The seals that the spy saw, which prove that [`TRACES`] is what to look for.
fn spied(home: &Home) -> Vec<Value> {
    let lines = std::fs::read_to_string(home.path().join("spied.jsonl")).expect("the spy ran");
    let sealed = lines.lines().filter(|line| TRACES.iter().all(|trace| line.contains(trace)));
    let seals: Vec<Value> =
        sealed.map(|line| serde_json::from_str::<Value>(line).expect("JSON")[TRACES[0]].clone()).collect();
    assert_eq!(
        seals.len(),
        6,
        "each call to a server had a seal, and our plugin ran before the spy:\n{lines}"
    );
    seals
}

/// `OpenCode` with both servers, as its user has it after `callsign install opencode`.
async fn start(home: &Arc<Home>, model: &ScriptedModel, servers: &Servers) -> OpenCode {
    let command = servers.command();
    Settings::new()
        .local("std", &words(&command), &json!({}))
        .remote("rem", &servers.http.url, &json!({ "X-Static": "yes" }))
        .write(home, model);
    install(home, "opencode");
    OpenCode::start(home).await
}

fn burst() -> String {
    let calls: Vec<Value> = (0..CALLS)
        .map(|index| {
            let server = if index % 2 == 0 { "std" } else { "rem" };
            json!({ "tool": format!("{server}/whoami"), "args": { "prefix": "OPENCODE_SESSION" } })
        })
        .collect();
    script(&json!([{ "calls": calls }, { "text": "end" }]))
}

fn one_each() -> Value {
    json!({ "calls": [{ "tool": "std/whoami" }, { "tool": "rem/whoami" }] })
}

fn tool_parts(messages: &[Value]) -> Vec<Value> {
    let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
    parts.filter(|part| part["type"] == "tool").cloned().collect()
}
