//! Hooks are fired once for each request they are for, and for nothing else; and what they see of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::client::Era;

use super::rig::{Hooks, MINE, Played, Side, Way, message_of, mine, one};
use super::scripted::{Scripted, greet, usual};
use crate::support::{CODEX, SOON, codex_subagent, header, named, setup};

/// What hooks are fired for, with parameters that the echo server takes.
fn fired() -> [(&'static str, Value); 4] {
    [
        ("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } })),
        ("tools/list", json!({})),
        ("prompts/get", json!({ "name": "greet" })),
        ("resources/read", json!({ "uri": "test://static" })),
    ]
}

/// What they are not fired for.
fn others(era: Era) -> Vec<(&'static str, Value)> {
    let mut others = vec![
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "a", "value": "" } }),
        ),
        ("vendor/echo", json!({ "x": 1 })),
        ("vendor/tools/call", json!({ "name": "echo" })),
        ("ping", json!({})),
    ];
    if era == Era::Legacy {
        others.push(("logging/setLevel", json!({ "level": "info" })));
        others.push(("resources/subscribe", json!({ "uri": "test://watched" })));
        others.push(("resources/unsubscribe", json!({ "uri": "test://watched" })));
    }
    others
}

/// Counts in a header and in `_meta` before, in the result after.
const COUNTS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    globalThis.state.before = (globalThis.state.before ?? 0) + 1
    output.headers["X-Count"] = String(globalThis.state.before)
    output.meta["example.org/count"] = globalThis.state.before
  },
  "mcp.call.after": (input, output) => {
    globalThis.state.after = (globalThis.state.after ?? 0) + 1
    output.result._meta = { count: globalThis.state.after }
  },
}
"#;

#[tokio::test]
async fn each_request_fires_once_and_nothing_else_does() {
    let (_hooks, setup) = one(COUNTS);
    for way in Way::all(&setup).await {
        let mut after = Vec::new();
        for _ in 0..2 {
            for (method, params) in others(way.client.era()) {
                let result = way.client.request(method, params).await.unwrap_or_default();
                assert!(result["_meta"].get("count").is_none(), "{}: {method}: {result}", way.name);
            }
            way.client.notify("notifications/vendor", json!({})).await;
            for (method, params) in fired() {
                let result = way.client.request(method, params).await;
                let result = result.unwrap_or_else(|failure| panic!("{}: {method}: {failure:?}", way.name));
                after.push(result["_meta"]["count"].clone());
            }
        }
        let eight: Vec<Value> = (1..=8).map(Value::from).collect();
        assert_eq!(after, eight, "{}: after the answers", way.name);
        let methods = fired().map(|(method, _)| method);
        let mut before = Vec::new();
        for record in way.arrived() {
            let message = message_of(&record);
            let count = &message["params"]["_meta"]["example.org/count"];
            let in_header = header(&record, "x-count").concat();
            if message["method"].as_str().is_some_and(|method| methods.contains(&method)) {
                before.push(count.clone());
                let expected = if way.back == Side::Http { count.to_string() } else { String::new() };
                assert_eq!(in_header, expected, "{}: {record}", way.name);
            } else {
                assert!(count.is_null() && in_header.is_empty(), "{}: {record}", way.name);
            }
        }
        assert_eq!(before, eight, "{}: before the calls", way.name);
    }
}

#[tokio::test]
async fn calls_at_once_are_counted_one_by_one() {
    let (_hooks, setup) = one(COUNTS);
    for front in Side::BOTH {
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        let mut calls = Vec::new();
        for number in 0..32 {
            let params = json!({ "name": "echo", "arguments": { "text": number }, "_meta": mine(&format!("s-{}", number % 2)) });
            calls.push(way.client.start("tools/call", params).await);
        }
        let mut after = BTreeSet::new();
        for (number, call) in calls.into_iter().enumerate() {
            let result = call.wait(SOON).await.expect("answered");
            assert_eq!(result["content"][0]["text"], number, "{}: its own answer", way.name);
            after.insert(result["_meta"]["count"].as_u64().unwrap_or_default());
        }
        let count = |message: &Value| message["params"]["_meta"]["example.org/count"].as_u64();
        let before: BTreeSet<u64> = way.messages("tools/call").iter().filter_map(count).collect();
        let all: BTreeSet<u64> = (1..=32).collect();
        assert_eq!((before, after), (all.clone(), all), "{}", way.name);
    }
}

