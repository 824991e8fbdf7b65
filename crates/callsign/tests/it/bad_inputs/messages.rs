//! Row 19: messages that are JSON and no JSON-RPC, or two things at once.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use testkit::bin;
use testkit::client::Era;
use testkit::harness::{Setup, Standing, wait_until};

use crate::support::{SOON, setup};

/// Each with a word that must never arrive behind us.
fn refused() -> Vec<(&'static str, String)> {
    let call = r#""params":{"name":"whoami","arguments":{"x":"SMUGGLED"}}"#;
    let one = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call",{call}}}"#);
    vec![
        (
            "the method twice",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call",{call}}}"#),
        ),
        (
            "the method twice, the other way round",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list",{call}}}"#),
        ),
        (
            "the method twice, once escaped",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","\u006dethod":"tools/call",{call}}}"#),
        ),
        ("the id twice", format!(r#"{{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call",{call}}}"#)),
        ("params twice", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{}},{call}}}"#)),
        ("a batch of 10,000", format!("[{}]", vec![one.as_str(); 10_000].join(","))),
        ("an empty batch", "[]".to_owned()),
        ("no id", format!(r#"{{"jsonrpc":"2.0","id":null,"method":"tools/call",{call}}}"#)),
        ("an endless id", format!(r#"{{"jsonrpc":"2.0","id":1e400,"method":"tools/call",{call}}}"#)),
        ("a list as id", format!(r#"{{"jsonrpc":"2.0","id":[1],"method":"tools/call",{call}}}"#)),
        ("an object as id", format!(r#"{{"jsonrpc":"2.0","id":{{}},"method":"tools/call",{call}}}"#)),
        ("a truth as id", format!(r#"{{"jsonrpc":"2.0","id":true,"method":"tools/call",{call}}}"#)),
        ("a number as method", format!(r#"{{"jsonrpc":"2.0","id":1,"method":7,{call}}}"#)),
        ("another version", format!(r#"{{"jsonrpc":"1.0","id":1,"method":"tools/call",{call}}}"#)),
        ("a text", "\"SMUGGLED\"".to_owned()),
        ("a number", "1".to_owned()),
    ]
}

fn logging() -> (Setup, tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let command =
        [bin("logging-server"), "--stdio".into(), "--log".into(), log.to_str().expect("UTF-8").into()];
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    (setup().server("log", &command, ""), directory, log)
}

fn arrived(log: &std::path::Path) -> bool {
    std::fs::read_to_string(log).unwrap_or_default().contains("SMUGGLED")
}

#[tokio::test]
async fn row_19_over_http() {
    let (setup, _directory, log) = logging();
    let gateway = setup.serve().await;
    let standing = Standing::before(&gateway).await;
    let session = gateway.connect("log", Era::Legacy).await;
    for (what, message) in refused() {
        let answer = session.raw().post(message, &[("mcp-protocol-version", "2025-11-25")]).await;
        assert_eq!(answer.json()["error"]["code"], -32600, "{what}: {} {}", answer.status, answer.text());
        assert!(matches!(answer.status, 200 | 400), "{what}: {}", answer.status);
    }
    let nonsense = session.raw().post("{nonsense", &[]).await;
    assert_eq!(nonsense.json()["error"]["code"], -32700, "{}", nonsense.text());
    session.call_tool("whoami", json!({ "x": "fine" })).await;
    assert!(!arrived(&log), "the server saw what was refused");
    session.end().await;
    drop(session);
    standing.after().await;
}

#[tokio::test]
async fn row_19_over_a_pipe() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let command = [&bin("logging-server"), "--stdio", "--log", log.to_str().expect("UTF-8")];
    let (client, _files) = setup().wrap(Era::Legacy, &[], &command);
    client.connect().await.expect("connected");
    for (what, message) in refused() {
        let before = client.strays().len();
        assert!(client.send_bytes(format!("{message}\n").as_bytes()).await, "{what}");
        assert!(wait_until(SOON, || client.strays().len() > before).await, "{what}: an error comes back");
        let answer = client.strays()[before].clone();
        assert_eq!(answer["error"]["code"], -32600, "{what}: {answer}");
    }
    client.call_tool("whoami", json!({ "x": "fine" })).await;
    assert!(!arrived(&log), "the server saw what was refused");
    assert_eq!(client.end().await, Some(0));
}

#[tokio::test]
async fn two_requests_with_one_id_do_not_share_an_answer() {
    let (setup, _directory, _log) = logging();
    let gateway = setup.serve().await;
    let standing = Standing::before(&gateway).await;
    let session = gateway.connect("log", Era::Legacy).await;
    let slow = json!({ "name": "sleep", "arguments": { "ms": 1000 } });
    let first = session.start_as(json!("same"), "tools/call", slow).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let second = r#"{"jsonrpc":"2.0","id":"same","method":"tools/call","params":{"name":"echo","arguments":{"text":"second"}}}"#;
    let second = session.raw().post(second, &[("mcp-protocol-version", "2025-11-25")]).await;
    assert_eq!(second.json()["error"]["code"], -32600, "an id in use is refused: {}", second.text());
    let answer = first.wait(SOON).await.expect("the first one is answered");
    assert_eq!(testkit::client::text(&answer), "ok");
    session.end().await;
    drop(session);
    standing.after().await;
}
