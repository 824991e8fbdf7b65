//! Many sessions at once: no answer goes astray, and everything is gone afterwards.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::{Client, Era};
use testkit::harness::{Gateway, alive, descendants, fd_count, wait_until};
use tokio::task::JoinSet;

use crate::support::{echo, full};

fn size() -> (usize, usize) {
    if full() { (1000, 100) } else { (64, 50) }
}

#[tokio::test]
async fn a_child_each() {
    let (sessions, calls) = size();
    let gateway = Arc::new(echo("max_children = 4000").serve().await);
    let (before, fds) = (descendants(gateway.pid()).len(), gateway.descriptors_at_rest().await);
    let clients = many(&gateway, sessions, calls).await;
    let mut pids = HashSet::new();
    for client in &clients {
        pids.insert(client.whoami("X").await["pid"].as_u64().expect("a pid"));
    }
    assert_eq!(pids.len(), sessions, "a child for each session");
    for client in &clients {
        client.end().await;
    }
    drop(clients);
    let gone = wait_until(Duration::from_secs(10), || descendants(gateway.pid()).len() <= before).await;
    assert!(gone, "{} processes are left, {before} before", descendants(gateway.pid()).len());
    nothing_left_open(&gateway, fds).await;
}

/// Descriptors are back to the start. A few may be kept on purpose, a fixed number and none for a session.
async fn nothing_left_open(gateway: &Gateway, before: usize) {
    let back = wait_until(Duration::from_secs(10), || fd_count(gateway.pid()) <= before).await;
    assert!(back, "{} descriptors are open, {before} before", fd_count(gateway.pid()));
}

#[tokio::test]
async fn one_child_for_all() {
    let (sessions, calls) = size();
    let gateway = Arc::new(echo("isolation = \"shared\"").serve().await);
    // The one child is there for good; what it costs is not counted against the sessions.
    let first = gateway.connect("echo", Era::Legacy).await;
    first.call_tool("echo", json!({ "text": "x" })).await;
    first.end().await;
    drop(first);
    let fds = gateway.descriptors_at_rest().await;
    let clients = many(&gateway, sessions, calls).await;
    assert!(alive(gateway.pid()));
    for client in &clients {
        client.end().await;
    }
    drop(clients);
    nothing_left_open(&gateway, fds).await;
}

/// Opens sessions, all calling at once; every answer must be the caller's own.
async fn many(gateway: &Arc<Gateway>, sessions: usize, calls: usize) -> Vec<Client> {
    let mut tasks = JoinSet::new();
    for session in 0..sessions {
        let gateway = gateway.clone();
        tasks.spawn(async move {
            let client = gateway.client("echo", Era::Legacy).with_deadline(Duration::from_mins(2));
            client.connect().await.unwrap_or_else(|failure| panic!("session {session}: {failure:?}"));
            for call in 0..calls {
                let text = format!("session {session}, call {call}");
                assert_eq!(client.tool_text("echo", json!({ "text": text })).await, text, "misrouted");
            }
            assert_eq!(client.strays(), Vec::<Value>::new(), "session {session}");
            client
        });
    }
    let mut clients = Vec::new();
    while let Some(done) = tasks.join_next().await {
        clients.push(done.expect("no session failed"));
    }
    clients
}

#[tokio::test]
async fn sessions_that_come_and_go_leave_nothing_behind() {
    let rounds = if full() { 500 } else { 40 };
    let gateway = echo("").serve().await;
    let warm = gateway.connect("echo", Era::Legacy).await;
    warm.call_tool("echo", json!({ "text": "x" })).await;
    let (fds, memory) = (gateway.descriptors_at_rest().await, testkit::harness::rss(gateway.pid()));
    for round in 0..rounds {
        let client = gateway.connect("echo", Era::Legacy).await;
        let text = format!("round {round}");
        assert_eq!(client.tool_text("echo", json!({ "text": text })).await, text);
        client.end().await;
    }
    nothing_left_open(&gateway, fds).await;
    let growth = testkit::harness::rss(gateway.pid()).saturating_sub(memory);
    assert!(growth < 16 << 20, "memory leaks: {} KiB in {rounds} rounds", growth >> 10);
}
