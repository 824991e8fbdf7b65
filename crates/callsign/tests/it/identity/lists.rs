//! A thread's process may offer other tools than the lobby did: it then answers for itself.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era};

use crate::support::{CODEX, SOON, call_as, codex, named, setup};

const CHANGED: &str = "notifications/tools/list_changed";

async fn tools(client: &Client) -> Vec<String> {
    let listed = client.request("tools/list", json!({})).await.expect("a list");
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
}

fn grown(tools: &[String]) -> usize {
    tools.iter().filter(|name| name.starts_with("grown-")).count()
}

async fn grow(client: &Client, thread: &str) {
    let answer: Value = call_as(client, &codex(thread), "grow", json!({})).await.expect("it grows");
    assert_eq!(testkit::client::text(&answer), "ok");
}

#[tokio::test]
async fn the_process_that_differs_answers_the_next_list_and_the_client_is_told_once() {
    let (client, _files) = setup().wrap(Era::Legacy, &[], &[&bin("echo-server")]);
    client.connect_with(named(CODEX)).await.expect("connected");
    assert_eq!(grown(&tools(&client).await), 0, "the lobby's");
    grow(&client, "one").await;
    assert!(client.notification(CHANGED, SOON).await.is_some(), "the client is told");
    assert_eq!(grown(&tools(&client).await), 1, "by the process of thread one");
    // Two processes say so, one after the other and several times: until the client looks, that is one change.
    for thread in ["one", "two", "two", "one", "two"] {
        grow(&client, thread).await;
    }
    assert!(client.notification(CHANGED, SOON).await.is_some());
    assert!(client.notification(CHANGED, Duration::from_millis(300)).await.is_none(), "told once");
    assert_eq!(grown(&tools(&client).await), 3, "thread two spoke last");
    grow(&client, "one").await;
    assert!(client.notification(CHANGED, SOON).await.is_some(), "told again after it has looked");
    assert_eq!(grown(&tools(&client).await), 4, "one before, two meanwhile, one now");
}

#[tokio::test]
async fn one_clients_change_is_not_anothers() {
    let gateway = setup().server("echo", &[&bin("echo-server")], "").serve().await;
    let mut clients = Vec::new();
    for thread in ["one", "two"] {
        let client = gateway.client("echo", Era::Legacy);
        client.connect_with(named(CODEX)).await.expect("connected");
        assert_eq!(client.open_stream().await, 200);
        call_as(&client, &codex(thread), "echo", json!({})).await.expect("a call");
        clients.push(client);
    }
    grow(&clients[0], "one").await;
    assert!(clients[0].notification(CHANGED, SOON).await.is_some());
    assert!(clients[1].notification(CHANGED, Duration::from_millis(300)).await.is_none());
    assert_eq!([grown(&tools(&clients[0]).await), grown(&tools(&clients[1]).await)], [1, 0]);
}
