//! Results on their way back: redacted on every way, withheld by a throw, and where a list stands in too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Client, Era, text};
use tokio::sync::Notify;

use super::rig::{Hooks, LANE, MINE, Played, Side, Stopped, Way, at_once, mine, one, stopped};
use super::scripted::{Reply, Request, Scripted, greet};
use crate::support::{SOON, call_as, messages, setup};

pub(super) const SECRET: &str = "SECRET-7";

/// Takes the secret out of results, and a few words that the echo server says by itself.
pub(super) const REDACTS: &str = r#"const WORDS = ["SECRET-7", "Gives the text back.", "Hello.", '"ok"']
const redact = (text) => WORDS.reduce((left, word) => left.replaceAll(word, word.startsWith('"') ? '"[gone]"' : "[gone]"), text)
export default {
  "mcp.call.after": (input, output) => {
    if (output.result === undefined) return
    output.result = JSON.parse(redact(JSON.stringify(output.result)))
  },
}
"#;

#[tokio::test]
async fn a_result_is_redacted_on_every_way_back() {
    let (_hooks, setup) = one(REDACTS);
    for way in Way::all(&setup).await {
        let result = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "a SECRET-7 b" })).await;
        assert_eq!(text(&result.expect("answered")), "a [gone] b", "{}", way.name);
        let read = way.client.request("resources/read", json!({ "uri": "test://SECRET-7" })).await;
        assert_eq!(read.expect("answered")["contents"][0]["text"], "test://[gone]", "{}", way.name);
        let prompt = way.client.request("prompts/get", json!({ "name": "greet" })).await;
        assert_eq!(prompt.expect("answered")["messages"][0]["content"]["text"], "[gone]", "{}", way.name);
        let list = way.client.request("tools/list", json!({})).await.expect("a list");
        assert_eq!(list["tools"][0]["description"], "[gone]", "{}", way.name);
        assert!(list["tools"][0]["x-vendor"]["kept"] == true, "{}: the rest is as it was: {list}", way.name);
        assert!(list["tools"].as_array().is_some_and(|tools| tools.len() == 11), "{}", way.name);
        // It is no result of a request that hooks are for.
        let echoed = way.client.request("vendor/echo", json!({ "x": SECRET })).await.expect("answered");
        assert_eq!(echoed["x"], SECRET, "{}", way.name);
    }
}

/// Progress first, then the answer as an event where there are events.
#[tokio::test]
async fn an_answer_that_comes_after_progress_is_redacted_and_progress_does_not_wait_for_it() {
    let (_hooks, setup) = one(REDACTS);
    at_once(Way::all(&setup).await.into_iter().map(progress_first)).await;
}

async fn progress_first(way: Way) {
    let mut meta = mine("s-1");
    meta["progressToken"] = "t-1".into();
    let params = json!({ "name": "progress", "arguments": { "steps": 2, "ms": 250 }, "_meta": meta });
    let call = way.client.start("tools/call", params).await;
    let progress = way.client.notification("notifications/progress", SOON).await.expect("progress");
    let at = Instant::now();
    assert_eq!(progress["params"]["progress"], 1, "{}: {progress}", way.name);
    let result = call.wait(SOON).await.expect("answered");
    assert_eq!(text(&result), "[gone]", "{}", way.name);
    // The second step comes 250 ms after the first, and the answer with it.
    assert!(at.elapsed() >= Duration::from_millis(100), "{}: they came together", way.name);
}

/// Answers a call in a stream: progress, and the answer when the test has seen that.
async fn answer_in_events(request: Request, reply: Reply, gate: Arc<Notify>) {
    let mut stream = reply.stream().await;
    stream.write("retry: 100\n\n: a comment\n\n").await;
    stream.event(&request.progress(1)).await;
    gate.notified().await;
    stream.event(&request.progress(2)).await;
    stream.event(&request.text(SECRET)).await;
}

