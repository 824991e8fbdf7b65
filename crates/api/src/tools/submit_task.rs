use model::ports::store::Store;
use serde_json::{Value, json};
use sessions::{NewTask, RunView};

use super::refusal::Refusal;
use super::render;
use super::schema::{self, Definition, Effect};
use super::server::Call;

pub(super) fn definition() -> Definition {
    Definition {
        name: "submit_task",
        title: "Submit a task",
        description: "Gives a task to the agent of a session and returns at once with a run_id; the work goes on in the \
                      background, also when you disconnect. Next: call get_status with session_id, run_id and \
                      wait_seconds=30, again and again, until `run.status` is completed, failed or canceled. Then \
                      `run.final_output` is the agent's answer. Tasks of one session run one after the other, in order, \
                      in the same conversation and workspace.",
        properties: json!({
            "session_id": schema::session_id(),
            "task": {
                "type": "string",
                "description": "What the agent is to do, in full: it sees /workspace and the earlier tasks of its \
                                session, and nothing else of your conversation.",
            },
            "idempotency_key": {
                "type": "string",
                "description": "A name of your choice for this submission. Where an answer was lost, submit again with \
                                the same key: the task is not run twice.",
            },
            "output_schema": {
                "type": ["object", "string"],
                "description": "A JSON schema with `\"type\": \"object\"`. The answer that fits it is in \
                                `run.structured_output`.",
            },
            "model": {
                "type": "string",
                "description": "The model for this task as `provider/model`, of the session's own provider. Leave it out \
                                for the session's model.",
            },
        }),
        required: &["session_id", "task"],
        answer: json!({
            "run_id": { "type": "string" },
            "session_id": { "type": "string" },
            "status": { "type": "string" },
            "run": schema::run(),
            "session": schema::session(),
            "repeated": { "type": "boolean", "description": "True where the idempotency_key was submitted before." },
        }),
        effect: Effect::Works,
    }
}

/// The second: whether it was submitted before.
pub(super) async fn submit<S: Store>(call: &Call<'_, S>) -> Result<(RunView, bool), Refusal> {
    let arguments = call.arguments;
    let session = arguments.text("session_id")?;
    let model = arguments.optional_text("model")?;
    let task = NewTask {
        task: arguments.text("task")?.to_owned(),
        idempotency_key: arguments.optional_text("idempotency_key")?.map(str::to_owned),
        output_schema: output_schema(arguments.value("output_schema"))?,
        model: model.map(str::to_owned),
        asked_by: call.asked_by(),
    };
    if let Some(model) = model {
        let settings = call.desk.session(call.principal(), session).await?.session.settings;
        call.settler
            .check_model(&settings, model)
            .map_err(|problem| Refusal::argument("model", format_args!("cannot be used: {problem}")))?;
    }
    Ok(call.desk.submit(call.principal(), session, task).await?)
}

pub(super) fn answer(view: &RunView, repeated: bool) -> Value {
    let run = &view.run;
    let mut answer = json!({
        "run_id": run.id.as_str(),
        "session_id": run.session.as_str(),
        "status": run.state.as_str(),
        "run": render::run(view),
    });
    if repeated {
        answer["repeated"] = json!(true);
    }
    answer
}

/// Some clients can only send texts, so the text of a schema is taken as well.
fn output_schema(given: Option<&Value>) -> Result<Option<String>, Refusal> {
    let Some(given) = given else { return Ok(None) };
    let wrong = |problem: String| Err(Refusal::argument("output_schema", problem));
    let schema = match given.as_str().map(serde_json::from_str::<Value>) {
        None => given.clone(),
        Some(Ok(schema)) => schema,
        Some(Err(error)) => return wrong(format!("must be a JSON schema; this text is no JSON: {error}")),
    };
    let Some(object) = schema.as_object() else {
        return wrong("must be a JSON schema, that is, a JSON object".to_owned());
    };
    if object.get("type") != Some(&json!("object")) {
        let advice =
            "must describe an object: set its `type` to \"object\" and put what you want into `properties`";
        return wrong(advice.to_owned());
    }
    Ok(Some(schema.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_of_an_object() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let expected = Some(schema.to_string());
        assert_eq!(output_schema(Some(&schema)).unwrap(), expected);
        assert_eq!(output_schema(Some(&json!(schema.to_string()))).unwrap(), expected);
        assert_eq!(output_schema(None).unwrap(), None);
        for (wrong, part) in [
            (json!("{"), "is no JSON"),
            (json!([]), "a JSON object"),
            (json!("7"), "a JSON object"),
            (json!({ "type": "string" }), "describe an object"),
            (json!({}), "describe an object"),
        ] {
            let refusal = output_schema(Some(&wrong)).unwrap_err();
            assert!(refusal.message.contains(part), "{}", refusal.message);
        }
    }
}
