//! The tools are only worth something if they work without a gateway: client against server, directly.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, text};
use testkit::harness::{HttpServer, alive, kill, wait_until};

const SOON: Duration = Duration::from_secs(5);

/// The echo server on each wire in each era; the guard keeps the HTTP one alive.
fn all() -> Vec<(Client, Option<HttpServer>)> {
    let mut clients = Vec::new();
    for era in Era::BOTH {
        clients.push((Client::stdio(tokio::process::Command::new(bin("echo-server")), era), None));
        let server = HttpServer::start("echo-server", &["--stream"]);
        clients.push((Client::http(&server.url, None, era), Some(server)));
    }
    clients
}

#[tokio::test]
async fn the_echo_server_answers_on_each_wire_in_each_era() {
    for (client, server) in all() {
        let client = client.with_responder(|request| Some(json!({ "result": { "saw": request["method"] } })));
        let http = server.is_some();
        let what = format!("{client:?} http: {http}");
        client.connect().await.expect(&what);
        assert_eq!(client.tool_text("echo", json!({ "text": "ü\u{0}\n" })).await, "ü\u{0}\n", "{what}");
        let listed = client.request("tools/list", json!({})).await.expect(&what);
        assert_eq!(listed["tools"].as_array().map(Vec::len), Some(11), "{what}");

        let params =
            json!({ "name": "progress", "arguments": { "steps": 3 }, "_meta": { "progressToken": "t" } });
        client.request("tools/call", params).await.expect(&what);
        for step in 1..=3 {
            let progress = client.notification("notifications/progress", SOON).await.expect(&what);
            assert_eq!(progress["params"]["progress"], step, "{what}");
        }
        let asked = client.call_tool("ask", json!({ "method": "roots/list" })).await;
        match client.era() {
            Era::Legacy => assert_eq!(text(&asked), r#"{"saw":"roots/list"}"#, "{what}"),
            Era::Modern => assert_eq!(asked["inputRequests"]["q"]["method"], "roots/list", "{what}"),
        }
        let unknown = client.request("no/such", json!({})).await.expect_err(&what);
        assert_eq!(unknown.code(), Some(-32601), "{what}");
        client.end().await;
    }
}

#[tokio::test]
async fn changes_are_told_and_calls_are_cancelled() {
    for (client, server) in all() {
        let what = format!("{client:?} http: {}", server.is_some());
        client.connect().await.expect(&what);
        match client.era() {
            Era::Legacy => {
                if server.is_some() {
                    assert_eq!(client.open_stream().await, 200, "{what}");
                }
                client.request("resources/subscribe", json!({ "uri": "test://watched" })).await.expect(&what);
            }
            Era::Modern => {
                let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://watched"] });
                drop(client.start("subscriptions/listen", json!({ "notifications": wanted })).await);
                let acknowledged =
                    client.notification("notifications/subscriptions/acknowledged", SOON).await;
                assert!(acknowledged.is_some(), "{what}");
            }
        }
        client.call_tool("touch", json!({ "uri": "test://watched" })).await;
        assert!(client.notification("notifications/resources/updated", SOON).await.is_some(), "{what}");
        client.call_tool("grow", json!({})).await;
        assert!(client.notification("notifications/tools/list_changed", SOON).await.is_some(), "{what}");

        let call =
            client.start("tools/call", json!({ "name": "sleep", "arguments": { "ms": 20_000 } })).await;
        // The server has it once it answers a later one.
        client.call_tool("echo", json!({ "text": "" })).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let id = call.id.clone();
        if client.era() == Era::Modern && server.is_some() {
            call.abandon();
        } else {
            client.cancel(&id).await;
        }
        let mut seen = Value::Null;
        for _ in 0..100 {
            seen = client.whoami("CALLSIGN_").await["cancelled"].clone();
            if seen == json!([id.to_string()]) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(seen, json!([id.to_string()]), "{what}");
    }
}

#[tokio::test]
async fn an_orphan_outlives_its_server() {
    let client = Client::stdio(tokio::process::Command::new(bin("echo-server")), Era::Legacy);
    let orphan: u32 = client.tool_text("spawn_orphan", json!({})).await.parse().expect("a pid");
    assert_eq!(client.end().await, Some(0));
    assert!(alive(orphan), "double-forked, so still there");
    kill(orphan, nix::sys::signal::Signal::SIGKILL);
    assert!(wait_until(SOON, || !alive(orphan)).await);
}

#[tokio::test]
async fn the_logging_server_keeps_every_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let mut command = tokio::process::Command::new(bin("logging-server"));
    command.arg("--log").arg(&log);
    let client = Client::stdio(command, Era::Legacy);
    let odd = b"{ \"jsonrpc\":\"2.0\" ,\"id\":1.50,\"method\":\"x/y\"}\r\n\xff\xfe\n";
    assert!(client.send_bytes(odd).await);
    assert!(wait_until(SOON, || testkit::record::read(&log).len() == 3).await);
    let records = testkit::record::read(&log);
    assert_eq!(records[0]["event"], "start");
    assert_eq!(testkit::record::bytes(&records[1]), odd[..odd.len() - 4]);
    assert_eq!(testkit::record::bytes(&records[2]), b"\xff\xfe");
}

#[tokio::test]
async fn hostile_modes_do_what_they_say() {
    let hostile = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(bin("hostile-server"));
        command.args(arguments);
        Client::stdio(command, Era::Legacy).with_deadline(SOON)
    };
    let strays = hostile(&["--mode", "stray-ids"]);
    assert_eq!(strays.tool_text("echo", json!({ "text": "x" })).await, "x");
    assert!(strays.strays().len() >= 6, "{:?}", strays.strays());

    let noise = hostile(&["--mode", "noise"]);
    assert_eq!(noise.tool_text("echo", json!({ "text": "x" })).await, "x");

    let crash = hostile(&["--mode", "crash-loop"]);
    assert!(crash.connect().await.is_err());
    assert_eq!(crash.end().await, Some(1));

    let flood = hostile(&["--mode", "progress-flood", "--seconds", "1"]);
    flood.call_tool("flood", json!({})).await;
    assert_eq!(flood.notifications().await.len(), 50_000);

    let deaf = hostile(&["--mode", "deaf"]);
    deaf.connect().await.expect("a deaf server initializes");
    kill(deaf.pid(), nix::sys::signal::Signal::SIGTERM);
    assert!(deaf.request("tools/list", json!({})).await.is_ok(), "SIGTERM changes nothing");

    let oauth = HttpServer::start("hostile-server", &["--mode", "oauth"]);
    let client = Client::http(&oauth.url, None, Era::Legacy);
    assert_eq!(client.raw().post("{}", &[]).await.status, 401);
}
