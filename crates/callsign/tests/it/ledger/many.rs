//! Many calls at once, by many processes: exactly one row each, and a ledger that verifies.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::client::{Era, Http, text};
use testkit::harness::HttpServer;

use super::rig::{Front, House, Way, at_once, call, mine, outcomes, with_echo};
use crate::support::{SOON, setup};

const CONNECTIONS: usize = 64;
const EACH: usize = 16;

fn names(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter().filter_map(|row| row["call"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_over_64_connections_are_a_thousand_rows() {
    let server = HttpServer::start("echo-server", &[]);
    let setup = with_echo(setup(), "isolation = \"shared\"").url("http", &server.url, "");
    let house = Arc::new(House::with(setup, "").await);
    at_once((0..CONNECTIONS).map(|connection| {
        let house = Arc::clone(&house);
        async move {
            let (server, era) = (["echo", "http"][connection % 2], Era::BOTH[connection / 2 % 2]);
            let client = house.connect(Front::Serve, server, era).await;
            let mut calls = Vec::new();
            for number in 0..EACH {
                let name = format!("{connection}-{number}");
                let meta = mine(&format!("session-{connection}"), &name);
                let params = json!({ "name": "echo", "arguments": { "text": name }, "_meta": meta });
                calls.push((name, client.start("tools/call", params).await));
            }
            for (name, call) in calls {
                assert_eq!(text(&call.wait(SOON * 4).await.expect("answered")), name);
            }
        }
    }))
    .await;
    let rows = house.ended(&[], CONNECTIONS * EACH).await;
    assert_eq!(rows.len(), CONNECTIONS * EACH, "no row too few or too many");
    assert_eq!(names(&rows).len(), CONNECTIONS * EACH, "each of its own call");
    assert!(
        rows.iter().all(|row| row["outcome"] == "ok"),
        "{:?}",
        rows.iter().find(|row| row["outcome"] != "ok")
    );
    let of_one = house.rows(&["--session", "session-7"]);
    assert_eq!(of_one.len(), EACH, "each session has its own: {of_one:?}");
    assert!(of_one.iter().all(|row| row["call"].as_str().is_some_and(|call| call.starts_with("7-"))));
    house.verifies();
}

const WRITERS: usize = 6;
const CALLS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_write_to_one_ledger_at_once() {
    let house = Arc::new(House::with(with_echo(setup(), ""), "").await);
    at_once((0..WRITERS).map(|writer| {
        let house = Arc::clone(&house);
        async move {
            let front = if writer == 0 { Front::Serve } else { Front::Wrap };
            let client = house.connect(front, "echo", Era::Legacy).await;
            for number in 0..CALLS {
                let meta = mine(&format!("writer-{writer}"), &format!("{writer}-{number}"));
                call(&client, "echo", meta, json!({ "text": "x" })).await.expect("answered");
            }
            client.end().await;
        }
    }))
    .await;
    let rows = house.ended(&[], WRITERS * CALLS).await;
    assert_eq!((rows.len(), names(&rows).len()), (WRITERS * CALLS, WRITERS * CALLS));
    for writer in 0..WRITERS {
        let rows = house.rows(&["--session", &format!("writer-{writer}")]);
        let order: Vec<String> = (0..CALLS).map(|number| format!("{writer}-{number}")).collect();
        let kept: Vec<&str> = rows.iter().filter_map(|row| row["call"].as_str()).collect();
        assert_eq!(kept, order, "in the order in which they were made");
    }
    house.verifies();
}

/// A host on a pipe does not notice that a server lost its session, and made one call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_sent_again_is_one_row() {
    let server = HttpServer::start("echo-server", &[]);
    let house = House::with(setup().url("http", &server.url, ""), "").await;
    let client = house.connect(Front::Wrap, "http", Era::Legacy).await;
    let answer = call(&client, "whoami", mine("s", "first"), json!({})).await.expect("answered");
    let whoami: Value = serde_json::from_str(&text(&answer)).expect("JSON");
    let session = crate::support::header(&whoami, "mcp-session-id").concat();
    let ended = Http::new(&server.url, None).delete(&[("mcp-session-id", &session)]).await;
    assert_eq!(ended.status, 200);
    call(&client, "echo", mine("s", "again"), json!({ "text": "x" })).await.expect("answered");
    let rows = house.ended(&["--session", "s"], 2).await;
    let wanted = [("whoami", "ok"), ("echo", "ok")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(outcomes(&rows), wanted, "{rows:?}");
}

/// An answer that comes on another stream than the one that broke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_come_back_for_ends_its_call() {
    let house = House::open("").await;
    let wrap = house.connect(Front::Wrap, "events", Era::Legacy).await;
    call(&wrap, "resumed", mine("s", "by-wrap"), json!({})).await.expect("answered");
    let serve = house.connect(Front::Serve, "events", Era::Legacy).await;
    let params = json!({ "name": "resumed", "arguments": {}, "_meta": mine("s", "by-client") });
    let body = json!({ "jsonrpc": "2.0", "id": "r", "method": "tools/call", "params": params });
    let version = ("mcp-protocol-version", "2025-11-25");
    let (_, mut events) = serve.raw().post_stream(body.to_string(), &[version]).await;
    let event = tokio::time::timeout(SOON, events.next()).await.expect("in time").expect("an event");
    let last = event.id.expect("an id");
    drop(events);
    let (_, mut events) = serve.raw().get_stream(&[version, ("last-event-id", &last)]).await;
    let event = tokio::time::timeout(SOON, events.next()).await.expect("in time").expect("the answer");
    assert!(event.data.contains("\"result\""), "{event:?}");
    for call in ["by-wrap", "by-client"] {
        let rows = house.until(&["--call", call, "--outcome", "ok"], |rows| rows.len() == 1).await;
        assert_eq!(rows.len(), 1, "{call}: {:?}", house.rows(&["--call", call]));
    }
    assert_eq!(house.rows(&["--session", "s"]).len(), 2);
}

/// Two calls of one client at once, on every way: their rows do not mix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_overlap_end_each_for_itself() {
    let house = Arc::new(House::open("").await);
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            let mut calls = Vec::new();
            for number in 0..12 {
                let tool = ["fine", "tool-error", "rpc-error"][number % 3];
                let meta = mine(&name, &way.call(&format!("{tool}-{number}")));
                let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
                calls.push(client.start("tools/call", params).await);
            }
            for call in calls {
                drop(call.wait(SOON).await);
            }
            let rows = house.ended(&["--session", &name], 12).await;
            assert_eq!((rows.len(), names(&rows).len()), (12, 12), "{name}: {rows:?}");
            for row in &rows {
                let wanted = match row["tool"].as_str() {
                    Some("fine") => "ok",
                    Some("tool-error") => "tool_error",
                    _ => "failed",
                };
                assert_eq!(row["outcome"], wanted, "{name}: {row}");
            }
        }
    }))
    .await;
    house.verifies();
}
