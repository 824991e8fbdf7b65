//! What hooks make of arguments, and what they leave as it was written.

use serde_json::{Value, json};
use testkit::client::Era;

use super::rig::{Side, Stopped, Way, mine, one, stopped};
use crate::support::call_as;

fn arguments(message: &Value) -> &Value {
    &message["params"]["arguments"]
}

const EDITS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.arguments.added = { deep: ["ü", null, 1e21] }
    output.arguments.over += "!"
    output.arguments.list.push(3)
    output.arguments.null = null
    output.arguments.undefined = undefined
    output.arguments.never = undefined
    delete output.arguments.delete
    if ("changed" in input.arguments) throw new Error("the input is not the output")
  },
}
"#;

#[tokio::test]
async fn members_are_set_overridden_and_removed() {
    let (_hooks, setup) = one(EDITS);
    for way in Way::all(&setup).await {
        let given = json!({
            "text": "x", "over": "a", "null": 1, "undefined": 1, "delete": 1, "list": [1, 2], "own": null,
        });
        let expected = json!({
            "text": "x", "over": "a!", "list": [1, 2, 3], "own": null,
            "added": { "deep": ["ü", null, 1e21] },
        });
        for (method, name) in [("tools/call", "echo"), ("prompts/get", "greet")] {
            let params = json!({ "name": name, "arguments": given });
            way.client.request(method, params).await.expect("answered");
            assert_eq!(*arguments(&way.last(method)), expected, "{}: {method}", way.name);
        }
    }
}

const REPLACES: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.arguments = { text: "replaced", was: Object.keys(output.arguments) }
  },
}
"#;

#[tokio::test]
async fn arguments_are_replaced_and_put_where_there_were_none() {
    let (_hooks, setup) = one(REPLACES);
    let rows = [
        (r#"{"name":"echo","arguments":{"a":1,"b":2}}"#, json!(["a", "b"])),
        (r#"{"arguments":{},"name":"echo"}"#, json!([])),
        (r#"{"name":"echo"}"#, json!([])),
        (r#"{ "name" : "echo" , "_meta" : { "x" : 1 } }"#, json!([])),
    ];
    for way in Way::of(Era::Legacy, &setup).await {
        for (number, (params, was)) in rows.iter().enumerate() {
            let id = format!("r-{number}");
            let request =
                format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{params}}}"#);
            let answer = way.raw(&id, &request).await;
            assert_eq!(
                answer["result"]["content"][0]["text"], "replaced",
                "{}: {params}: {answer}",
                way.name
            );
            let expected = json!({ "text": "replaced", "was": was });
            assert_eq!(*arguments(&way.last("tools/call")), expected, "{}: {params}", way.name);
        }
    }
}

/// Numbers that no JavaScript keeps, white space, escapes, and an order.
const BYTES: &str = "{ \"big\" : 12345678901234567890,\t\"huge\":1e400 ,  \"list\" : [ 1 ,  2.0,-0 ], \
                     \"\\u0062\":\"\\u00fc\\/\", \"text\":\"x\", \"exact\":0.1000 }";

fn call(id: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{{"name":"echo","arguments":{BYTES},"_meta":{meta}}}}}"#
    )
}

#[tokio::test]
async fn what_a_hook_only_looks_at_arrives_byte_for_byte() {
    let (_hooks, setup) = one(r#"export default {
  "mcp.call.before": (input, output) => {
    JSON.stringify([input, output.arguments, output.meta, output.headers])
    output.arguments.text = "other"
    output.arguments.text = "x"
    output.arguments = { ...output.arguments }
  },
  "mcp.call.after": (input, output) => { JSON.stringify([input, output]) },
}
"#);
    let meta = r#"{ "n" : 98765432109876543210 ,"e":1E-400,  "s":"\u0041" }"#;
    for way in Way::of(Era::Legacy, &setup).await {
        let answer = way.raw("r-1", &call("r-1", meta)).await;
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{}: {answer}", way.name);
        let raw = way.bytes("tools/call");
        assert!(raw.contains(&format!(r#""arguments":{BYTES}"#)), "{}: {raw}", way.name);
        assert!(raw.contains(meta.trim_matches(['{', '}'])), "{}: {raw}", way.name);
    }
}

#[tokio::test]
async fn members_beside_one_that_is_changed_keep_their_bytes() {
    let (_hooks, setup) = one(r#"export default {
  "mcp.call.before": (input, output) => {
    output.arguments.text = "other"
    output.meta.new = 1
  },
}
"#);
    let meta = r#"{ "n" : 98765432109876543210 ,"e":1E-400,"l":[ 1 , 2.0 ] }"#;
    for way in Way::of(Era::Legacy, &setup).await {
        let answer = way.raw("r-1", &call("r-1", meta)).await;
        assert_eq!(answer["result"]["content"][0]["text"], "other", "{}: {answer}", way.name);
        let raw = way.bytes("tools/call");
        let kept = [
            "12345678901234567890",
            "1e400",
            "[ 1 ,  2.0,-0 ]",
            r#""\u00fc\/""#,
            "0.1000",
            "98765432109876543210",
            "1E-400",
            "[ 1 , 2.0 ]",
        ];
        for bytes in kept {
            assert_eq!(raw.matches(bytes).count(), 1, "{}: {bytes} in {raw}", way.name);
        }
    }
}

#[tokio::test]
async fn a_method_without_arguments_gets_none() {
    let (hooks, setup) = one(r#"export default {
  "mcp.call.before": (input, output) => {
    if (output.arguments !== undefined && input.method !== "tools/call") throw new Error("there are some")

    output.arguments = { limit: 1 }
  },
}
"#);
    for way in Way::all(&setup).await {
        let rows = [("tools/list", json!({})), ("resources/read", json!({ "uri": "test://static" }))];
        for (method, params) in rows {
            let answer = way.client.request(method, params).await;
            stopped(answer, Stopped::Refused, &[&hooks.at("hook.js", 5), "takes no arguments"]);
            assert_eq!(way.messages(method).len(), 0, "{}: {method} was not asked", way.name);
        }
        call_as(&way.client, &mine("s-1"), "echo", json!({})).await.expect("a call has them");
        assert_eq!(*arguments(&way.last("tools/call")), json!({ "limit": 1 }), "{}", way.name);
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_refuse_the_call() {
    let (hooks, setup) = one(r#"export default {
  "mcp.call.before": (input, output) => { output.arguments = input.arguments.value },
}
"#);
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, "").await;
    for value in [json!("text"), json!([1]), json!(7), json!(true)] {
        let answer = call_as(&way.client, &mine("s-1"), "echo", json!({ "value": value })).await;
        stopped(answer, Stopped::Refused, &[&hooks.at("hook.js", 2), "must be an object"]);
    }
    assert_eq!(way.messages("tools/call").len(), 0);
    // Left out altogether is no object either, and is what the protocol allows.
    call_as(&way.client, &mine("s-1"), "echo", json!({ "value": null })).await.expect("answered");
    let left = arguments(&way.last("tools/call")).clone();
    assert!(left.is_null() || left == json!({}), "{left}");
}
