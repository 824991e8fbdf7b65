//! Schemas of what tools take and answer.
//!
//! Nothing in an answer's schema is required: an error has the same place and another shape, and some clients compare
//! that with the schema as well.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a call may do, besides answering.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    Reads,
    /// Makes something new, and another one with each call.
    Adds,
    /// Has an agent work, which changes and removes files and speaks to its provider.
    Works,
    /// Writes files that were there, or are there then already when it is called again.
    Fills,
    /// Ends something. A second call changes nothing more.
    Ends,
}

impl Effect {
    fn hints(self) -> ToolAnnotations {
        let (reads, destroys, idempotent, open) = match self {
            Self::Reads => (true, false, true, false),
            Self::Adds => (false, false, false, false),
            Self::Works => (false, true, false, true),
            Self::Fills | Self::Ends => (false, true, true, false),
        };
        ToolAnnotations::new().read_only(reads).destructive(destroys).idempotent(idempotent).open_world(open)
    }
}

/// A tool in words. `properties` and `answer` are objects of schemas.
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) properties: Value,
    pub(super) required: &'static [&'static str],
    pub(super) answer: Value,
    pub(super) effect: Effect,
}

impl Definition {
    pub(super) fn tool(self) -> Tool {
        let Self { name, title, description, properties, required, mut answer, effect } = self;
        let mut input = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            input["required"] = json!(required);
        }
        answer["error"] = error();
        let output = json!({ "type": "object", "properties": answer });
        Tool::new(name, description, Arc::new(object(input)))
            .with_title(title)
            .with_raw_output_schema(Arc::new(object(output)))
            .with_annotations(effect.hints())
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            JsonObject::new()
        }
    }
}

pub(super) fn error() -> Value {
    json!({
        "type": ["object", "null"],
        "properties": { "code": { "type": "string" }, "message": { "type": "string" } },
    })
}

pub(super) fn session_id() -> Value {
    json!({ "type": "string", "description": "The id that create_or_reuse_session answered." })
}

pub(super) fn run_id() -> Value {
    json!({ "type": "string", "description": "The run_id that submit_task answered." })
}

pub(super) fn workspace() -> Value {
    json!({
        "type": "string",
        "description": "The directory on this machine, as an absolute path. Leave it out for the workspace of your own \
                        session, where your client tells it.",
    })
}

pub(super) fn listed(what: &str) -> Value {
    json!({
        "type": "object",
        "description": what,
        "properties": { "count": { "type": "integer" }, "first": { "type": "array" } },
    })
}

pub(super) fn session() -> Value {
    let text = json!({ "type": "string" });
    let perhaps = json!({ "type": ["string", "null"] });
    let held = json!({ "type": "string", "enum": ["enforced", "watched", "absent"] });
    json!({
        "type": "object",
        "properties": {
            "id": text,
            "name": perhaps,
            "reuse_key": perhaps,
            "status": {
                "type": "string",
                "enum": ["stopped", "starting", "ready", "busy", "stopping", "terminating", "terminated"],
            },
            "runtime": text,
            "image": text,
            "workspace": { "type": "string", "description": "The directory on the host that is /workspace to the agent." },
            "created_at": text,
            "used_at": text,
            "reused": { "type": "boolean", "description": "Whether it was there before." },
            "unfinished_runs": { "type": "integer" },
            "limits": {
                "type": "object",
                "properties": { "memory": held, "pids": held, "cpus": held, "disk": held, "syscalls": held },
            },
        },
    })
}

pub(super) fn run() -> Value {
    let text = json!({ "type": "string" });
    let perhaps = json!({ "type": ["string", "null"] });
    let count = json!({ "type": "integer" });
    json!({
        "type": ["object", "null"],
        "properties": {
            "id": text,
            "session_id": text,
            "status": { "type": "string", "enum": ["queued", "running", "completed", "failed", "canceled"] },
            "final_output": { "type": ["string", "null"], "description": "The agent's answer, once it has completed." },
            "structured_output": { "type": ["string", "null"], "description": "JSON that fits the output_schema." },
            "result_summary": perhaps,
            "error": error(),
            "canceled_by": text,
            "cancel_requested_by": text,
            "progress": { "type": "object", "properties": { "steps": count, "tools": count, "last": text } },
            "created_at": text,
            "started_at": perhaps,
            "ended_at": perhaps,
            "usage": {
                "type": "object",
                "properties": {
                    "input_tokens": count,
                    "output_tokens": count,
                    "reasoning_tokens": count,
                    "cache_read_tokens": count,
                    "cache_write_tokens": count,
                    "cost_micros": { "type": "integer", "description": "Millionths of a dollar." },
                },
            },
        },
    })
}
