//! Cancelling: a notification in the legacy era and on pipes, a closed stream in the modern era over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::{Call, Client, Era};

use crate::support::{Lane, SOON, echo};

/// A long call that the server has for sure.
async fn long_call(client: &Client) -> Call {
    let params = json!({ "name": "progress", "arguments": { "steps": 1000, "ms": 50 }, "_meta": { "progressToken": "long" } });
    let call = client.start("tools/call", params).await;
    client.notification("notifications/progress", SOON).await.expect("the call runs");
    call
}

/// How many calls the server saw cancelled, once it is that many or the time is up.
async fn cancelled(client: &Client, wanted: usize) -> usize {
    let mut seen = 0;
    for _ in 0..100 {
        seen = client.whoami("X").await["cancelled"].as_array().map_or(0, Vec::len);
        if seen >= wanted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen
}

#[tokio::test]
async fn a_cancel_reaches_the_server_and_only_that_call() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        let other = client.start("tools/call", json!({ "name": "sleep", "arguments": { "ms": 1500 } })).await;
        let call = long_call(client).await;
        let id = call.id.clone();
        if lane.http_client && lane.era() == Era::Modern {
            call.abandon();
        } else {
            client.cancel(&id).await;
        }
        assert_eq!(cancelled(client, 1).await, 1, "{name}: once");
        assert!(other.wait(SOON).await.is_ok(), "{name}: the other call goes on");
        client.notifications().await;
        client.call_tool("echo", json!({ "text": "x" })).await;
        assert_eq!(client.notifications().await, Vec::<Value>::new(), "{name}: no progress after the cancel");
    }
}

#[tokio::test]
async fn a_late_cancel_is_ignored() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        for round in 0..5 {
            let call =
                client.start("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } })).await;
            let id = call.id.clone();
            assert!(call.wait(SOON).await.is_ok(), "{name}");
            client.cancel(&id).await;
            client.cancel(&json!(format!("never-{round}"))).await;
        }
        let whoami = client.whoami("X").await;
        assert_eq!(whoami["cancelled"], json!([]), "{name}");
        assert_eq!(whoami["late_cancels"], json!([]), "{name}: the server is not bothered");
        assert_eq!(client.strays(), Vec::<Value>::new(), "{name}");
    }
}

#[tokio::test]
async fn leaving_is_no_cancel_in_the_legacy_era() {
    for lane in Lane::of(Era::Legacy, &[]).await.into_iter().filter(|lane| lane.http_client) {
        let (client, name) = (&lane.client, &lane.name);
        let params = json!({ "name": "progress", "arguments": { "steps": 20, "ms": 20 }, "_meta": { "progressToken": "t" } });
        let call = client.start("tools/call", params).await;
        client.notification("notifications/progress", SOON).await.expect(name);
        call.abandon();
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(client.whoami("X").await["cancelled"], json!([]), "{name}: it ran to its end");
    }
}

#[tokio::test]
async fn one_session_cannot_cancel_the_call_of_another() {
    for more in ["", "isolation = \"shared\""] {
        let gateway = echo(more).serve().await;
        let (one, two) =
            (gateway.connect("echo", Era::Legacy).await, gateway.connect("echo", Era::Legacy).await);
        let call = one.start("tools/call", json!({ "name": "sleep", "arguments": { "ms": 1000 } })).await;
        two.call_tool("echo", json!({ "text": "x" })).await;
        two.cancel(&call.id).await;
        // Nor by guessing the ids that the gateway uses behind.
        for guess in 0..32 {
            two.cancel(&json!(guess)).await;
        }
        assert!(call.wait(SOON).await.is_ok(), "{more}");
    }
}

#[tokio::test]
async fn the_end_of_a_modern_listen_is_told_to_the_server() {
    for lane in Lane::of(Era::Modern, &[]).await {
        let (client, name) = (&lane.client, &lane.name);
        let wanted = json!({ "toolsListChanged": true });
        let listen = client.start("subscriptions/listen", json!({ "notifications": wanted })).await;
        client.notification("notifications/subscriptions/acknowledged", SOON).await.expect(name);
        let id = listen.id.clone();
        if lane.http_client {
            listen.abandon();
        } else {
            client.cancel(&id).await;
        }
        assert_eq!(cancelled(client, 1).await, 1, "{name}");
        client.call_tool("grow", json!({})).await;
        assert_eq!(client.notifications().await, Vec::<Value>::new(), "{name}: nothing after the end");
    }
}
