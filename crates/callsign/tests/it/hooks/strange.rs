//! Answers that a client takes for its own although they are not written, or do not come, the usual way: what hooks
//! cannot look at must not pass.

use std::sync::Arc;

use serde_json::json;
use testkit::client::Era;
use tokio::sync::Notify;

use super::after::{REDACTS, SECRET};
use super::rig::{LANE, Played, Side, VERSION, one};
use super::scripted::{Scripted, greet};
use crate::support::SOON;

/// The call of a row.
fn call(row: usize) -> String {
    let params = json!({ "name": "x", "arguments": { "row": row } });
    json!({ "jsonrpc": "2.0", "id": "r-1", "method": "tools/call", "params": params }).to_string()
}

/// The secret with an escape in it.
const ESCAPED: &str = r"SECRET\u002d7";

/// An answer: what is strange about it, its status, its lines of headers, its body.
type Row = (&'static str, u16, &'static str, String);

/// Fails with all that leaks, so that one does not hide the next.
async fn check(rows: Vec<Row>) {
    let (_hooks, setup) = one(REDACTS);
    let rows = Arc::new(rows);
    let server = {
        let rows = Arc::clone(&rows);
        Scripted::start(move |request, reply| {
            let rows = Arc::clone(&rows);
            async move {
                let Some((request, reply)) = greet(request, reply).await else { return };
                let row = request.message()["params"]["arguments"]["row"].as_u64();
                let row = row.and_then(|row| rows.get(usize::try_from(row).ok()?));
                let (_, status, headers, body) = row.expect("a row");
                reply.whole(*status, headers, body).await;
            }
        })
        .await
    };
    let gateway = setup.url(LANE, &server.url(), "").serve().await;
    let mut leaks = Vec::new();
    for (number, (what, ..)) in rows.iter().enumerate() {
        // A session of its own: nothing that an answer before has left behind.
        let client = gateway.connect(LANE, Era::Legacy).await;
        let answer = tokio::time::timeout(SOON, client.raw().post(call(number), &[VERSION])).await;
        let got = answer.expect("in time").text();
        if got.contains(SECRET) || got.contains(ESCAPED) {
            leaks.push(format!("{what}: {got:?}"));
        }
    }
    assert_eq!(server.calls("tools/call").len(), rows.len(), "all were made");
    assert!(leaks.is_empty(), "{leaks:#?}");
}

const JSON: &str = "content-type: application/json\r\n";
const EVENTS: &str = "content-type: text/event-stream\r\n";

fn result() -> String {
    json!({ "content": [{ "type": "text", "text": SECRET }] }).to_string()
}

fn answer() -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"r-1","result":{}}}"#, result())
}

#[tokio::test]
async fn an_answer_that_is_spelled_strangely_is_seen_by_hooks() {
    let (result, answer) = (result(), answer());
    let spaced = format!("\r\n {{ \"result\" : {result} , \"id\" : \"r-1\" ,\"jsonrpc\":\"2.0\" }}\n");
    let id = format!(r#"{{"jsonrpc":"2.0","id":"\u0072-1","result":{result}}}"#);
    check(vec![
        ("white space", 200, JSON, spaced),
        ("an escape in the result", 200, JSON, answer.replace(SECRET, ESCAPED)),
        ("an escape in the id", 200, JSON, id.clone()),
        ("an escape in the id of an event", 200, EVENTS, format!("data: {id}\n\n")),
    ])
    .await;
}

/// The revision of March 2025 has batches.
#[tokio::test]
async fn an_answer_in_a_batch_does_not_pass_unseen() {
    let batch = format!("[{}]", answer());
    check(vec![
        ("a body", 200, JSON, batch.clone()),
        ("an event", 200, EVENTS, format!("data: {batch}\n\n")),
    ])
    .await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_does_not_pass() {
    let deep = format!("{}\"{SECRET}\"{}", "[".repeat(200), "]".repeat(200));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":"r-1","result":{{"content":{deep}}}}}"#);
    let half = format!(r#"{{"jsonrpc":"2.0","id":"r-1","result":{},"x":"\ud800"}}"#, result());
    let bom = format!("\u{feff}{}", answer());
    check(vec![
        ("too deep", 200, JSON, deep.clone()),
        ("too deep, an event", 200, EVENTS, format!("data: {deep}\n\n")),
        ("half a character", 200, JSON, half),
        ("a byte order mark", 200, JSON, bom),
    ])
    .await;
}

#[tokio::test]
async fn events_are_events_in_every_spelling() {
    let (answer, result) = (answer(), result());
    let (begin, end) = (r#"{"jsonrpc":"2.0","id":"r-1","#, format!("\"result\":{result}}}"));
    let capital = "content-type: Text/Event-Stream\r\n";
    let with = "content-type: text/event-stream; charset=utf-8\r\n";
    check(vec![
        ("several lines", 200, EVENTS, format!("data: {begin}\ndata: {end}\n\n")),
        ("no space", 200, EVENTS, format!("event:message\ndata:{answer}\n\n")),
        ("CR LF", 200, EVENTS, format!("id: 1\r\ndata: {answer}\r\n\r\n")),
        ("CR", 200, EVENTS, format!("id: 1\rdata: {answer}\r\r")),
        ("a byte order mark", 200, EVENTS, format!("\u{feff}data: {answer}\n\n")),
        ("a parameter", 200, with, format!("data: {answer}\n\n")),
        ("capital letters", 200, capital, format!("data: {answer}\n\n")),
    ])
    .await;
}

#[tokio::test]
async fn an_answer_with_another_status_is_seen_by_hooks() {
    check(vec![
        ("accepted", 202, JSON, answer()),
        ("a failure", 500, JSON, answer()),
        ("a refusal", 403, JSON, answer()),
    ])
    .await;
}

/// An answer belongs to the stream of its request, or to one that goes on with it.
#[tokio::test]
async fn an_answer_on_a_stream_that_is_for_none_does_not_pass_unseen() {
    let (_hooks, setup) = one(REDACTS);
    let told = Arc::new(Notify::new());
    let server = {
        let told = Arc::clone(&told);
        Scripted::start(move |request, reply| {
            let told = Arc::clone(&told);
            async move {
                if request.verb == "GET" {
                    let mut stream = reply.stream().await;
                    told.notified().await;
                    stream.event(&answer()).await;
                    return stream.event(r#"{"jsonrpc":"2.0","method":"notifications/last"}"#).await;
                }
                let Some((_, reply)) = greet(request, reply).await else { return };
                reply.json(202, "").await;
                told.notify_one();
            }
        })
        .await
    };
    let played = Played::open(Side::Http, Era::Legacy, &setup, &server.url()).await;
    let (status, mut events) = played.client.raw().get_stream(&[VERSION]).await;
    assert_eq!(status, 200);
    drop(played.client.raw().post(call(0), &[VERSION]).await);
    let mut got = String::new();
    while !got.contains("notifications/last") {
        let event = tokio::time::timeout(SOON, events.next()).await.expect("in time").expect("an event");
        got.push_str(&event.data);
    }
    assert!(!got.contains(SECRET), "{got}");
}
