//! What a client does from the first call to the last.

use std::path::Path;

use model::ports::store::Store as _;
use model::session::{ArtifactKind, Ending, RunId, SessionId};
use serde_json::{Value, json};

use crate::harness::{Daemon, completed};

const AT: &str = "2026-11-16T12:00:00.123Z";

#[tokio::test]
async fn a_session_from_the_first_call_to_the_last() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");

    let made =
        ann.call("create_or_reuse_session", json!({ "name": "analysis", "reuse_key": "dataset-a" })).await;
    let session = made["session"]["id"].as_str().unwrap();
    let workspace = made["session"]["workspace"].as_str().unwrap();
    assert!(Path::new(workspace).is_dir());
    let expected = json!({ "session": {
        "id": session, "name": "analysis", "reuse_key": "dataset-a", "status": "stopped", "runtime": "local",
        "image": "boxes:1", "workspace": workspace, "created_at": AT, "used_at": AT, "reused": false,
    }});
    assert_eq!(made, expected);
    let again = ann.call("create_or_reuse_session", json!({ "reuse_key": "dataset-a" })).await;
    assert_eq!((again["session"]["id"].as_str(), &again["session"]["reused"]), (Some(session), &json!(true)));
    let none = ann.call("get_status", json!({ "session_id": session, "wait_seconds": 5 })).await;
    assert_eq!(none["run"], Value::Null);

    let submitted = ann.call("submit_task", json!({ "session_id": session, "task": "Count." })).await;
    let run = submitted["run_id"].as_str().unwrap();
    let queued = json!({
        "id": run, "session_id": session, "status": "queued", "final_output": null, "structured_output": null,
        "result_summary": null, "error": null, "created_at": AT, "started_at": null, "ended_at": null,
    });
    let expected = json!({ "run_id": run, "session_id": session, "status": "queued", "run": queued });
    assert_eq!(submitted, expected);

    let (lease, begun) = daemon.begin(session).await;
    let status = ann.call("get_status", json!({ "session_id": session })).await;
    assert_eq!((begun.id.as_str(), &status["run"]["status"]), (run, &json!("running")));
    assert_eq!(status["run"]["started_at"], json!("2026-11-16T12:00:01.123Z"));

    let log = format!("runs/{run}/run.log");
    let files: [(&str, ArtifactKind, &[u8]); 3] = [
        (&log, ArtifactKind::Record, b"one\ntwo\nthree\n"),
        ("workspace/a.csv", ArtifactKind::Changed, b"a,b\n1,2\n"),
        ("workspace/b.bin", ArtifactKind::Changed, b"\0\x01\xff\xfe"),
    ];
    daemon.leave(&lease, &files, &begun.id).await;
    daemon.finish(&lease, &begun.id, completed("Seven.")).await;

    let status = ann.call("get_status", json!({ "session_id": session, "run_id": run })).await;
    let expected = json!({
        "id": run, "session_id": session, "status": "completed", "final_output": "Seven.",
        "structured_output": "{\"a\":1}", "result_summary": "1 step", "error": null, "created_at": AT,
        "started_at": "2026-11-16T12:00:01.123Z", "ended_at": "2026-11-16T12:00:02.123Z",
        "usage": {
            "input_tokens": 12, "output_tokens": 3, "reasoning_tokens": 0, "cache_read_tokens": 0,
            "cache_write_tokens": 0, "cost_micros": 0,
        },
    });
    assert_eq!(status["run"], expected);

    let logs = ann.call("get_run_logs", json!({ "run_id": run, "tail_lines": 2 })).await;
    assert_eq!(logs, json!({ "run_id": run, "text": "two\nthree\n", "lines": 2, "truncated": true }));
    let logs = ann.call("get_run_logs", json!({ "run_id": run })).await;
    assert_eq!((&logs["lines"], &logs["truncated"]), (&json!(3), &json!(false)));

    let listed = ann.call("list_artifacts", json!({ "session_id": session, "run_id": run })).await;
    assert_eq!(listed, ann.call("list_artifacts", json!({ "session_id": session })).await);
    let rows = listed["artifacts"].as_array().unwrap();
    let expected = json!({
        "path": format!("{session}/workspace/a.csv"), "size": 8, "modified": AT, "kind": "changed", "run_id": run,
    });
    assert!(rows.contains(&expected), "{listed}");
    assert_eq!(rows.len(), 3);

    let path = format!("{session}/workspace/a.csv");
    let whole = ann.call("read_artifact", json!({ "path": path })).await;
    assert_eq!(whole, json!({ "path": path, "text": "a,b\n1,2\n", "size": 8, "truncated": false }));
    let part = ann.call("read_artifact", json!({ "path": path, "max_bytes": 3 })).await;
    assert_eq!(part, json!({ "path": path, "text": "a,b", "size": 8, "truncated": true }));
    let path = format!("{session}/workspace/b.bin");
    let binary = ann.call("read_artifact", json!({ "path": path })).await;
    assert_eq!(binary, json!({ "path": path, "base64": "AAH//g==", "size": 4, "truncated": false }));

    let ended = ann.call("cancel_run", json!({ "run_id": run })).await;
    assert_eq!(ended["run"]["status"], json!("completed"), "a run that has ended is as it was");

    let ended = ann.call("terminate_session", json!({ "session_id": session })).await;
    assert_eq!(ended["session"]["status"], json!("terminating"));
    assert!(Path::new(workspace).is_dir());
    let other = ann.call("create_or_reuse_session", json!({ "reuse_key": "dataset-a" })).await;
    assert_ne!(other["session"]["id"].as_str(), Some(session), "the key is free");
}

