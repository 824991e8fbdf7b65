//! Tools of the tasks extension. Each answers with a handle and goes on; the client polls.
//!
//! A client that did not declare the extension gets no handle: `slow_compute` then runs to its end
//! in the call, the others are refused.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult, InputRequest,
    JsonObject,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::Value;

use super::content::{text, text_argument};
use super::rounds::{Round, question};
use super::{Fixtures, literal};

/// None for a tool that is never a task.
pub(super) async fn tool(
    round: &Round<'_>,
    arguments: &JsonObject,
) -> Option<Result<CallToolResponse, ErrorData>> {
    Some(match round.name {
        "slow_compute" => slow_compute(round, arguments).await,
        "failing_job" => required(round, |_| Box::pin(failing())),
        "protocol_error_job" => required(round, |_| {
            Box::pin(async { Err(ErrorData::internal_error("the job broke down", None).into()) })
        }),
        "multi_input" => required(round, |task| Box::pin(two_questions(task))),
        "confirm_delete" => match text_argument(arguments, "filename") {
            Ok(file) => {
                let file = file.to_owned();
                required(round, |task| Box::pin(confirm_delete(task, file)))
            }
            Err(error) => Err(error),
        },
        "test_tool_with_task" => named_task(round),
        _ => return None,
    })
}

async fn slow_compute(round: &Round<'_>, arguments: &JsonObject) -> Result<CallToolResponse, ErrorData> {
    let seconds = arguments.get("seconds").and_then(Value::as_f64);
    let sleep = seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| ErrorData::invalid_params("argument `seconds` must be a number", None))?;
    let label = arguments.get("label").and_then(Value::as_str).unwrap_or("unnamed");
    let answer = text(format!("Computed {label}"));
    if !round.capabilities.supports_tasks() {
        tokio::time::sleep(sleep).await;
        return Ok(answer.into());
    }
    Ok(spawn(round.fixtures, |task| {
        Box::pin(async move {
            tokio::select! {
                () = task.cancelled() => Err(TaskExit::Cancelled),
                () = tokio::time::sleep(sleep) => Ok(answer),
            }
        })
    }))
}

/// A tool that fails is a completed task with an error in its result; only a protocol error makes
/// a failed one.
async fn failing() -> Result<CallToolResult, TaskExit> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(CallToolResult::error(vec![ContentBlock::text("the job failed")]))
}

async fn confirm_delete(task: TaskContext, file: String) -> Result<CallToolResult, TaskExit> {
    let request = input(&format!("Delete {file}?"), "confirm", "boolean")?;
    let answer = task.request_input("confirm", request).await?;
    let confirmed = answer["action"] == "accept" && answer["content"]["confirm"] == true;
    Ok(text(if confirmed { format!("Deleted {file}") } else { format!("Kept {file}") }))
}

async fn two_questions(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let name = input("What is your name?", "name", "string")?;
    let confirm = input("Do you confirm?", "confirm", "boolean")?;
    // Both are open at the same time, so that a client may answer one and leave the other.
    let (name, confirm) =
        tokio::try_join!(task.request_input("name", name), task.request_input("confirm", confirm))?;
    Ok(text(format!("name={}, confirm={}", name["content"]["name"], confirm["content"]["confirm"])))
}

/// Asks in a round of its own first; only the last round makes the task.
fn named_task(round: &Round<'_>) -> Result<CallToolResponse, ErrorData> {
    if !round.capabilities.supports_tasks() {
        return Err(tasks_required());
    }
    match round.user_name()? {
        Ok(name) => Ok(spawn(round.fixtures, |_| {
            Box::pin(async move { Ok(text(format!("Hello from the task, {name}!"))) })
        })),
        Err(asked) => Ok(asked.into()),
    }
}

fn required(
    round: &Round<'_>,
    work: impl FnOnce(TaskContext) -> TaskFuture,
) -> Result<CallToolResponse, ErrorData> {
    if round.capabilities.supports_tasks() { Ok(spawn(round.fixtures, work)) } else { Err(tasks_required()) }
}

fn spawn(fixtures: &Fixtures, work: impl FnOnce(TaskContext) -> TaskFuture) -> CallToolResponse {
    let options = TaskOptions::new().with_poll_interval_ms(200);
    CreateTaskResult::new(fixtures.tasks.spawn(options, work)).into()
}

fn tasks_required() -> ErrorData {
    let needed = ClientCapabilities::builder().enable_tasks().build();
    ErrorData::missing_required_client_capability(needed)
}

fn input(message: &str, field: &str, kind: &str) -> Result<InputRequest, ErrorData> {
    literal(question(message, field, kind))
}
