//! Calls that a hook refuses or fails to let through, and those that go on beside them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Era, text};

use super::rig::{Hooks, MINE, Side, Stopped, Way, mine, one, stopped};
use crate::support::{SOON, call_as, setup};

/// Does what the call's text says.
const BAD: &str = r#"const recurse = (n) => recurse(n + 1) + 1
export default {
  "mcp.call.before": async (input, output) => {
    switch (input.arguments?.text) {
      case "throw":
        throw new Error("ask an operator")
      case "mistake":
        input.nothing.here
      case "later":
        await null
        throw new TypeError("said later")
      case "loop":
        for (;;) Math.random()
      case "never":
        await new Promise(() => {})
      case "memory":
        for (const kept = []; ; ) kept.push(new Array(100000).fill(0))
      case "deep":
        recurse(0)
    }
  },
}
"#;

/// What to do, how it is stopped, at which line, and by which words. 0: where an interruption falls is chance.
fn rows() -> [(&'static str, Stopped, usize, &'static str); 7] {
    [
        ("throw", Stopped::Refused, 6, "ask an operator"),
        ("mistake", Stopped::Refused, 8, "undefined"),
        ("later", Stopped::Refused, 11, "said later"),
        ("loop", Stopped::Failed, 0, "50 ms of CPU"),
        ("never", Stopped::Failed, 3, "settle"),
        ("memory", Stopped::Failed, 17, "16 MB of memory"),
        ("deep", Stopped::Refused, 1, "too deeply"),
    ]
}

#[tokio::test]
async fn a_call_that_is_refused_is_not_made_and_the_next_one_is() {
    let (hooks, setup) = one(BAD);
    for way in Way::all(&setup).await {
        for (word, how, line, says) in rows() {
            let answer = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": word })).await;
            let place = if line == 0 { "hook.js:".to_owned() } else { hooks.at("hook.js", line) };
            let message = stopped(answer, how, &[&place, says]);
            assert!(message.starts_with("refused by the hook "), "{}: {message}", way.name);
            let fine = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "fine" })).await;
            let fine = fine.unwrap_or_else(|failure| panic!("{}: after {word}: {failure:?}", way.name));
            assert_eq!(text(&fine), "fine", "{}: after {word}", way.name);
        }
        let arrived: Vec<Value> = way.messages("tools/call");
        let only_fine = arrived.iter().all(|call| call["params"]["arguments"]["text"] == "fine");
        assert!(only_fine && arrived.len() == rows().len(), "{}: {arrived:?}", way.name);
    }
}

#[tokio::test]
async fn every_request_that_fires_can_be_refused() {
    let (hooks, setup) = one(r#"export default {
  "mcp.call.before": (input) => {
    throw new Error("no " + input.method)
  },
}
"#);
    for way in Way::all(&setup).await {
        let requests = [
            ("tools/call", json!({ "name": "echo", "arguments": {} })),
            ("tools/list", json!({})),
            ("prompts/get", json!({ "name": "greet" })),
            ("resources/read", json!({ "uri": "test://static" })),
        ];
        for (method, params) in requests {
            let answer = way.client.request(method, params).await;
            stopped(answer, Stopped::Refused, &[&hooks.at("hook.js", 3), &format!("no {method}")]);
            assert_eq!(way.messages(method).len(), 0, "{}: {method}", way.name);
        }
        assert!(way.client.request("resources/list", json!({})).await.is_ok(), "{}", way.name);
    }
}

/// The hook after one that refuses does not run, and neither do those that look at answers.
#[tokio::test]
async fn the_first_to_refuse_is_the_last_to_run() {
    let hooks = Hooks::new(&[
        ("a.js", "export default { \"mcp.call.before\": () => { throw new Error(\"first\") } }\n"),
        (
            "b.js",
            "export default {\n  \"mcp.call.before\": () => console.log(\"b ran\"),\n  \"mcp.call.after\": () => console.log(\"b looked\"),\n}\n",
        ),
    ]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["a.js", "b.js"]));
    let way = Way::open((Side::Http, Side::Http), Era::Legacy, &setup, "").await;
    let answer = call_as(&way.client, &mine("s-1"), "echo", json!({})).await;
    stopped(answer, Stopped::Refused, &[&hooks.at("a.js", 1), "first"]);
    let log = way.stderr();
    assert!(!log.contains("b ran") && !log.contains("b looked"), "{log}");
}

