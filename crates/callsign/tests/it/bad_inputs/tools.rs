//! Row 20: a tool that is not what it was.

use serde_json::{Value, json};
use testkit::client::{Client, Era};
use testkit::harness::{Gateway, Standing, wait_until};

use crate::support::{SOON, hostile, name_of};

const LOOK_ALIKE: &str = "echo\u{200b}";

async fn names(client: &Client) -> Vec<(String, String)> {
    let listed = client.request("tools/list", json!({})).await.expect("a list");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| (word(&tool["name"]), word(&tool["description"]))).collect()
}

fn has(tools: &[(String, String)], name: &str) -> bool {
    tools.iter().any(|(known, _)| known == name)
}

async fn pulled(more: &str) -> (Gateway, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let count = directory.path().join("lists");
    let mode = ["rug-pull", "--changes", "2", "--count", count.to_str().expect("UTF-8")];
    (hostile(&mode, more).serve().await, directory)
}

#[tokio::test]
async fn row_20_a_change_is_recorded_and_passed_on() {
    let (gateway, _directory) = pulled("").await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let first = names(&bad).await;
    assert!(has(&first, "echo") && !has(&first, LOOK_ALIKE), "{first:?}");
    // The call starts the caller's own child, whose list is the second one.
    assert_eq!(bad.tool_text("echo", json!({ "text": "x" })).await, "x");
    let second = names(&bad).await;
    assert!(has(&second, LOOK_ALIKE), "passed on: {second:?}");
    assert_ne!(first[0].1, second[0].1, "the description changed");
    let recorded = || gateway.log().lines().any(|line| line.contains("echo") && hashes(line) >= 2);
    assert!(wait_until(SOON, recorded).await, "recorded with both hashes:\n{}", gateway.log());
    bad.end().await;
    drop(bad);
    standing.after().await;
}

/// How many different words of 16 and more hexadecimal digits are in a line.
fn hashes(line: &str) -> usize {
    let words = line.split(|letter: char| !letter.is_ascii_hexdigit()).filter(|word| word.len() >= 16);
    words.collect::<std::collections::HashSet<_>>().len()
}

#[tokio::test]
async fn row_20_a_pinned_tool_that_changed_is_withheld_until_approved() {
    let (gateway, _directory) = pulled("pin = true").await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    assert!(has(&names(&bad).await, "echo"), "first seen, first trusted");
    // Any call starts the caller's own child.
    assert!(bad.try_tool("flood", json!({})).await.is_ok());
    let second = names(&bad).await;
    assert!(!has(&second, "echo") && !has(&second, LOOK_ALIKE), "withheld: {second:?}");
    assert!(has(&second, "flood"), "what did not change stays: {second:?}");
    for name in ["echo", LOOK_ALIKE] {
        let failure = bad.try_tool(name, json!({ "text": "x" })).await.expect_err("withheld");
        assert_eq!(name_of(&failure), "tool_withheld", "{failure:?}");
        assert!(failure.text().contains("servers approve"), "says what to do: {failure:?}");
    }
    assert!(bad.try_tool("flood", json!({})).await.is_ok(), "the others work");

    let (code, _, stderr) = gateway.run(&["servers", "approve", "bad"]);
    assert_eq!(code, Some(0), "{stderr}");
    let mut approved = Vec::new();
    for _ in 0..50 {
        approved = names(&bad).await;
        if has(&approved, "echo") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(has(&approved, "echo"), "approved: {approved:?}");
    assert_eq!(bad.tool_text("echo", json!({ "text": "x" })).await, "x");
    bad.end().await;
    drop(bad);
    standing.after().await;
}
