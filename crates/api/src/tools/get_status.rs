use std::time::Duration;

use model::ports::store::Store;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::schema::{self, Definition, Effect};
use super::server::Call;
use super::{render, wait};

pub(super) fn definition() -> Definition {
    Definition {
        name: "get_status",
        title: "Get the status of a run",
        description: "Says how a session and one of its runs are. `run.status` is queued, running, completed, failed or \
                      canceled. With wait_seconds the answer comes as soon as the run has ended, or after that time. \
                      While it is queued or running: call this again with wait_seconds=30. When completed: the answer is \
                      `run.final_output`; list_artifacts shows files it made or changed. When failed: `run.error` says \
                      why and what to do; get_run_logs shows what happened.",
        properties: json!({
            "session_id": schema::session_id(),
            "run_id": {
                "type": "string",
                "description": "The run_id that submit_task answered. Left out: the latest run of the session.",
            },
            "wait_seconds": {
                "type": "integer",
                "minimum": 0,
                "maximum": wait::LONGEST,
                "default": 0,
                "description": "How long to wait for the end of the run.",
            },
        }),
        required: &["session_id"],
        answer: json!({ "session": schema::session(), "run": schema::run() }),
        effect: Effect::Reads,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let arguments = call.arguments;
    let session = arguments.text("session_id")?;
    let run = arguments.optional_text("run_id")?;
    let seconds = arguments.number("wait_seconds", 0, 0..=wait::LONGEST)?;
    let (session, run) = wait::until_ended(call, session, run, Duration::from_secs(seconds)).await?;
    Ok(render::status(&session, run.as_ref()))
}
