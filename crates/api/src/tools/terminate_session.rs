use model::ports::store::Store;
use model::session::Keep;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::render;
use super::schema::{self, Definition, Effect};
use super::server::Call;

pub(super) fn definition() -> Definition {
    Definition {
        name: "terminate_session",
        title: "Terminate a session",
        description: "Ends a session for good: its runs are canceled, its sandbox is stopped, it takes no more tasks, and \
                      its reuse_key is free again. Not needed to save resources: idle sessions stop by themselves and \
                      wake with the next task. Its files stay readable unless keep is false.",
        properties: json!({
            "session_id": schema::session_id(),
            "keep": {
                "type": "boolean",
                "default": true,
                "description": "False removes the workspace and all artifacts. That cannot be undone.",
            },
        }),
        required: &["session_id"],
        answer: json!({ "session": schema::session() }),
        effect: Effect::Ends,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let session = call.arguments.text("session_id")?;
    let keep = if call.arguments.flag("keep", true)? { Keep::Directories } else { Keep::Nothing };
    let view = call.desk.terminate(call.principal(), session, keep).await?;
    Ok(json!({ "session": render::session(&view) }))
}