#[tokio::test]
async fn runs_that_fail_and_runs_that_are_canceled_say_why() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    let run = ann.submit(&session, "Fail.").await;
    let ending = Ending::Failed { code: "provider".to_owned(), message: "the provider is down".to_owned() };
    daemon.run(&session, ending).await;
    let status = ann.call("get_status", json!({ "session_id": session, "run_id": run })).await;
    assert_eq!(status["run"]["status"], json!("failed"));
    assert_eq!(status["run"]["error"], json!({ "code": "provider", "message": "the provider is down" }));

    let run = ann.submit(&session, "Never mind.").await;
    let canceled = ann.call("cancel_run", json!({ "run_id": run })).await["run"].clone();
    assert_eq!(canceled["status"], json!("canceled"));
    assert_eq!((&canceled["error"], &canceled["canceled_by"]), (&Value::Null, &json!("caller")));
}

#[tokio::test]
async fn settings_come_with_the_request_and_the_key_stays_apart() {
    let daemon = Daemon::start().await;
    let settings = json!({ "MCP_OPENCODE_API_KEY": "hush-hush", "MCP_ODD": "1" });
    let ann = daemon.client("ann").with_settings(settings);
    let made = ann.call("create_or_reuse_session", json!({})).await;
    assert_eq!(made["warnings"], json!(["MCP_ODD is not used"]));
    assert!(!made.to_string().contains("hush"), "{made}");
    let session = made["session"]["id"].as_str().unwrap();
    let directory = daemon.directory.path().join("sessions").join(session);
    assert_eq!(std::fs::read_to_string(directory.join("key")).unwrap(), "hush-hush");
    assert_eq!(daemon.settler.settled.lock().unwrap()[0]["MCP_OPENCODE_API_KEY"], "hush-hush");

    let wrong = daemon.client("ann").with_settings(json!({ "MCP_WRONG": "hush" }));
    let refusal = wrong.refusal("create_or_reuse_session", json!({})).await;
    assert_eq!(refusal, ("bad_settings".to_owned(), "MCP_WRONG is no setting".to_owned()));
    let broken = daemon.client("ann").with_settings(json!(["hush"]));
    let (code, message) = broken.refusal("create_or_reuse_session", json!({})).await;
    assert_eq!(code, "bad_settings");
    assert!(message.contains("Callsign-Settings") && !message.contains("hush"), "{message}");
    // Who needs no settings is not asked for right ones.
    assert_eq!(broken.call("list_sessions", json!({})).await["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn who_asked_is_kept() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let identity = json!({ "host": "codex", "session": "s", "trust": "host", "source": "meta" });
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments, "_meta": { "dev.callsign/identity": identity } });
    let answer = ann.request("tools/call", call("create_or_reuse_session", json!({}))).await;
    let content = answer.last()["result"]["structuredContent"].clone();
    let session = content["session"]["id"].as_str().unwrap();
    let submit = json!({ "session_id": session, "task": "x" });
    let answer = ann.request("tools/call", call("submit_task", submit)).await;
    let run = answer.last()["result"]["structuredContent"]["run_id"].as_str().unwrap().to_owned();

    let principal = model::Principal::new("ann").unwrap();
    let kept = daemon.store.session(&principal, &SessionId::parse(session).unwrap()).await.unwrap().unwrap();
    let expected = json!({ "identity": identity, "client": { "name": "harness", "version": "1" } });
    assert_eq!(serde_json::from_str::<Value>(&kept.made_by.unwrap()).unwrap(), expected);
    let kept = daemon.store.run(&principal, &RunId::parse(&run).unwrap()).await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept.asked_by.unwrap()).unwrap(), expected);
}

#[tokio::test]
async fn sessions_are_listed_page_by_page() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        made.push(ann.session(json!({ "name": name })).await);
    }
    ann.submit(&made[2], "x").await;
    ann.call("terminate_session", json!({ "session_id": made[0] })).await;

    let ids = |page: &Value| -> Vec<String> {
        let rows = page["sessions"].as_array().unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let live = ann.call("list_sessions", json!({})).await;
    assert_eq!(ids(&live), [made[2].clone(), made[1].clone()]);
    assert_eq!((&live["sessions"][0]["unfinished_runs"], &live["next"]), (&json!(1), &Value::Null));

    let first = ann.call("list_sessions", json!({ "all": true, "limit": 2 })).await;
    assert_eq!(ids(&first), [made[2].clone(), made[1].clone()]);
    let rest = ann.call("list_sessions", json!({ "all": true, "limit": 2, "after": first["next"] })).await;
    assert_eq!(ids(&rest), [made[0].clone()]);
    assert_eq!((&rest["sessions"][0]["status"], &rest["next"]), (&json!("terminating"), &Value::Null));
}

#[tokio::test]
async fn a_task_that_is_submitted_again_is_the_same_run() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    let arguments = json!({
        "session_id": session, "task": "x", "idempotency_key": "k", "model": "ollama/big",
        "output_schema": { "type": "object" },
    });
    let first = ann.call("submit_task", arguments.clone()).await;
    let second = ann.call("submit_task", arguments).await;
    assert_eq!(first["run_id"], second["run_id"]);
    assert_eq!((&first["repeated"], &second["repeated"]), (&Value::Null, &json!(true)));
}
