//! Calls that were not made: one row each, that says by what they were refused, and a server that was not asked.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Failure};

use super::rig::{Back, Front, House, Way, at_once, call, mine, outcomes};
use crate::support::{SOON, name_of, setup};

const HOOK: &str = r#"export default {
  "mcp.call.before": (input) => {
    if (input.tool === "thrown") throw new Error("ask an operator")
    if (input.tool === "loop") for (;;);
  },
}
"#;

/// Each server wants to know its callers, has a hook that throws, and a tool that needs a workspace.
async fn guarded() -> (House, tempfile::TempDir) {
    let hooks = tempfile::tempdir().expect("a directory");
    let hook = hooks.path().join("hook.js");
    std::fs::write(&hook, HOOK).expect("a hook");
    let more = format!(
        "require = \"host\"\nhooks = [{:?}]\narguments = {{ workspace = \"{{workspace}}\" }}",
        hook.to_str().expect("UTF-8")
    );
    (House::open(&more).await, hooks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_refused_says_by_what() {
    let (house, _hooks) = guarded().await;
    let house = Arc::new(house);
    at_once(Way::all().into_iter().map(|way| each(Arc::clone(&house), way))).await;
    house.verifies();
}

async fn each(house: Arc<House>, way: Way) {
    let (client, name) = (house.client(way).await, way.name());
    client.request("tools/list", json!({})).await.expect("a list");
    let somebody = |what: &str| mine(&name, &way.call(what));
    let nobody = json!({ "mine/call": way.call("nobody") });
    let rows = [
        ("nobody", "fine", nobody, "identity_required"),
        ("thrown", "thrown", somebody("thrown"), "hook_refused"),
        ("loop", "loop", somebody("loop"), "hook_failed"),
        ("missing", "task", somebody("missing"), "missing_argument"),
        ("allowed", "fine", somebody("allowed"), ""),
    ];
    let mut asked = Vec::new();
    for (what, tool, meta, reason) in rows {
        let answer = call(&client, tool, meta, json!({ "what": what })).await;
        let said = answer.as_ref().err().map(name_of).unwrap_or_default();
        assert_eq!(said, reason, "{name}: {what}: {answer:?}");
        let outcome = if reason.is_empty() { "ok" } else { "refused" };
        let ended = house.ended(&["--call", &way.call(what)], 1).await;
        assert_eq!(outcomes(&ended), [(tool.to_owned(), outcome.to_owned())], "{name}: {what}: {ended:?}");
        let row = house.one(&way.call(what));
        assert_eq!(row["reason"].as_str().unwrap_or_default(), reason, "{name}: {row}");
        if row["target"].is_null() == reason.is_empty() {
            asked.push(format!("{what}: {}", row["target"]));
        }
        assert_eq!(house.played.of(&way.call(what)).len(), usize::from(reason.is_empty()), "{name}: {what}");
    }
    assert!(asked.is_empty(), "{name}: a target is who was asked: {asked:?}");
    let row = &house.rows(&["--call", &way.call("nobody")])[0];
    assert_eq!((&row["session"], &row["trust"]), (&Value::Null, &json!("none")), "{name}: {row}");
}

/// An id that is in use already is refused; the call that has it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_is_used_twice_is_refused_once() {
    let house = Arc::new(House::open("").await);
    let ways = Way::all().into_iter().filter(|way| way.back == Back::Pipe && !way.cancels_by_leaving());
    at_once(ways.map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            let params =
                |tool: &str| json!({ "name": tool, "arguments": {}, "_meta": mine(&name, &way.call(tool)) });
            let id = json!(format!("{name}-twice"));
            let first = client.start_as(id.clone(), "tools/call", params("silent")).await;
            house.until(&["--session", &name], |rows| rows.len() == 1).await;
            let second = client.start_as(id.clone(), "tools/call", params("fine")).await.wait(SOON).await;
            assert_eq!(name_of(&second.expect_err("used twice")), "duplicate_id", "{name}");
            client.cancel(&id).await;
            let rows = house.ended(&["--session", &name], 2).await;
            let wanted =
                [("silent", "canceled"), ("fine", "refused")].map(|(a, b)| (a.to_owned(), b.to_owned()));
            assert_eq!(outcomes(&rows), wanted, "{name}");
            assert_eq!(house.one(&way.call("fine"))["reason"], "duplicate_id", "{name}");
            drop(first);
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_is_withheld_is_refused() {
    for front in [Front::Wrap, Front::Serve] {
        let directory = tempfile::tempdir().expect("a directory");
        let count = directory.path().join("lists");
        let command = [
            &bin("hostile-server"),
            "--stdio",
            "--mode",
            "rug-pull",
            "--changes",
            "2",
            "--count",
            count.to_str().expect("UTF-8"),
        ];
        let house = House::with(setup().server("bad", &command, "pin = true"), "").await;
        let client = house.connect(front, "bad", Era::Legacy).await;
        let listed = async |client: &Client| client.request("tools/list", json!({})).await.expect("a list");
        listed(&client).await;
        call(&client, "flood", mine("s", "first"), json!({})).await.expect("answered");
        listed(&client).await;
        let withheld = call(&client, "echo", mine("s", "second"), json!({ "text": "x" })).await;
        let failure: Failure = withheld.expect_err("it has changed");
        assert_eq!(name_of(&failure), "tool_withheld", "{front:?}: {failure:?}");
        let rows = house.ended(&["--session", "s"], 2).await;
        let wanted = [("flood", "ok"), ("echo", "refused")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(outcomes(&rows), wanted, "{front:?}");
        assert_eq!(house.one("second")["reason"], "tool_withheld", "{front:?}");
    }
}

/// A request that breaks the rules of the wire is refused before it is anybody's call, or is a refused call: in
/// either case no row says that it was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_differ_from_the_body_are_no_call_that_was_made() {
    let house = House::open("").await;
    for back in [Back::Pipe, Back::Json] {
        let client = house.gateway.client(back.server(), Era::Modern);
        let mut meta = testkit::client::modern_meta();
        meta["mine/session"] = format!("mismatch-{}", back.server()).into();
        let params = json!({ "name": "fine", "arguments": {}, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "other")];
        let answer = client.raw().post(body.to_string(), &headers).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        call(&client, "fine", mine("after", back.server()), json!({})).await.expect("answered");
        house.ended(&["--call", back.server()], 1).await;
        let rows = house.rows(&["--session", &format!("mismatch-{}", back.server())]);
        assert!(rows.iter().all(|row| row["outcome"] == "refused"), "{rows:?}");
    }
}
