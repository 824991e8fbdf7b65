//! Calls that nobody wants any more while a hook still thinks about them.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::Era;

use super::rig::{Side, Way, at_once, mine, one, sides};
use crate::support::call_as;

/// Takes its time before a call that says so.
const THINKS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    if (input.arguments?.text !== "slow") return
    for (const end = Date.now() + 300; Date.now() < end; );
  },
}
"#;

fn slow() -> Value {
    json!({ "name": "echo", "arguments": { "text": "slow" }, "_meta": mine("s-1") })
}

/// Calls once more, which comes after whatever came before, and gives what the server was asked.
async fn asked(way: &Way) -> Vec<String> {
    tokio::time::sleep(Duration::from_millis(450)).await;
    call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "next" })).await.expect("answered");
    let text = |call: &Value| call["params"]["arguments"]["text"].as_str().unwrap_or_default().to_owned();
    way.messages("tools/call").iter().map(text).collect()
}

#[tokio::test]
async fn a_call_that_is_cancelled_meanwhile_is_not_made() {
    let (_hooks, setup) = one(THINKS);
    let setup = setup.toml("timeout_ms = 2000");
    at_once(sides().map(|sides| {
        let setup = setup.clone();
        async move {
            let way = Way::open(sides, Era::Legacy, &setup, "").await;
            // From now on the hook is known to be slow, and runs beside.
            way.client.request("tools/call", slow()).await.expect("answered");
            let call = way.client.start("tools/call", slow()).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
            way.client.cancel(&call.id).await;
            assert_eq!(asked(&way).await, ["slow", "next"], "{}", way.name);
        }
    }))
    .await;
}

#[tokio::test]
async fn a_client_of_the_new_era_cancels_by_going_away() {
    let (_hooks, setup) = one(THINKS);
    let setup = setup.toml("timeout_ms = 2000");
    at_once(Side::BOTH.map(|back| {
        let setup = setup.clone();
        async move {
            let way = Way::open((Side::Http, back), Era::Modern, &setup, "").await;
            // From now on the hook is known to be slow, and runs beside.
            way.client.request("tools/call", slow()).await.expect("answered");
            let call = way.client.start("tools/call", slow()).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
            call.abandon();
            assert_eq!(asked(&way).await, ["slow", "next"], "{}", way.name);
        }
    }))
    .await;
}
