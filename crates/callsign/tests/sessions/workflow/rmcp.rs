//! A client on rmcp, over the pipes of `callsign mcp`, in both eras.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
    GetTaskParams, Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::{Value, json};
use testkit::harness::wait_until;
use testkit::llm::script;
use tokio::process::Child;

use super::{Tools, walk};
use crate::rig::{Rig, SOON, TURN, bash, text};

#[derive(Debug, Clone, Default)]
struct Handler {
    tasks: bool,
    progress: Arc<Mutex<Vec<ProgressNotificationParam>>>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let builder = ClientCapabilities::builder();
        let capabilities = if self.tasks { builder.enable_tasks().build() } else { builder.build() };
        ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1"))
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

struct Connected {
    client: RunningService<RoleClient, Handler>,
    handler: Handler,
    _mcp: Child,
}

impl Connected {
    async fn open(rig: &Rig, lifecycle: ClientLifecycleMode, tasks: bool) -> Self {
        let mut command = tokio::process::Command::from(rig.mcp_command());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut mcp = command.spawn().expect("callsign mcp starts");
        let pipes = (mcp.stdout.take().expect("piped"), mcp.stdin.take().expect("piped"));
        let handler = Handler { tasks, ..Handler::default() };
        let client = handler.clone().serve_with_lifecycle(pipes, lifecycle).await;
        let client = client.unwrap_or_else(|error| panic!("it does not connect: {error}\n{}", rig.log()));
        Self { client, handler, _mcp: mcp }
    }

