//! What our OpenCode plugin seals into a call: opened once, for its tool, and never seen by a server.

use callsign::identification::now_ms;
use identity::seal::{Payload, SealKey, seal, tool_name};
use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, text};
use testkit::harness::{Files, descendants, wait_until};

use crate::support::{SOON, log_file, messages, named, setup, told};

/// 32 bytes in base64url.
const KEY: &str = "c2VhbC1rZXktb2YtdGhlLXRlc3RzLTMyLWJ5dGVzISE";
const OTHER_KEY: &str = "YW5vdGhlci1rZXktb2YtdGhlLXRlc3RzLTMyLWJ5dGU";

async fn wrapped(arguments: &[&str], command: &[&str]) -> (Client, Files) {
    let (client, files) = setup().env("CALLSIGN_SEAL_KEY", KEY).wrap(Era::Legacy, arguments, command);
    client.connect_with(named("opencode")).await.expect("connected");
    (client, files)
}

fn payload(session: &str, tool: &str, nonce: &str) -> Payload {
    Payload {
        session: session.to_owned(),
        call: Some(format!("call-{nonce}")),
        title: Some("Fix the ✈ tests".to_owned()),
        tool: tool_name("echo-server", tool),
        at: now_ms(),
        nonce: format!("nonce-of-the-tests-{nonce}"),
        ..Payload::default()
    }
}

fn sealed(key: &str, payload: &Payload) -> String {
    seal(&SealKey::parse(key).expect("a key"), payload).expect("a seal")
}

async fn whoami(client: &Client, seal: &str) -> Value {
    let arguments = json!({ "prefix": "", "__callsign": seal });
    let params = json!({ "name": "whoami", "arguments": arguments });
    let result = client.request("tools/call", params).await.expect("carried, sealed or not");
    serde_json::from_str(&text(&result)).expect("whoami")
}

/// Waits for a line of the log that says why something was taken out.
async fn said(client: &Client, why: &str) {
    let there = || client.stderr().lines().any(|line| line.contains("WARN") && line.contains(why));
    assert!(wait_until(SOON, there).await, "{why}:\n{}", client.stderr());
}

#[tokio::test]
async fn a_seal_says_who_calls_and_goes_no_further() {
    let (_directory, log) = log_file();
    let (client, _files) = wrapped(&[], &[&bin("echo-server"), "--log", &log]).await;
    let root = whoami(&client, &sealed(KEY, &payload("ses_root", "whoami", "1"))).await;
    let expected = json!({
        "host": "opencode", "session": "ses_root", "thread": "ses_root", "call": "call-1",
        "title": "Fix the ✈ tests", "server": "echo-server", "tool": "whoami", "trust": "host", "source": "seal",
    });
    assert_eq!(*told(&root), expected);
    assert_eq!(root["env"]["OPENCODE_SESSION_ID"], "ses_root");
    assert_eq!(root["env"]["OPENCODE_SESSION_TITLE"], "Fix the ✈ tests");
    let child = Payload {
        parent: Some("ses_parent".to_owned()),
        root: Some("ses_root".to_owned()),
        ..payload("ses_child", "whoami", "2")
    };
    let child = whoami(&client, &sealed(KEY, &child)).await;
    let said = told(&child);
    assert_eq!((&said["session"], &said["thread"]), (&json!("ses_root"), &json!("ses_child")));
    assert_eq!(said["parent"], "ses_parent");
    assert_eq!(child["env"]["OPENCODE_SESSION_ID"], "ses_child");
    assert_ne!(child["pid"], root["pid"]);
    for call in messages(log.as_ref(), "tools/call") {
        assert_eq!(call["params"]["arguments"], json!({ "prefix": "" }), "only what the model wrote");
    }
    let seen = std::fs::read_to_string(&log).expect("a log");
    assert!(!seen.contains("__callsign") && !seen.contains("v1."), "{seen}");
    assert!(!client.stderr().contains("WARN"), "{}", client.stderr());
}

