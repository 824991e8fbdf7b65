//! Rows 1 to 9: what a child may do to us.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Client, Era, Failure};
use testkit::harness::{GOOD, Gateway, Standing, alive, wait_until};

use crate::support::{SOON, hostile, name_of, started};

const MIB: u64 = 1024 * 1024;

#[tokio::test]
async fn row_1_a_line_without_an_end_is_dropped_at_the_cap() {
    let gateway = hostile(&["long-line"], "max_message = \"4MiB\"\ntimeout = \"20s\"").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let start = Instant::now();
    let call = bad.start("tools/call", json!({ "name": "flood" })).await;
    standing.during().await;
    let failure = call.wait(Duration::from_secs(25)).await.expect_err("2,000 MB are no answer");
    assert!(matches!(failure, Failure::Rpc(_)), "one JSON-RPC error, not {failure:?}");
    assert!(start.elapsed() < Duration::from_secs(22), "not later than the deadline");
    bad.end().await;
    drop(bad);
    standing.after_with(2 * 4 * MIB).await;
}

#[tokio::test]
async fn row_1_a_child_is_killed_after_three_such_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let count = directory.path().join("count");
    let mode = ["long-line", "--bytes", "5000000", "--count", count.to_str().expect("UTF-8")];
    let gateway = hostile(&mode, "max_message = \"4MiB\"\ntimeout = \"10s\"").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    assert_eq!(bad.tool_text("echo", json!({ "text": "x" })).await, "x");
    let child = *started(&count).last().expect("a child");
    for line in 1..=3 {
        assert!(alive(child), "only after three lines, not before line {line}");
        assert!(bad.try_tool("flood", json!({})).await.is_err());
    }
    assert!(wait_until(SOON, || !alive(child)).await, "killed after the third");
    bad.end().await;
    drop(bad);
    standing.after().await;
}

#[tokio::test]
async fn row_2_noise_between_messages_is_skipped() {
    let gateway = hostile(&["noise"], "").serve().await;
    for era in Era::BOTH {
        // Over HTTP the modern era has no session that could end: there, only the legacy one is over afterwards.
        let standing = match era {
            Era::Legacy => Some(Standing::before(&gateway).await),
            Era::Modern => None,
        };
        let bad = gateway.connect("bad", era).await;
        for round in 0..3 {
            let text = format!("round {round}");
            assert_eq!(bad.tool_text("echo", json!({ "text": text })).await, text);
            let listed = bad.request("tools/list", json!({})).await.expect("a list");
            assert_eq!(listed["tools"].as_array().map(Vec::len), Some(2));
        }
        assert_eq!(bad.strays(), Vec::<Value>::new(), "noise is nobody's answer");
        assert_eq!(bad.notifications().await, Vec::<Value>::new());
        bad.end().await;
        drop(bad);
        if let Some(standing) = standing {
            standing.after().await;
        }
    }
}

#[tokio::test]
async fn row_3_answers_nobody_asked_for_reach_nobody() {
    for more in ["", "isolation = \"shared\"\nidle = \"1s\""] {
        let gateway = hostile(&["stray-ids"], more).serve().await;
        let standing = Standing::before(&gateway).await;
        let (one, two) =
            (gateway.connect("bad", Era::Legacy).await, gateway.connect("bad", Era::Legacy).await);
        for round in 0..20 {
            let (first, second) = (format!("one {round}"), format!("two {round}"));
            let (first_answer, second_answer) = tokio::join!(
                one.tool_text("echo", json!({ "text": first })),
                two.tool_text("echo", json!({ "text": second })),
            );
            assert_eq!((first_answer, second_answer), (first, second));
        }
        for session in [&one, &two] {
            assert_eq!(session.strays(), Vec::<Value>::new(), "{more}");
            session.end().await;
        }
        drop((one, two));
        standing.after().await;
    }
}

#[tokio::test]
async fn row_4_deep_nesting_overflows_no_stack() {
    let gateway = hostile(&["deep"], "timeout = \"3s\"").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    assert!(bad.try_tool("flood", json!({})).await.is_ok(), "the answer after the deep line arrives");
    let failure = bad.try_tool("deep_result", json!({})).await.expect_err("too deep to be carried");
    assert!(matches!(failure, Failure::Rpc(_)), "{failure:?}");
    assert_eq!(bad.tool_text("echo", json!({ "text": "after" })).await, "after");
    bad.end().await;
    drop(bad);
    standing.after().await;
}

