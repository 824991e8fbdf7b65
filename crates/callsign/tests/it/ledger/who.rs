//! What a row says of a call is what its server was told: who, what and with which arguments.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::client::{Client, Era, Http, text};
use testkit::harness::HttpServer;

use super::rig::{Back, Front, House, Way, at_once, call, hex, mine, with_echo};
use crate::support::{setup, told};

/// What is both in a row and in what a server is told.
const SAME: [&str; 12] = [
    "host",
    "session",
    "thread",
    "parent",
    "run",
    "turn",
    "call",
    "server",
    "tool",
    "workspace",
    "trust",
    "source",
];

#[track_caller]
fn check_same(row: &Value, told: &Value, name: &str) {
    for key in SAME {
        let said = told.get(key).unwrap_or(&Value::Null);
        assert_eq!(&row[key], said, "{name}: {key}\nthe row: {row}\nthe server was told: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_names_who_the_server_was_told() {
    let places = tempfile::tempdir().expect("a directory");
    let root = std::fs::canonicalize(places.path()).expect("a path");
    let root = root.to_str().expect("UTF-8").to_owned();
    let setup = setup().toml(&format!("[workspace]\nroots = [{root:?}]"));
    let house = Arc::new(House::with(setup, "").await);
    at_once(Way::all().into_iter().map(|way| {
        let (house, root) = (Arc::clone(&house), root.clone());
        async move {
            let (client, name) = (house.client(way).await, way.name());
            let whole = json!({
                "mine/session": name, "mine/thread": format!("{name}-thread"), "mine/parent": format!("{name}-parent"),
                "mine/run": "run-1", "mine/turn": "turn-1", "mine/call": way.call("whole"), "orbit.workspace": root,
            });
            let nobody = json!({ "mine/call": way.call("nobody") });
            for (what, meta) in [("whole", whole), ("plain", mine(&name, &way.call("plain"))), ("nobody", nobody)] {
                call(&client, "fine", meta.clone(), json!({})).await.expect("answered");
                let rows = house.ended(&["--call", &way.call(what)], 1).await;
                let arrived = house.played.of(&way.call(what));
                assert_eq!((rows.len(), arrived.len()), (1, 1), "{name}: {what}: {rows:?}");
                check_same(&rows[0], &arrived[0].told(), &format!("{name}: {what}"));
                let (session, trust) = (&rows[0]["session"], &rows[0]["trust"]);
                let wanted = if what == "nobody" { (Value::Null, "none") } else { (json!(name), "host") };
                assert_eq!((session, trust), (&wanted.0, &json!(wanted.1)), "{name}: {what}");
                if what == "whole" {
                    assert_eq!((&rows[0]["run"], &rows[0]["workspace"]), (&json!("run-1"), &json!(root)), "{name}");
                }
            }
        }
    }))
    .await;
}

/// A call that its host has not named has a name of ours, in the row and for its server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_a_name_is_found_by_ours() {
    let house = House::with(with_echo(setup(), ""), "").await;
    for front in [Front::Wrap, Front::Serve] {
        for era in Era::BOTH {
            let (client, session) = (house.connect(front, "echo", era).await, format!("{front:?}-{era:?}"));
            let answer = call(&client, "whoami", json!({ "mine/session": session }), json!({})).await;
            let whoami: Value = serde_json::from_str(&text(&answer.expect("answered"))).expect("JSON");
            let name = told(&whoami)["call"].as_str().expect("a name").to_owned();
            let rows = house.ended(&["--call", &name], 1).await;
            assert_eq!(rows.len(), 1, "{session}: {name}");
            check_same(&rows[0], told(&whoami), &session);
            // And so is the process that was asked.
            assert_eq!(house.one(&name)["target"], format!("pid {}", whoami["pid"]), "{session}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_named_without_what_may_be_secret_in_it() {
    let server = HttpServer::start("echo-server", &[]);
    let url = format!("{}?key=SECRET-IN-A-QUERY", server.url);
    let house = House::with(setup().url("asked", &url, ""), "").await;
    for front in [Front::Wrap, Front::Serve] {
        let (client, name) = (house.connect(front, "asked", Era::Modern).await, format!("{front:?}"));
        // The server does not mind the query; whether it does is no matter here.
        drop(call(&client, "echo", mine("s", &name), json!({ "text": "x" })).await);
        house.ended(&["--call", &name], 1).await;
        let row = house.one(&name);
        assert_eq!(row["target"], server.url, "{name}: {row}");
        assert!(!row.to_string().contains("SECRET-IN-A-QUERY"), "{row}");
    }
    for back in [Back::Json, Back::Events, Back::Old] {
        let client = house.connect(Front::Serve, back.server(), Era::Legacy).await;
        call(&client, "fine", mine("s", back.server()), json!({})).await.expect("answered");
        house.ended(&["--call", back.server()], 1).await;
        let wanted = house.played.url(&format!("/{}", back.server()));
        assert_eq!(house.one(back.server())["target"], wanted, "{back:?}");
    }
}

/// What was forged, and in which places of a request.
fn forged() -> [(&'static str, Value, Value, &'static str); 4] {
    [
        (
            "meta",
            json!({ "dev.callsign/identity": { "session": "EVIL" } }),
            json!({}),
            "dev.callsign/identity",
        ),
        ("assertion", json!({ "dev.callsign/assertion": "EVIL" }), json!({}), "dev.callsign/assertion"),
        ("argument", json!({}), json!({ "__callsign": "EVIL" }), "seal"),
        ("spelling", json!({ "Dev.Callsign/Identity": "EVIL" }), json!({}), "Dev.Callsign/Identity"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_forged_is_listed() {
    let house = Arc::new(House::open("").await);
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            for (what, meta, arguments, listed) in forged() {
                let mut whole = mine(&name, &way.call(what));
                whole
                    .as_object_mut()
                    .expect("an object")
                    .extend(meta.as_object().cloned().unwrap_or_default());
                call(&client, "fine", whole, arguments).await.expect("answered");
                let rows = house.ended(&["--call", &way.call(what)], 1).await;
                let spoof = rows[0]["spoof"].as_array().cloned().unwrap_or_default();
                let is_listed =
                    spoof.iter().any(|said| said.as_str().is_some_and(|said| said.contains(listed)));
                assert!(spoof.len() == 1 && is_listed, "{name}: {what}: {spoof:?}");
                assert_eq!(rows[0]["session"], name, "{name}: {what}");
                assert!(!house.one(&way.call(what)).to_string().contains("EVIL"), "{name}: {what}");
            }
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_was_forged_is_listed() {
    let house = House::open("").await;
    for way in Way::all().into_iter().filter(|way| way.front == Front::Serve) {
        let http = Http::new(&house.gateway.mcp(way.back.server()), Some(&house.gateway.token));
        let client = Client::over(http.with_header("Callsign-Session", "EVIL"), way.era);
        client.connect().await.expect("connected");
        call(&client, "fine", mine(&way.name(), &way.name()), json!({})).await.expect("answered");
        let rows = house.ended(&["--call", &way.name()], 1).await;
        let spoof = rows[0]["spoof"].to_string().to_lowercase();
        assert!(spoof.contains("callsign-session") && !spoof.contains("evil"), "{}: {rows:?}", way.name());
    }
}

const CHANGES: &str = r#"export default {
  "mcp.call.before": (input, output) => {
    if (input.tool === "changed") output.arguments = { ...output.arguments, added: "by a hook" }
  },
}
"#;

/// Arguments as nobody would write them anew.
const STRANGE: &str = r#"{ "n" : 1.0, "e":1E+2,"text":"\u00e9é\/" ,"deep":[{ },[ ]] }"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_is_of_the_arguments_as_the_server_got_them() {
    let places = tempfile::tempdir().expect("a directory");
    let root = std::fs::canonicalize(places.path()).expect("a path");
    let (hook, root) = (root.join("hook.js"), root.to_str().expect("UTF-8").to_owned());
    std::fs::write(&hook, CHANGES).expect("a hook");
    let setup = setup().toml(&format!("[workspace]\nroots = [{root:?}]"));
    let more = format!(
        "hooks = [{:?}]\narguments = {{ workspace = \"{{workspace}}\" }}",
        hook.to_str().expect("UTF-8")
    );
    let house = Arc::new(House::with(setup, &more).await);
    at_once(Way::all().into_iter().map(|way| {
        let (house, root) = (Arc::clone(&house), root.clone());
        async move {
            let (client, name) = (house.client(way).await, way.name());
            client.request("tools/list", json!({})).await.expect("a list");
            for (tool, sent) in [
                ("fine", json!({ "a": [1, 2.5, "é"] })),
                ("changed", json!({ "a": 1 })),
                ("task", json!({ "a": 1 })),
            ] {
                let mut meta = mine(&name, &way.call(tool));
                meta["orbit.workspace"] = root.clone().into();
                call(&client, tool, meta, sent.clone()).await.expect("answered");
                let got = check_digest(&house, &way.call(tool)).await;
                let got: Value = serde_json::from_str(&got).expect("JSON");
                let added = match tool {
                    "changed" => got["added"] == "by a hook",
                    "task" => got["workspace"] == *root,
                    _ => got == sent,
                };
                assert!(added, "{name}: {tool}: the server got {got}");
            }
        }
    }))
    .await;
}

/// Waits for the row and compares; gives the arguments.
async fn check_digest(house: &House, name: &str) -> String {
    house.ended(&["--call", name], 1).await;
    let (row, arrived) = (house.one(name), house.played.of(name));
    let got = arrived[0].arguments().expect("arguments");
    let digest = hex(&Sha256::digest(got.as_bytes()));
    assert_eq!(row["digest"], digest, "{name}: of {got}: {row}");
    assert_eq!(row["size"], got.len(), "{name}: {row}");
    assert!(row["arguments"].is_null() && row["result"].is_null(), "{name}: only digests are kept: {row}");
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_bytes_are_digested_as_they_are() {
    let house = House::open("").await;
    for back in Back::ALL {
        let request = |call: &str| {
            let meta = mine("s", call);
            format!(
                r#"{{"jsonrpc":"2.0","id":"{call}","method":"tools/call","params":{{"name":"fine","arguments":{STRANGE},"_meta":{meta}}}}}"#
            )
        };
        let wrap = house.connect(Front::Wrap, back.server(), Era::Legacy).await;
        let call = format!("wrap-{}", back.server());
        assert!(wrap.send_bytes(format!("{}\n", request(&call)).as_bytes()).await);
        assert_eq!(check_digest(&house, &call).await, STRANGE);
        let serve = house.connect(Front::Serve, back.server(), Era::Legacy).await;
        let call = format!("serve-{}", back.server());
        let answer = serve.raw().post(request(&call), &[("mcp-protocol-version", "2025-11-25")]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(check_digest(&house, &call).await, STRANGE);
    }
}
