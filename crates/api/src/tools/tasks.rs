//! Runs as tasks of the protocol's extension. A task's id is the run's, so it lasts as long as the run does.

use model::Principal;
use model::ports::store::Store;
use model::session::{Ending, RunState};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus};
use serde_json::Value;
use sessions::{Desk, DeskError, RunView};

use super::refusal::Refusal;
use super::time::rfc3339;
use super::{render, submit_task};

const POLL_MILLIS: u64 = 1000;

pub(super) fn task(view: &RunView) -> Task {
    let run = &view.run;
    let status = match &run.state {
        RunState::Queued | RunState::Running { .. } => TaskStatus::Working,
        // A call that failed is a call that was answered; `failed` is for errors of the protocol.
        RunState::Ended(Ending::Completed { .. } | Ending::Failed { .. }) => TaskStatus::Completed,
        RunState::Ended(Ending::Canceled { .. }) => TaskStatus::Cancelled,
    };
    let updated = run.ended_at.or(run.started_at).unwrap_or(run.created_at);
    let task = Task::new(run.id.as_str(), status, rfc3339(run.created_at), rfc3339(updated))
        .with_poll_interval_ms(POLL_MILLIS);
    let word = run.state.as_str();
    let message = match (&run.state, &view.progress) {
        (RunState::Ended(Ending::Failed { message, .. }), _) => format!("{word}: {message}"),
        (_, Some(progress)) if !progress.last.is_empty() => format!("{word}: {}", progress.last),
        (_, Some(_) | None) => word.to_owned(),
    };
    task.with_status_message(message)
}

pub(super) async fn get<S: Store>(
    desk: &Desk<S>,
    principal: &Principal,
    id: &str,
) -> Result<GetTaskResult, ErrorData> {
    let view = desk.run(principal, id).await.map_err(|error| failed(id, error))?;
    let payload = match &view.run.state {
        RunState::Queued | RunState::Running { .. } => TaskPayload::Working,
        RunState::Ended(Ending::Canceled { .. }) => TaskPayload::Cancelled,
        RunState::Ended(Ending::Completed { .. } | Ending::Failed { .. }) => {
            let session = desk.session(principal, view.run.session.as_str()).await;
            let session = session.map_err(|error| failed(id, error))?;
            let mut answer = submit_task::answer(&view, false);
            answer["session"] = Value::Object(render::session(&session));
            let result = if matches!(view.run.state, RunState::Ended(Ending::Failed { .. })) {
                CallToolResult::structured_error(answer)
            } else {
                CallToolResult::structured(answer)
            };
            let result = serde_json::to_value(result).ok().and_then(|result| result.as_object().cloned());
            TaskPayload::Completed { result: result.unwrap_or_default() }
        }
    };
    Ok(GetTaskResult::new(DetailedTask::new(task(&view), payload)))
}

/// Tasks here ask for nothing, and what nobody asked for is ignored.
pub(super) async fn update<S: Store>(
    desk: &Desk<S>,
    principal: &Principal,
    id: &str,
) -> Result<(), ErrorData> {
    desk.run(principal, id).await.map(drop).map_err(|error| failed(id, error))
}

pub(super) async fn cancel<S: Store>(
    desk: &Desk<S>,
    principal: &Principal,
    id: &str,
) -> Result<(), ErrorData> {
    desk.cancel(principal, id).await.map(drop).map_err(|error| failed(id, error))
}

fn failed(id: &str, error: DeskError) -> ErrorData {
    if matches!(error, DeskError::NoRun(_)) {
        return ErrorData::invalid_params(format!("there is no task `{id}`"), None);
    }
    ErrorData::internal_error(Refusal::from(error).message, None)
}
