use model::ports::store::Store;
use serde_json::{Value, json};
use sessions::Wanted;

use super::refusal::Refusal;
use super::render;
use super::schema::{self, Definition, Effect};
use super::server::Call;
use super::settle::Settled;

pub(super) fn definition() -> Definition {
    Definition {
        name: "create_or_reuse_session",
        title: "Create or reuse a session",
        description: "Makes a session: a sandboxed coding agent with a workspace directory of its own that lasts until \
                      terminate_session. With a reuse_key, the live session that has this key is answered instead, if \
                      there is one. Answers at once; the sandbox starts with the first task. Next: put files that the \
                      agent needs into the directory `session.workspace`, then call submit_task with `session.id`.",
        properties: json!({
            "name": { "type": "string", "description": "What people call it. Need not be unique." },
            "reuse_key": {
                "type": "string",
                "description": "A name of your choice for what the session is about, such as `customer-dataset-a`. The \
                                same key leads to the same session, also after a restart.",
            },
            "image": {
                "type": "string",
                "description": "The container image, where sessions run in containers. Leave it out for the default.",
            },
        }),
        required: &[],
        answer: json!({
            "session": schema::session(),
            "warnings": { "type": "array", "items": { "type": "string" } },
        }),
        effect: Effect::Adds,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let text = |name| call.arguments.optional_text(name);
    let (name, reuse_key, image) = (text("name")?, text("reuse_key")?, text("image")?);
    let variables = call.asker.variables()?;
    let settled =
        call.settler.settle(variables, image).map_err(|problem| Refusal::new("bad_settings", problem))?;
    let Settled { runtime, image, settings, key, warnings } = settled;
    let wanted = Wanted {
        name: name.map(str::to_owned),
        reuse_key: reuse_key.map(str::to_owned),
        image,
        runtime,
        settings,
        key,
        made_by: call.asked_by(),
    };
    let (view, reused) = call.desk.create(call.principal(), wanted).await?;
    let mut session = render::session(&view);
    session.insert("reused".to_owned(), json!(reused));
    let mut answer = json!({ "session": session });
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    Ok(answer)
}
