//! Files of hooks change while calls are under way.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Call, Era, text};
use testkit::harness::wait_until;

use super::rig::{Hooks, MINE, Side, Way, at_once, mine, sides};
use crate::support::{SOON, call_as, setup};

/// Writes its edition into the call and into the result.
fn edition(number: &str) -> String {
    format!(
        r#"export default {{
  "mcp.call.before": (input, output) => {{ output.meta.edition = "{number}" }},
  "mcp.call.after": (input, output) => {{ output.result.edition = "{number}" }},
}}
"#
    )
}

/// The edition that an answer went through.
async fn edition_of(way: &Way) -> String {
    let result = call_as(&way.client, &mine("s-1"), "echo", json!({ "text": "x" })).await;
    let result = result.unwrap_or_else(|failure| panic!("{}: {failure:?}\n{}", way.name, way.stderr()));
    result["edition"].as_str().unwrap_or("none").to_owned()
}

/// Calls until an edition is in force; no call may be lost or see another one than `before`.
async fn until(way: &Way, before: &str, wanted: &str) {
    let start = Instant::now();
    loop {
        let now = edition_of(way).await;
        if now == wanted {
            return;
        }
        assert_eq!(now, before, "{}: {}", way.name, way.stderr());
        assert!(start.elapsed() < SOON, "{}: still {now}, not {wanted}\n{}", way.name, way.stderr());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn slow(way: &Way, ms: u64) -> Call {
    let params = json!({ "name": "sleep", "arguments": { "ms": ms }, "_meta": mine("s-1") });
    way.client.start("tools/call", params).await
}

fn errors(way: &Way) -> usize {
    way.stderr().lines().filter(|line| line.contains("ERROR")).count()
}

#[tokio::test]
async fn a_call_under_way_ends_with_the_hooks_it_began_with() {
    at_once(sides().map(|sides| async move {
        let hooks = Hooks::new(&[("hook.js", &edition("one"))]);
        let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
        let way = Way::open(sides, Era::Legacy, &setup, "").await;
        assert_eq!(edition_of(&way).await, "one", "{}", way.name);
        let under_way = slow(&way, 1200).await;
        let asked = || way.messages("tools/call").iter().any(|call| call["params"]["name"] == "sleep");
        assert!(wait_until(SOON, asked).await, "{}: it is under way", way.name);
        hooks.write("hook.js", &edition("two"));
        until(&way, "one", "two").await;
        let ended = under_way.wait(SOON).await.expect("it is not lost");
        assert_eq!((&*text(&ended), &ended["edition"]), ("ok", &json!("one")), "{}", way.name);
        let sent = way.messages("tools/call");
        let of = |call: &Value| call["params"]["_meta"]["edition"].clone();
        let slept = sent.iter().find(|call| call["params"]["name"] == "sleep").map(of);
        assert_eq!(slept, Some(json!("one")), "{}", way.name);
        assert_eq!(sent.last().map(of), Some(json!("two")), "{}", way.name);
    }))
    .await;
}

#[tokio::test]
async fn no_call_is_lost_and_none_has_two_editions() {
    at_once(Side::BOTH.map(|front| async move {
        let hooks = Hooks::new(&[("hook.js", &edition("0"))]);
        let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
        let way = Way::open((front, Side::Http), Era::Modern, &setup, "").await;
        let mut seen: Vec<String> = Vec::new();
        for number in 1..=2 {
            hooks.write("hook.js", &edition(&number.to_string()));
            let start = Instant::now();
            while seen.last().is_none_or(|last| *last != number.to_string()) {
                assert!(start.elapsed() < SOON, "{}: {seen:?}", way.name);
                let mut calls = Vec::new();
                for _ in 0..8 {
                    calls.push(slow(&way, 15).await);
                }
                for call in calls {
                    let result = call.wait(SOON).await.expect("none is lost");
                    seen.push(result["edition"].as_str().unwrap_or("none").to_owned());
                }
            }
        }
        let mut sent: Vec<String> = (way.messages("tools/call").iter())
            .map(|call| call["params"]["_meta"]["edition"].as_str().unwrap_or("none").to_owned())
            .collect();
        // A call counts where it began, and ends as it began.
        sent.sort();
        seen.sort();
        assert_eq!(seen, sent, "{}", way.name);
    }))
    .await;
}

#[tokio::test]
async fn a_broken_edit_keeps_the_old_hooks_says_so_once_and_can_be_mended() {
    at_once(Side::BOTH.map(|front| async move {
        let hooks = Hooks::new(&[("hook.js", &edition("one"))]);
        let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        assert_eq!(edition_of(&way).await, "one", "{}", way.name);
        hooks.write("hook.js", "export default {\n  \"mcp.call.before\": () => {\n    oh no\n  },\n}\n");
        let place = format!("{}:3", hooks.path("hook.js"));
        assert!(way.logged(|log| log.contains(&place)).await, "{}: {}", way.name, way.stderr());
        assert_eq!(edition_of(&way).await, "one", "{}: the old one holds", way.name);
        hooks.write("hook.js", &edition("two"));
        until(&way, "one", "two").await;
        let log = way.stderr();
        assert_eq!(log.matches(&place).count(), 1, "{}: once: {log}", way.name);
        assert_eq!(errors(&way), 1, "{}: {log}", way.name);
        // A file that is gone for a moment is no reason to let calls through without it.
        std::fs::remove_file(hooks.path("hook.js")).expect("removed");
        let gone = way.logged(|log| errors_in(log) == 2).await;
        assert!(gone, "{}: {}", way.name, way.stderr());
        assert_eq!(edition_of(&way).await, "two", "{}", way.name);
        hooks.write("hook.js", &edition("three"));
        until(&way, "two", "three").await;
    }))
    .await;
}

fn errors_in(log: &str) -> usize {
    log.lines().filter(|line| line.contains("ERROR")).count()
}

const IMPORTS: &str = r#"import { edition } from "./sibling.js"
export default {
  "mcp.call.after": (input, output) => { output.result.edition = edition() },
}
"#;

fn sibling(number: &str) -> String {
    format!("export const edition = () => \"{number}\"\n")
}

#[tokio::test]
async fn a_change_of_an_imported_file_counts() {
    at_once(Side::BOTH.map(|front| async move {
        let hooks = Hooks::new(&[("sibling.js", &sibling("one")), ("hook.js", IMPORTS)]);
        let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        assert_eq!(edition_of(&way).await, "one", "{}", way.name);
        hooks.write("sibling.js", &sibling("two"));
        until(&way, "one", "two").await;
        hooks.write("sibling.js", "export const edition = () => {\n");
        assert!(way.logged(|log| log.contains("sibling.js:")).await, "{}: {}", way.name, way.stderr());
        assert_eq!(edition_of(&way).await, "two", "{}", way.name);
        hooks.write("sibling.js", &sibling("three"));
        until(&way, "two", "three").await;
    }))
    .await;
}

/// Who splits a file in two saves one of them first.
#[tokio::test]
async fn a_sibling_that_is_written_after_the_file_that_imports_it_counts() {
    let hooks = Hooks::new(&[("hook.js", &edition("one"))]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, "").await;
    assert_eq!(edition_of(&way).await, "one");
    hooks.write("hook.js", IMPORTS);
    assert!(way.logged(|log| log.contains("sibling.js")).await, "{}", way.stderr());
    hooks.write("sibling.js", &sibling("two"));
    until(&way, "one", "two").await;
}

#[tokio::test]
async fn a_change_of_the_list_counts_and_starts_no_process_again() {
    let hooks = Hooks::new(&[("one.js", &edition("one")), ("two.js", &edition("two"))]);
    let setup = setup().toml(MINE);
    let listed = |names: &[&str]| format!("hooks = {}", hooks.list(names));
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, &listed(&["one.js"])).await;
    let gateway = way.gateway().expect("a daemon");
    let config = std::fs::read_to_string(gateway.files.config()).expect("the configuration");
    assert_eq!(edition_of(&way).await, "one");
    let pid = || async { way.client.whoami("X").await["pid"].clone() };
    let before = pid().await;
    let under_way = slow(&way, 900).await;
    let edits = [
        ("one", listed(&["one.js", "two.js"]), "two"),
        ("two", String::new(), "none"),
        ("none", listed(&["one.js"]), "one"),
    ];
    for (from, line, to) in edits {
        gateway.rewrite(&config.replace(&listed(&["one.js"]), &line));
        until(&way, from, to).await;
        assert_eq!(pid().await, before, "{to}: the same process");
    }
    let ended = under_way.wait(SOON).await.expect("it is not lost");
    assert_eq!(ended["edition"], "one");
}

/// The configuration is in order, the file it names is not yet.
#[tokio::test]
async fn a_list_that_names_a_broken_file_holds_once_the_file_is_mended() {
    let hooks = Hooks::new(&[("one.js", &edition("one")), ("two.js", "export default {\n  oh no\n}\n")]);
    let setup = setup().toml(MINE);
    let listed = |names: &[&str]| format!("hooks = {}", hooks.list(names));
    let way = Way::open((Side::Http, Side::Pipe), Era::Legacy, &setup, &listed(&["one.js"])).await;
    let gateway = way.gateway().expect("a daemon");
    let config = std::fs::read_to_string(gateway.files.config()).expect("the configuration");
    assert_eq!(edition_of(&way).await, "one");
    gateway.rewrite(&config.replace(&listed(&["one.js"]), &listed(&["two.js"])));
    let place = format!("{}:2", hooks.path("two.js"));
    assert!(way.logged(|log| log.contains(&place)).await, "{}", way.stderr());
    assert_eq!(edition_of(&way).await, "one", "the old list holds");
    hooks.write("two.js", &edition("two"));
    until(&way, "one", "two").await;
    assert_eq!(errors(&way), 1, "{}", way.stderr());
}

#[tokio::test]
async fn what_a_file_remembered_is_gone_with_it() {
    let counts = |edition: &str| {
        format!(
            r#"export default {{
  "mcp.call.after": (input, output) => {{
    globalThis.state.count = (globalThis.state.count ?? 0) + 1
    output.result.edition = "{edition}"
    output.result.count = globalThis.state.count
  }},
}}
"#
        )
    };
    let hooks = Hooks::new(&[("hook.js", &counts("one"))]);
    let setup = setup().toml(MINE).toml(&hooks.toml(&["hook.js"]));
    for front in Side::BOTH {
        hooks.write("hook.js", &counts("one"));
        let way = Way::open((front, Side::Pipe), Era::Legacy, &setup, "").await;
        for count in 1..=3 {
            let result = way.client.call_tool("echo", json!({ "text": "x" })).await;
            assert_eq!(result["count"], count, "{}", way.name);
        }
        hooks.write("hook.js", &counts("two"));
        until(&way, "one", "two").await;
        let result = way.client.call_tool("echo", json!({ "text": "x" })).await;
        assert_eq!(result["count"], 2, "{}: counted anew", way.name);
    }
}
