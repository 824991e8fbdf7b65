//! What tools say they take and answer, held against what they do.

use serde_json::{Value, json};

use crate::harness::{Client, Daemon};

/// Both forms of the answer are the same, and nothing in it is missing in the schema or of another type.
pub(crate) async fn check_result(client: &Client<'_>, tool: &str, result: &Value) {
    let structured = &result["structuredContent"];
    if result["isError"] == json!(false) {
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, structured.to_string(), "the text is the same JSON, compact");
    }
    let tools = client.tools().await;
    let tool = tools.iter().find(|listed| listed["name"] == tool).unwrap();
    check(structured, &tool["outputSchema"], tool["name"].as_str().unwrap());
}

fn check(value: &Value, schema: &Value, at: &str) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let expected = &schema["type"];
    let fits = expected == kind || expected.as_array().is_some_and(|kinds| kinds.contains(&json!(kind)));
    assert!(fits, "{at} is {value}, the schema says {expected}");
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        assert!(words.contains(value), "{at} is {value}, the schema says {words:?}");
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let schema = &schema["properties"][name];
        assert!(schema.is_object(), "{at}.{name} is not in the schema");
        check(value, schema, &format!("{at}.{name}"));
    }
    for value in value.as_array().into_iter().flatten() {
        check(value, &schema["items"], &format!("{at}[]"));
    }
}

#[tokio::test]
async fn tools_are_those_of_the_design() {
    let daemon = Daemon::start().await;
    let tools = daemon.client("ann").tools().await;
    let parameters = |tool: &Value| {
        let required = tool["inputSchema"]["required"].as_array().cloned().unwrap_or_default();
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        let shown = properties.iter().map(|(name, schema)| {
            assert!(schema["description"].is_string(), "{name} has no description");
            let optional = if required.contains(&json!(name)) { "" } else { "?" };
            let default = schema.get("default").map(|default| format!("={default}")).unwrap_or_default();
            format!("{name}{optional}{default}")
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        shown.join(" ")
    };
    let found: Vec<_> = tools.iter().map(|tool| (tool["name"].as_str().unwrap(), parameters(tool))).collect();
    let expected = [
        ("create_or_reuse_session", "image? name? reuse_key?"),
        ("submit_task", "idempotency_key? model? output_schema? session_id task"),
        ("get_status", "run_id? session_id wait_seconds?=0"),
        ("get_run_logs", "run_id tail_lines?=200"),
        ("list_artifacts", "run_id? session_id"),
        ("read_artifact", "max_bytes?=50000 path"),
        ("cancel_run", "run_id"),
        ("terminate_session", "keep?=true session_id"),
        ("list_sessions", "after? all?=false limit?=100"),
        ("import_workspace", "replace?=false session_id workspace?"),
        ("export_changes", "apply?=false session_id workspace?"),
    ];
    let expected: Vec<_> = expected.map(|(name, shown)| (name, shown.to_owned())).into();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn hints_say_what_a_call_can_do() {
    let daemon = Daemon::start().await;
    for tool in daemon.client("ann").tools().await {
        let name = tool["name"].as_str().unwrap();
        let hints = &tool["annotations"];
        let reads = name.starts_with("get_") || name.starts_with("list_") || name.starts_with("read_");
        let ends = ["cancel_run", "terminate_session", "import_workspace", "export_changes"].contains(&name);
        assert_eq!(hints["readOnlyHint"], json!(reads), "{name}");
        assert_eq!(hints["destructiveHint"], json!(ends || name == "submit_task"), "{name}");
        assert_eq!(hints["idempotentHint"], json!(reads || ends), "{name}");
        assert_eq!(hints["openWorldHint"], json!(name == "submit_task"), "{name}");
    }
}

#[tokio::test]
async fn the_workflow_is_told_to_whoever_connects() {
    let daemon = Daemon::start().await;
    let answer = daemon.client("ann").request("server/discover", json!({})).await;
    let found = &answer.last()["result"];
    let told = found["instructions"].as_str().unwrap();
    for tool in daemon.client("ann").tools().await {
        let name = tool["name"].as_str().unwrap();
        assert!(told.contains(name) || name == "cancel_run", "{name} is not in the instructions");
    }
    assert!(found["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{found}");
    assert!(found["supportedVersions"].as_array().unwrap().contains(&json!("2025-11-25")), "{found}");
}