const OPTIONAL_FAILURES: usize = 20;

#[tokio::test]
async fn an_optional_file_that_fails_is_skipped_and_mentioned_once() {
    let hooks = Hooks::new(&[
        (
            "optional.js",
            r#"export default {
  "mcp.call.before": (input, output) => {
    output.meta.half = "done"
    output.arguments = { text: "half done" }
    throw new Error("oh no")
  },
  "mcp.call.after": (input, output) => {
    output.result = {}
    throw new Error("oh no again")
  },
}
"#,
        ),
        (
            "needed.js",
            "export default { \"mcp.call.before\": (input, output) => { output.meta.needed = 1 } }\n",
        ),
    ]);
    let list = format!(
        "{{ path = {:?}, optional = true }}, {:?}",
        hooks.path("optional.js"),
        hooks.path("needed.js")
    );
    let setup = setup().toml(MINE).toml(&format!("[hooks]\nfiles = [{list}]\n"));
    for front in Side::BOTH {
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        for _ in 0..OPTIONAL_FAILURES {
            let result = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "x" })).await;
            assert_eq!(text(&result.expect("answered")), "x", "{}: nothing half done", way.name);
        }
        for call in way.messages("tools/call") {
            let meta = &call["params"]["_meta"];
            assert!(meta.get("half").is_none() && meta["needed"] == 1, "{}: {call}", way.name);
        }
        let log = way.stderr();
        let mentioned: Vec<&str> = log.lines().filter(|line| line.contains("optional.js")).collect();
        assert_eq!(mentioned.len(), 1, "{}: {log}", way.name);
        let warning = mentioned[0].contains("WARN") && mentioned[0].contains("oh no");
        assert!(warning && mentioned[0].contains("optional.js:5"), "{}: {mentioned:?}", way.name);
    }
}

/// An optional file that cannot even be loaded keeps nobody from starting.
#[tokio::test]
async fn an_optional_file_that_is_broken_or_missing_is_left_out_with_a_warning() {
    let hooks = Hooks::new(&[("broken.js", "export default {\n  oh no\n}\n")]);
    for (name, says) in [("broken.js", "broken.js:2"), ("missing.js", "missing.js")] {
        let list = format!("{{ path = {:?}, optional = true }}", hooks.path(name));
        let setup = setup().toml(&format!("[hooks]\nfiles = [{list}]\n"));
        for front in Side::BOTH {
            let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
            assert_eq!(way.client.tool_text("echo", json!({ "text": "x" })).await, "x", "{}", way.name);
            let log = way.stderr();
            let said = log.lines().any(|line| line.contains("WARN") && line.contains(says));
            assert!(said, "{}: {log}", way.name);
        }
    }
}

/// One session's endless loops, one after the other, are no matter of the others'.
#[tokio::test]
async fn other_sessions_go_on_while_a_hook_takes_all_its_time() {
    let (_hooks, setup) = one(BAD);
    let setup = setup.toml("timeout_ms = 400");
    for front in Side::BOTH {
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        for session in ["bad", "good"] {
            let warm = call_as(&way.client, &mine(session), "echo", json!({ "text": "warm" })).await;
            warm.expect("answered");
        }
        let looping = || json!({ "name": "echo", "arguments": { "text": "loop" }, "_meta": mine("bad") });
        // The first shows that the hook can be slow; from then on it runs aside.
        let first = way.client.start("tools/call", looping()).await;
        assert!(first.wait(SOON).await.is_err());
        let second = way.client.start("tools/call", looping()).await;
        let begun = Instant::now();
        let mut slowest = Duration::ZERO;
        let mut calls = 0;
        while begun.elapsed() < Duration::from_millis(250) {
            let start = Instant::now();
            let answer = call_as(&way.client, &mine("good"), "echo", json!({ "text": "x" })).await;
            assert_eq!(text(&answer.expect("answered")), "x", "{}", way.name);
            slowest = slowest.max(start.elapsed());
            calls += 1;
        }
        assert!(slowest < Duration::from_millis(300), "{}: {calls} calls, {slowest:?}", way.name);
        stopped(second.wait(SOON).await, Stopped::Failed, &["400 ms of CPU"]);
    }
}
