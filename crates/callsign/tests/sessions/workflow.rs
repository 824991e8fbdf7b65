//! The example of opencode-as-mcp, step by step, from clients that others have made.

mod inspector;
mod rmcp;
mod ways;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::harness::{CANARY, wait_until};
use testkit::llm::script;

use crate::rig::{Rig, Runtime, SOON, TURN, bash, text};

/// What a client can do with tools.
trait Tools {
    /// The tool's answer, or its own error, `{code, message}`.
    async fn ask(&self, tool: &str, arguments: Value) -> Result<Value, Value>;

    async fn get(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask(tool, arguments.clone()).await;
        answer.unwrap_or_else(|error| panic!("{tool} {arguments} failed: {error}"))
    }
}

const RECORDS: [&str; 4] = ["assistant-response.json", "assistant-response.md", "context.json", "run.log"];
const CSV: &str = "id,name\n1,Ann\n2,\n3,Cyd\n";

/// Create, place files, submit, poll, read the result, logs and artifacts, cancel, terminate.
async fn walk(rig: &Rig, tools: &impl Tools) {
    let wanted = json!({ "name": "analysis-session", "reuse_key": "customer-dataset-a" });
    let session = tools.get("create_or_reuse_session", wanted.clone()).await["session"].clone();
    let id = text(&session["id"]);
    for (field, value) in [
        ("name", json!("analysis-session")),
        ("reuse_key", json!("customer-dataset-a")),
        ("status", json!("stopped")),
        ("runtime", json!(Runtime::of_this_run().word())),
        ("reused", json!(false)),
    ] {
        assert_eq!(session[field], value, "`{field}` of {session}");
    }
    assert!(session["image"].is_string(), "{session}");
    let again = tools.get("create_or_reuse_session", wanted.clone()).await["session"].clone();
    assert_eq!((&again["id"], &again["reused"]), (&json!(id), &json!(true)), "{again}");

    let workspace = text(&session["workspace"]);
    let workspace = Path::new(&workspace);
    std::fs::write(workspace.join("customers.csv"), CSV).expect("a person places files there");
    // The kernel's clock for files goes in steps of some milliseconds; a person takes longer than that.
    tokio::time::sleep(Duration::from_millis(100)).await;

    let run = profile(tools, &id, workspace).await;
    look_back(tools, &id, &run).await;
    cancel(rig, tools, &id, &run).await;
    terminate(tools, &id, workspace).await;

    let fresh = tools.get("create_or_reuse_session", wanted).await["session"].clone();
    assert!(fresh["id"] != json!(id) && fresh["reused"] == false, "the key was not freed: {fresh}");
    rig.check_canary();
}

