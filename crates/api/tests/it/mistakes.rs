//! Everything that can be wrong with a call, and what is said then.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Client, Daemon, completed};

const NO_RUN: &str = "run_00000000000000000000000000";

#[track_caller]
fn has(found: &(String, String), code: &str, part: &str) {
    assert_eq!(found.0, code, "{}", found.1);
    assert!(found.1.contains(part), "{:?} lacks {part:?}", found.1);
}

#[tokio::test]
async fn what_the_desk_refuses_is_told_to_the_model() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({ "reuse_key": "k" })).await;
    let other = ann.session(json!({})).await;
    let run = ann.submit(&other, "x").await;
    let refused = async |tool: &str, arguments: Value| ann.refusal(tool, arguments).await;

    has(&refused("get_status", json!({ "session_id": "nope" })).await, "no_session", "list_sessions");
    let arguments = json!({ "session_id": session, "run_id": NO_RUN });
    has(&refused("get_status", arguments).await, "no_run", "get_status");
    let arguments = json!({ "session_id": session, "run_id": run });
    has(&refused("get_status", arguments.clone()).await, "no_run", "is not of session");
    has(&refused("list_artifacts", arguments).await, "no_run", "is not of session");
    let arguments = json!({ "reuse_key": "k", "image": "other:2" });
    has(&refused("create_or_reuse_session", arguments).await, "other_image", "other:2");
    let path = format!("{session}/../{other}/workspace/x");
    for path in ["", "x", "/etc/passwd", &path, &format!("{session}/key"), &format!("{session}/workspace")] {
        has(&refused("read_artifact", json!({ "path": path })).await, "no_artifact", "list_artifacts");
    }
    let task = |task: &str, key: &str| json!({ "session_id": session, "task": task, "idempotency_key": key });
    ann.call("submit_task", task("x", "1")).await;
    has(&refused("submit_task", task("y", "1")).await, "idempotency_conflict", "new key");
    has(&refused("submit_task", task(" ", "2")).await, "bad_argument", "`task`");
    has(&refused("submit_task", task("x", "")).await, "bad_argument", "`idempotency_key`");
    ann.call("terminate_session", json!({ "session_id": session })).await;
    has(&refused("submit_task", task("x", "3")).await, "session_terminated", "create_or_reuse_session");
    *daemon.unable.lock().unwrap() = Some("install bubblewrap".to_owned());
    has(&refused("create_or_reuse_session", json!({})).await, "unable", "install bubblewrap");
    daemon.store.close().await;
    has(&refused("list_sessions", json!({})).await, "store_failed", "try again");
}

#[tokio::test]
async fn a_queue_has_an_end() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    let call = json!({ "name": "submit_task", "arguments": { "session_id": session, "task": "x" } });
    for _ in 0..model::ports::store::MOST_QUEUED {
        let answer = ann.request("tools/call", call.clone()).await;
        assert_eq!(answer.last()["result"]["isError"], json!(false), "{answer:?}");
    }
    let refusal = ann.refusal("submit_task", json!({ "session_id": session, "task": "x" })).await;
    has(&refusal, "queue_full", "cancel_run");
}

#[tokio::test]
async fn arguments_that_are_wrong_say_what_is_expected() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    let refused = async |tool: &str, arguments: Value, part: &str| {
        has(&ann.refusal(tool, arguments).await, "bad_argument", part);
    };
    refused("get_status", json!({ "sessionId": session }), "did you mean `session_id`?").await;
    refused("get_status", json!({}), "`session_id` is missing").await;
    refused("get_status", json!({ "session_id": 7 }), "must be a string, not 7").await;
    let wait = |wait: Value| json!({ "session_id": session, "wait_seconds": wait });
    refused("get_status", wait(json!(-1)), "an integer of 0 or more").await;
    refused("get_status", wait(json!("30")), "an integer of 0 or more, not a string").await;
    refused("get_run_logs", json!({ "run_id": NO_RUN, "tail_lines": -5 }), "`tail_lines`").await;
    refused("read_artifact", json!({ "path": "x", "max_bytes": 0 }), "an integer of 1 or more").await;
    refused("terminate_session", json!({ "session_id": session, "keep": "no" }), "true or false").await;
    refused("list_sessions", json!({ "limit": 0 }), "`limit`").await;
    refused("list_sessions", json!({ "after": "x" }), "`after`").await;
    let task = |name: &str, value: Value| json!({ "session_id": session, "task": "x", name: value });
    refused("submit_task", task("output_schema", json!({ "type": "array" })), "describe an object").await;
    refused("submit_task", task("output_schema", json!(7)), "a JSON object").await;
    refused("submit_task", task("model", json!("openai/x")), "not of provider ollama").await;
    let long = "x".repeat(257);
    refused("create_or_reuse_session", json!({ "name": long }), "256 characters").await;
}

