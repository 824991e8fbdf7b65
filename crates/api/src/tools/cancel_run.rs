use model::ports::store::Store;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::render;
use super::schema::{self, Definition, Effect};
use super::server::Call;

pub(super) fn definition() -> Definition {
    Definition {
        name: "cancel_run",
        title: "Cancel a run",
        description: "Ends a run that is queued or running. The session, its workspace and what the run has done so far \
                      stay. A run that has ended is answered as it is. Should `run.status` still be running, the agent \
                      is being stopped: get_status with wait_seconds=30 shows the end.",
        properties: json!({ "run_id": schema::run_id() }),
        required: &["run_id"],
        answer: json!({ "run": schema::run() }),
        effect: Effect::Ends,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let view = call.desk.cancel(call.principal(), call.arguments.text("run_id")?).await?;
    Ok(json!({ "run": render::run(&view) }))
}
