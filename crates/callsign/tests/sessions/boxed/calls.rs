//! Sessions side by side, each with a subagent: every call is its own session's, run's and conversation's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use testkit::hosts::Arrived;
use testkit::llm::script;

use super::servers::{NAMED, Servers, identity, ledger};
use super::{KEYS, Lodging, rig};
use crate::rig::{TURN, text};
use crate::trial::full;

/// Who makes a call, as the test has planned it.
struct Planned {
    lodging: Lodging,
    run: String,
}
#[test]
fn every_call_is_its_own_sessions() {
    let count = if full() { 8 } else { 4 };
    let servers = Servers::start();
    let mut rig = rig(&servers.tables(), &format!("{NAMED}max_hot = {count}\n"));
    rig.serve();
    let client = rig.client();
    let planned: Vec<Planned> = (0..count)
        .map(|number| {
            let lodging = Lodging::new(&client, &format!("caller-{number}"));
            let run = client.submit(&lodging.id, steps(number));
            Planned { lodging, run }
        })
        .collect();
    for (number, Planned { lodging, run }) in planned.iter().enumerate() {
        let ended = client.wait(&lodging.id, run, TURN * 2);
        assert_eq!(ended["status"], "completed", "{ended}\n{}", client.log(run));
        assert_eq!(ended["final_output"], format!("caller {number} is done"), "{ended}");
    }
    let mut threads: BTreeMap<String, String> = BTreeMap::new();
    let mut told = BTreeSet::new();
    for server in ["std", "web"] {
        let called = servers.called(server);
        assert_eq!(called.len(), count * 3, "{server}");
        for arrived in &called {
            told.insert(check(arrived, server, &planned, &mut threads));
        }
    }
    assert_eq!(threads.len(), count * 2, "conversations: {threads:?}");
    check_subagents(&threads, &servers);
    check_children(&servers.called("std"));
    assert!(!servers.everything().contains(KEYS), "a server was told the key");
    let rows = ledger(&rig);
    assert_eq!(rows.len(), count * 6, "{rows:?}");
    let written: BTreeSet<String> = rows.iter().map(shown).collect();
    assert_eq!(written, told, "the ledger says something else than the servers were told");
    for row in &rows {
        assert_eq!((&row["outcome"], &row["spoof"]), (&json!("ok"), &json!([])), "{row}");
    }
    println!("{} calls of {count} sessions, in {} conversations", rows.len(), threads.len());
}

/// Two calls, a subagent with two of its own, two more.
fn steps(number: usize) -> Value {
    let calls = |place: &str| {
        let call = |server: &str| {
            let marker = format!("{number}/{place}");
            json!({ "tool": format!("{server}/echo"), "args": { "text": marker } })
        };
        json!({ "calls": [call("std"), call("web")] })
    };
    let below = script(&json!([calls("below"), { "text": "the subagent is done" }]));
    let end = format!("caller {number} is done");
    json!([calls("before"), { "spawn": below }, calls("after"), { "text": end }])
}

/// What is said of one call, in the words that the ledger has too.
fn shown(said: &Value) -> String {
    let fields = [
        "host",
        "session",
        "run",
        "thread",
        "parent",
        "server",
        "tool",
        "workspace",
        "trust",
        "source",
        "call",
    ];
    fields.map(|field| format!("{field}={}", said[field])).join(" ")
}

fn check(
    arrived: &Arrived,
    server: &str,
    planned: &[Planned],
    threads: &mut BTreeMap<String, String>,
) -> String {
    let said = identity(arrived);
    let marker = text(&arrived.arguments()["text"]);
    let (number, place) = marker.split_once('/').expect("a marker");
    let Planned { lodging, run } = &planned[number.parse::<usize>().expect("a number")];
    let workspace = lodging.workspace.to_str().expect("UTF-8");
    for (field, value) in [
        ("host", "callsign"),
        ("session", lodging.id.as_str()),
        ("run", run.as_str()),
        ("trust", "bound"),
        ("workspace", workspace),
        ("server", server),
        ("tool", "echo"),
    ] {
        assert_eq!(said[field], value, "`{field}` of {marker}: {said}");
    }
    let thread = text(&said["thread"]);
    assert!(thread.starts_with("ses_"), "{marker}: no conversation of the agent: {said}");
    // Before and after the subagent it is the same conversation, and no other's.
    let whose = format!("{number}/{}", if place == "below" { "below" } else { "above" });
    let known = threads.entry(thread.clone()).or_insert_with(|| whose.clone());
    assert_eq!(*known, whose, "two conversations under one name: {said}");
    let own = [
        ("session", lodging.id.as_str()),
        ("thread", thread.as_str()),
        ("workspace", workspace),
        ("host", "callsign"),
    ];
    if server == "std" {
        for (name, value) in own {
            let variable = match name {
                "session" | "thread" => format!("CALLSIGN_{}_ID", name.to_uppercase()),
                _ => format!("CALLSIGN_{}", name.to_uppercase()),
            };
            assert_eq!(
                arrived.env(&variable),
                Some(value),
                "{variable} of {marker}: {}",
                arrived.start["env"]
            );
        }
        assert_eq!(arrived.env("OPENCODE_SESSION_ID"), Some(thread.as_str()), "{marker}");
        assert_eq!(arrived.env("CALLSIGN_PARENT_ID"), said["parent"].as_str(), "{marker}");
        assert_eq!(arrived.start["cwd"], workspace, "{marker}");
    } else {
        for (name, value) in own {
            assert_eq!(arrived.header(&format!("callsign-{name}")), Some(value), "{name} of {marker}");
        }
        assert_eq!(arrived.header("callsign-parent"), said["parent"].as_str(), "{marker}");
        assert_eq!(arrived.header("authorization"), None, "the box's token went out");
    }
    shown(said)
}

/// A subagent's parent is the conversation that started it; that one has none.
fn check_subagents(threads: &BTreeMap<String, String>, servers: &Servers) {
    let above = |number: &str| {
        let whose = format!("{number}/above");
        threads.iter().find(|(_, found)| **found == whose).map(|(thread, _)| thread.clone())
    };
    for arrived in servers.called("std").iter().chain(&servers.called("web")) {
        let said = identity(arrived);
        let marker = text(&arrived.arguments()["text"]);
        let (number, place) = marker.split_once('/').expect("a marker");
        let parent = if place == "below" { above(number) } else { None };
        assert_eq!(said["parent"].as_str(), parent.as_deref(), "{marker}: {said}");
    }
}

/// A process serves one conversation.
fn check_children(called: &[Arrived]) {
    let mut children: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for arrived in called {
        children.entry(arrived.pid).or_default().insert(text(&identity(arrived)["thread"]));
    }
    for (pid, threads) in children {
        assert_eq!(threads.len(), 1, "the process {pid} served {threads:?}");
    }
}