async fn gated(gate: &Arc<Notify>) -> Scripted {
    let gate = Arc::clone(gate);
    Scripted::start(move |request, reply| {
        let gate = Arc::clone(&gate);
        async move {
            let Some((request, reply)) = greet(request, reply).await else { return };
            answer_in_events(request, reply, gate).await;
        }
    })
    .await
}

async fn wait_for_gate(client: &Client, gate: &Notify, name: &str) -> Value {
    let params = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": "t-1", "mine/session": "s-1" } });
    let call = client.start("tools/call", params).await;
    let first = client.notification("notifications/progress", SOON).await;
    let first = first.unwrap_or_else(|| panic!("{name}: progress waits for the answer"));
    assert_eq!(first["params"]["progress"], 1, "{name}");
    gate.notify_one();
    let second = client.notification("notifications/progress", SOON).await.expect("the rest of it");
    assert_eq!(second["params"]["progress"], 2, "{name}");
    call.wait(SOON).await.unwrap_or_else(|failure| panic!("{name}: {failure:?}"))
}

#[tokio::test]
async fn progress_arrives_before_there_is_an_answer_to_redact() {
    let (_hooks, setup) = one(REDACTS);
    for front in Side::BOTH {
        for era in Era::BOTH {
            let gate = Arc::new(Notify::new());
            let server = gated(&gate).await;
            let played = Played::open(front, era, &setup, &server.url()).await;
            let result = wait_for_gate(&played.client, &gate, &played.name).await;
            assert_eq!(text(&result), "[gone]", "{}", played.name);
        }
    }
}