#[tokio::test]
async fn what_is_more_than_the_most_is_cut() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    ann.submit(&session, "x").await;
    let (lease, run) = daemon.begin(&session).await;
    let (bytes, log) = (vec![b'x'; (1 << 20) + 1], format!("runs/{}/run.log", run.id));
    let files = [
        ("workspace/big", model::session::ArtifactKind::Changed, bytes.as_slice()),
        (&log, model::session::ArtifactKind::Record, b"1\n2\n".as_slice()),
    ];
    daemon.leave(&lease, &files, &run.id).await;
    daemon.finish(&lease, &run.id, completed("done")).await;
    let arguments = json!({ "path": format!("{session}/workspace/big"), "max_bytes": 5_000_000 });
    let read = ann.call("read_artifact", arguments).await;
    assert_eq!(read["text"].as_str().unwrap().len(), 1 << 20);
    assert_eq!((&read["truncated"], &read["size"]), (&json!(true), &json!((1 << 20) + 1)));
    let logs = ann.call("get_run_logs", json!({ "run_id": run.id.as_str(), "tail_lines": 1_000_000 })).await;
    assert_eq!(logs["lines"], json!(2));
    let logs = ann.call("get_run_logs", json!({ "run_id": run.id.as_str(), "tail_lines": 0 })).await;
    assert_eq!((&logs["text"], &logs["lines"]), (&json!(""), &json!(0)));
    let arguments = json!({ "session_id": session, "wait_seconds": 1_000_000 });
    assert_eq!(ann.call("get_status", arguments).await["run"]["status"], json!("completed"));
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let answer = ann.request("tools/call", json!({ "name": "submit_tsk", "arguments": {} })).await;
    let error = &answer.last()["error"];
    assert_eq!(error["code"], json!(-32602), "{answer:?}");
    assert!(error["message"].as_str().unwrap().contains("did you mean `submit_task`?"), "{error}");
}

#[tokio::test]
async fn who_speaks_must_be_clear() {
    let daemon = Daemon::start().await;
    let send = async |client: &Client<'_>, extra: &[(&'static str, &str)]| {
        let mut headers = client.headers(extra);
        headers.insert("mcp-protocol-version", crate::harness::MODERN.parse().unwrap());
        crate::harness::read(daemon.send(http::Method::POST, headers, "{}".to_owned()).await).await
    };
    let nobody = Client { principal: "../x".to_owned(), ..daemon.client("ann") };
    assert_eq!(send(&nobody, &[]).await.status, StatusCode::BAD_REQUEST);
    let ann = daemon.client("ann");
    assert_eq!(send(&ann, &[("host", "evil.example")]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(send(&ann, &[("origin", "http://localhost")]).await.status, StatusCode::FORBIDDEN);

    // Who says nothing is the person at this machine.
    let session = daemon.client("local").session(json!({})).await;
    let mut headers = ann.headers(&[
        ("mcp-protocol-version", crate::harness::MODERN),
        ("mcp-method", "tools/call"),
        ("mcp-name", "list_sessions"),
    ]);
    headers.remove("callsign-principal");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": crate::harness::MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "list_sessions", "arguments": {}, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let answer = daemon.send(http::Method::POST, headers, body.to_string()).await;
    let answer = crate::harness::read(answer).await;
    assert_eq!(
        answer.last()["result"]["structuredContent"]["sessions"][0]["id"],
        json!(session),
        "{answer:?}"
    );
}
