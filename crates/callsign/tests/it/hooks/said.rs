//! What hooks say goes to the log, and what they see of our environment is what was allowed.

use serde_json::{Value, json};
use testkit::client::Era;
use testkit::harness::CANARY;

use super::rig::{Hooks, MINE, Side, Way, mine, one};
use crate::support::{call_as, setup};

const SPEAKS: &str = r#"export default {
  "mcp.call.before": (input) => {
    console.log("before", { a: [1, null] }, 7)
    console.warn("a warning")
    console.error("an error")
    console.debug("a detail")
    console.info("two\nlines\r\u001b[31m 2026-01-01T00:00:00.000000Z ERROR forged")
  },
  "mcp.call.after": (input) => { console.log("after", input.ok) },
}
"#;

#[tokio::test]
async fn the_console_is_the_log_with_the_ids_of_the_call() {
    let (hooks, setup) = one(SPEAKS);
    for front in Side::BOTH {
        for back in Side::BOTH {
            let way = Way::open((front, back), Era::Legacy, &setup, "").await;
            for session in ["s-1", "s-2"] {
                call_as(&way.client, &mine(session), "echo", json!({ "text": "x" })).await.expect("answered");
            }
            assert!(way.logged(|log| log.matches("after true").count() == 2).await, "{}", way.stderr());
            let log = way.stderr();
            let rows = [
                ("INFO", r#"before {"a":[1,null]} 7"#),
                ("WARN", "a warning"),
                ("ERROR", "an error"),
                ("INFO", "after true"),
            ];
            for (level, words) in rows {
                for session in ["s-1", "s-2"] {
                    let file = hooks.path("hook.js");
                    let call = format!("call-of-{session}");
                    let parts = [level, words, &file, session, &call, "lane", "echo"];
                    let found = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
                    assert_eq!(found.count(), 1, "{}: {parts:?} in\n{log}", way.name);
                }
            }
            assert!(!log.contains("a detail"), "{}: that is for debugging", way.name);
            let forged =
                log.lines().any(|line| line.trim_start().starts_with("lines") || line.contains('\u{1b}'));
            assert!(!forged, "{}: one line is one line:\n{log}", way.name);
            if front == Side::Pipe {
                assert!(way.client.strays().is_empty(), "{}: on stdout is the protocol", way.name);
            }
        }
    }
}

#[tokio::test]
async fn the_environment_shows_what_is_allowed_and_nothing_else() {
    let hooks = Hooks::new(&[(
        "hook.js",
        r#"export default {
  "mcp.call.before": (input, output) => {
    output.meta.env = { ...process.env }
    output.meta.names = [Object.keys(process), typeof process.env.OPENAI_API_KEY, process.env.PATH ?? null, "SECRET" in process.env]
  },
}
"#,
    )]);
    let toml = format!("{}env = [\"USER_ID\", \"NOT_SET\", \"EMPTY\"]\n", hooks.toml(&["hook.js"]));
    let setup = setup().toml(MINE).toml(&toml).env("USER_ID", "u-1").env("SECRET", "s").env("EMPTY", "");
    for front in Side::BOTH {
        for back in Side::BOTH {
            let way = Way::open((front, back), Era::Legacy, &setup, "").await;
            call_as(&way.client, &mine("s-1"), "echo", json!({})).await.expect("answered");
            let meta = way.last("tools/call")["params"]["_meta"].clone();
            let mut env = meta["env"].clone();
            // Whether one that is empty counts as set is nobody's secret.
            let empty = env.as_object_mut().and_then(|env| env.remove("EMPTY")).unwrap_or_default();
            assert!(empty.is_null() || empty == "", "{}: {meta}", way.name);
            assert_eq!(env, json!({ "USER_ID": "u-1" }), "{}", way.name);
            assert_eq!(meta["names"], json!([["env"], "undefined", Value::Null, false]), "{}", way.name);
            assert!(!meta.to_string().contains(CANARY), "{}", way.name);
        }
    }
}
