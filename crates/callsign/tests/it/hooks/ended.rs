//! What a hook is told of how a call ended.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Failure, text};

use super::rig::{LANE, Played, Side, Stopped, Way, at_once, mine, one, sides, stopped};
use super::scripted::{Scripted, greet};
use crate::support::{call_as, name_of};

/// Logs what it is told, in JSON.
const TELLS: &str = r#"export default {
  "mcp.call.after": (input, output) => {
    const { tool, ok, error, durationMs } = input
    console.log("ended " + JSON.stringify({ tool, ok, error, durationMs, has: output.result !== undefined }))
  },
}
"#;

/// What the hook was told, of this tool, in order.
fn told(log: &str, tool: &str) -> Vec<Value> {
    let all = log.lines().filter_map(|line| line.split_once("ended "));
    let first =
        |(_, rest): (&str, &str)| serde_json::Deserializer::from_str(rest).into_iter::<Value>().next()?.ok();
    all.filter_map(first).filter(|ended| ended["tool"] == tool).collect()
}

#[track_caller]
fn check(log: &str, tool: &str, (ok, has): (bool, bool), error: Option<&str>, at_least: Duration) {
    let ended = told(log, tool);
    assert_eq!(ended.len(), 1, "{tool}: once: {ended:?}\n{log}");
    let ended = &ended[0];
    assert_eq!((&ended["ok"], &ended["has"]), (&json!(ok), &json!(has)), "{tool}: {ended}");
    let said = ended["error"].as_str();
    assert_eq!(said.is_some(), error.is_some(), "{tool}: {ended}");
    assert!(error.is_none_or(|error| said.is_some_and(|said| said.contains(error))), "{tool}: {ended}");
    let took = ended["durationMs"].as_f64().unwrap_or(-1.0);
    let least = at_least.as_secs_f64() * 1000.0;
    assert!(took >= least && took < least + 4000.0, "{tool}: {ended}, at least {at_least:?}");
}

