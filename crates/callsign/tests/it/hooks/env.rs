//! `output.env`: for the process that a call starts, and for no other.

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::Era;
use testkit::harness::wait_until;

use super::rig::{LANE, Side, Stopped, Way, mine, one, stopped};
use crate::support::{SOON, call_as, started_with, whoami_as};

const TENANT: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.env.TENANT = input.sessionID ?? "nobody"
    output.env.OF_CALL = input.arguments?.text ?? input.method
    output.env.FIXED = undefined
    output.headers["X-Dropped"] = "on a pipe"
  },
}
"#;

/// Calls in a session, and gives what the process there was started with.
async fn env_of(way: &Way, session: &str, text: &str) -> Value {
    call_as(&way.client, &mine(session), "echo", json!({ "text": text })).await.expect("answered");
    let whoami = whoami_as(&way.client, &mine(session)).await;
    json!({ "pid": whoami["pid"], "TENANT": whoami["env"]["TENANT"], "OF_CALL": whoami["env"]["OF_CALL"] })
}

#[tokio::test]
async fn a_process_has_what_the_call_that_started_it_was_given() {
    let (_hooks, setup) = one(TENANT);
    for front in Side::BOTH {
        for era in Era::BOTH {
            let way = Way::open((front, Side::Pipe), era, &setup, "env = { FIXED = \"1\" }").await;
            way.client.request("tools/list", json!({})).await.expect("a list");
            let one = env_of(&way, "one", "first").await;
            assert_eq!((&one["TENANT"], &one["OF_CALL"]), (&json!("one"), &json!("first")), "{}", way.name);
            let later = env_of(&way, "one", "second").await;
            assert_eq!(later, one, "{}: it is not started again for another", way.name);
            let two = env_of(&way, "two", "third").await;
            assert_eq!((&two["TENANT"], &two["OF_CALL"]), (&json!("two"), &json!("third")), "{}", way.name);
            assert_ne!(two["pid"], one["pid"], "{}", way.name);
            let started = started_with(way.log());
            assert_eq!(started.len(), 3, "{}: the lobby and two sessions", way.name);
            let lobby = &started[0];
            assert_eq!(lobby["CALLSIGN_PROBE"], "1", "{}", way.name);
            for name in ["TENANT", "OF_CALL"] {
                assert!(lobby.get(name).is_none(), "{}: {name} in the lobby", way.name);
            }
            for env in &started {
                assert_eq!(env["FIXED"], "1", "{}: what is not set stays", way.name);
            }
        }
    }
}

#[tokio::test]
async fn what_a_hook_says_goes_over_the_configuration_and_who_calls_over_both() {
    let (_hooks, setup) = one(TENANT);
    let more = "env = { TENANT = \"configured\", OTHER = \"configured\" }";
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, more).await;
    let env = whoami_as(&way.client, &mine("one")).await["env"].clone();
    assert_eq!((&env["TENANT"], &env["OTHER"]), (&json!("one"), &json!("configured")));
    assert_eq!(env["CALLSIGN_SESSION_ID"], "one");
}

#[tokio::test]
async fn a_process_that_is_started_again_has_what_the_newer_call_was_given() {
    let (_hooks, setup) = one(TENANT);
    let way = Way::open((Side::Pipe, Side::Pipe), Era::Legacy, &setup, "").await;
    assert_eq!(env_of(&way, "one", "first").await["OF_CALL"], "first");
    assert!(call_as(&way.client, &mine("one"), "exit", json!({})).await.is_err());
    let again = call_as(&way.client, &mine("one"), "echo", json!({ "text": "again" })).await;
    again.expect("answered by a new process");
    assert_eq!(started_with(way.log()).pop().unwrap_or_default()["OF_CALL"], "again");
}

/// Sets the variable that the call's arguments name.
const SETS: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    if (input.arguments === undefined) return
    const { name, value } = input.arguments
    output.env[name] = value
  },
}
"#;

#[tokio::test]
async fn variables_that_say_who_calls_or_load_code_are_refused() {
    let (hooks, setup) = one(SETS);
    let rows = [
        ("CALLSIGN_THREAD_ID", json!("EVIL")),
        ("CALLSIGN_SESSION_ID", json!("EVIL")),
        ("CALLSIGN_WORKSPACE", json!("EVIL")),
        ("CALLSIGN_PROBE", json!("1")),
        ("CALLSIGN_JWKS_FILE", json!("EVIL")),
        ("CODEX_THREAD_ID", json!("EVIL")),
        ("CODEX_SESSION_ID", json!("EVIL")),
        ("OPENCODE_SESSION_ID", json!("EVIL")),
        ("CLAUDE_CODE_SESSION_ID", json!("EVIL")),
        ("LD_PRELOAD", json!("EVIL.so")),
        ("LD_LIBRARY_PATH", json!("EVIL")),
        ("NODE_OPTIONS", json!("--require EVIL")),
        ("BASH_ENV", json!("EVIL")),
        ("PYTHONSTARTUP", json!("EVIL")),
        ("A=B", json!("EVIL")),
        ("", json!("EVIL")),
        ("FINE", json!("a\u{0}b")),
        ("FINE", json!(7)),
    ];
    for front in Side::BOTH {
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        for (name, value) in &rows {
            let arguments = json!({ "name": name, "value": value });
            let answer = call_as(&way.client, &mine("one"), "echo", arguments).await;
            stopped(answer, Stopped::Refused, &[&hooks.at("hook.js", 5), name]);
        }
        // A call that is refused starts nothing.
        let started = started_with(way.log());
        assert!(started.iter().all(|env| env["CALLSIGN_PROBE"] == "1"), "{}: {started:?}", way.name);
        let arguments = json!({ "name": "FINE", "value": "yes" });
        call_as(&way.client, &mine("one"), "echo", arguments).await.expect("answered");
        assert_eq!(started_with(way.log()).pop().unwrap_or_default()["FINE"], "yes", "{}", way.name);
    }
}

#[tokio::test]
async fn a_server_that_needs_a_variable_at_its_start_gets_it_from_a_hook() {
    let (_hooks, setup) = one(TENANT);
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log").to_str().expect("UTF-8").to_owned();
    let command = [&*bin("logging-server"), "--require-env", "TENANT", "--log", &log];
    // The lobby has to get by with what is configured: nobody has called yet.
    let setup = setup.server(LANE, &command, "isolation = \"session\"\nenv = { TENANT = \"none yet\" }");
    let (client, _files) = setup.wrap_named(Era::Legacy, LANE, &[]);
    client.connect().await.expect("connected");
    assert_eq!(whoami_as(&client, &mine("one")).await["env"]["TENANT"], "one");
    let both = || started_with(log.as_ref()).len() == 2;
    assert!(wait_until(SOON, both).await, "{:?}", started_with(log.as_ref()));
    assert_eq!(started_with(log.as_ref())[0]["TENANT"], "none yet");
}