#[tokio::test]
async fn row_5_broken_text_is_refused_or_passed_on_as_it_is() {
    let gateway = hostile(&["bad-utf8"], "timeout = \"3s\"").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    assert!(bad.try_tool("flood", json!({})).await.is_ok());
    let request = r#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"surrogate"}}"#;
    let answer = bad.raw().post(request, &[]).await;
    let text = answer.text();
    assert!(text.contains(r#""\ud800""#) || text.contains("\"error\""), "lossless or refused: {text}");
    assert_eq!(bad.tool_text("echo", json!({ "text": "after" })).await, "after");
    bad.end().await;
    drop(bad);
    standing.after().await;
}

#[tokio::test]
async fn row_6_a_deaf_server_times_out_and_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let count = directory.path().join("count");
    let mode = ["deaf", "--count", count.to_str().expect("UTF-8")];
    let gateway = hostile(&mode, "timeout = \"2s\"").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let start = Instant::now();
    let failure = bad.try_tool("echo", json!({ "text": "x" })).await.expect_err("nobody answers");
    let took = start.elapsed();
    assert_eq!(name_of(&failure), "timeout", "{failure:?}");
    assert!(
        took > Duration::from_secs(1) && took < Duration::from_secs(3),
        "at the deadline, not after {took:?}"
    );
    standing.during().await;
    let child = *started(&count).last().expect("a child");
    let killed = wait_until(Duration::from_secs(6), || !alive(child)).await;
    assert!(killed, "SIGKILL at most 5 s after the deadline");
    bad.end().await;
    drop(bad);
    standing.after().await;
}

#[tokio::test]
async fn row_7_a_crash_loop_is_started_six_times_a_minute_at_most() {
    let directory = tempfile::tempdir().expect("a directory");
    let count = directory.path().join("count");
    let mode = ["crash-loop", "--count", count.to_str().expect("UTF-8")];
    let gateway = hostile(&mode, "").serve().await;
    let standing = Standing::before(&gateway).await;
    let good = gateway.connect(GOOD, Era::Legacy).await;
    let pid = good.whoami("X").await["pid"].clone();

    let start = Instant::now();
    let mut last = String::new();
    while last != "server_unavailable" && start.elapsed() < Duration::from_mins(1) {
        last = name_of(&attempt(&gateway).await);
    }
    assert_eq!(last, "server_unavailable", "the circuit opens");
    let spawns = started(&count).len();
    assert!((2..=6).contains(&spawns), "{spawns} starts");
    assert_eq!(name_of(&attempt(&gateway).await), "server_unavailable");
    assert_eq!(started(&count).len(), spawns, "an open circuit starts nothing");
    assert_eq!(good.whoami("X").await["pid"], pid, "the children of others are untouched");
    good.end().await;
    drop(good);
    standing.after().await;
}

async fn attempt(gateway: &Gateway) -> Failure {
    let client = gateway.client("bad", Era::Legacy).with_deadline(Duration::from_secs(70));
    let failure = match client.connect().await {
        Err(failure) => failure,
        Ok(_) => client.try_tool("echo", json!({ "text": "x" })).await.expect_err("it crashes"),
    };
    client.end().await;
    failure
}

#[tokio::test]
async fn row_8_a_flood_of_progress_stays_bounded() {
    let gateway = hostile(&["progress-flood"], "").serve().await;
    let standing = Standing::before(&gateway).await;
    let good = gateway.connect(GOOD, Era::Legacy).await;
    let baseline = p99(&good, 300).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let request = json!({
        "jsonrpc": "2.0", "id": 5, "method": "tools/call",
        "params": { "name": "flood", "_meta": { "progressToken": "t" } },
    });
    // A client that asked for progress and reads none of it until the end.
    let (status, mut events) = bad.raw().post_stream(request.to_string(), &[]).await;
    assert_eq!(status, 200);
    standing.during().await;
    let flooded = p99(&good, 300).await;
    // The flood itself and this test share two cores with the gateway: hence the constant.
    let limit = 2 * baseline + Duration::from_millis(20);
    assert!(flooded < limit, "p99 of another session: {flooded:?}, {baseline:?} before");
    let mut answered = false;
    let read = async {
        while let Some(event) = events.next().await {
            let message: Value = serde_json::from_str(&event.data).unwrap_or_default();
            answered |= message["id"] == 5 && message.get("result").is_some();
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), read).await.is_ok(), "the stream ends");
    assert!(answered, "dropping progress never drops the answer");
    bad.end().await;
    good.end().await;
    drop((bad, good));
    standing.after().await;
}

async fn p99(client: &Client, calls: usize) -> Duration {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        client.call_tool("echo", json!({ "text": "x" })).await;
        times.push(start.elapsed());
    }
    times.sort();
    times[calls * 99 / 100]
}

#[tokio::test]
async fn row_9_a_flood_on_stderr_blocks_nothing() {
    let gateway = hostile(&["stderr-flood"], "").serve().await;
    let standing = Standing::before(&gateway).await;
    let bad = gateway.connect("bad", Era::Legacy).await;
    let flood = bad.start("tools/call", json!({ "name": "flood" })).await;
    let start = Instant::now();
    assert_eq!(bad.tool_text("echo", json!({ "text": "meanwhile" })).await, "meanwhile");
    assert!(start.elapsed() < SOON, "stdout goes on while stderr floods");
    standing.during().await;
    assert!(flood.wait(Duration::from_mins(1)).await.is_ok(), "1 GB is drained");
    let log = std::fs::metadata(gateway.files.log()).map_or(0, |log| log.len());
    assert!(log < 8 * MIB, "a child's stderr is capped, not copied: {log} bytes of log");
    bad.end().await;
    drop(bad);
    standing.after().await;
}