    fn told(&self) -> Vec<ProgressNotificationParam> {
        self.handler.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn params(tool: &str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

impl Tools for Connected {
    async fn ask(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let result = self.client.call_tool(params(tool, arguments)).await;
        let result = result.unwrap_or_else(|error| panic!("{tool}: {error}"));
        let answer = result.structured_content.clone().unwrap_or_else(|| panic!("{tool}: {result:?}"));
        if result.is_error == Some(true) { Err(answer["error"].clone()) } else { Ok(answer) }
    }
}

fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// No daemon runs before: the first call starts it.
#[tokio::test]
async fn the_example_workflow_in_the_old_era() {
    let rig = Rig::new();
    let client = Connected::open(&rig, ClientLifecycleMode::Initialize, false).await;
    let info = client.client.peer_info().expect("it said who it is");
    assert!(info.instructions.as_ref().is_some_and(|text| text.contains("submit_task")), "{info:?}");
    check_catalogue(&client).await;
    walk(&rig, &client).await;
    // A client that leaves stops nothing.
    let daemon = rig.daemon_pid().expect("a daemon");
    client.client.cancel().await.expect("it ends");
    assert_eq!(rig.daemon_pid(), Some(daemon));
}

#[tokio::test]
async fn the_example_workflow_in_the_new_era_with_progress_and_tasks() {
    let rig = Rig::new();
    let client = Connected::open(&rig, modern(), false).await;
    check_catalogue(&client).await;
    walk(&rig, &client).await;
    let session = client.get("create_or_reuse_session", json!({ "reuse_key": "progress" })).await;
    let session = text(&session["session"]["id"]);
    progress_comes_while_one_waits(&rig, &client, &session).await;
    drop(client);
    let client = Connected::open(&rig, modern(), true).await;
    a_run_is_a_task(&rig, &client, &session).await;
}

/// Names, parameters and defaults of the seed.
async fn check_catalogue(client: &Connected) {
    let listed = client.client.list_all_tools().await.expect("tools");
    for (name, parameters) in [
        ("create_or_reuse_session", vec!["name", "reuse_key", "image"]),
        ("submit_task", vec!["session_id", "task"]),
        ("get_status", vec!["session_id", "run_id"]),
        ("get_run_logs", vec!["run_id", "tail_lines"]),
        ("list_artifacts", vec!["session_id", "run_id"]),
        ("read_artifact", vec!["path", "max_bytes"]),
        ("cancel_run", vec!["run_id"]),
        ("terminate_session", vec!["session_id"]),
        ("list_sessions", vec![]),
    ] {
        let tool =
            listed.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no {name}: {listed:?}"));
        let schema = json!(tool.input_schema);
        for parameter in parameters {
            assert!(schema["properties"][parameter].is_object(), "{name} has no {parameter}: {schema}");
        }
        let default = |parameter: &str| schema["properties"][parameter]["default"].clone();
        match name {
            "get_run_logs" => assert_eq!(default("tail_lines"), json!(200)),
            "read_artifact" => assert_eq!(default("max_bytes"), json!(50_000)),
            _ => {}
        }
        assert!(tool.description.as_ref().is_some_and(|text| text.len() > 80), "{name} says too little");
    }
}

async fn progress_comes_while_one_waits(rig: &Rig, client: &Connected, session: &str) {
    let steps: Vec<Value> = (0..3)
        .flat_map(|step| [json!({ "delay": 700 }), bash(&format!("echo step {step}"))])
        .chain([json!({ "text": "three steps" })])
        .collect();
    let wanted = json!({ "session_id": session, "task": script(&json!(steps)) });
    let run = text(&client.get("submit_task", wanted).await["run_id"]);
    let start = Instant::now();
    let ended = loop {
        let wanted = json!({ "session_id": session, "run_id": run, "wait_seconds": 60 });
        let status = client.get("get_status", wanted).await["run"].clone();
        if status["status"] != "queued" && status["status"] != "running" {
            break status;
        }
        assert!(start.elapsed() < TURN, "it does not end: {status}\n{}", rig.log());
    };
    assert_eq!(ended["final_output"], "three steps", "{ended}");
    let told = client.told();
    assert!(told.len() >= 3, "too little was told: {told:?}");
    // Each request has a token of its own.
    let mut numbers: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for told in &told {
        numbers.entry(json!(told.progress_token).to_string()).or_default().push(told.progress);
    }
    let rises = |numbers: &Vec<f64>| numbers.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(numbers.values().all(rises), "progress goes back: {numbers:?}");
    let said = told.iter().filter_map(|told| told.message.clone()).collect::<Vec<_>>().join("\n");
    assert!(said.contains("running") && said.contains("bash"), "{said}");
    // A wait for what has ended is over at once.
    let start = Instant::now();
    client.get("get_status", json!({ "session_id": session, "run_id": run, "wait_seconds": 60 })).await;
    assert!(start.elapsed() < SOON, "it waited {:?} for nothing", start.elapsed());
}

async fn a_run_is_a_task(rig: &Rig, client: &Connected, session: &str) {
    let submit =
        |steps: Value| params("submit_task", json!({ "session_id": session, "task": script(&steps) }));
    let task_of = |made: CallToolResponse| {
        let CallToolResponse::Task(made) = made else { panic!("no task: {made:?}") };
        text(&json!(made)["taskId"])
    };
    let made = client.client.call_tool_once(submit(json!([{ "text": "as a task" }]))).await;
    let task = task_of(made.expect("it is submitted"));
    let end = Instant::now() + TURN;
    let ended = loop {
        let told =
            json!(client.client.peer().get_task(GetTaskParams::new(task.clone())).await.expect("a task"));
        if told["status"] != "working" {
            break told;
        }
        assert!(Instant::now() < end, "the task does not end: {told}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(ended["status"], "completed", "{ended}");
    let run = &ended["result"]["structuredContent"]["run"];
    assert_eq!((&run["id"], &run["final_output"]), (&json!(task), &json!("as a task")), "{ended}");

    let steps = json!([{ "delay": 120_000 }, { "text": "a long task" }]);
    let long = task_of(client.client.call_tool_once(submit(steps)).await.expect("it is submitted"));
    assert!(wait_until(TURN, || rig.begun("a long task") > 0).await, "{}", rig.log());
    client.client.peer().cancel_task(CancelTaskParams::new(long.clone())).await.expect("it is canceled");
    let told = json!(client.client.peer().get_task(GetTaskParams::new(long)).await.expect("a task"));
    assert_eq!(told["status"], "cancelled", "{told}");
    let unknown = client.client.peer().get_task(GetTaskParams::new("run_nobody")).await;
    assert!(unknown.is_err(), "a task of nobody: {unknown:?}");
}
