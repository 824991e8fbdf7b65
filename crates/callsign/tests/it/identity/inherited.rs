//! What we inherited names the session around us, which is hardly ever the one that calls.

use serde_json::json;
use testkit::bin;
use testkit::client::Era;
use testkit::harness::Setup;

use crate::support::{
    CODEX, assert_anonymous, codex, log_file, named, read_as, setup, started_with, told, whoami_as,
};

const NAMES: [&str; 6] = [
    "CODEX_THREAD_ID",
    "CODEX_SESSION_ID",
    "OPENCODE_SESSION_ID",
    "OPENCODE_SESSION_TITLE",
    "CLAUDE_CODE_SESSION_ID",
    "AGENT_SESSION_ID",
];

/// Inside a session of some other host, and of an outer callsign.
fn inside() -> Setup {
    NAMES.iter().fold(setup().env("CALLSIGN_THREAD_ID", "OUTER"), |setup, name| setup.env(name, "OUTER"))
}

#[tokio::test]
async fn an_inherited_thread_never_reaches_a_child() {
    for more in ["inherit_env = \"safe\"", "inherit_env = \"host\"", "env_vars = [\"CODEX_THREAD_ID\"]"] {
        let (_directory, log) = log_file();
        let setup = inside().server("echo", &[&bin("echo-server"), "--log", &log], more);
        let (client, _files) = setup.wrap_named(Era::Legacy, "echo", &[]);
        client.connect_with(named(CODEX)).await.expect("connected");
        client.request("tools/list", json!({})).await.expect("a list");
        assert_anonymous(&read_as(&client, &json!({})).await.expect("read"));
        let whoami = whoami_as(&client, &codex("inner")).await;
        assert_eq!(whoami["env"]["CODEX_THREAD_ID"], "inner", "{more}");
        assert_eq!(told(&whoami)["thread"], "inner", "{more}");
        let started = started_with(log.as_ref());
        assert_eq!(started.len(), 3, "the lobby, nobody's and the thread's");
        for env in started {
            assert!(!env.to_string().contains("OUTER"), "{more}: {env}");
        }
    }
}

#[tokio::test]
async fn an_inherited_thread_cannot_be_asked_for() {
    for name in NAMES {
        let more = format!("inherit_env = [\"PATH\", \"{name}\"]");
        let log = inside().server("echo", &[&bin("echo-server")], &more).try_serve().await.err();
        let log = log.unwrap_or_default();
        assert!(log.contains(name) && log.contains("env_vars"), "{name}: {log}");
    }
}

#[tokio::test]
async fn what_the_host_of_a_pipe_says_at_its_start_is_declared_and_gives_way_to_a_call() {
    let (client, _files) = inside().wrap(Era::Legacy, &[], &[&bin("echo-server")]);
    client.connect_with(named("goose")).await.expect("connected");
    let whoami = whoami_as(&client, &json!({})).await;
    assert_eq!(told(&whoami)["session"], "OUTER");
    assert_eq!(
        (&told(&whoami)["trust"], &told(&whoami)["source"]),
        (&json!("declared"), &json!("environment"))
    );
    let whoami = whoami_as(&client, &json!({ "agent-session-id": "mine" })).await;
    assert_eq!((&told(&whoami)["session"], &told(&whoami)["trust"]), (&json!("mine"), &json!("host")));
    // A call has named another one: the connection is shared, and what was said of it all is worth nothing.
    let whoami = whoami_as(&client, &json!({})).await;
    assert_eq!(told(&whoami)["trust"], "none", "{whoami}");
}
