//! Waiting for a run, and what is said meanwhile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Client, Daemon, Events, completed};

fn wait(session: &str, seconds: u64, token: Option<&str>) -> Value {
    let arguments = json!({ "session_id": session, "wait_seconds": seconds });
    let mut params = json!({ "name": "get_status", "arguments": arguments });
    if let Some(token) = token {
        params["_meta"] = json!({ "progressToken": token });
    }
    params
}

async fn status(client: &Client<'_>, params: Value) -> Value {
    let answer = client.request("tools/call", params).await;
    answer.last()["result"]["structuredContent"]["run"]["status"].clone()
}

#[tokio::test]
async fn a_wait_ends_with_the_run() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    // Without being told, it would look after a second. A busy machine gets a few tries.
    for left in (0..5).rev() {
        let run = ann.submit(&session, "x").await;
        let idle = daemon.holders();
        let (waited, took) = tokio::join!(status(&ann, wait(&session, 60, None)), async {
            daemon.until("nobody waits", |holders| holders > idle).await;
            let begin = Instant::now();
            ann.call("cancel_run", json!({ "run_id": run })).await;
            daemon.until("the wait goes on", |holders| holders <= idle).await;
            begin.elapsed()
        });
        assert_eq!(waited, json!("canceled"));
        if took < Duration::from_millis(500) {
            return;
        }
        assert!(left > 0, "it is found out, not told: {took:?}");
    }
}

#[tokio::test]
async fn an_end_that_nobody_tells_is_found_as_well() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    ann.submit(&session, "x").await;
    let idle = daemon.holders();
    let (waited, _) = tokio::join!(status(&ann, wait(&session, 60, None)), async {
        daemon.until("nobody waits", |holders| holders > idle).await;
        daemon.run(&session, completed("done")).await
    });
    assert_eq!(waited, json!("completed"));
}

#[tokio::test]
async fn a_wait_has_an_end_of_its_own() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    ann.submit(&session, "x").await;
    let begin = Instant::now();
    assert_eq!(status(&ann, wait(&session, 1, None)).await, json!("queued"));
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn who_asks_for_progress_is_told() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    ann.submit(&session, "x").await;
    let mut events = Events::of(ann.start("tools/call", wait(&session, 60, Some("t-1"))).await);
    let told = |progress: f64, message: &str| {
        let params = json!({ "progressToken": "t-1", "progress": progress, "message": message });
        Some(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    };
    assert_eq!(events.next().await, told(1.0, "queued"));
    let (lease, run) = daemon.begin(&session).await;
    assert_eq!(events.next().await, told(2.0, "running"));
    daemon.finish(&lease, &run.id, completed("done")).await;
    let last = events.next().await.unwrap();
    assert_eq!(last["result"]["structuredContent"]["run"]["status"], json!("completed"), "{last}");
    assert_eq!(events.next().await, None);
    // Nobody who did not ask is told.
    ann.submit(&session, "y").await;
    let answer = ann.request("tools/call", wait(&session, 1, None)).await;
    assert_eq!(answer.messages.len(), 1, "{answer:?}");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_wait() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    ann.submit(&session, "x").await;
    let idle = daemon.holders();
    // The head comes with the first notification, so the wait has begun.
    let response = ann.start("tools/call", wait(&session, 600, Some("t"))).await;
    assert!(daemon.holders() > idle, "nobody waits");
    drop(response);
    daemon.until("the wait goes on without anybody", |holders| holders <= idle).await;

    // Without a notification there is no head either.
    tokio::select! {
        response = ann.start("tools/call", wait(&session, 600, None)) => panic!("{response:?}"),
        () = daemon.until("nobody waits", |holders| holders > idle) => {}
    }
    daemon.until("the wait goes on without anybody", |holders| holders <= idle).await;
}

#[tokio::test]
async fn a_daemon_that_stops_ends_every_wait() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    ann.submit(&session, "x").await;
    let idle = daemon.holders();
    let mut events = Events::of(ann.start("tools/call", wait(&session, 600, Some("t"))).await);
    let silent = async {
        daemon.until("one waits", |holders| holders > idle + 1).await;
        daemon.tools.stop();
    };
    let (answer, ()) = tokio::join!(ann.start("tools/call", wait(&session, 600, None)), silent);
    assert_eq!(answer.status(), http::StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(events.next().await.unwrap()["params"]["message"], json!("queued"));
    assert_eq!(events.next().await, None, "the stream ends without an answer");
    drop(events);
    daemon.until("the waits go on", |holders| holders <= idle).await;
}
