//! Streams that break: an answer that comes on another stream is seen by hooks as well.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::{Client, Era, Events, text};
use tokio::sync::Notify;

use super::after::{REDACTS, SECRET};
use super::rig::{Hooks, Played, Side, VERSION, Way, one};
use super::scripted::{Reply, Request, Scripted, greet};
use crate::support::SOON;

const ID: &str = "resumed";

fn call(tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "t", "mine/session": "s-1" } });
    json!({ "jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params }).to_string()
}

/// Reads a stream until something with data comes; gives it with its event id.
async fn next(events: &mut Events) -> (Option<String>, Value) {
    loop {
        let event = tokio::time::timeout(SOON, events.next()).await.expect("in time").expect("an event");
        if !event.data.is_empty() {
            return (event.id, serde_json::from_str(&event.data).expect("JSON"));
        }
    }
}

/// Reads a stream to the answer.
async fn answer(events: &mut Events) -> Value {
    loop {
        let (_, message) = next(events).await;
        if message["id"] == ID {
            return message;
        }
    }
}

async fn resume(client: &Client, last: &str) -> Events {
    let (status, events) = client.raw().get_stream(&[VERSION, ("last-event-id", last)]).await;
    assert_eq!(status, 200, "it goes on from {last}");
    events
}

#[track_caller]
fn redacted(message: &Value, name: &str) {
    assert!(!message.to_string().contains(SECRET), "{name}: {message}");
    assert_eq!(text(&message["result"]), "[gone]", "{name}: {message}");
}

#[tokio::test]
async fn a_stream_of_ours_that_broke_goes_on_to_the_redacted_answer() {
    let (_hooks, setup) = one(REDACTS);
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, "").await;
    let body = call("progress", &json!({ "steps": 3, "ms": 100 }));
    let (status, mut events) = way.client.raw().post_stream(body, &[VERSION]).await;
    assert_eq!(status, 200);
    let (last, first) = next(&mut events).await;
    assert_eq!(first["params"]["progress"], 1, "{first}");
    drop(events);
    let mut events = resume(&way.client, &last.clone().expect("an id")).await;
    redacted(&answer(&mut events).await, &way.name);
    // And once more, from the same place, though it is all there by now.
    let mut events = resume(&way.client, &last.expect("an id")).await;
    redacted(&answer(&mut events).await, &way.name);
}

/// A server whose streams can be gone back to. A POST gives event 1, progress; then it waits for the gate and gives
/// event 2, the answer, or ends without it. A GET with `Last-Event-ID: 1` gives event 2.
async fn resumable(gate: &Arc<Notify>, ends_early: bool) -> Scripted {
    let (gate, asked) = (Arc::clone(gate), Arc::new(std::sync::Mutex::new(None::<Request>)));
    Scripted::start(move |request, reply| {
        let (gate, asked) = (Arc::clone(&gate), Arc::clone(&asked));
        async move {
            if request.verb == "GET" && !request.header("last-event-id").is_empty() {
                let first = asked.lock().expect("no panic").clone().expect("it was asked");
                return replay(&request, &first, reply).await;
            }
            let Some((request, reply)) = greet(request, reply).await else { return };
            *asked.lock().expect("no panic") = Some(request.clone());
            let mut stream = reply.stream().await;
            stream.write("retry: 60\n\n").await;
            stream.event_as("1", &request.progress(1)).await;
            if !ends_early {
                gate.notified().await;
                stream.event_as("2", &request.text(SECRET)).await;
            }
        }
    })
    .await
}

async fn replay(request: &Request, first: &Request, reply: Reply) {
    assert_eq!(request.header("last-event-id"), ["1"]);
    let mut stream = reply.stream().await;
    stream.event_as("2", &first.text(SECRET)).await;
}

#[tokio::test]
async fn a_stream_of_the_servers_that_the_client_lost_goes_on_to_the_redacted_answer() {
    let (_hooks, setup) = one(REDACTS);
    let gate = Arc::new(Notify::new());
    let server = resumable(&gate, false).await;
    let played = Played::open(Side::Http, Era::Legacy, &setup, &server.url()).await;
    let (_, mut events) = played.client.raw().post_stream(call("any", &json!({})), &[VERSION]).await;
    let (last, first) = next(&mut events).await;
    assert_eq!((last.as_deref(), &first["params"]["progress"]), (Some("1"), &json!(1)), "{first}");
    drop(events);
    let mut events = resume(&played.client, "1").await;
    redacted(&answer(&mut events).await, "lost before the answer");
}

