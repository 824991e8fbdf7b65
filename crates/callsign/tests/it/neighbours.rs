//! What one client must not do to another that shares a server, a connection or the daemon with it.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Era, Http, Response, raw_http};
use testkit::harness::kill;
use tokio::task::JoinSet;

use crate::support::{SOON, echo, setup};

fn initialize(capabilities: &Value) -> String {
    let client = json!({ "name": "neighbour", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[tokio::test]
async fn what_one_client_was_refused_with_is_not_told_the_next() {
    let command = [&*bin("conformance-server"), "--stdio"];
    let gateway = setup().server("strict", &command, "isolation = \"shared\"").serve().await;
    let http = Http::new(&gateway.mcp("strict"), Some(&gateway.token));
    let refused = http.post(initialize(&json!("nonsense")), &[]).await;
    assert!(text(&refused).contains("\"error\""), "the server refuses it: {}", text(&refused));
    let welcome =
        Http::new(&gateway.mcp("strict"), Some(&gateway.token)).post(initialize(&json!({})), &[]).await;
    assert!(text(&welcome).contains("serverInfo"), "{}", text(&welcome));
}

#[tokio::test]
async fn a_slow_call_becomes_a_stream_and_nothing_breaks() {
    let gateway = echo("").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    client.call_tool("sleep", json!({ "ms": 1500 })).await;
    client.call_tool("echo", json!({ "text": "after" })).await;
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[tokio::test]
async fn calls_under_way_are_answered_before_the_daemon_ends() {
    let gateway = echo("").serve().await;
    let mut calls = JoinSet::new();
    for _ in 0..6 {
        let client = gateway.connect("echo", Era::Legacy).await;
        calls.spawn(async move { client.try_tool("sleep", json!({ "ms": 2500 })).await.map(|_| ()) });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill(gateway.pid(), nix::sys::signal::Signal::SIGTERM);
    while let Some(answered) = calls.join_next().await {
        answered.expect("no call panics").expect("every call is answered");
    }
}

#[tokio::test]
async fn a_head_behind_another_request_is_looked_at_too() {
    let gateway = echo("").serve().await;
    let address = gateway.address().to_owned();
    let first = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for second in [
        format!(
            "POST /mcp/echo HTTP/1.1\r\nHost: {address}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        format!("GET /healthz HTTP/1.1\nHost: {address}\n\n"),
    ] {
        let (answers, closed) = raw_http(&address, format!("{first}{second}").as_bytes(), SOON).await;
        // Both come in one read, so the first may be refused with the second; the second never passes.
        assert!(answers.contains("HTTP/1.1 400") && closed, "{answers}");
        assert!(answers.matches("HTTP/1.1 200").count() <= 1, "{answers}");
    }
}

#[tokio::test]
async fn a_call_is_not_told_what_belongs_to_another_call_of_the_same_principal() {
    let gateway = echo("").serve().await;
    let mut callers = JoinSet::new();
    for name in ["ann", "bob", "cid", "dee"] {
        let client = gateway.connect("echo", Era::Modern).await;
        callers.spawn(async move {
            for _ in 0..200 {
                client.call_tool("log", json!({ "level": "info", "text": name })).await;
            }
            // Where it is not known whose a message is, nobody may get it; where it is, its own caller may.
            while let Some(told) =
                client.notification("notifications/message", Duration::from_millis(100)).await
            {
                assert!(told.to_string().contains(name), "{name} was told what is not {name}'s: {told}");
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.expect("nobody was told of others");
    }
}
