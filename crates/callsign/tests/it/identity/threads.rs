//! Threads that share a pipe have a process each, and what names nobody never runs as somebody.

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era};
use testkit::harness::Files;

use crate::support::{
    CODEX, assert_anonymous, call_as, codex, codex_subagent, named, read_as, setup, told, whoami_as,
};

/// Codex in front of the echo server.
async fn wrapped(era: Era) -> (Client, Files) {
    let (client, files) = setup().wrap(era, &[], &[&bin("echo-server")]);
    let extra = match era {
        Era::Legacy => named(CODEX),
        Era::Modern => json!({}),
    };
    client.connect_with(extra).await.expect("connected");
    (client, files)
}

#[track_caller]
fn has(whoami: &Value, expected: &[(&str, &str)], absent: &[&str]) {
    for (name, value) in expected {
        assert_eq!(whoami["env"][*name], *value, "{name} in {whoami}");
    }
    for name in absent {
        assert!(whoami["env"].get(*name).is_none(), "{name} in {whoami}");
    }
}

#[tokio::test]
async fn two_threads_on_one_pipe_have_a_process_each() {
    for era in Era::BOTH {
        let (client, _files) = wrapped(era).await;
        let one = whoami_as(&client, &codex("thread-one")).await;
        let two = whoami_as(&client, &codex("thread-two")).await;
        assert_ne!(one["pid"], two["pid"], "{era:?}");
        for (whoami, thread) in [(&one, "thread-one"), (&two, "thread-two")] {
            let variables = [
                ("CODEX_THREAD_ID", thread),
                ("CODEX_SESSION_ID", thread),
                ("CALLSIGN_HOST", "codex"),
                ("CALLSIGN_SESSION_ID", thread),
                ("CALLSIGN_THREAD_ID", thread),
            ];
            let absent =
                ["CALLSIGN_PARENT_ID", "CALLSIGN_SESSION_TITLE", "CALLSIGN_PROBE", "OPENCODE_SESSION_ID"];
            has(whoami, &variables, &absent);
            let expected = json!({
                "host": "codex", "session": thread, "thread": thread, "turn": format!("turn-of-{thread}"),
                "call": format!("call-of-{thread}"), "server": "echo-server", "tool": "whoami",
                "trust": "host", "source": "meta",
            });
            assert_eq!(*told(whoami), expected, "{era:?}");
            assert_eq!(whoami["meta"]["threadId"], thread, "the host's own keys stay: {whoami}");
        }
        for (thread, before) in [("thread-one", &one), ("thread-two", &two)] {
            assert_eq!(whoami_as(&client, &codex(thread)).await["pid"], before["pid"], "and keeps it");
        }
    }
}

#[tokio::test]
async fn a_subagent_is_a_thread_of_its_own_with_its_parent() {
    let (client, _files) = wrapped(Era::Legacy).await;
    let root = whoami_as(&client, &codex("root")).await;
    let agent = whoami_as(&client, &codex_subagent("agent", "root")).await;
    assert_ne!(root["pid"], agent["pid"]);
    has(
        &agent,
        &[
            ("CODEX_THREAD_ID", "agent"),
            ("CODEX_SESSION_ID", "root"),
            ("CALLSIGN_THREAD_ID", "agent"),
            ("CALLSIGN_SESSION_ID", "root"),
            ("CALLSIGN_PARENT_ID", "root"),
        ],
        &[],
    );
    let told = told(&agent);
    assert_eq!((&told["session"], &told["thread"]), (&json!("root"), &json!("agent")));
    assert_eq!(told["parent"], "root");
}

#[tokio::test]
async fn what_names_nobody_goes_to_the_only_thread_and_carries_no_identity() {
    let (client, _files) = wrapped(Era::Legacy).await;
    let before = read_as(&client, &json!({})).await.expect("a server that needs no identity");
    assert_anonymous(&before);
    let one = whoami_as(&client, &codex("thread-one")).await;
    assert_ne!(one["pid"], before["pid"]);
    for meta in [json!({}), json!({ "progressToken": 7 })] {
        let read = read_as(&client, &meta).await.expect("read");
        assert_eq!(read["pid"], one["pid"], "the only thread there is");
        assert_eq!(told(&read)["trust"], "none", "{read}");
        assert!(told(&read).get("thread").is_none() && told(&read).get("session").is_none(), "{read}");
        assert!(read["meta"].get("dev.callsign/assertion").is_none(), "nothing is signed for nobody");
    }
    let two = whoami_as(&client, &codex("thread-two")).await;
    let read = read_as(&client, &json!({})).await.expect("read");
    assert!(read["pid"] != one["pid"] && read["pid"] != two["pid"], "it may be either's: {read}");
    assert_anonymous(&read);
    let said = call_as(&client, &json!({}), "whoami", json!({ "prefix": "" })).await.expect("a call");
    let said: Value = serde_json::from_str(&testkit::client::text(&said)).expect("whoami");
    assert_anonymous(&said);
    assert_eq!(said["pid"], read["pid"], "one process for all that names nobody");
}

#[tokio::test]
async fn in_the_new_era_what_names_nobody_stands_alone() {
    let (client, _files) = wrapped(Era::Modern).await;
    let one = whoami_as(&client, &codex("thread-one")).await;
    let read = read_as(&client, &json!({})).await.expect("read");
    assert_ne!(read["pid"], one["pid"]);
    assert_anonymous(&read);
}
