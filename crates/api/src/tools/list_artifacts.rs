use model::ports::store::Store;
use model::session::{Artifact, RunId};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::schema::{self, Definition, Effect};
use super::server::Call;
use super::time::rfc3339;

pub(super) fn definition() -> Definition {
    Definition {
        name: "list_artifacts",
        title: "List artifacts",
        description: "Lists files that runs of a session left, the latest run's first: records of a run \
                      (assistant-response.md, assistant-response.json, context.json, run.log; kind `record`) and files of \
                      the workspace that it made or changed (kind `changed`). Next: read_artifact with a `path` of the \
                      list, as it is.",
        properties: json!({
            "session_id": schema::session_id(),
            "run_id": { "type": "string", "description": "Only those of this run. Left out: of all runs." },
        }),
        required: &["session_id"],
        answer: json!({
            "artifacts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string", "description": "What read_artifact takes." },
                        "size": { "type": "integer", "description": "In bytes, when the run ended." },
                        "modified": { "type": "string" },
                        "kind": { "type": "string", "enum": ["record", "changed"] },
                        "run_id": { "type": "string" },
                    },
                },
            },
        }),
        effect: Effect::Reads,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let session = call.arguments.text("session_id")?;
    let run = call.arguments.optional_text("run_id")?;
    let artifacts = call.desk.artifacts(call.principal(), session, run).await?;
    Ok(json!({ "artifacts": artifacts.iter().map(row).collect::<Vec<_>>() }))
}

fn row((run, artifact): &(RunId, Artifact)) -> Value {
    let Artifact { path, kind, size, modified } = artifact;
    json!({
        "path": path,
        "size": size,
        "modified": rfc3339(*modified),
        "kind": kind.as_str(),
        "run_id": run.as_str(),
    })
}
