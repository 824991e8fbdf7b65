//! Calls that nobody asks for an answer to: without an id there is no request, and no hook would see it.

use serde_json::json;
use testkit::client::Era;

use super::rig::{Way, mine, one, sides};
use crate::support::call_as;

const DENIES: &str = "export default { \"mcp.call.before\": (input) => { if (input.arguments?.text === \"no\") throw new Error(\"denied\") } }\n";

#[tokio::test]
async fn a_call_without_an_id_reaches_no_server() {
    let (_hooks, setup) = one(DENIES);
    for sides in sides() {
        for era in [Era::Legacy, Era::Modern] {
            let way = Way::open(sides, era, &setup, "").await;
            let params = json!({ "name": "echo", "arguments": { "text": "no" }, "_meta": mine("s-1") });
            way.client.notify("tools/call", params).await;
            call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "yes" })).await.expect("answered");
            let asked = way.messages("tools/call");
            assert_eq!(asked.len(), 1, "{}: {asked:?}", way.name);
        }
    }
}
