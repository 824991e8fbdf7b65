//! What a server says unasked.

use serde_json::{Value, json};
use testkit::client::Era;

use crate::support::{Lane, SOON};

#[tokio::test]
async fn progress_reaches_the_caller_with_its_own_token() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        for token in [json!("t-ü"), json!(7), json!(0), json!("7")] {
            let params = json!({ "name": "progress", "arguments": { "steps": 5, "ms": 1 }, "_meta": { "progressToken": token } });
            client.request("tools/call", params).await.expect(name);
            for step in 1..=5 {
                let progress = client.notification("notifications/progress", SOON).await.expect(name);
                let params = &progress["params"];
                assert_eq!(params["progressToken"], token, "{name}: {progress}");
                assert_eq!((&params["progress"], &params["total"]), (&json!(step), &json!(5)), "{name}");
            }
        }
        let plain = json!({ "name": "progress", "arguments": { "steps": 2 } });
        client.request("tools/call", plain).await.expect(name);
        assert_eq!(client.notifications().await, Vec::<Value>::new(), "{name}: no token, no progress");
    }
}

#[tokio::test]
async fn two_sessions_with_the_same_token_get_their_own_progress() {
    for more in ["", "isolation = \"shared\""] {
        let gateway = crate::support::echo(more).serve().await;
        let (one, two) =
            (gateway.connect("echo", Era::Legacy).await, gateway.connect("echo", Era::Legacy).await);
        let call = |steps: u64| json!({ "name": "progress", "arguments": { "steps": steps, "ms": 5 }, "_meta": { "progressToken": 1 } });
        let (first, second) =
            tokio::join!(one.request("tools/call", call(10)), two.request("tools/call", call(20)));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        for (session, steps) in [(&one, 10), (&two, 20)] {
            let all = session.notifications().await;
            assert_eq!(all.len(), steps, "{more}");
            assert!(all.iter().all(|progress| progress["params"]["total"] == steps), "{more}: {all:?}");
        }
    }
}

#[tokio::test]
async fn log_messages_arrive_and_the_level_is_handed_on() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        if lane.era() == Era::Legacy {
            client.request("logging/setLevel", json!({ "level": "debug" })).await.expect(name);
            assert_eq!(client.whoami("X").await["level"], "debug", "{name}");
        }
        client.call_tool("log", json!({ "level": "warning", "text": "careful" })).await;
        let message = client.notification("notifications/message", SOON).await.expect(name);
        let expected = json!({ "level": "warning", "logger": "echo", "data": "careful" });
        assert_eq!(message["params"], expected, "{name}");
    }
}

#[tokio::test]
async fn subscriptions_of_the_legacy_era() {
    for lane in Lane::of(Era::Legacy, &["--stream"]).await {
        let (client, name) = (&lane.client, &lane.name);
        if lane.http_client {
            assert_eq!(client.open_stream().await, 200, "{name}: a session has a stream");
        }
        client.call_tool("touch", json!({ "uri": "test://watched" })).await;
        client.request("resources/subscribe", json!({ "uri": "test://watched" })).await.expect(name);
        client.call_tool("touch", json!({ "uri": "test://other" })).await;
        client.call_tool("touch", json!({ "uri": "test://watched" })).await;
        let updated = client.notification("notifications/resources/updated", SOON).await.expect(name);
        assert_eq!(updated["params"], json!({ "uri": "test://watched" }), "{name}");
        client.request("resources/unsubscribe", json!({ "uri": "test://watched" })).await.expect(name);
        client.call_tool("touch", json!({ "uri": "test://watched" })).await;
        assert_eq!(
            client.notifications().await,
            Vec::<Value>::new(),
            "{name}: once, for the one that was wanted"
        );
    }
}

#[tokio::test]
async fn a_subscription_of_one_session_is_not_told_to_another() {
    for more in ["", "isolation = \"shared\""] {
        let gateway = crate::support::echo(more).serve().await;
        let (one, two) =
            (gateway.connect("echo", Era::Legacy).await, gateway.connect("echo", Era::Legacy).await);
        for session in [&one, &two] {
            assert_eq!(session.open_stream().await, 200);
        }
        one.request("resources/subscribe", json!({ "uri": "test://watched" })).await.expect("subscribed");
        one.call_tool("touch", json!({ "uri": "test://watched" })).await;
        assert!(one.notification("notifications/resources/updated", SOON).await.is_some(), "{more}");
        two.call_tool("echo", json!({ "text": "x" })).await;
        assert_eq!(two.notifications().await, Vec::<Value>::new(), "{more}");
    }
}

#[tokio::test]
async fn a_changed_list_is_told_once_and_can_be_seen() {
    for lane in Lane::of(Era::Legacy, &["--stream"]).await {
        let (client, name) = (&lane.client, &lane.name);
        if lane.http_client {
            assert_eq!(client.open_stream().await, 200, "{name}");
        }
        client.call_tool("grow", json!({})).await;
        assert!(client.notification("notifications/tools/list_changed", SOON).await.is_some(), "{name}");
        let tools = client.request("tools/list", json!({})).await.expect(name);
        let last = tools["tools"].as_array().and_then(|tools| tools.last()).cloned().unwrap_or_default();
        assert_eq!(last["name"], "grown-1", "{name}: the child that differs answers");
        assert_eq!(client.tool_text("grown-1", json!({})).await, "grown-1", "{name}");
        assert_eq!(
            client.notifications().await,
            Vec::<Value>::new(),
            "{name}: one notification per difference"
        );
    }
}

#[tokio::test]
async fn subscriptions_of_the_modern_era() {
    for lane in Lane::of(Era::Modern, &[]).await {
        let (client, name) = (&lane.client, &lane.name);
        let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://watched"] });
        let listen = client.start("subscriptions/listen", json!({ "notifications": wanted })).await;
        let of_listen = |message: &Value| {
            message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == listen.id
        };
        let acknowledged =
            client.notification("notifications/subscriptions/acknowledged", SOON).await.expect(name);
        assert!(of_listen(&acknowledged), "{name}: {acknowledged}, listening as {}", listen.id);
        assert_eq!(acknowledged["params"]["notifications"], wanted, "{name}");
        client.call_tool("touch", json!({ "uri": "test://watched" })).await;
        let updated = client.notification("notifications/resources/updated", SOON).await.expect(name);
        assert!(of_listen(&updated), "{name}: {updated}");
        assert_eq!(updated["params"]["uri"], "test://watched", "{name}");
        client.call_tool("grow", json!({})).await;
        let changed = client.notification("notifications/tools/list_changed", SOON).await.expect(name);
        assert!(of_listen(&changed), "{name}: {changed}");
        assert_eq!(client.notifications().await, Vec::<Value>::new(), "{name}");
        if !lane.http_client {
            // It was meant to stay open: nobody waits for it once the host is gone.
            let gone = std::time::Instant::now();
            assert_eq!(client.end().await, Some(0), "{name}");
            assert!(gone.elapsed() < SOON, "{name}: {:?}", gone.elapsed());
        }
    }
}

#[tokio::test]
async fn a_notification_of_a_vendor_arrives_with_every_field() {
    let line =
        r#"{"jsonrpc":"2.0","method":"notifications/vendor","params":{"a":1.50,"b":[null]},"x-vendor":true}"#;
    for lane in Lane::all(&[]).await {
        let name = &lane.name;
        lane.client.call_tool("raw", json!({ "json": line })).await;
        let seen = lane.client.notification("notifications/vendor", SOON).await.expect(name);
        let sent: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(seen, sent, "{name}");
    }
}
