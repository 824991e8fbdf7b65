//! What a configuration fills in: variables and headers, per caller and per call.

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era};
use testkit::harness::HttpServer;

use crate::support::{CODEX, codex, codex_subagent, header, log_file, named, setup, told, whoami_as};

const MINE: &str = r#"[hosts.mine]
client = "mine"
session = { meta = "mine/session" }
title = { meta = "mine/title" }
call = { meta = "mine/call" }
"#;

const HEADERS: &str = r#"headers = { "X-Session-Id" = "{session.id}", "X-Thread" = "{thread.id}", "X-Parent" = "{parent.id}", "X-User" = "{user}", "X-Tool" = "{tool}", "X-Call" = "{call.id}", "X-Title" = "{session.title}", "X-Turn" = "t/{turn.id}", "X-Server" = "{server}", "X-Fixed" = "always" }"#;

/// `_meta` of a call, the variables that are there, and those that are not.
type Row<'a> = (Value, &'a [(&'a str, &'a str)], &'a [&'a str]);

#[tokio::test]
async fn variables_are_filled_in_for_each_caller_and_left_out_where_nothing_is_known() {
    let env = r#"env = { WHO = "{host}/{thread.id}", SID = "{session.id}", PARENT = "{parent.id}", USER_IS = "{user}", TITLE = "{session.title}", FIXED = "1" }"#;
    let gateway = setup().server("echo", &[&bin("echo-server")], env).serve().await;
    let client = gateway.client("echo", Era::Legacy);
    client.connect_with(named(CODEX)).await.expect("connected");
    let rows: [Row<'_>; 3] = [
        (
            codex("root"),
            &[("WHO", "codex/root"), ("SID", "root"), ("USER_IS", "local"), ("FIXED", "1")],
            &["PARENT", "TITLE"],
        ),
        (
            codex_subagent("agent", "root"),
            &[("WHO", "codex/agent"), ("SID", "root"), ("PARENT", "root")],
            &["TITLE"],
        ),
        (json!({}), &[("USER_IS", "local"), ("FIXED", "1")], &["WHO", "SID", "PARENT", "TITLE"]),
    ];
    for (meta, there, absent) in rows {
        let env = &whoami_as(&client, &meta).await["env"];
        for (name, value) in there {
            assert_eq!(env[*name], *value, "{meta}: {name}");
        }
        for name in absent {
            assert!(env.get(*name).is_none(), "{meta}: {name} = {}", env[*name]);
        }
    }
}

#[track_caller]
fn check(whoami: &Value, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(header(whoami, name), value.iter().copied().collect::<Vec<_>>(), "{name} in {whoami}");
    }
}

#[tokio::test]
async fn headers_are_filled_in_for_each_call() {
    let server = HttpServer::start("echo-server", &[]);
    let gateway = setup().url("echo", &server.url, HEADERS).serve().await;
    let token = gateway.new_token("alice").await;
    for (user, token) in [("local", &gateway.token), ("alice", &token)] {
        let client = Client::http(&gateway.mcp("echo"), Some(token), Era::Legacy);
        client.connect_with(named(CODEX)).await.expect("connected");
        let whoami = whoami_as(&client, &codex_subagent("agent", "root")).await;
        check(
            &whoami,
            &[
                ("x-session-id", Some("root")),
                ("x-thread", Some("agent")),
                ("x-parent", Some("root")),
                ("x-user", Some(user)),
                ("x-tool", Some("whoami")),
                ("x-call", Some("call-of-agent")),
                ("x-turn", Some("t/turn-of-agent")),
                ("x-title", None),
                ("x-server", Some("echo")),
                ("x-fixed", Some("always")),
                ("callsign-host", Some("codex")),
                ("callsign-session", Some("root")),
                ("callsign-thread", Some("agent")),
                ("callsign-parent", Some("root")),
                ("callsign-call", Some("call-of-agent")),
                ("callsign-workspace", None),
            ],
        );
        assert_eq!(header(&whoami, "callsign-assertion"), [&whoami["meta"]["dev.callsign/assertion"]]);
        let whoami = whoami_as(&client, &json!({})).await;
        let ours = told(&whoami)["call"].as_str();
        check(
            &whoami,
            &[
                ("x-session-id", None),
                ("x-thread", None),
                ("x-turn", None),
                ("x-user", Some(user)),
                ("x-call", ours),
                ("x-fixed", Some("always")),
                ("callsign-host", None),
                ("callsign-session", None),
                ("callsign-thread", None),
                ("callsign-call", ours),
                ("callsign-assertion", None),
            ],
        );
    }
}

#[tokio::test]
async fn a_list_is_no_tool() {
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let gateway = setup().url("echo", &server.url, HEADERS).serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    client.request("tools/list", json!({})).await.expect("a list");
    let records = testkit::record::read(log.as_ref());
    let posts: Vec<&Value> = records.iter().filter(|record| record["method"] == "POST").collect();
    assert_eq!(posts.len(), 3, "initialize, initialized and the list");
    for post in posts {
        assert_eq!(header(post, "x-tool"), [""; 0], "{post}");
        assert_eq!(header(post, "x-fixed"), ["always"], "{post}");
    }
}

#[tokio::test]
async fn a_title_goes_into_a_header_encoded_and_one_with_a_line_break_not_at_all() {
    let server = HttpServer::start("echo-server", &[]);
    let gateway = setup()
        .toml(MINE)
        .url("http", &server.url, HEADERS)
        .server("pipe", &[&bin("echo-server")], "env = { TITLE = \"{session.title}\" }")
        .serve()
        .await;
    let rows = [
        ("Plain title", Some("Plain title")),
        ("Überschrift ✈", Some("=?base64?w5xiZXJzY2hyaWZ0IOKciA==?=")),
        ("=?base64?x?=", Some("=?base64?PT9iYXNlNjQ/eD89?=")),
        ("line\r\nX-Evil: 1", None),
        ("line\nbreak", None),
        ("nul\u{0}", None),
        ("", None),
        ("   ", None),
    ];
    for (number, (title, encoded)) in rows.iter().enumerate() {
        let meta = json!({ "mine/session": format!("s-{number}"), "mine/title": title, "mine/call": "c-1" });
        for name in ["http", "pipe"] {
            let client = gateway.client(name, Era::Legacy);
            client.connect_with(named("mine")).await.expect("connected");
            let whoami = whoami_as(&client, &meta).await;
            let expected = encoded.map_or(Value::Null, |_| Value::from(*title));
            assert_eq!(told(&whoami)["title"], expected, "{name}: {title:?}");
            assert_eq!(told(&whoami)["call"], "c-1");
            if name == "http" {
                check(&whoami, &[("x-title", *encoded), ("x-evil", None), ("x-call", Some("c-1"))]);
            } else {
                for variable in ["TITLE", "CALLSIGN_SESSION_TITLE"] {
                    assert_eq!(whoami["env"][variable], expected, "{variable}: {title:?}");
                }
            }
        }
    }
    // A new title is in `_meta` and headers at once, in the environment from the next process on.
    let client = gateway.client("pipe", Era::Legacy);
    client.connect_with(named("mine")).await.expect("connected");
    let before = whoami_as(&client, &json!({ "mine/session": "s", "mine/title": "old" })).await;
    let after = whoami_as(&client, &json!({ "mine/session": "s", "mine/title": "new" })).await;
    assert_eq!(after["pid"], before["pid"], "a title is not who somebody is");
    assert_eq!((&told(&after)["title"], &after["env"]["TITLE"]), (&json!("new"), &json!("old")));
}
