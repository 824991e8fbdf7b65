use std::time::Duration;

use carry::{Existing, Imported, Repository};
use model::ports::store::Store;
use rmcp::model::ProgressNotificationParam;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::listed::{left_out, listed};
use super::refusal::Refusal;
use super::schema::{self, Definition, Effect};
use super::server::Call;

/// Between two notifications.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) fn definition() -> Definition {
    Definition {
        name: "import_workspace",
        title: "Import a workspace",
        description: "Copies a directory of this machine into the workspace of a session, which the agent sees as \
                      /workspace. Of a git repository, what git ignores stays out, and so does its history: the copy \
                      is a repository with one commit. Nothing that the session has changed is overwritten, unless \
                      replace is true. Next: submit_task, then export_changes brings back what the agent changed.",
        properties: json!({
            "session_id": schema::session_id(),
            "workspace": schema::workspace(),
            "replace": {
                "type": "boolean",
                "default": false,
                "description": "True takes the directory's files also where the session has other ones. What the \
                                session has there is lost.",
            },
        }),
        required: &["session_id"],
        answer: json!({
            "session_id": { "type": "string" },
            "workspace": { "type": "string", "description": "The directory that was imported." },
            "files": { "type": "integer" },
            "bytes": { "type": "integer" },
            "written": { "type": "integer", "description": "How many of them were not there already." },
            "git": { "type": "string", "enum": ["made", "kept", "none"] },
            "kept": schema::listed("Changed in the session and not in the directory since: as the session has them."),
            "gone": schema::listed("Imported earlier and no longer in the directory. They stay in the session."),
            "left_out": schema::listed("Not imported, and why."),
        }),
        effect: Effect::Fills,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let session = call.arguments.text("session_id")?;
    let existing = if call.arguments.flag("replace", false)? { Existing::Replace } else { Existing::Refuse };
    // First: of a session that is not there nothing else matters.
    call.desk.session(call.principal(), session).await?;
    let from = call.workspace()?;
    let (told, progress) = watch::channel(None);
    let import = call.desk.import(call.principal(), session, (from.clone(), existing), told);
    let imported = tokio::select! {
        imported = import => imported?,
        () = call.context.ct.cancelled() => return Err(Refusal::new("stopped", "the call was canceled".to_owned())),
        () = tell(call, progress) => return Err(Refusal::new("stopped", "nobody waits for it any more".to_owned())),
    };
    let Imported { files, bytes, written, kept, gone, left_out: out, repository } = imported;
    Ok(json!({
        "session_id": session,
        "workspace": from.to_string_lossy(),
        "files": files,
        "bytes": bytes,
        "written": written,
        "git": match repository {
            Repository::Made => "made",
            Repository::There => "kept",
            Repository::None => "none",
        },
        "kept": listed(&kept, |path| json!(path.to_string())),
        "gone": listed(&gone, |path| json!(path.to_string())),
        "left_out": left_out(&out),
    }))
}

/// Returns when nobody is there any more.
async fn tell<S>(call: &Call<'_, S>, mut progress: watch::Receiver<Option<carry::Progress>>) {
    let Some(token) = call.context.meta.get_progress_token() else { return std::future::pending().await };
    let mut last = 0;
    while progress.changed().await.is_ok() {
        let Some(now) = *progress.borrow_and_update() else { continue };
        // It only ever grows, whatever is told.
        if now.files > last {
            last = now.files;
            let (done, all) = (count(now.files), count(now.of_files));
            let message = format!("{} of {} files", now.files, now.of_files);
            let told =
                ProgressNotificationParam::new(token.clone(), done).with_total(all).with_message(message);
            if call.context.peer.notify_progress(told).await.is_err() {
                return;
            }
        }
        sleep(PAUSE).await;
    }
    std::future::pending::<()>().await;
}

fn count(files: usize) -> f64 {
    f64::from(u32::try_from(files).unwrap_or(u32::MAX))
}
