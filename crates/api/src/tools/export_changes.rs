use carry::{Applied, Change, Kind};
use model::ports::store::Store;
use serde_json::{Value, json};
use sessions::{Became, Exported, Wish};

use super::listed::left_out;
use super::refusal::Refusal;
use super::schema::{self, Definition, Effect};
use super::server::Call;

/// Files that are named. Their number is told in any case.
const NAMED: usize = 200;

pub(super) fn definition() -> Definition {
    Definition {
        name: "export_changes",
        title: "Export changes",
        description: "What the agent of a session has changed since import_workspace: as a patch for `git apply`, or \
                      with apply=true right into the directory. Applying is all or nothing: where a file of the \
                      directory was changed since the import, nothing is touched and the conflicts are told. Ignored \
                      files, links and the repository itself are not exported.",
        properties: json!({
            "session_id": schema::session_id(),
            "workspace": schema::workspace(),
            "apply": {
                "type": "boolean",
                "default": false,
                "description": "True writes the changes into the workspace instead of answering with a patch.",
            },
        }),
        required: &["session_id"],
        answer: json!({
            "session_id": { "type": "string" },
            "workspace": { "type": "string", "description": "The directory that the changes are for." },
            "changed": { "type": "integer", "description": "How many files differ from what was imported." },
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string" },
                        "change": { "type": "string", "enum": ["added", "modified", "deleted", "mode"] },
                    },
                },
            },
            "patch": { "type": ["string", "null"] },
            "not_in_patch": schema::listed("Changes that are too large for a patch; apply=true carries them."),
            "applied": { "type": "boolean" },
            "written": { "type": "integer", "description": "How many files of the workspace were changed." },
            "already": { "type": "integer", "description": "How many were as wanted before." },
            "left_out": schema::listed("Changes that cannot be carried, and why."),
            "incomplete": { "type": "boolean", "description": "The session has more files than are looked at." },
        }),
        effect: Effect::Fills,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let session = call.arguments.text("session_id")?;
    let apply = call.arguments.flag("apply", false)?;
    // First: of a session that is not there nothing else matters.
    call.desk.session(call.principal(), session).await?;
    let workspace = call.workspace()?;
    let wish = if apply { Wish::Apply(workspace.clone()) } else { Wish::Patch };
    let exported = tokio::select! {
        exported = call.desk.export(call.principal(), session, wish) => exported?,
        () = call.context.ct.cancelled() => return Err(Refusal::new("stopped", "the call was canceled".to_owned())),
    };
    let Exported { files, left_out: out, incomplete, became } = exported;
    let mut answer = json!({
        "session_id": session,
        "workspace": workspace.to_string_lossy(),
        "changed": files.len(),
        "files": files.iter().take(NAMED).map(file).collect::<Vec<_>>(),
        "left_out": left_out(&out),
        "incomplete": incomplete,
    });
    match became {
        Became::Patch(patch) => {
            answer["applied"] = json!(false);
            answer["not_in_patch"] = left_out(&patch.left_out);
            answer["patch"] = json!(patch.text);
        }
        Became::Applied(Applied { changed, already }) => {
            answer["applied"] = json!(true);
            answer["written"] = json!(changed);
            answer["already"] = json!(already);
        }
    }
    Ok(answer)
}

fn file(change: &Change) -> Value {
    let kind = match change.kind() {
        Kind::Added => "added",
        Kind::Modified => "modified",
        Kind::Deleted => "deleted",
        Kind::Mode => "mode",
    };
    json!({ "path": change.path.to_string(), "change": kind })
}