#[tokio::test]
async fn a_seal_that_does_not_count_is_taken_out_recorded_and_worth_nothing() {
    let (_directory, log) = log_file();
    let (client, _files) = wrapped(&[], &[&bin("echo-server"), "--log", &log]).await;
    let good = sealed(KEY, &payload("ses_a", "whoami", "1"));
    assert_eq!(told(&whoami(&client, &good).await)["thread"], "ses_a");
    let for_echo = sealed(KEY, &payload("ses_a", "echo", "2"));
    let old = Payload { at: now_ms() - 25 * 60 * 60 * 1000, ..payload("ses_a", "whoami", "3") };
    let early = Payload { at: now_ms() + 60_000, ..payload("ses_a", "whoami", "4") };
    let elsewhere = Payload { tool: tool_name("other", "whoami"), ..payload("ses_a", "whoami", "5") };
    let rows = [
        (good, "it was used before"),
        (for_echo.clone(), "it was made for another tool"),
        (sealed(KEY, &elsewhere), "it was made for another tool"),
        (sealed(OTHER_KEY, &payload("ses_a", "whoami", "6")), "its authentication code is wrong"),
        (sealed(KEY, &old), "it is too old"),
        (sealed(KEY, &early), "it is from the future"),
        ("v1.e30.AAAA".to_owned(), "its authentication code is wrong"),
        ("garbage".to_owned(), "it is no seal"),
        (String::new(), "it is no seal"),
    ];
    for (seal, why) in rows {
        let whoami = whoami(&client, &seal).await;
        assert_eq!(told(&whoami)["trust"], "none", "{why}: {whoami}");
        assert!(told(&whoami).get("session").is_none() && told(&whoami).get("thread").is_none());
        said(&client, why).await;
    }
    // Refused at the wrong tool, it still opens at its own.
    let arguments = json!({ "text": "x", "__callsign": for_echo });
    assert!(client.try_tool("echo", arguments).await.is_ok());
    let calls = messages(log.as_ref(), "tools/call");
    let last = calls.last().expect("a call");
    assert_eq!(last["params"]["_meta"]["dev.callsign/identity"]["thread"], "ses_a");
    let seen = std::fs::read_to_string(&log).expect("a log");
    assert!(!seen.contains("__callsign"), "{seen}");
}

#[tokio::test]
async fn without_a_key_no_seal_opens() {
    let (client, _files) = setup().wrap(Era::Legacy, &[], &[&bin("echo-server")]);
    client.connect_with(named("opencode")).await.expect("connected");
    let whoami = whoami(&client, &sealed(KEY, &payload("ses_a", "whoami", "1"))).await;
    assert_eq!(told(&whoami)["trust"], "none");
    said(&client, "there is no key to open it with").await;
}

#[tokio::test]
async fn the_host_may_call_a_server_by_a_name_that_ours_cannot_be() {
    let (client, _files) =
        wrapped(&["--name", "my-server", "--entry", "My Server"], &[&bin("echo-server")]).await;
    let own = Payload { tool: "My_Server_whoami".to_owned(), ..payload("ses_a", "whoami", "1") };
    let whoami = whoami(&client, &sealed(KEY, &own)).await;
    assert_eq!((&told(&whoami)["thread"], &told(&whoami)["server"]), (&json!("ses_a"), &json!("my-server")));
}

#[tokio::test]
async fn the_key_is_nowhere_to_be_seen() {
    let setup = setup().env("CALLSIGN_SEAL_KEY", KEY).server(
        "host",
        &[&bin("echo-server")],
        "inherit_env = \"host\"",
    );
    for arguments in [&["--log", "trace"][..], &["--log", "trace", "--name", "host"]] {
        let (client, _files) = if arguments.len() == 2 {
            setup.wrap(Era::Legacy, arguments, &[&bin("echo-server")])
        } else {
            setup.wrap_named(Era::Legacy, "host", &arguments[..2])
        };
        client.connect_with(named("opencode")).await.expect("connected");
        let name = if arguments.len() == 2 { "echo-server" } else { "host" };
        let own = Payload { tool: tool_name(name, "whoami"), ..payload("ses_a", "whoami", "1") };
        let answer = whoami(&client, &sealed(KEY, &own)).await;
        assert_eq!(told(&answer)["thread"], "ses_a", "the key is in use");
        // The server's own environment, as it sees it and as it can print it.
        assert!(!answer.to_string().contains(KEY), "{answer}");
        let below = descendants(client.pid());
        assert!(below.len() >= 4, "spawner, supervisors, lobby, server: {below:?}");
        let mut looked_at = 0;
        for pid in below.into_iter().chain([client.pid()]) {
            for file in ["environ", "cmdline"] {
                // A test that does not run as root is refused, which is as good.
                let Ok(bytes) = std::fs::read(format!("/proc/{pid}/{file}")) else { continue };
                looked_at += 1;
                let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
                assert!(!found, "in /proc/{pid}/{file}");
            }
        }
        assert!(looked_at >= 5, "{looked_at}");
        assert!(!client.stderr().contains(KEY), "{}", client.stderr());
        // Nobody else of this user may look into the memory it is in.
        let owner = std::os::unix::fs::MetadataExt::uid(
            &std::fs::metadata(format!("/proc/{}/environ", client.pid())).expect("a process"),
        );
        assert_eq!(owner, 0, "undumpable: its files are root's");
    }
}
