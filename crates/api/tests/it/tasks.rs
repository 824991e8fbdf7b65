//! Runs as tasks, for clients that declare the extension.

use model::session::Ending;
use serde_json::{Value, json};

use crate::harness::{Client, Daemon, completed};

async fn submit(client: &Client<'_>, session: &str) -> Value {
    let arguments = json!({ "session_id": session, "task": "x" });
    let answer = client.request("tools/call", json!({ "name": "submit_task", "arguments": arguments })).await;
    answer.last()["result"].clone()
}

async fn get(client: &Client<'_>, task: &Value) -> Value {
    client.request("tasks/get", json!({ "taskId": task["taskId"] })).await.last()["result"].clone()
}

#[tokio::test]
async fn a_task_is_the_run_and_outlives_the_daemon() {
    let daemon = Daemon::start().await;
    let session = daemon.client("ann").session(json!({})).await;
    let ann = daemon.client("ann").with_tasks();
    let task = submit(&ann, &session).await;
    let run = task["taskId"].as_str().unwrap();
    let at = "2026-11-16T12:00:00.123Z";
    let mut expected = json!({
        "resultType": "task", "taskId": run, "status": "working", "statusMessage": "queued", "createdAt": at,
        "lastUpdatedAt": at, "ttlMs": null, "pollIntervalMs": 1000,
    });
    let mut shown = task.clone();
    shown.as_object_mut().unwrap().remove("_meta");
    assert_eq!(shown, expected);
    expected["resultType"] = json!("complete");
    let mut shown = get(&ann, &task).await;
    shown.as_object_mut().unwrap().remove("_meta");
    assert_eq!(shown, expected);

    let daemon = daemon.restart().await;
    let ann = daemon.client("ann").with_tasks();
    assert_eq!(get(&ann, &task).await["status"], json!("working"));
    daemon.run(&session, completed("Seven.")).await;
    let ended = get(&ann, &task).await;
    assert_eq!((&ended["status"], &ended["resultType"]), (&json!("completed"), &json!("complete")));
    assert_eq!(ended["result"]["isError"], json!(false));
    let content = &ended["result"]["structuredContent"];
    let status = daemon.client("ann").call("get_status", json!({ "session_id": session })).await;
    assert_eq!((&content["run"], &content["session"]), (&status["run"], &status["session"]));
    assert_eq!(content["run"]["final_output"], json!("Seven."));
    crate::schema::check_result(&ann, "submit_task", &ended["result"]).await;
}

#[tokio::test]
async fn how_a_run_ends_is_how_its_task_ends() {
    let daemon = Daemon::start().await;
    let session = daemon.client("ann").session(json!({})).await;
    let ann = daemon.client("ann").with_tasks();
    let task = submit(&ann, &session).await;
    let ending = Ending::Failed { code: "model".to_owned(), message: "there is no such model".to_owned() };
    daemon.run(&session, ending).await;
    let ended = get(&ann, &task).await;
    assert_eq!(ended["status"], json!("completed"), "a call that failed was answered");
    assert_eq!(ended["result"]["isError"], json!(true));
    assert_eq!(ended["result"]["structuredContent"]["run"]["error"]["code"], json!("model"));

    let task = submit(&ann, &session).await;
    let params = json!({ "taskId": task["taskId"] });
    let acknowledged = ann.request("tasks/cancel", params.clone()).await;
    assert_eq!(acknowledged.last()["result"]["resultType"], json!("complete"), "{acknowledged:?}");
    let ended = get(&ann, &task).await;
    assert_eq!((&ended["status"], &ended["result"]), (&json!("cancelled"), &Value::Null));
    // Once more changes nothing.
    assert!(ann.request("tasks/cancel", params).await.last()["result"].is_object());
    let params = json!({ "taskId": task["taskId"], "inputResponses": { "nobody-asked": {} } });
    assert!(ann.request("tasks/update", params).await.last()["result"].is_object());
}

#[tokio::test]
async fn who_does_not_declare_tasks_gets_none() {
    let daemon = Daemon::start().await;
    let ann = daemon.client("ann");
    let session = ann.session(json!({})).await;
    let answer = submit(&ann, &session).await;
    assert_eq!((&answer["resultType"], &answer["taskId"]), (&json!("complete"), &Value::Null));
    let run = &answer["structuredContent"]["run_id"];
    let refused = ann.request("tasks/get", json!({ "taskId": run })).await;
    assert_eq!(refused.last()["error"]["code"], json!(-32021), "{refused:?}");

    let eager = daemon.client("ann").with_tasks();
    let wrong = json!({ "name": "submit_task", "arguments": { "session_id": "nope", "task": "x" } });
    let refused = eager.request("tools/call", wrong).await.last()["result"].clone();
    assert_eq!((&refused["isError"], &refused["taskId"]), (&json!(true), &Value::Null), "{refused}");
}
