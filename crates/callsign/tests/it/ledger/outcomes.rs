//! How calls ended, on every way: one row each, with what its client saw.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::client::{Client, Era, Failure};

use super::rig::{Back, Front, House, KEYS, Way, at_once, call, mine, outcomes};
use crate::support::{name_of, setup};

/// Tools of the servers that a test plays, and how a call of theirs ends. The last one takes the server away.
fn endings(back: Back) -> Vec<(&'static str, &'static str)> {
    let mut endings =
        vec![("fine", "ok"), ("tool-error", "tool_error"), ("rpc-error", "failed"), ("large", "failed")];
    if back != Back::Pipe {
        endings.push(("status", "failed"));
    }
    if back == Back::Json || back == Back::Events {
        endings.push(("invalid", "failed"));
    }
    endings.push(("hang-up", "failed"));
    endings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_ending_on_every_way_is_one_row() {
    let house = Arc::new(House::open("max_message = \"1MiB\"").await);
    at_once(Way::all().into_iter().map(|way| each(Arc::clone(&house), way))).await;
    house.verifies();
}

async fn each(house: Arc<House>, way: Way) {
    let (mut client, name) = (house.client(way).await, way.name());
    let (wanted, mut told) = (endings(way.back), Vec::new());
    for (tool, outcome) in &wanted {
        let answer = call(&client, tool, mine(&name, &way.call(tool)), json!({ "for": name })).await;
        check_answer(&answer, outcome, &format!("{name}: {tool}"));
        if let Err(failure) = answer {
            told.push((*tool, name_of(&failure)));
            // A stream of HTTP+SSE does not outlive what is wrong with one answer.
            if way.back == Back::Old {
                house.ended(&["--call", &way.call(tool)], 1).await;
                client = house.client(way).await;
            }
        }
    }
    let rows = house.ended(&["--session", &name], wanted.len()).await;
    let wanted: Vec<(String, String)> =
        wanted.into_iter().map(|(tool, outcome)| (tool.to_owned(), outcome.to_owned())).collect();
    assert_eq!(outcomes(&rows), wanted, "{name}");
    for row in &rows {
        let tool = row["tool"].as_str().unwrap_or_default();
        assert_eq!(row["call"], way.call(tool), "{name}: {row}");
        assert_eq!(
            (&row["server"], &row["method"]),
            (&json!(way.back.server()), &json!("tools/call")),
            "{name}: {row}"
        );
        assert!(
            row["duration_ms"].as_f64().is_some_and(|took| (0.0..10_000.0).contains(&took)),
            "{name}: {row}"
        );
        assert_eq!(row["spoof"], json!([]), "{name}: {row}");
        assert_eq!(house.played.of(&way.call(tool)).len(), 1, "{name}: {tool} was asked once");
    }
    // A failure of ours is called what its client was told.
    for (tool, reason) in told.iter().filter(|(_, reason)| !reason.is_empty()) {
        let row = house.one(&way.call(tool));
        assert_eq!(row["reason"], *reason, "{name}: {tool}: {row}");
    }
    let row = house.one(&way.call("fine"));
    let size = row["result_size"].as_u64().unwrap_or_default();
    assert!((50..400).contains(&size), "{name}: the size of the result: {row}");
}

/// What the client got has to fit what will be written down.
#[track_caller]
fn check_answer(answer: &Result<Value, Failure>, outcome: &str, name: &str) {
    match (outcome, answer) {
        ("ok", Ok(result)) => assert!(result.get("isError").is_none(), "{name}: {result}"),
        ("tool_error", Ok(result)) => assert_eq!(result["isError"], true, "{name}: {result}"),
        ("failed", Err(failure)) => assert_ne!(failure, &Failure::Deadline, "{name}"),
        _ => panic!("{name}: {answer:?}"),
    }
}

/// Whether it is written down: what asks a server to do something is, what only looks around is not.
fn requests(era: Era) -> Vec<(&'static str, Value, bool)> {
    let complete =
        json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "a", "value": "" } });
    let mut requests = vec![
        ("tools/list", json!({}), false),
        ("tools/call", json!({ "name": "fine", "arguments": {} }), true),
        ("prompts/list", json!({}), false),
        ("prompts/get", json!({ "name": "greet" }), true),
        ("resources/list", json!({}), false),
        ("resources/templates/list", json!({}), false),
        ("resources/read", json!({ "uri": "test://static" }), true),
        ("completion/complete", complete, true),
        ("ping", json!({}), false),
        ("tasks/get", json!({ "taskId": "t" }), false),
        ("tasks/list", json!({}), false),
        ("vendor/do", json!({}), true),
    ];
    if era == Era::Legacy {
        requests.push(("logging/setLevel", json!({ "level": "info" }), false));
        requests.push(("resources/subscribe", json!({ "uri": "test://static" }), true));
    } else {
        requests.push(("server/discover", json!({}), false));
        requests.push(("subscriptions/listen", json!({ "notifications": {} }), false));
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_asks_a_server_to_do_something_is_written_down_and_nothing_else() {
    let house = Arc::new(House::open("").await);
    at_once(Way::all().into_iter().map(|way| asked(Arc::clone(&house), way))).await;
}

async fn asked(house: Arc<House>, way: Way) {
    let (client, name) = (house.client(way).await, way.name());
    let mut wanted = Vec::new();
    for (method, mut params, is_kept) in requests(way.era) {
        params["_meta"] = mine(&name, &way.call(method));
        // A process that only answers discovery may not know all of these; that is no matter here.
        drop(client.request(method, params).await);
        if is_kept {
            // What a request is about is what its server was told that it is about.
            let tool =
                house.played.of(&way.call(method)).first().map(|arrived| arrived.told()["tool"].clone());
            wanted.push((method.to_owned(), tool.unwrap_or_default()));
        }
    }
    client.notify("notifications/vendor", json!({})).await;
    let rows = house.ended(&["--session", &name], wanted.len()).await;
    let kept: Vec<(String, Value)> = rows
        .iter()
        .map(|row| (row["method"].as_str().unwrap_or_default().to_owned(), row["tool"].clone()))
        .collect();
    assert_eq!(kept, wanted, "{name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_has_exactly_these_keys() {
    let house = House::open("").await;
    let client = house.connect(Front::Serve, "pipe", Era::Modern).await;
    call(&client, "fine", mine("s", "c"), json!({})).await.expect("answered");
    house.ended(&[], 1).await;
    let printed = house.printed(&[]);
    let mut line = printed.lines().next().expect("a row");
    for key in KEYS {
        let at = line
            .find(&format!("\"{key}\":"))
            .unwrap_or_else(|| panic!("{key} is not in its place: {printed}"));
        line = &line[at..];
    }
    let row = &house.rows(&[])[0];
    assert_eq!(row.as_object().map(serde_json::Map::len), Some(KEYS.len()), "{row}");
    let at = row["at"].as_str().unwrap_or_default();
    assert!(
        at.len() == "2026-07-28T00:00:00.000Z".len() && at.ends_with('Z'),
        "RFC 3339 with milliseconds: {at}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_had_is_a_call_that_failed() {
    let setup = setup()
        .server("none", &["/no/such/program"], "")
        .url("nowhere", "http://127.0.0.1:9/mcp", "")
        .server("dies", &["sh", "-c", "exit 3"], "");
    let house = House::with(setup, "").await;
    for front in [Front::Wrap, Front::Serve] {
        for (server, reason) in
            [("none", "server_start_failed"), ("nowhere", "server_unreachable"), ("dies", "server_")]
        {
            let client: Client = match front {
                Front::Wrap => house.wrap(server, Era::Modern, &[]),
                Front::Serve => house.gateway.client(server, Era::Modern),
            };
            let name = format!("{front:?}-{server}");
            let failure =
                call(&client, "fine", mine(&name, &name), json!({})).await.expect_err("nobody is there");
            assert!(name_of(&failure).starts_with(reason), "{name}: {failure:?}");
            let rows = house.ended(&["--session", &name], 1).await;
            assert_eq!(outcomes(&rows), [("fine".to_owned(), "failed".to_owned())], "{name}");
            let row = house.one(&name);
            assert_eq!(row["reason"], name_of(&failure), "{name}: {row}");
        }
    }
}
