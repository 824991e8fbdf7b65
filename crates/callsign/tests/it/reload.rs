//! The configuration changes while the daemon runs.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::bin;
use testkit::client::{Client, Era};
use testkit::harness::{Gateway, wait_until};

use crate::support::{SOON, echo};

/// How long an edit may take to be seen.
const SEEN: Duration = Duration::from_secs(10);

/// Waits until a server answers, or until it does not any more.
async fn wait_for(gateway: &Gateway, server: &str, there: bool) -> Client {
    let start = Instant::now();
    loop {
        let client = gateway.client(server, Era::Legacy);
        if client.connect().await.is_ok() == there {
            return client;
        }
        assert!(start.elapsed() < SEEN, "{server} there: {}\n{}", !there, gateway.log());
        client.end().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn servers_come_and_go_and_the_others_notice_nothing() {
    let setup = echo("");
    let gateway = setup.serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let pid = client.whoami("X").await["pid"].clone();

    let more = setup.clone().server("new", &[&bin("echo-server"), "--new"], "");
    gateway.rewrite(&more.config());
    let new = wait_for(&gateway, "new", true).await;
    assert!(new.whoami("X").await["args"].to_string().contains("--new"));
    assert_eq!(client.whoami("X").await["pid"], pid, "an untouched server keeps its children");

    gateway.rewrite(&setup.config());
    wait_for(&gateway, "new", false).await;
    let gone = new.try_tool("echo", json!({ "text": "x" })).await;
    assert!(gone.is_err(), "its sessions are over: {gone:?}");
    assert_eq!(client.whoami("X").await["pid"], pid);
}

#[tokio::test]
async fn a_changed_server_is_started_anew() {
    let gateway = echo("env = { EDITION = \"1\" }").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    assert_eq!(client.whoami("EDITION").await["env"]["EDITION"], "1");
    gateway.rewrite(&echo("env = { EDITION = \"2\" }").config());
    let start = Instant::now();
    loop {
        let client = gateway.connect("echo", Era::Legacy).await;
        if client.whoami("EDITION").await["env"]["EDITION"] == "2" {
            break;
        }
        assert!(start.elapsed() < SEEN, "{}", gateway.log());
        client.end().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_broken_edit_keeps_the_old_configuration_and_says_so() {
    let setup = echo("");
    let mut gateway = setup.serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let pid = client.whoami("X").await["pid"].clone();
    let broken = [
        "[servers.echo\n".to_owned(),
        setup.config().replace("[servers.echo]", "[servers.echo]\nno_such_key_here = 1"),
        String::from_utf8_lossy(b"[servers.x]\ncommand = 7").into_owned(),
    ];
    for edit in broken {
        let before = gateway.log().len();
        gateway.rewrite(&edit);
        let said =
            wait_until(SEEN, || gateway.log().get(before..).is_some_and(|new| new.contains("callsign.toml")));
        assert!(said.await, "it says so: {edit}\n{}", gateway.log());
        assert!(gateway.is_running());
        assert_eq!(client.whoami("X").await["pid"], pid, "the old one holds");
        gateway.connect("echo", Era::Legacy).await.end().await;
    }
    assert!(gateway.log().contains("no_such_key_here"), "the mistake is named:\n{}", gateway.log());
    let more = setup.clone().server("new", &[&bin("echo-server")], "");
    gateway.rewrite(&more.config());
    wait_for(&gateway, "new", true).await;
}

#[tokio::test]
async fn a_call_in_progress_survives_an_edit_of_another_server() {
    let setup = echo("");
    let gateway = setup.serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let call = client.start("tools/call", json!({ "name": "sleep", "arguments": { "ms": 3000 } })).await;
    gateway.rewrite(&setup.clone().server("new", &[&bin("echo-server")], "").config());
    wait_for(&gateway, "new", true).await;
    assert!(call.wait(SOON * 2).await.is_ok());
}
