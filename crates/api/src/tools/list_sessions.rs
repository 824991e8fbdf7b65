use model::ports::store::{Listed, MOST_LISTED, Page, Store};
use model::session::SessionId;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::render;
use super::schema::{self, Definition, Effect};
use super::server::Call;

const ROWS: u64 = 100;

pub(super) fn definition() -> Definition {
    Definition {
        name: "list_sessions",
        title: "List sessions",
        description: "Lists your sessions, the newest first, each with the number of its unfinished runs. Where `next` is \
                      in the answer there may be more: call again with after=`next`.",
        properties: json!({
            "all": { "type": "boolean", "default": false, "description": "True shows terminated ones, too." },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_LISTED,
                "default": ROWS,
                "description": "How many to list at most.",
            },
            "after": { "type": "string", "description": "The `next` of the answer before." },
        }),
        required: &[],
        answer: json!({
            "sessions": { "type": "array", "items": schema::session() },
            "next": { "type": "string" },
        }),
        effect: Effect::Reads,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let arguments = call.arguments;
    let listed = if arguments.flag("all", false)? { Listed::All } else { Listed::Live };
    let limit = arguments.number("limit", ROWS, 1..=MOST_LISTED.into())?;
    let limit = u32::try_from(limit).unwrap_or(MOST_LISTED);
    let after = match arguments.optional_text("after")?.map(SessionId::parse) {
        None => None,
        Some(Ok(after)) => Some(after),
        Some(Err(_)) => return Err(Refusal::argument("after", "must be the `next` of an earlier answer")),
    };
    let rows = call.desk.list(call.principal(), listed, Page { after, limit }).await?;
    let full = usize::try_from(limit).is_ok_and(|limit| rows.len() >= limit);
    let next = rows.last().filter(|_| full).map(|(view, _)| view.session.id.as_str().to_owned());
    let row = |(view, unfinished)| {
        let mut session = render::session(&view);
        session.insert("unfinished_runs".to_owned(), json!(unfinished));
        Value::Object(session)
    };
    let mut answer = json!({ "sessions": rows.into_iter().map(row).collect::<Vec<_>>() });
    if let Some(next) = next {
        answer["next"] = json!(next);
    }
    Ok(answer)
}