#[tokio::test]
async fn how_a_call_ended_is_told() {
    let (_hooks, setup) = one(TELLS);
    for front in Side::BOTH {
        for back in Side::BOTH {
            // The two eras take the same way here; half of it in each.
            let era = if front == back { Era::Legacy } else { Era::Modern };
            let way = Way::open((front, back), era, &setup, "").await;
            let call = |tool: &'static str, arguments: Value| {
                let client = &way.client;
                async move { call_as(client, &mine("s-1"), tool, arguments).await }
            };
            assert_eq!(text(&call("sleep", json!({ "ms": 120 })).await.expect("answered")), "ok");
            let unknown = call("no-such", json!({})).await.expect_err("an error");
            assert!(unknown.text().contains("no such tool"), "{}: as it came: {unknown:?}", way.name);
            let died = call("exit", json!({})).await.expect_err("it is gone");
            let expected = if back == Side::Pipe { "server_exited" } else { "server_unreachable" };
            assert_eq!(name_of(&died), expected, "{}: {died:?}", way.name);
            assert!(way.logged(|log| !told(log, "exit").is_empty()).await, "{}: {}", way.name, way.stderr());
            let log = way.stderr();
            check(&log, "sleep", (true, true), None, Duration::from_millis(120));
            check(&log, "no-such", (false, false), Some("no such tool"), Duration::ZERO);
            check(&log, "exit", (false, false), Some("lane"), Duration::ZERO);
        }
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_has_ended() {
    let (_hooks, setup) = one(TELLS);
    at_once(sides().map(|sides| {
        let setup = setup.clone();
        async move {
            let way = Way::open(sides, Era::Legacy, &setup, "timeout = \"1s\"").await;
            let late = call_as(&way.client, &mine("s-1"), "sleep", json!({ "ms": 20_000 })).await;
            let late = late.expect_err("too late");
            assert_eq!(name_of(&late), "timeout", "{}: {late:?}", way.name);
            assert!(way.logged(|log| !told(log, "sleep").is_empty()).await, "{}: {}", way.name, way.stderr());
            check(&way.stderr(), "sleep", (false, false), Some("lane"), Duration::from_secs(1));
        }
    }))
    .await;
}

const TOOL_ERROR: &str = "This tool intentionally returns an error for testing";

#[tokio::test]
async fn the_error_of_a_tool_is_told_and_is_a_result_all_the_same() {
    let (_hooks, setup) = one(TELLS);
    let server = Scripted::start(|request, reply| async move {
        let Some((request, reply)) = greet(request, reply).await else { return };
        let content = json!([{ "type": "image", "data": "", "mimeType": "image/png" }, { "type": "text", "text": TOOL_ERROR }]);
        reply.json(200, &request.answer(&json!({ "isError": true, "content": content }))).await;
    })
    .await;
    let gateway = setup
        .server("pipe", &[&bin("conformance-server"), "--stdio"], "")
        .url("http", &server.url(), "")
        .serve()
        .await;
    for (number, name) in ["pipe", "http"].into_iter().enumerate() {
        let client: Client = gateway.connect(name, Era::Legacy).await;
        let result = client.call_tool("test_error_handling", json!({})).await;
        assert!(result["isError"] == true && result.to_string().contains(TOOL_ERROR), "{name}: {result}");
        let ended = told(&gateway.log(), "test_error_handling");
        assert_eq!(ended.len(), number + 1, "{name}: {ended:?}");
        let ended = &ended[number];
        let (ok, error, has) = (&ended["ok"], &ended["error"], &ended["has"]);
        assert_eq!((ok, error, has), (&json!(false), &json!(TOOL_ERROR), &json!(true)), "{name}");
    }
}

/// A server that answers with a status and no JSON has failed, and its words may be secret too.
#[tokio::test]
async fn a_status_without_an_answer_is_the_end_of_a_call() {
    let (_hooks, setup) = one(TELLS);
    let mut wrong = Vec::new();
    for front in Side::BOTH {
        for era in Era::BOTH {
            let server = Scripted::start(|request, reply| async move {
                let Some((_, reply)) = greet(request, reply).await else { return };
                reply.whole(500, "content-type: text/plain\r\n", "the disk is full").await;
            })
            .await;
            let played = Played::open(front, era, &setup, &server.url()).await;
            let failed = call_as(&played.client, &mine("s-1"), "any", json!({})).await;
            let failed = failed.expect_err("it failed");
            assert!(failed.text().contains("500"), "{}: {failed:?}", played.name);
            let ended = told(&played.stderr(), "any");
            if ended.len() != 1 || ended[0]["ok"] != false {
                wrong.push(format!("{}: told {ended:?}, the client got {failed:?}", played.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What a hook throws after a failed call takes the place of the error.
#[tokio::test]
async fn an_error_can_be_withheld_but_not_made_a_result() {
    let (hooks, setup) = one(r#"export default {
  "mcp.call.after": (input, output) => {
    if (input.ok) return
    if (input.tool === "no-such") throw new Error("say nothing")
    output.result = { content: [] }
  },
}
"#);
    for way in Way::all(&setup).await {
        let withheld = call_as(&way.client, &mine("s-1"), "no-such", json!({})).await;
        let message = stopped(withheld, Stopped::Refused, &[&hooks.at("hook.js", 4), "say nothing"]);
        assert!(!message.contains("no such tool"), "{}: {message}", way.name);
        let made_up = call_as(&way.client, &mine("s-1"), "no-such-either", json!({})).await;
        stopped(made_up, Stopped::Refused, &[&hooks.at("hook.js", 5), "no result"]);
        let fine = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "x" })).await;
        assert_eq!(text(&fine.expect("answered")), "x", "{}", way.name);
    }
}

/// In the new era an error has a status of its own; a hook that looks on does not change it.
#[tokio::test]
async fn an_error_keeps_its_status_and_its_words() {
    let (_hooks, with) = one(TELLS);
    let without = crate::support::setup();
    for back in Side::BOTH {
        let mut answers = Vec::new();
        for setup in [&with, &without] {
            let way = Way::open((Side::Http, back), Era::Modern, setup, "").await;
            let meta = testkit::client::modern_meta();
            let params = json!({ "name": "no-such", "arguments": {}, "_meta": meta });
            let body = json!({ "jsonrpc": "2.0", "id": "r-1", "method": "tools/call", "params": params });
            let headers = [
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "no-such"),
            ];
            let answer = way.client.raw().post(body.to_string(), &headers).await;
            let kind = answer.header("content-type").map(str::to_owned);
            answers.push((answer.status, kind, answer.text()));
        }
        assert_eq!(answers[0], answers[1], "→ {back:?}");
    }
}

/// What is not there is an error of the gateway's own, and a hook is told of that too.
#[tokio::test]
async fn a_server_that_cannot_be_had_is_told() {
    let (_hooks, setup) = one(TELLS);
    let rows = [
        setup.clone().server(LANE, &["/no/such/program"], ""),
        setup.clone().url(LANE, "http://127.0.0.1:9/mcp", ""),
    ];
    for setup in rows {
        let gateway = setup.serve().await;
        let client = gateway.client(LANE, Era::Modern);
        let failed = call_as(&client, &mine("s-1"), "any", json!({})).await.expect_err("nobody is there");
        assert!(matches!(failed, Failure::Rpc(_)), "{failed:?}");
        let log = gateway.log();
        check(&log, "any", (false, false), Some("lane"), Duration::ZERO);
    }
}
