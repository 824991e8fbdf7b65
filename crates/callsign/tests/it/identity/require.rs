//! `require`: what must be known of a caller before anything but discovery reaches the server.

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era};
use testkit::harness::HttpServer;

use crate::support::{CODEX, call_as, codex, log_file, messages, name_of, named, read_as, setup};

const LEVELS: [&str; 4] = ["none", "declared", "host", "bound"];

/// What a client says at its start and with each call, and the highest level that is content with it.
fn callers() -> [(&'static str, Value, Value, usize); 3] {
    let mut declared = named(CODEX);
    declared["_meta"] = codex("declared");
    [
        ("nobody", named(CODEX), json!({}), 0),
        ("declared", declared, json!({}), 1),
        ("host", named(CODEX), codex("host"), 2),
    ]
}

#[tokio::test]
async fn a_server_is_asked_only_by_those_who_are_known_well_enough() {
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let program = bin("logging-server");
    let mut setup = setup();
    for level in LEVELS {
        let more = format!("require = \"{level}\"");
        setup = setup.server(&format!("pipe-{level}"), &[&program, "--log", &log], &more);
        setup = setup.url(&format!("http-{level}"), &server.url, &more);
    }
    let gateway = setup.serve().await;
    let mut allowed = 0;
    for (number, level) in LEVELS.iter().enumerate() {
        for kind in ["pipe", "http"] {
            for (who, initialize, meta, enough) in callers() {
                let name = format!("{kind}-{level}");
                let client = gateway.client(&name, Era::Legacy);
                client.connect_with(initialize).await.expect("discovery works");
                for method in ["tools/list", "resources/list", "prompts/list", "ping"] {
                    assert!(client.request(method, json!({})).await.is_ok(), "{name}: {method} for {who}");
                }
                let outcomes = [
                    call_as(&client, &meta, "echo", json!({ "text": "x" })).await,
                    read_as(&client, &meta).await,
                ];
                for outcome in outcomes {
                    let expected = if number <= enough { "" } else { "identity_required" };
                    let refusal = outcome.as_ref().err().map(name_of).unwrap_or_default();
                    assert_eq!(refusal, expected, "{name} for {who}: {outcome:?}");
                    allowed += usize::from(outcome.is_ok());
                    if let Err(failure) = outcome {
                        assert_eq!(failure.code(), Some(-31020), "{failure:?}");
                        let text = failure.text();
                        assert!(text.contains(level) && text.contains("callsign doctor"), "{text}");
                    }
                }
                client.end().await;
            }
        }
    }
    let calls = messages(log.as_ref(), "tools/call").len() + messages(log.as_ref(), "resources/read").len();
    assert_eq!(calls, allowed, "who was refused did not reach the server");
    assert_eq!(allowed, 2 * 2 * (3 + 2 + 1), "none is content with three callers, declared with two …");
}

#[tokio::test]
async fn a_host_on_a_pipe_is_refused_the_same_way() {
    let setup = setup().server("echo", &[&bin("echo-server")], "require = \"host\"");
    for era in Era::BOTH {
        let (client, _files) = setup.wrap_named(era, "echo", &[]);
        client
            .connect_with(if era == Era::Legacy { named(CODEX) } else { json!({}) })
            .await
            .expect("connected");
        check(&client).await;
    }
}

async fn check(client: &Client) {
    assert!(client.request("tools/list", json!({})).await.is_ok());
    let failure = call_as(client, &json!({}), "echo", json!({})).await.expect_err("nobody");
    assert_eq!(name_of(&failure), "identity_required", "{failure:?}");
    assert!(call_as(client, &codex("thread"), "echo", json!({ "text": "x" })).await.is_ok());
    // That a thread has called does not make a call of it that says nothing.
    let failure = call_as(client, &json!({}), "echo", json!({})).await.expect_err("nobody");
    assert_eq!(name_of(&failure), "identity_required", "{failure:?}");
}