/// A task that reads what was placed and leaves something; the run's id.
async fn profile(tools: &impl Tools, id: &str, workspace: &Path) -> String {
    let command =
        "grep -c ',$' /workspace/customers.csv > /workspace/report.txt; pwd; cat /workspace/report.txt";
    let task = script(&json!([bash(command), { "text": "One customer has no name." }]));
    let start = Instant::now();
    let submitted = tools.get("submit_task", json!({ "session_id": id, "task": task })).await;
    let run = text(&submitted["run_id"]);
    assert_eq!(submitted["session_id"], id, "{submitted}");
    assert_eq!(submitted["run"]["id"], run, "{submitted}");
    assert_eq!(submitted["status"], submitted["run"]["status"], "{submitted}");
    assert!(["queued", "running"].contains(&submitted["status"].as_str().unwrap_or_default()), "{submitted}");
    println!("submit_task was answered within {:?}, client included", start.elapsed());

    let end = Instant::now() + TURN;
    let ended = loop {
        let status = tools.get("get_status", json!({ "session_id": id, "run_id": run })).await;
        assert_eq!(status["session"]["id"], id, "{status}");
        match status["run"]["status"].as_str() {
            Some("queued" | "running") => {}
            Some("completed") => break status["run"].clone(),
            _ => panic!("the run did not complete: {status}"),
        }
        assert!(Instant::now() < end, "it does not end: {status}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(ended["final_output"], "One customer has no name.", "{ended}");
    assert_eq!((&ended["structured_output"], &ended["error"]), (&Value::Null, &Value::Null), "{ended}");
    let summary = text(&ended["result_summary"]);
    assert!(summary.contains("bash") && summary.chars().count() <= 500, "{summary}");
    // Two answers of the model, a token each way in each.
    assert!(ended["usage"]["input_tokens"].as_u64() >= Some(2), "{ended}");
    assert!(ended["usage"]["output_tokens"].as_u64() >= Some(2), "{ended}");
    let times: Vec<String> =
        ["created_at", "started_at", "ended_at"].iter().map(|name| text(&ended[*name])).collect();
    assert!(
        times.is_sorted() && times.iter().all(|time| time.ends_with('Z') && time.len() >= 20),
        "{times:?}"
    );
    assert_eq!(std::fs::read_to_string(workspace.join("report.txt")).expect("it was left there"), "1\n");
    let latest = tools.get("get_status", json!({ "session_id": id })).await;
    assert_eq!(latest["run"]["id"], run, "without a run_id it is the latest: {latest}");
    run
}

/// Logs and artifacts.
async fn look_back(tools: &impl Tools, id: &str, run: &str) {
    let logs = tools.get("get_run_logs", json!({ "run_id": run })).await;
    let lines = text(&logs["text"]);
    assert_eq!((&logs["run_id"], &logs["truncated"]), (&json!(run), &json!(false)), "{logs}");
    assert_eq!(logs["lines"].as_u64(), u64::try_from(lines.lines().count()).ok(), "{logs}");
    assert!(lines.contains("bash") && lines.contains("customers.csv"), "{lines}");
    let last = tools.get("get_run_logs", json!({ "run_id": run, "tail_lines": 1 })).await;
    assert_eq!((&last["lines"], &last["truncated"]), (&json!(1), &json!(true)), "{last}");
    assert!(lines.trim_end().ends_with(text(&last["text"]).trim_end()), "{last}");

    let listed = tools.get("list_artifacts", json!({ "session_id": id, "run_id": run })).await;
    let rows = listed["artifacts"].as_array().unwrap_or_else(|| panic!("no list: {listed}"));
    let found: BTreeMap<String, &Value> = rows
        .iter()
        .map(|row| (text(&row["path"]).rsplit('/').next().unwrap_or_default().to_owned(), row))
        .collect();
    let everything = tools.get("list_artifacts", json!({ "session_id": id })).await;
    assert_eq!(everything["artifacts"].as_array().map(Vec::len), Some(rows.len()), "one run: {everything}");
    for (name, kind) in RECORDS.map(|name| (name, "record")).into_iter().chain([("report.txt", "changed")]) {
        let row = found.get(name).unwrap_or_else(|| panic!("no {name} in {listed}"));
        assert_eq!(row["kind"], kind, "{row}");
        assert!(text(&row["modified"]).ends_with('Z'), "{row}");
        let read = tools.get("read_artifact", json!({ "path": row["path"] })).await;
        assert_eq!((&read["path"], &read["truncated"]), (&row["path"], &json!(false)), "{read}");
        let contents = text(&read["text"]);
        assert_eq!(read["size"].as_u64(), u64::try_from(contents.len()).ok(), "{read}");
        assert!(!contents.contains(CANARY), "the key is in {name}");
        match name {
            "report.txt" => assert_eq!(contents, "1\n"),
            "assistant-response.md" => assert_eq!(contents.trim(), "One customer has no name."),
            "run.log" => assert!(contents.starts_with(&lines), "{contents}"),
            _ => {
                let json: Value =
                    serde_json::from_str(&contents).unwrap_or_else(|_| panic!("no JSON: {contents}"));
                assert!(json.to_string().contains(run), "{name} names no run: {json}");
            }
        }
    }
    assert!(!found.contains_key("customers.csv"), "nobody changed it: {listed}");
    let part =
        tools.get("read_artifact", json!({ "path": found["report.txt"]["path"], "max_bytes": 1 })).await;
    assert_eq!(
        (&part["text"], &part["size"], &part["truncated"]),
        (&json!("1"), &json!(2), &json!(true)),
        "{part}"
    );
}

/// A long run, ended by whoever asked for it; and one that has ended already.
async fn cancel(rig: &Rig, tools: &impl Tools, id: &str, completed: &str) {
    let task = script(&json!([{ "delay": 120_000 }, { "text": "too late" }]));
    let run = text(&tools.get("submit_task", json!({ "session_id": id, "task": task })).await["run_id"]);
    assert!(
        wait_until(TURN, || rig.begun("too late") > 0).await,
        "the model was never asked:\n{}",
        rig.log()
    );
    let status = tools.get("get_status", json!({ "session_id": id, "run_id": run })).await;
    assert_eq!((&status["run"]["status"], &status["session"]["status"]), (&json!("running"), &json!("busy")));
    let start = Instant::now();
    let canceled = tools.get("cancel_run", json!({ "run_id": run })).await;
    assert_eq!(canceled["run"]["status"], "canceled", "{canceled}");
    println!("a long run was canceled within {:?}, client included", start.elapsed());
    let again = tools.get("cancel_run", json!({ "run_id": run })).await;
    assert_eq!(again, canceled, "a second time changes nothing");
    let unchanged = tools.get("cancel_run", json!({ "run_id": completed })).await;
    assert_eq!(unchanged["run"]["status"], "completed", "{unchanged}");

    let next = script(&json!([{ "text": "after the cancel" }]));
    let next = text(&tools.get("submit_task", json!({ "session_id": id, "task": next })).await["run_id"]);
    let wanted = json!({ "session_id": id, "run_id": next, "wait_seconds": 20 });
    let ended = tools.get("get_status", wanted).await;
    assert_eq!(
        ended["run"]["final_output"], "after the cancel",
        "the session is of no use any more: {ended}"
    );
}

async fn terminate(tools: &impl Tools, id: &str, workspace: &Path) {
    let ended = tools.get("terminate_session", json!({ "session_id": id })).await;
    let word = text(&ended["session"]["status"]);
    assert!(["terminating", "terminated"].contains(&word.as_str()), "{ended}");
    let start = Instant::now();
    while tools.get("get_status", json!({ "session_id": id })).await["session"]["status"] != "terminated" {
        assert!(start.elapsed() < SOON * 2, "it is never terminated");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = tools.ask("submit_task", json!({ "session_id": id, "task": "more" })).await;
    let error = refused.expect_err("a session that has ended takes no task");
    assert!(error.to_string().contains("create_or_reuse_session"), "what to do next: {error}");
    assert_eq!(std::fs::read_to_string(workspace.join("customers.csv")).expect("files are kept"), CSV);
}
