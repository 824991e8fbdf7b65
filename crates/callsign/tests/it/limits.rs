//! Every limit has an error of its own, and the session lives on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Era, Failure};
use testkit::harness::Standing;

use crate::support::{SOON, hostile, name_of, setup};

#[tokio::test]
async fn an_answer_may_be_as_large_as_configured() {
    let gateway = hostile(&["big-result"], "").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let large = bad.tool_text("flood", json!({ "bytes": 15 << 20 })).await;
    assert_eq!(large.len(), 15 << 20, "16 MiB is the default");
    let failure = bad.try_tool("flood", json!({ "bytes": 17 << 20 })).await.expect_err("too large");
    assert_eq!(name_of(&failure), "answer_too_large", "{failure:?}");
    assert!(failure.text().contains("max_message"), "says what to set: {failure:?}");
    assert_eq!(bad.tool_text("echo", json!({ "text": "after" })).await, "after");
    bad.end().await;
    drop(bad);
    standing.after_with(128 << 20).await;
}

#[tokio::test]
async fn a_list_of_more_than_a_thousand_tools_is_refused() {
    let gateway = hostile(&["many-tools"], "").serve().await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let failure = bad.request("tools/list", json!({})).await.expect_err("1,001 tools");
    assert_eq!(name_of(&failure), "list_too_long", "{failure:?}");
    let gateway = hostile(&["many-tools", "--tools", "1000"], "").serve().await;
    let fine = gateway.connect("bad", Era::Legacy).await;
    let tools = fine.request("tools/list", json!({})).await.expect("1,000 tools");
    assert_eq!(tools["tools"].as_array().map(Vec::len), Some(1000));
}

#[tokio::test]
async fn pages_end_after_a_hundred() {
    let gateway = hostile(&["endless-pages"], "").serve().await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let mut cursor = Value::Null;
    for page in 1..=102 {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        match bad.request("tools/list", params).await {
            Ok(answer) => cursor = answer["nextCursor"].clone(),
            Err(failure) => {
                assert_eq!(name_of(&failure), "list_too_long", "{failure:?}");
                assert!(page >= 100, "not before page {page}");
                return;
            }
        }
    }
    panic!("102 pages and no end");
}

#[tokio::test]
async fn a_server_that_never_answers_the_handshake_times_out() {
    let gateway = hostile(&["never-initialize"], "timeout = \"2s\"").serve().await;
    let standing = Standing::before(&gateway).await;
    for era in Era::BOTH {
        let client = gateway.client("bad", era);
        let start = Instant::now();
        let failure = client.connect().await.expect_err("silence");
        assert!(!matches!(failure, Failure::Deadline | Failure::Closed), "{era:?}: {failure:?}");
        assert!(start.elapsed() < Duration::from_secs(4), "{era:?}: {:?}", start.elapsed());
        client.end().await;
    }
    standing.during().await;
}

#[tokio::test]
async fn a_slow_start_is_no_failure() {
    let gateway = hostile(&["slow-start", "--delay", "2000"], "").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.client("bad", Era::Legacy);
    let (connected, ()) = tokio::join!(bad.connect(), standing.during());
    connected.expect("it is only slow");
    assert_eq!(bad.tool_text("echo", json!({ "text": "x" })).await, "x");
    bad.end().await;
    drop(bad);
    standing.after().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_named() {
    let gateway = setup().server("gone", &["/no/such/program"], "").serve().await;
    let standing = Standing::before(&gateway).await;
    let failure = gateway.client("gone", Era::Legacy).connect().await.expect_err("no program");
    assert!(failure.text().contains("gone"), "{failure:?}");
    assert!(
        matches!(name_of(&failure).as_str(), "server_start_failed" | "server_unavailable"),
        "{failure:?}"
    );
    standing.after().await;
}

#[tokio::test]
async fn the_last_words_of_a_server_reach_whoever_can_act_on_them() {
    let program = bin("hostile-server");
    let command = [program.as_str(), "--mode", "needs-env", "TRACKER_TOKEN"];
    let gateway = setup().server("needy", &command, "").serve().await;
    let client = gateway.client("needy", Era::Legacy).with_deadline(SOON * 14);
    let failure = client.connect().await.expect_err("the variable is missing");
    assert!(failure.text().contains("TRACKER_TOKEN is not set"), "{failure:?}");
}

#[tokio::test]
async fn a_message_of_a_client_on_a_pipe_may_be_four_mebibytes() {
    let (client, _files) = setup().wrap(Era::Legacy, &[], &[&bin("echo-server")]);
    client.connect().await.expect("connected");
    let three = "x".repeat(3 << 20);
    assert_eq!(client.tool_text("echo", json!({ "text": three })).await.len(), 3 << 20);
    let failure = client.try_tool("echo", json!({ "text": "x".repeat(5 << 20) })).await;
    match failure {
        Err(Failure::Rpc(error)) => assert_eq!(error["data"]["code"], "message_too_large", "{error}"),
        // Where the id was not read any more, the error names nobody; the pipe goes on all the same.
        Err(Failure::Deadline) => assert!(!client.strays().is_empty(), "an error came back"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.tool_text("echo", json!({ "text": "after" })).await, "after");
}
