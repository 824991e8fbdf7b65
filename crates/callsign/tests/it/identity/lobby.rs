//! A server that demands to know its thread at its start lists its tools before there is one.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Failure};

use crate::support::{
    CODEX, NIL, PROBE, call_as, codex, log_file, messages, name_of, named, read_as, setup, started_with,
    whoami_as,
};

const NEEDY: [&str; 2] = ["--require-env", "CODEX_THREAD_ID"];

async fn tools(client: &Client) -> usize {
    let listed = client.request("tools/list", json!({})).await.expect("discovery works");
    listed["tools"].as_array().map(Vec::len).unwrap_or_default()
}

#[track_caller]
fn refused(answer: Result<Value, Failure>) {
    let failure = answer.expect_err("nobody is named");
    assert_eq!(name_of(&failure), "identity_required", "{failure:?}");
}

#[tokio::test]
async fn a_server_that_needs_the_thread_shows_its_tools_under_codex_and_gets_the_right_one() {
    for era in Era::BOTH {
        let (_directory, log) = log_file();
        let program = bin("echo-server");
        let command = [program.as_str(), NEEDY[0], NEEDY[1], "--log", &log];
        let (client, _files) = setup().wrap(era, &["--host", "codex"], &command);
        client
            .connect_with(if era == Era::Legacy { named(CODEX) } else { json!({}) })
            .await
            .expect("connected");
        assert_eq!(tools(&client).await, 11, "{era:?}");
        let lobby = &started_with(Path::new(&log))[0];
        for (name, value) in [
            ("CALLSIGN_PROBE", "1"),
            ("CODEX_THREAD_ID", NIL),
            ("CODEX_SESSION_ID", NIL),
            ("CALLSIGN_THREAD_ID", PROBE),
            ("CALLSIGN_SESSION_ID", PROBE),
        ] {
            assert_eq!(lobby[name], value, "{era:?}: {name}");
        }
        refused(call_as(&client, &json!({}), "whoami", json!({})).await);
        refused(read_as(&client, &json!({})).await);
        for thread in ["thread-one", "thread-two"] {
            let whoami = whoami_as(&client, &codex(thread)).await;
            assert_eq!(whoami["env"]["CODEX_THREAD_ID"], thread, "{era:?}");
            assert!(whoami["env"].get("CALLSIGN_PROBE").is_none(), "{whoami}");
        }
        // Several threads: it is nobody's again, and nobody's placeholder either.
        refused(call_as(&client, &json!({}), "whoami", json!({})).await);
        refused(read_as(&client, &json!({})).await);
        let calls = messages(Path::new(&log), "tools/call");
        assert_eq!(calls.len(), 2, "only those with a thread: {calls:?}");
        assert_eq!(messages(Path::new(&log), "resources/read").len(), 0);
    }
}

#[tokio::test]
async fn calls_that_name_nobody_do_not_stand_in_the_way_of_those_that_do() {
    let program = bin("echo-server");
    let (client, _files) = setup().wrap(Era::Legacy, &[], &[&program, NEEDY[0], NEEDY[1]]);
    client.connect_with(named(CODEX)).await.expect("connected");
    assert_eq!(tools(&client).await, 11);
    for _ in 0..10 {
        refused(call_as(&client, &json!({}), "whoami", json!({})).await);
    }
    let start = Instant::now();
    let whoami = whoami_as(&client, &codex("thread-one")).await;
    assert_eq!(whoami["env"]["CODEX_THREAD_ID"], "thread-one");
    assert!(start.elapsed() < Duration::from_secs(2), "it waited {:?}", start.elapsed());
}

#[tokio::test]
async fn a_variable_that_names_the_thread_is_given_by_name_or_by_source_to_whatever_host() {
    let command = [&*bin("echo-server"), NEEDY[0], NEEDY[1]];
    let gateway = setup()
        .server("bare", &command, "env_vars = [\"CODEX_THREAD_ID\"]")
        .server("source", &command, "env_vars = [{ name = \"CODEX_THREAD_ID\", source = \"thread\" }]")
        .serve()
        .await;
    let vscode = json!({ "vscode.conversationId": "conversation-1", "vscode.requestId": "r" });
    for server in ["bare", "source"] {
        for (host, meta, thread) in
            [(CODEX, &codex("thread-one"), "thread-one"), ("Visual Studio Code", &vscode, "conversation-1")]
        {
            let client = gateway.client(server, Era::Legacy);
            client.connect_with(named(host)).await.expect("connected");
            assert_eq!(tools(&client).await, 11, "{server} under {host}");
            let whoami = whoami_as(&client, meta).await;
            assert_eq!(whoami["env"]["CODEX_THREAD_ID"], thread, "{server} under {host}");
        }
    }
}
