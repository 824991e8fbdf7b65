//! Who names a living thread does not reach its process by that alone.

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Http};
use testkit::harness::Gateway;

use crate::support::{CODEX, call_as, codex, name_of, named, setup, told, whoami_as};

/// Describes a host that can say who calls in two ways: its `_meta`, and a header.
const MINE: &str = r#"[hosts.mine]
thread = { meta = "mine/thread" }
session = { header = "x-mine-session" }
"#;

async fn gateway() -> Gateway {
    setup().toml(MINE).server("echo", &[&bin("echo-server")], "").serve().await
}

async fn connected(gateway: &Gateway, token: &str, extra: Value) -> Client {
    let client = Client::http(&gateway.mcp("echo"), Some(token), Era::Legacy);
    client.connect_with(extra).await.expect("connected");
    client
}

#[tokio::test]
async fn one_thread_of_one_principal_is_one_process_whichever_connection_it_calls_on() {
    let gateway = gateway().await;
    let one = connected(&gateway, &gateway.token, named(CODEX)).await;
    let two = connected(&gateway, &gateway.token, named(CODEX)).await;
    let modern = gateway.connect("echo", Era::Modern).await;
    let first = whoami_as(&one, &codex("thread")).await;
    assert_eq!(told(&first)["trust"], "host");
    for client in [&two, &modern, &one] {
        assert_eq!(whoami_as(client, &codex("thread")).await["pid"], first["pid"]);
    }
    // Who opened it may go: the others' thread goes on.
    one.end().await;
    assert_eq!(whoami_as(&two, &codex("thread")).await["pid"], first["pid"]);
}

#[tokio::test]
async fn another_principals_token_does_not_reach_a_thread_by_its_name() {
    let gateway = gateway().await;
    let (mallory_token, local) = (gateway.new_token("mallory").await, gateway.token.clone());
    let alice = connected(&gateway, &local, named(CODEX)).await;
    let own = whoami_as(&alice, &codex("thread")).await;
    let mallory = connected(&gateway, &mallory_token, named(CODEX)).await;
    let other = whoami_as(&mallory, &codex("thread")).await;
    assert_ne!(other["pid"], own["pid"]);
    // In the new era there is no session, so the token is all there is.
    let modern = Client::http(&gateway.mcp("echo"), Some(&mallory_token), Era::Modern);
    assert_eq!(whoami_as(&modern, &codex("thread")).await["pid"], other["pid"], "her own");
    let session = alice.raw().session().expect("a session");
    for stolen in [session.as_str(), "thread", "", &session.to_uppercase()] {
        let http = Http::new(&gateway.mcp("echo"), Some(&mallory_token));
        http.set_session(Some(stolen).filter(|stolen| !stolen.is_empty()));
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "whoami", "arguments": {}, "_meta": codex("thread") },
        });
        let answer = http.post(body.to_string(), &[("mcp-protocol-version", "2025-11-25")]).await;
        assert!(matches!(answer.status, 400 | 404), "{stolen:?}: {} {}", answer.status, answer.text());
        assert!(!answer.text().contains("pid"), "{}", answer.text());
    }
    assert_eq!(whoami_as(&alice, &codex("thread")).await["pid"], own["pid"], "alice noticed nothing");
}

#[tokio::test]
async fn a_declared_thread_is_not_the_thread_a_host_named() {
    let gateway = gateway().await;
    let host = connected(&gateway, &gateway.token, named(CODEX)).await;
    let own = whoami_as(&host, &codex("thread")).await;
    let mut extra = named(CODEX);
    extra["_meta"] = codex("thread");
    let declares = connected(&gateway, &gateway.token, extra).await;
    let declared = whoami_as(&declares, &json!({})).await;
    let told_of = told(&declared);
    assert_eq!((&told_of["thread"], &told_of["session"]), (&json!("thread"), &json!("thread")));
    assert_eq!((&told_of["trust"], &told_of["source"]), (&json!("declared"), &json!("initialize")));
    assert_ne!(declared["pid"], own["pid"]);
    // Once it is the call itself that says so, it is the host's word.
    assert_eq!(whoami_as(&declares, &codex("thread")).await["pid"], own["pid"]);
}

#[tokio::test]
async fn a_header_is_not_the_hosts_own_metadata() {
    let gateway = gateway().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let own = whoami_as(&client, &json!({ "mine/thread": "thread" })).await;
    assert_eq!(told(&own)["trust"], "host");
    let http = Http::new(&gateway.mcp("echo"), Some(&gateway.token)).with_header("X-Mine-Session", "thread");
    let by_header = Client::over(http, Era::Legacy);
    by_header.connect().await.expect("connected");
    let declared = whoami_as(&by_header, &json!({})).await;
    for field in ["host", "session", "thread"] {
        assert_eq!(told(&declared)[field], told(&own)[field], "{field}");
    }
    assert_eq!(
        (&told(&declared)["trust"], &told(&declared)["source"]),
        (&json!("declared"), &json!("header"))
    );
    assert_ne!(declared["pid"], own["pid"], "trust is part of who it is");
    assert!(declared["headers"].as_array().is_none_or(Vec::is_empty), "a pipe has none");
    // Twice with different values, a header says nothing.
    let twice = Http::new(&gateway.mcp("echo"), Some(&gateway.token))
        .with_header("X-Mine-Session", "thread")
        .with_header("X-Mine-Session", "other");
    let twice = Client::over(twice, Era::Legacy);
    twice.connect().await.expect("connected");
    assert_eq!(told(&whoami_as(&twice, &json!({})).await)["trust"], "none");
}

#[tokio::test]
async fn without_a_token_metadata_is_only_declared() {
    let setup = setup().toml("[serve]\nauth = \"none\"").server("echo", &[&bin("echo-server")], "");
    let gateway = setup.server("strict", &[&bin("echo-server")], "require = \"host\"").serve().await;
    let client = Client::http(&gateway.mcp("echo"), None, Era::Legacy);
    client.connect_with(named(CODEX)).await.expect("connected");
    let whoami = whoami_as(&client, &codex("thread")).await;
    assert_eq!((&told(&whoami)["trust"], &told(&whoami)["source"]), (&json!("declared"), &json!("meta")));
    assert_eq!(told(&whoami)["thread"], "thread");
    let strict = Client::http(&gateway.mcp("strict"), None, Era::Legacy);
    strict.connect_with(named(CODEX)).await.expect("connected");
    let failure = call_as(&strict, &codex("thread"), "whoami", json!({})).await.expect_err("not enough");
    assert_eq!(name_of(&failure), "identity_required", "{failure:?}");
}

#[tokio::test]
async fn a_session_of_the_transport_is_no_session() {
    let gateway = gateway().await;
    let client = connected(&gateway, &gateway.token, named(CODEX)).await;
    let whoami = whoami_as(&client, &json!({})).await;
    assert_eq!(told(&whoami)["trust"], "none", "{whoami}");
    let session = client.raw().session().expect("a session");
    assert!(!whoami.to_string().contains(&session), "{whoami}");
}
