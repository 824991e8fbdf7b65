//! Files run in their order, each sees what the one before did, and headers are the same in every spelling.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use testkit::client::Era;
use testkit::harness::HttpServer;

use super::rig::{Hooks, MINE, Side, Way, mine};
use crate::support::{header, log_file, setup, whoami_as};

const HEADERS: &str = r#"headers = { "X-Static" = "static", "X-Thread" = "{thread.id}", "X-Tool" = "{tool}", "X-Gone" = "here", "X-Both" = "config", "X-Title" = "{session.title}" }"#;
const MINT: &str = "#!/bin/sh\nprintf '{\"X-Minted\":\"minted\",\"x-both\":\"command\"}'\n";

const FIRST: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-Seen"] = JSON.stringify(output.headers)
    output.headers["X-Added"] = "a"
    output.headers["x-STATIC"] = output.headers["X-static"] + "+a"
    output.headers["X-By-A"] = "a"
    delete output.headers["x-gone"]
  },
}
"#;
const SECOND: &str = r#"export default {
  "mcp.call.before": async (input, output) => {
    await null
    output.headers["x-added"] += "b"
    output.headers["X-Had-Gone"] = String("X-Gone" in output.headers)
    output.headers["X-MINTED"] = null
    delete output.headers["x-by-a"]
  },
}
"#;
const THIRD: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-ADDED"] += "c"
    output.headers["X-Both"] = undefined
    output.headers = { ...output.headers, "X-GONE": "back" }
  },
}
"#;