#[tokio::test]
async fn a_stream_that_the_server_broke_off_goes_on_to_the_redacted_answer() {
    let (_hooks, setup) = one(REDACTS);
    for front in Side::BOTH {
        let server = resumable(&Arc::default(), true).await;
        let played = Played::open(front, Era::Legacy, &setup, &server.url()).await;
        if front == Side::Pipe {
            // A host on a pipe has no streams to come back to; we come back for it.
            let result = played.client.call_tool("any", json!({})).await;
            assert_eq!(text(&result), "[gone]", "{}", played.name);
            continue;
        }
        let (_, mut events) = played.client.raw().post_stream(call("any", &json!({})), &[VERSION]).await;
        next(&mut events).await;
        let end = tokio::time::timeout(SOON, events.next()).await.expect("it ends");
        assert_eq!(end, None, "{}", played.name);
        let mut events = resume(&played.client, "1").await;
        redacted(&answer(&mut events).await, &played.name);
    }
}

/// The answer was on its way when the client went: it was seen here, and will be sent again from there.
#[tokio::test]
async fn an_answer_that_is_replayed_is_redacted_again() {
    let (_hooks, setup) = one(REDACTS);
    let gate = Arc::new(Notify::new());
    let server = resumable(&gate, false).await;
    let played = Played::open(Side::Http, Era::Legacy, &setup, &server.url()).await;
    gate.notify_one();
    let (_, mut events) = played.client.raw().post_stream(call("any", &json!({})), &[VERSION]).await;
    redacted(&answer(&mut events).await, "the first time");
    drop(events);
    for time in ["the second time", "the third time"] {
        let mut events = resume(&played.client, "1").await;
        redacted(&answer(&mut events).await, time);
    }
}

#[tokio::test]
async fn a_result_that_is_withheld_is_withheld_on_the_other_stream_too() {
    let hook = r#"export default {
  "mcp.call.after": (input) => {
    throw new Error("not for " + input.sessionID)
  },
}
"#;
    let (hooks, setup) = one(hook);
    let server = resumable(&Arc::default(), true).await;
    let played = Played::open(Side::Http, Era::Legacy, &setup, &server.url()).await;
    let (_, mut events) = played.client.raw().post_stream(call("any", &json!({})), &[VERSION]).await;
    next(&mut events).await;
    drop(events);
    let mut events = resume(&played.client, "1").await;
    let message = answer(&mut events).await;
    assert!(!message.to_string().contains(SECRET), "{message}");
    assert_eq!(message["error"]["code"], -31023, "{message}");
    let said = message["error"]["message"].as_str().unwrap_or_default();
    assert!(said.contains(&hooks.at("hook.js", 3)) && said.contains("not for s-1"), "{said}");
}

/// Calls under way end with the hooks they began with, wherever their answer comes.
#[tokio::test]
async fn hooks_that_went_meanwhile_still_see_the_answer() {
    let hooks = Hooks::new(&[("hook.js", REDACTS)]);
    let setup = crate::support::setup().toml(&hooks.toml(&["hook.js"]));
    let server = resumable(&Arc::default(), true).await;
    let played = Played::open(Side::Http, Era::Legacy, &setup, &server.url()).await;
    let (_, mut events) = played.client.raw().post_stream(call("any", &json!({})), &[VERSION]).await;
    next(&mut events).await;
    drop(events);
    hooks.write("hook.js", "export default { \"mcp.call.before\": () => {} }\n");
    let reloaded = testkit::harness::wait_until(SOON, || played.stderr().contains("loaded again"));
    assert!(reloaded.await, "{}", played.stderr());
    let mut events = resume(&played.client, "1").await;
    redacted(&answer(&mut events).await, "after the edit");
}

/// The deadline of a silent stream holds for one that is looked at as well.
#[tokio::test]
async fn a_stream_that_falls_silent_ends_at_its_deadline() {
    let (_hooks, setup) = one(REDACTS);
    let server = Scripted::start(|request, reply| async move {
        let Some((request, reply)) = greet(request, reply).await else { return };
        let mut stream = reply.stream().await;
        stream.event(&request.progress(1)).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    })
    .await;
    let setup = setup.url("silent", &server.url(), "timeout = \"1s\"");
    let gateway = setup.serve().await;
    let client = gateway.connect("silent", Era::Legacy).await;
    let (_, mut events) = client.raw().post_stream(call("any", &json!({})), &[VERSION]).await;
    next(&mut events).await;
    let last = tokio::time::timeout(SOON, events.next()).await.expect("it ends").expect("with an answer");
    assert!(last.data.contains("did not answer within 1 s"), "{last:?}");
    let end = tokio::time::timeout(SOON, events.next()).await.expect("it ends");
    assert_eq!(end, None, "nothing more comes");
}