/// A host on a pipe does not notice that a server lost its session; neither does a hook.
#[tokio::test]
async fn a_call_that_is_sent_again_in_a_new_session_fired_once() {
    let lost = Arc::new(AtomicBool::new(false));
    let server = Scripted::start(move |request, reply| {
        let lost = Arc::clone(&lost);
        async move {
            if let Some((200, body)) = usual(&request).filter(|_| request.method() == "initialize") {
                let headers = "content-type: application/json\r\nmcp-session-id: some\r\n";
                return reply.whole(200, headers, &body).await;
            }
            let Some((request, reply)) = greet(request, reply).await else { return };
            let loses = request.message()["params"]["arguments"]["text"] == "lost";
            if loses && !lost.swap(true, Ordering::Relaxed) {
                return reply.json(404, "{}").await;
            }
            reply.json(200, &request.text("ok")).await;
        }
    })
    .await;
    let (_hooks, setup) = one(COUNTS);
    let played = Played::open(Side::Pipe, Era::Legacy, &setup, &server.url()).await;
    for (text, count) in [("fine", 1), ("lost", 2), ("fine", 3)] {
        let result = played.client.call_tool("echo", json!({ "text": text })).await;
        assert_eq!(result["_meta"]["count"], count, "{text}");
    }
    let counts: Vec<String> =
        server.calls("tools/call").iter().map(|request| request.header("x-count").concat()).collect();
    assert_eq!(counts, ["1", "2", "2", "3"], "sent twice, fired once");
    assert_eq!(server.calls("initialize").len(), 2);
}

const SEES: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.meta["example.org/input"] = JSON.stringify(input)
  },
  "mcp.call.after": (input, output) => {
    output.result["example.org/input"] = JSON.stringify(input)
  },
}
"#;

#[tokio::test]
async fn a_hook_sees_who_calls_what_and_where() {
    let hooks = Hooks::new(&[("hook.js", SEES)]);
    let places = tempfile::tempdir().expect("a directory");
    let workspace = std::fs::canonicalize(places.path()).expect("a path");
    let workspace = workspace.to_str().expect("UTF-8");
    let roots = format!("[workspace]\nroots = [{workspace:?}]");
    let setup = setup().toml(MINE).toml(&roots).toml(&hooks.toml(&["hook.js"]));
    let mut meta = codex_subagent("agent", "root");
    meta["orbit.workspace"] = workspace.into();
    for sides in [(Side::Pipe, Side::Pipe), (Side::Http, Side::Http)] {
        let way = Way::start(sides, Era::Legacy, &setup, "").await;
        way.connect(named(CODEX)).await;
        let who = json!({
            "sessionID": "agent", "threadID": "agent", "parentID": "root", "callID": "call-of-agent",
            "host": "codex", "workspace": workspace, "trust": "host",
        });
        let rows = [
            (
                "tools/call",
                json!({ "name": "echo", "arguments": { "text": "x", "n": [1.5, null] } }),
                json!({ "tool": "echo", "arguments": { "text": "x", "n": [1.5, null] } }),
            ),
            ("tools/call", json!({ "name": "echo" }), json!({ "tool": "echo" })),
            ("tools/list", json!({}), json!({})),
            (
                "prompts/get",
                json!({ "name": "greet", "arguments": { "a": "b" } }),
                json!({ "tool": "greet", "arguments": { "a": "b" } }),
            ),
            ("resources/read", json!({ "uri": "test://static" }), json!({ "tool": "test://static" })),
        ];
        for (method, params, what) in rows {
            for (meta, who) in [(&meta, &who), (&json!({}), &json!({ "trust": "none" }))] {
                let mut params = params.clone();
                params["_meta"] = meta.clone();
                let result = way.client.request(method, params).await.expect("answered");
                let arrived = way.last(method);
                let mut expected = json!({ "server": "lane", "method": method });
                for part in [&what, who] {
                    let part = part.as_object().expect("an object").clone();
                    expected.as_object_mut().expect("an object").extend(part);
                }
                // A call that its host has not named has a name of ours, the one that the server is told.
                if expected["callID"].is_null() {
                    expected["callID"] = arrived["params"]["_meta"]["dev.callsign/identity"]["call"].clone();
                    assert!(expected["callID"].is_string(), "{}: {arrived}", way.name);
                }
                let saw = |text: &Value| -> Value {
                    serde_json::from_str(text.as_str().unwrap_or_default()).expect("JSON")
                };
                let before = saw(&arrived["params"]["_meta"]["example.org/input"]);
                assert_eq!(before, expected, "{}: {method}", way.name);
                let mut after = saw(&result["example.org/input"]);
                assert!(after["durationMs"].take().as_f64().is_some_and(|ms| ms >= 0.0), "{}", way.name);
                expected["ok"] = true.into();
                expected["durationMs"] = Value::Null;
                assert_eq!(after, expected, "{}: {method}", way.name);
            }
        }
    }
}