fn files() -> Hooks {
    let hooks = Hooks::new(&[("a.js", FIRST), ("b.js", SECOND), ("c.js", THIRD), ("mint", MINT)]);
    let mint = hooks.path("mint");
    std::fs::set_permissions(mint, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    hooks
}

fn lines(hooks: &Hooks) -> String {
    format!("{HEADERS}\nheaders_command = {}", hooks.list(&["mint"]))
}

#[track_caller]
fn check(name: &str, whoami: &Value, expected: &[(&str, &[&str])]) {
    for (header_name, values) in expected {
        assert_eq!(header(whoami, header_name), *values, "{name}: {header_name} in {}", whoami["headers"]);
    }
    let seen: Value = serde_json::from_str(header(whoami, "x-seen")[0]).expect("JSON");
    let first_saw = json!({
        "X-Static": "static", "X-Thread": "s-1", "X-Tool": "whoami", "X-Gone": "here", "x-both": "command",
        "X-Minted": "minted",
    });
    assert_eq!(seen, first_saw, "{name}: the configured, the templated and the minted ones");
}

#[tokio::test]
async fn three_files_add_override_and_remove_one_after_the_other() {
    let hooks = files();
    let setup = setup().toml(MINE).toml(&hooks.toml(&["a.js", "b.js"]));
    for front in Side::BOTH {
        for era in Era::BOTH {
            let more = format!("{}\nhooks = {}", lines(&hooks), hooks.list(&["c.js"]));
            let way = Way::open((front, Side::Http), era, &setup, &more).await;
            let whoami = whoami_as(&way.client, &mine("s-1")).await;
            let expected: &[(&str, &[&str])] = &[
                ("x-added", &["abc"]),
                ("x-static", &["static+a"]),
                ("x-thread", &["s-1"]),
                ("x-tool", &["whoami"]),
                ("x-minted", &[]),
                ("x-by-a", &[]),
                ("x-had-gone", &["false"]),
                ("x-gone", &["back"]),
                ("x-both", &[]),
                ("x-title", &[]),
                ("callsign-session", &["s-1"]),
            ];
            check(&way.name, &whoami, expected);
        }
    }
}

#[tokio::test]
async fn the_same_with_the_address_on_the_command_line() {
    let hooks = files();
    let server = HttpServer::start("echo-server", &[]);
    let more = format!("{}\nhooks = {}", lines(&hooks), hooks.list(&["c.js"]));
    // What the command line says wins: nobody listens at the other address.
    let setup =
        setup().toml(MINE).toml(&hooks.toml(&["a.js", "b.js"])).url("named", "http://127.0.0.1:9/mcp", &more);
    let (client, _files) = setup.wrap_named(Era::Legacy, "named", &["--url", &server.url]);
    client.connect().await.expect("connected");
    let whoami = whoami_as(&client, &mine("s-1")).await;
    check(
        "wrap --url",
        &whoami,
        &[("x-added", &["abc"]), ("x-static", &["static+a"]), ("x-gone", &["back"])],
    );
}

#[tokio::test]
async fn a_servers_own_files_are_for_its_calls_alone() {
    let hooks = files();
    let server = HttpServer::start("echo-server", &[]);
    let own = |name: &str| format!("{}\nhooks = {}", lines(&hooks), hooks.list(&[name]));
    let gateway = setup()
        .toml(MINE)
        .toml(&hooks.toml(&["a.js"]))
        .url("b", &server.url, &own("b.js"))
        .url("c", &server.url, &own("c.js"))
        .url("neither", &server.url, &lines(&hooks))
        .serve()
        .await;
    for (name, added, gone) in [("b", "ab", &[][..]), ("c", "ac", &["back"]), ("neither", "a", &[])] {
        let client = gateway.connect(name, Era::Legacy).await;
        let whoami = whoami_as(&client, &mine("s-1")).await;
        check(name, &whoami, &[("x-added", &[added]), ("x-gone", gone)]);
    }
}

#[tokio::test]
async fn paths_are_relative_to_the_configuration() {
    let hooks = Hooks::new(&[("here.js", FIRST)]);
    std::fs::create_dir(hooks.directory().join("below")).expect("a directory");
    hooks.write("below/there.js", SECOND);
    let server = HttpServer::start("echo-server", &[]);
    let config = format!(
        "[hooks]\nfiles = [\"./here.js\", \"below/../below/there.js\"]\n[servers.rel]\nurl = {:?}\n",
        server.url
    );
    hooks.write("callsign.toml", &config);
    let arguments = ["--name", "rel", "--config", &hooks.path("callsign.toml")];
    let (client, _files) = setup().wrap(Era::Legacy, &arguments, &[]);
    client.connect().await.expect("connected");
    assert_eq!(header(&whoami_as(&client, &json!({})).await, "x-added"), ["ab"]);
}

/// The headers of the call as the server got them, sorted, less those that differ from call to call.
async fn call_headers(front: Side, era: Era, toml: &str) -> Vec<(String, String)> {
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let setup = setup().toml(MINE).toml(toml);
    let setup = setup.url("lane", &server.url, HEADERS);
    let gateway;
    let (client, _files) = match front {
        Side::Pipe => {
            let (client, files) = setup.wrap_named(era, "lane", &[]);
            (client, Some(files))
        }
        Side::Http => {
            gateway = setup.serve().await;
            (gateway.client("lane", era), None)
        }
    };
    client.connect().await.expect("connected");
    let whoami = whoami_as(&client, &mine("s-1")).await;
    let each_time = ["host", "mcp-session-id", "callsign-assertion"];
    let pairs: Vec<(String, String)> = serde_json::from_value(whoami["headers"].clone()).expect("headers");
    let mut pairs: Vec<_> =
        pairs.into_iter().filter(|(name, _)| !each_time.contains(&name.as_str())).collect();
    pairs.sort();
    pairs
}

#[tokio::test]
async fn hooks_that_touch_no_header_leave_the_very_headers_there_would_be_without() {
    let nothing = "export default { \"mcp.call.before\": () => {} }\n";
    let looks =
        "export default { \"mcp.call.before\": (input, output) => { JSON.stringify(output.headers) } }\n";
    let after = "export default { \"mcp.call.after\": () => {} }\n";
    let hooks = Hooks::new(&[("nothing.js", nothing), ("looks.js", looks), ("after.js", after)]);
    let toml = hooks.toml(&["nothing.js", "looks.js", "after.js"]);
    for front in Side::BOTH {
        for era in Era::BOTH {
            let without = call_headers(front, era, "").await;
            let expected = [
                ("x-gone", "here"),
                ("x-both", "config"),
                ("x-static", "static"),
                ("x-thread", "s-1"),
                ("x-tool", "whoami"),
                ("callsign-session", "s-1"),
                ("callsign-call", "call-of-s-1"),
                ("content-type", "application/json"),
            ];
            for (name, value) in expected {
                let own: Vec<_> = without.iter().filter(|(other, _)| other == name).collect();
                assert_eq!(own, [&(name.to_owned(), value.to_owned())], "{front:?}, {era:?}: {without:?}");
            }
            let with = call_headers(front, era, &toml).await;
            assert_eq!(with, without, "{front:?}, {era:?}");
        }
    }
}
