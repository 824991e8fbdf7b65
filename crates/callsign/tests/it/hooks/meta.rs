//! What hooks make of `_meta`, and which names in it, and in headers, are not theirs.

use serde_json::{Value, json};
use testkit::client::{Era, modern_meta};

use super::rig::{Side, Stopped, Way, mine, one, stopped};
use crate::support::{SOON, call_as};

/// `_meta` of a message as it arrived, less what is the protocol's and ours.
fn own(message: &Value) -> Value {
    let mut meta = message["params"]["_meta"].clone();
    if let Some(meta) = meta.as_object_mut() {
        meta.retain(|name, _| {
            !name.starts_with("dev.callsign/") && !name.starts_with("io.modelcontextprotocol/")
        });
        meta.remove("progressToken");
    }
    meta
}

const EDITS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    const { meta } = output
    meta["example.org/new"] = { deep: [1, null, "ü"] }
    meta["example.org/over"] = "b"
    meta["example.org/null"] = null
    meta["example.org/undefined"] = undefined
    meta["example.org/never"] = null
    delete meta["example.org/delete"]
  },
}
"#;

#[tokio::test]
async fn members_are_set_overridden_and_removed() {
    let (_hooks, setup) = one(EDITS);
    for way in Way::all(&setup).await {
        let given = json!({
            "example.org/over": "a", "example.org/null": 1, "example.org/undefined": 1, "example.org/delete": 1,
            "example.org/kept": { "a": [1, null] }, "example.org/own-null": null,
        });
        call_as(&way.client, &given, "echo", json!({ "text": "x" })).await.expect("answered");
        let expected = json!({
            "example.org/over": "b", "example.org/new": { "deep": [1, null, "ü"] },
            "example.org/kept": { "a": [1, null] }, "example.org/own-null": null,
        });
        let arrived = way.last("tools/call");
        assert_eq!(own(&arrived), expected, "{}", way.name);
        assert!(arrived["params"]["_meta"]["dev.callsign/identity"].is_object(), "{}: {arrived}", way.name);
        // Where there was none, too.
        for method in ["tools/list", "resources/list"] {
            way.client.request(method, json!({})).await.expect("answered");
        }
        let expected = json!({ "example.org/over": "b", "example.org/new": { "deep": [1, null, "ü"] } });
        assert_eq!(own(&way.last("tools/list")), expected, "{}", way.name);
        assert!(own(&way.last("resources/list")).get("example.org/new").is_none(), "{}", way.name);
    }
}

const REPLACES: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.meta = input.tool === "progress" ? { only: Object.keys(output.meta).sort() } : null
  },
}
"#;

#[tokio::test]
async fn the_whole_is_replaced_but_for_what_is_the_protocols() {
    let (_hooks, setup) = one(REPLACES);
    for way in Way::all(&setup).await {
        let meta = json!({ "mine/session": "s-1", "gone": 1, "progressToken": "t-1" });
        let params = json!({ "name": "progress", "arguments": { "steps": 1 }, "_meta": meta });
        way.client.request("tools/call", params).await.expect("answered");
        let progress = way.client.notification("notifications/progress", SOON).await;
        let token = progress.map(|progress| progress["params"]["progressToken"].clone());
        assert_eq!(token, Some(json!("t-1")), "{}: progress finds its way", way.name);
        let arrived = way.last("tools/call");
        assert_eq!(own(&arrived), json!({ "only": ["gone", "mine/session"] }), "{}", way.name);
        let params = json!({ "name": "echo", "arguments": { "text": "x" }, "_meta": meta });
        way.client.request("tools/call", params).await.expect("answered");
        let arrived = way.last("tools/call");
        assert_eq!(own(&arrived), json!({}), "{}", way.name);
        let told = &arrived["params"]["_meta"]["dev.callsign/identity"];
        assert_eq!(told["session"], "s-1", "{}: who calls was settled before", way.name);
        if way.client.era() == Era::Modern {
            for (name, value) in modern_meta().as_object().expect("an object") {
                assert_eq!(arrived["params"]["_meta"][name], *value, "{}: {name}", way.name);
            }
        }
    }
}

/// Sets what the call's arguments say.
const SETS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    const { part, name, value, inPlace } = input.arguments
    if (inPlace) output[part] = { ...output[part], [name]: value }
    else output[part][name] = value
  },
}
"#;

#[tokio::test]
async fn what_is_not_a_hooks_own_to_write_refuses_the_call() {
    let (hooks, setup) = one(SETS);
    let names = |part: &str, names: &[&str]| -> Vec<(String, String, Value)> {
        names.iter().map(|name| (part.to_owned(), (*name).to_owned(), json!("v"))).collect()
    };
    let mut rows = names(
        "headers",
        &[
            "Host",
            "content-LENGTH",
            "Content-Type",
            "Accept",
            "Connection",
            "Transfer-Encoding",
            "Upgrade",
            "TE",
            "Mcp-Session-Id",
            "mcp-name",
            "Mcp-Param-Region",
            "MCP-Protocol-Version",
            "Callsign-Session",
            "CALLSIGN_Assertion",
            "callsign-new",
            "a b",
            "",
        ],
    );
    rows.extend(names(
        "meta",
        &[
            "dev.callsign/identity",
            "DEV.callsign/assertion",
            "dev.callsign/new",
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol/new",
            "progressToken",
        ],
    ));
    rows.extend(names("arguments", &["__callsign"]));
    let values =
        [json!("a\r\nX-Evil: 1"), json!("a\nb"), json!("a\u{0}b"), json!(7), json!(["x"]), json!({})];
    rows.extend(values.map(|value| ("headers".to_owned(), "X-Own".to_owned(), value)));
    for sides in [(Side::Pipe, Side::Http), (Side::Http, Side::Pipe)] {
        let way = Way::open(sides, Era::Legacy, &setup, "").await;
        for (part, name, value) in &rows {
            // A part that is put in place is read when the hook is done; there is no line to name but the first.
            for (in_place, line) in [(false, 5), (true, 4)] {
                let arguments = json!({ "part": part, "name": name, "value": value, "inPlace": in_place });
                let answer = call_as(&way.client, &mine("s-1"), "echo", arguments).await;
                let is_json = part == "meta" || part == "arguments";
                let line = if is_json { 2 } else { line };
                stopped(answer, Stopped::Refused, &[&hooks.at("hook.js", line)]);
            }
        }
        assert_eq!(way.messages("tools/call").len(), 0, "{}: the server was not called", way.name);
        let fine = json!({ "part": "meta", "name": "example.org/x", "value": 1 });
        call_as(&way.client, &mine("s-1"), "echo", fine).await.expect("the next one goes");
        assert_eq!(way.last("tools/call")["params"]["_meta"]["example.org/x"], 1, "{}", way.name);
    }
}
