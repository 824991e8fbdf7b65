//! What is signed and what is mirrored in headers is what is sent.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::client::{Client, Era};

use super::rig::{Hooks, LANE, MINE, Played, Side, Way, one};
use super::scripted::{Scripted, greet};
use crate::support::{CODEX, call_as, codex, header, named, setup};

const PINS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.arguments.limit = 10
    output.arguments.text = "pinned"
    delete output.arguments.debug
  },
}
"#;

/// The arguments of a message, as they are written in it.
fn raw_arguments(message: &str) -> String {
    #[derive(Deserialize)]
    struct Call {
        params: Params,
    }
    #[derive(Deserialize)]
    struct Params {
        arguments: Box<RawValue>,
    }
    let call: Call = serde_json::from_str(message).expect("a call");
    call.params.arguments.get().to_owned()
}

#[tokio::test]
async fn the_assertion_is_over_the_arguments_that_arrived() {
    let (_hooks, setup) = one(PINS);
    for front in Side::BOTH {
        for back in Side::BOTH {
            let way = Way::start((front, back), Era::Legacy, &setup, "").await;
            way.connect(named(CODEX)).await;
            let asked =
                json!({ "text": "asked", "debug": true, "n": 12_345_678_901_234_567_890_u64, "z": [1.0] });
            call_as(&way.client, &codex("thread"), "echo", asked.clone()).await.expect("answered");
            let record = way.records("tools/call").pop().expect("it arrived");
            let raw = record["raw"].as_str().expect("UTF-8");
            let message: Value = serde_json::from_str(raw).expect("JSON");
            let token = &message["params"]["_meta"]["dev.callsign/assertion"];
            assert!(token.is_string(), "{}: it is signed: {message}", way.name);
            if back == Side::Http {
                assert_eq!(header(&record, "callsign-assertion"), [token], "{}", way.name);
            }
            let arrived = raw_arguments(raw);
            let expected =
                json!({ "text": "pinned", "limit": 10, "n": 12_345_678_901_234_567_890_u64, "z": [1.0] });
            assert_eq!(serde_json::from_str::<Value>(&arrived).expect("JSON"), expected, "{}", way.name);
            let question = |arguments: &str| {
                format!(r#"{{"token":{token},"audience":"{LANE}","arguments":{arguments}}}"#)
            };
            let questions = [question(&asked.to_string()), question(&arrived)].join("\n");
            let (code, answers, errors) = way.run_with(&["keys", "verify"], questions.as_bytes());
            assert_eq!(code, Some(0), "{}: {errors}", way.name);
            let answers: Vec<Value> =
                answers.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let no = json!({ "ok": false, "reason": "args_digest" });
            assert_eq!(answers, [no, json!({ "ok": true })], "{}", way.name);
        }
    }
}

/// A server whose `place` wants three arguments mirrored, and whose other tool wants none.
async fn mirroring() -> Scripted {
    let property = |header: &str| json!({ "type": "string", "x-mcp-header": header });
    let tools = json!([
        {
            "name": "place",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "region": property("Region"), "zone": property("Zone"), "debug": property("Debug"),
                    "limit": { "type": "integer", "x-mcp-header": "Limit" }, "text": { "type": "string" },
                },
            },
        },
        { "name": "plain", "inputSchema": { "type": "object" } },
    ]);
    Scripted::start(move |request, reply| {
        let tools = tools.clone();
        async move {
            let Some((request, reply)) = greet(request, reply).await else { return };
            let body = match request.method().as_str() {
                "tools/list" => request.answer(&json!({ "resultType": "complete", "tools": tools })),
                _ => request.text("ok"),
            };
            reply.json(200, &body).await;
        }
    })
    .await
}

/// The headers that mirror arguments, sorted.
fn mirrored(server: &Scripted) -> Vec<(String, String)> {
    let call = server.calls("tools/call").pop().expect("it arrived");
    let mut mirrored = call.headers;
    mirrored.retain(|(name, _)| name.starts_with("mcp-param-") || name == "mcp-name" || name == "mcp-method");
    mirrored.sort();
    mirrored
}

#[tokio::test]
async fn mirrored_headers_are_those_of_the_body_that_is_sent() {
    let hooks = Hooks::new(&[(
        "hook.js",
        r#"export default {
  "mcp.call.before": (input, output) => {
    if (input.tool !== "place") return
    output.arguments.region = "eu"
    output.arguments.zone = "Zürich"
    output.arguments.limit = 10
    delete output.arguments.debug
  },
}
"#,
    )]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
    for front in Side::BOTH {
        let server = mirroring().await;
        let played = Played::open(front, Era::Modern, &setup, &server.url()).await;
        // A client of the new era over HTTP mirrors what it sends itself.
        let own;
        let client: &Client = match front {
            Side::Pipe => &played.client,
            Side::Http => {
                own = played.with_headers(&[("mcp-param-region", "us"), ("mcp-param-debug", "yes")]);
                &own
            }
        };
        played.client.request("tools/list", json!({})).await.expect("a list");
        client.call_tool("place", json!({ "region": "us", "debug": "yes", "text": "x" })).await;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("mcp-method", "tools/call"),
            pair("mcp-name", "place"),
            pair("mcp-param-limit", "10"),
            pair("mcp-param-region", "eu"),
            pair("mcp-param-zone", "=?base64?WsO8cmljaA==?="),
        ];
        assert_eq!(mirrored(&server), expected, "{}", played.name);
        let body = server.calls("tools/call").pop().expect("it arrived").message();
        let expected = json!({ "region": "eu", "zone": "Zürich", "limit": 10, "text": "x" });
        assert_eq!(body["params"]["arguments"], expected, "{}", played.name);
        // What the hook leaves alone goes on as it came.
        played.client.call_tool("plain", json!({ "region": "us" })).await;
        assert_eq!(
            mirrored(&server),
            [pair("mcp-method", "tools/call"), pair("mcp-name", "plain")],
            "{}",
            played.name
        );
    }
}

/// A client that listed the tools through another daemon mirrors what its list asks for.
#[tokio::test]
async fn headers_that_mirror_what_no_hook_touched_stay_although_no_list_was_seen() {
    let hooks = Hooks::new(&[(
        "hook.js",
        "export default { \"mcp.call.before\": (input, output) => { output.arguments.text = \"other\" } }\n",
    )]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
    let server = mirroring().await;
    let played = Played::open(Side::Http, Era::Modern, &setup, &server.url()).await;
    let client = played.with_headers(&[("mcp-param-region", "us")]);
    client.call_tool("place", json!({ "region": "us", "text": "x" })).await;
    let body = server.calls("tools/call").pop().expect("it arrived").message();
    assert_eq!(body["params"]["arguments"], json!({ "region": "us", "text": "other" }));
    let region = mirrored(&server).into_iter().find(|(name, _)| name == "mcp-param-region");
    assert_eq!(region.map(|(_, value)| value).as_deref(), Some("us"));
}
