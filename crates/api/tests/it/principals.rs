//! What is another's is not there, whichever tool is asked.

use std::collections::BTreeMap;

use model::session::ArtifactKind;
use serde_json::{Value, json};

use crate::harness::{Daemon, completed};

#[tokio::test]
async fn no_tool_shows_or_changes_what_is_anothers() {
    let daemon = Daemon::start().await;
    let (ann, eve) = (daemon.client("ann"), daemon.client("eve"));
    let session = ann.session(json!({ "name": "secret plan", "reuse_key": "k" })).await;
    let done = ann.submit(&session, "x").await;
    let (lease, run) = daemon.begin(&session).await;
    daemon.leave(&lease, &[("workspace/a", ArtifactKind::Changed, b"secret")], &run.id).await;
    daemon.finish(&lease, &run.id, completed("secret")).await;
    let queued = ann.submit(&session, "y").await;
    let before = ann.call("get_status", json!({ "session_id": session })).await;

    let absent_session = format!("sn_{}", "0".repeat(26));
    let absent_run = format!("run_{}", "0".repeat(26));
    assert_eq!((&session[..3], &done[..4]), ("sn_", "run_"), "ids that could be");
    let anothers =
        [("session_id", session.clone()), ("run_id", queued), ("path", format!("{session}/workspace/a"))];
    let nobodys = [
        ("session_id", absent_session.clone()),
        ("run_id", absent_run),
        ("path", format!("{absent_session}/workspace/a")),
    ];

    let mut seen = 0;
    for tool in eve.tools().await {
        let name = tool["name"].as_str().unwrap();
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        let arguments = |ids: &[(&str, String); 3]| -> Value {
            let ids: BTreeMap<_, _> = ids.iter().cloned().collect();
            let given = properties.keys().filter_map(|name| {
                let value = ids.get(name.as_str()).cloned();
                Some((name.clone(), json!(value.or_else(|| (name == "task").then(|| "x".to_owned()))?)))
            });
            Value::Object(given.collect())
        };
        match name {
            "create_or_reuse_session" => {
                let made = eve.call(name, json!({ "reuse_key": "k" })).await;
                assert_eq!(made["session"]["reused"], json!(false));
                assert_ne!(made["session"]["id"], json!(session));
            }
            "list_sessions" => {
                let listed = eve.call(name, json!({ "all": true })).await;
                assert!(!listed.to_string().contains(&session), "{listed}");
                let from = eve.call(name, json!({ "all": true, "after": session })).await;
                assert!(!from.to_string().contains(&session), "{from}");
            }
            // Whatever else there is or will be takes an id, and finds nothing under one of another.
            _ => {
                let theirs = eve.refusal(name, arguments(&anothers)).await;
                let mut none = eve.refusal(name, arguments(&nobodys)).await;
                for ((_, other), (_, absent)) in anothers.iter().zip(&nobodys) {
                    none.1 = none.1.replace(absent, other);
                }
                assert_eq!(theirs, none, "{name} tells another's from nobody's");
                assert!(theirs.0.starts_with("no_"), "{name}: {theirs:?}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 9);
    assert_eq!(ann.call("get_status", json!({ "session_id": session })).await, before);
}

#[tokio::test]
async fn no_task_of_another_is_there() {
    let daemon = Daemon::start().await;
    let (ann, eve) = (daemon.client("ann").with_tasks(), daemon.client("eve").with_tasks());
    let session = daemon.client("ann").session(json!({})).await;
    let run = daemon.client("ann").submit(&session, "x").await;
    let absent = format!("run_{}", "0".repeat(26));
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = |id: &str| json!({ "taskId": id, "inputResponses": {} });
        let theirs = eve.request(method, params(&run)).await.last()["error"].clone();
        let none = eve.request(method, params(&absent)).await.last()["error"].clone();
        assert_eq!(theirs["code"], json!(-32602), "{method}: {theirs}");
        assert_eq!(theirs.to_string(), none.to_string().replace(&absent, &run), "{method}");
    }
    let own = ann.request("tasks/get", json!({ "taskId": run })).await;
    assert_eq!(own.last()["result"]["status"], json!("working"), "{own:?}");
}