/// HTTP+SSE of 2024-11-05: answers come on the one stream that stays open.
async fn old_server(gate: &Arc<Notify>) -> Scripted {
    let (gate, sender) = (Arc::clone(gate), tokio::sync::broadcast::channel::<String>(64).0);
    Scripted::start(move |request, reply| {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        async move {
            if request.verb == "GET" {
                let mut incoming = sender.subscribe();
                let mut stream = reply.stream().await;
                stream.write("event: endpoint\ndata: /post\n\n").await;
                while let Ok(message) = incoming.recv().await {
                    stream.write(&format!("event: message\ndata: {message}\n\n")).await;
                }
                return;
            }
            if request.path != "/post" {
                return reply.json(405, "").await;
            }
            reply.json(202, "").await;
            let say = |message: String| drop(sender.send(message));
            match request.method().as_str() {
                "initialize" => say(request.answer(&json!({
                    "protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": { "name": "old", "version": "1" },
                }))),
                "tools/call" if request.message()["params"]["name"] == "slow" => {
                    say(request.progress(1));
                    gate.notified().await;
                    say(request.progress(2));
                    say(request.text(SECRET));
                }
                "tools/call" => say(request.text(SECRET)),
                _ => {}
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_server_of_the_oldest_transport_has_hooks_on_both_ways() {
    let hooks = Hooks::new(&[
        ("redact.js", REDACTS),
        (
            "before.js",
            r#"export default {
  "mcp.call.before": (input, output) => {
    if (input.arguments?.refuse) throw new Error("not this one")
    output.headers["X-Session"] = input.sessionID
    output.meta["example.org/tenant"] = "t"
    output.arguments = { changed: true }
  },
}
"#,
        ),
    ]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["redact.js", "before.js"]));
    for front in Side::BOTH {
        let gate = Arc::new(Notify::new());
        let server = old_server(&gate).await;
        let played = Played::open(front, Era::Legacy, &setup, &server.url()).await;
        let result = call_as(&played.client, &mine("s-1"), "quick", json!({})).await.expect("answered");
        assert_eq!(text(&result), "[gone]", "{}", played.name);
        let result = wait_for_gate(&played.client, &gate, &played.name).await;
        assert_eq!(text(&result), "[gone]", "{}", played.name);
        let refused = call_as(&played.client, &mine("s-1"), "quick", json!({ "refuse": true })).await;
        stopped(refused, Stopped::Refused, &[&hooks.at("before.js", 3), "not this one"]);
        let calls = server.calls("tools/call");
        assert_eq!(calls.len(), 2, "{}: the refused one was not made", played.name);
        for call in calls {
            let params = &call.message()["params"];
            assert_eq!(call.header("x-session"), ["s-1"], "{}", played.name);
            assert_eq!(params["_meta"]["example.org/tenant"], "t", "{}", played.name);
            assert_eq!(params["arguments"], json!({ "changed": true }), "{}", played.name);
        }
    }
}

#[tokio::test]
async fn a_throw_withholds_the_result_and_nothing_of_it_is_in_the_answer() {
    let (hooks, setup) = one(r#"export default {
  "mcp.call.after": (input, output) => {
    if (input.tool === "progress") for (;;) {}
    throw new Error("it is not for you")
  },
}
"#);
    for way in Way::all(&setup).await {
        let answer = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": SECRET })).await;
        assert!(!format!("{answer:?}").contains(SECRET), "{}: {answer:?}", way.name);
        let says = [&*hooks.at("hook.js", 4), "it is not for you", "withheld"];
        stopped(answer, Stopped::Refused, &says);
        let params =
            json!({ "name": "progress", "arguments": { "steps": 1 }, "_meta": { "progressToken": 1 } });
        let looped = way.client.request("tools/call", params).await;
        stopped(looped, Stopped::Failed, &[&hooks.at("hook.js", 3), "withheld", "50 ms of CPU"]);
        assert_eq!(way.messages("tools/call").len(), 2, "{}: the calls were made", way.name);
        for method in ["tools/list", "resources/read"] {
            let answer = way.client.request(method, json!({ "uri": "test://SECRET-7" })).await;
            stopped(answer, Stopped::Refused, &[&hooks.at("hook.js", 4)]);
        }
        assert!(way.client.strays().is_empty(), "{}: {:?}", way.name, way.client.strays());
        assert!(!format!("{:?}", way.client.notifications().await).contains(SECRET), "{}", way.name);
    }
}

/// What stands in for a server that is not asked is what it said, not what somebody was allowed to see of it.
#[tokio::test]
async fn a_list_that_stands_in_is_redacted_for_whom_it_is() {
    let (_hooks, setup) = one(r#"export default {
  "mcp.call.after": (input, output) => {
    if (input.method !== "tools/list") return
    const hidden = input.sessionID === "one" ? ["exit", "raw"] : ["sleep"]
    output.result.tools = output.result.tools.filter((tool) => !hidden.includes(tool.name))
  },
}
"#);
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, "").await;
    let gateway = way.gateway().expect("a daemon");
    for (session, hidden, shown) in [
        ("one", &["exit", "raw"][..], "sleep"),
        ("two", &["sleep"], "exit"),
        ("one", &["exit", "raw"], "sleep"),
    ] {
        // A client that is new has nobody to ask but the memory of what was answered before.
        let client = gateway.connect(LANE, Era::Legacy).await;
        let params = json!({ "_meta": { "mine/session": session } });
        let list = client.request("tools/list", params).await.expect("a list");
        let names: Vec<&str> =
            list["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&shown), "{session}: {names:?}");
        assert!(hidden.iter().all(|name| !names.contains(name)), "{session}: {names:?}");
    }
    let asked = messages(way.log(), "tools/list").len();
    assert_eq!(asked, 2, "once for each question; the third stood in");
}

/// A text of some hundred kilobytes is looked at elsewhere, and passes no more than a small one.
#[tokio::test]
async fn a_large_result_is_redacted_or_withheld() {
    let (_hooks, setup) = one(REDACTS);
    for (limit, redacted) in [("timeout_ms = 2000", true), ("timeout_ms = 1", false)] {
        let setup = setup.clone().toml(limit);
        for way in Way::of(Era::Legacy, &setup).await {
            let large = format!("{}{SECRET}", "0123456789".repeat(60_000));
            let answer = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": large })).await;
            match answer {
                Ok(result) => assert!(text(&result).ends_with("9[gone]"), "{}", way.name),
                Err(failure) if redacted => panic!("{}: {failure:?}", way.name),
                Err(failure) => drop(stopped(Err(failure), Stopped::Failed, &["withheld"])),
            }
        }
    }
}
