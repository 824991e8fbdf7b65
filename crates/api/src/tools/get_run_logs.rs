use model::ports::store::Store;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::schema::{self, Definition, Effect};
use super::server::Call;

const LINES: u64 = 200;
const MOST_LINES: u64 = 10_000;

pub(super) fn definition() -> Definition {
    Definition {
        name: "get_run_logs",
        title: "Read the log of a run",
        description: "Gives the last lines of a run's log: steps, tool calls with their times, errors, retries. Works \
                      while the run goes on, too. For the agent's answer use get_status.",
        properties: json!({
            "run_id": schema::run_id(),
            "tail_lines": {
                "type": "integer",
                "minimum": 0,
                "maximum": MOST_LINES,
                "default": LINES,
                "description": "How many lines from the end.",
            },
        }),
        required: &["run_id"],
        answer: json!({
            "run_id": { "type": "string" },
            "text": { "type": "string" },
            "lines": { "type": "integer" },
            "truncated": { "type": "boolean", "description": "Whether the log has more lines before these." },
        }),
        effect: Effect::Reads,
    }
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>) -> Result<Value, Refusal> {
    let run = call.arguments.text("run_id")?;
    let lines = call.arguments.number("tail_lines", LINES, 0..=MOST_LINES)?;
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    let (run, tail) = call.desk.logs(call.principal(), run, lines).await?;
    Ok(json!({
        "run_id": run.as_str(),
        "text": tail.text,
        "lines": tail.lines,
        "truncated": tail.truncated,
    }))
}
