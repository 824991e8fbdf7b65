use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use beneath::Data;
use model::ports::store::Store;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::schema::{Definition, Effect};
use super::server::Call;

const BYTES: u64 = 50_000;
const MOST_BYTES: u64 = 1 << 20;

pub(super) fn definition() -> Definition {
    Definition {
        name: "read_artifact",
        title: "Read an artifact",
        description: "Reads the beginning of a file that list_artifacts shows. Text comes as `text`, anything else as \
                      `base64`. Where `truncated` is true, the file is longer: `size` is the whole of it, and a larger \
                      max_bytes gives more.",
        properties: json!({
            "path": { "type": "string", "description": "A `path` as list_artifacts answered it." },
            "max_bytes": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_BYTES,
                "default": BYTES,
                "description": "How much to read at most.",
            },
        }),
        required: &["path"],
        answer: json!({
            "path": { "type": "string" },
            "text": { "type": "string" },
            "base64": { "type": "string" },
            "size": { "type": "integer" },
            "truncated": { "type": "boolean" },
        }),
        effect: Effect::Reads,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let path = call.arguments.text("path")?;
    let most = call.arguments.number("max_bytes", BYTES, 1..=MOST_BYTES)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let read = call.desk.read(call.principal(), path, most).await?;
    let mut answer = json!({ "path": path, "size": read.size, "truncated": read.truncated });
    match read.data {
        Data::Text(text) => answer["text"] = json!(text),
        Data::Binary(bytes) => answer["base64"] = json!(STANDARD.encode(bytes)),
    }
    Ok(answer)
}
