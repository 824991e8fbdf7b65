//! `callsign runs`: the tasks that were submitted to a session, and how one is canceled.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::calls::table::{Cell, Column};
use super::calls::{note, plain};
use super::sessions::find::{Among, find};
use super::sessions::shown::{field, json_line, moment, rows, span, status_cell, time_cell};
use super::sessions::told;
use crate::app::Global;
use crate::client::{self, Client};
use crate::exit::{Code, Failure};
use crate::identification::now_ms;

/// Runs of one answer.
const PAGE: u64 = 200;

const EXAMPLES: &str = "\
Examples:
  callsign runs demo                   the last 20 runs of a session, the newest first
  callsign runs demo --limit 0         all of them
  callsign runs cancel run_01k…        end one that waits or runs

SESSION is the id of a session, its reuse key or its name.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_negates_reqs = true)]
pub struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    #[arg(required = true)]
    session: Option<String>,
    /// Only so many, the newest; 0: all.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: u64,
    /// Print what the daemon answers, as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// End a run that waits or runs. One that has ended stays as it is.
    Cancel { run: String },
}

const COLUMNS: [Column; 5] = [
    Column::fixed("RUN"),
    Column::fixed("STATUS"),
    Column::fixed("SUBMITTED (UTC)"),
    Column::number("TOOK"),
    Column::rest("NOTE", 12),
];

pub fn run(global: &Global, arguments: &RunsArgs) -> anyhow::Result<()> {
    client::with(global, async |client| match (&arguments.command, &arguments.session) {
        (Some(RunsCommand::Cancel { run }), None) => cancel(client, run, arguments.json).await,
        (None, Some(session)) => list(client, session, arguments).await,
        (Some(_), Some(_)) | (None, None) => {
            let message = "say either a session, or `cancel` and a run";
            Err(Failure::new(Code::Usage, message).into())
        }
    })
}

async fn cancel(client: &Client, run: &str, as_json: bool) -> anyhow::Result<()> {
    let answer = client.call("cancel_run", json!({ "run_id": run })).await?;
    if as_json {
        return Ok(json_line(&answer)?);
    }
    let run = &answer["run"];
    let status = field(run, "status");
    match status {
        "canceled" => {}
        "completed" | "failed" => note("it had ended before"),
        _ => note("it is asked to end, and has not yet"),
    }
    Ok(told(field(run, "id"), status)?)
}

async fn list(client: &Client, session: &str, arguments: &RunsArgs) -> anyhow::Result<()> {
    let session = find(client, session, Among::All).await?;
    let limit = if arguments.limit == 0 { u64::MAX } else { arguments.limit };
    let runs = newest(client, &session, limit).await?;
    if arguments.json {
        return Ok(json_line(&json!({ "runs": runs }))?);
    }
    if runs.is_empty() {
        note(&format!("no runs; `callsign submit {session} TASK` makes one"));
        return Ok(());
    }
    let now = now_ms();
    Ok(rows(&COLUMNS, &runs.iter().map(|run| cells(run, now)).collect::<Vec<_>>())?)
}

/// The daemon answers page by page, the newest first, and says what the next one begins behind.
async fn newest(client: &Client, session: &str, limit: u64) -> anyhow::Result<Vec<Value>> {
    let mut runs: Vec<Value> = Vec::new();
    let mut before = String::new();
    loop {
        let left = limit.saturating_sub(runs.len() as u64).min(PAGE);
        let path = format!("/v1/sessions/{session}/runs?limit={left}{before}");
        let mut page = client.get(&path).await?;
        let Value::Array(rows) = page["runs"].take() else { anyhow::bail!("the daemon told no runs") };
        let is_last = rows.is_empty();
        runs.extend(rows);
        let next = match &page["next"] {
            Value::String(next) if is_one_word(next) => next.clone(),
            Value::Number(next) => next.to_string(),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                return Ok(runs);
            }
        };
        if is_last || runs.len() as u64 >= limit {
            return Ok(runs);
        }
        before = format!("&before={next}");
    }
}

/// It goes into an address as it is.
fn is_one_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// `now`: Unix milliseconds, for one that has not ended.
fn cells(run: &Value, now: u64) -> Vec<Cell> {
    let status = field(run, "status");
    let took = moment(&run["started_at"]).map(|started| {
        let ended = moment(&run["ended_at"]).unwrap_or(now);
        span(ended.saturating_sub(started))
    });
    vec![
        Cell::new(plain(field(run, "id")).into_owned()),
        status_cell(status),
        time_cell(&run["created_at"]),
        Cell::new(took.unwrap_or_default()),
        Cell::new(plain(remark(run)).into_owned()),
    ]
}

/// What is worth knowing of a run, as far as it is.
pub(super) fn remark(run: &Value) -> &str {
    let texts = [&run["error"]["message"], &run["result_summary"], &run["progress"]["last"]];
    texts.into_iter().filter_map(Value::as_str).find(|text| !text.is_empty()).unwrap_or_default()
}

pub(super) fn has_ended(run: &Value) -> bool {
    matches!(field(run, "status"), "completed" | "failed" | "canceled")
}

#[cfg(test)]
mod tests {
    use super::super::calls::table::{Layout, More, Page};
    use super::*;

    #[test]
    fn a_run_is_told_in_a_row_whatever_its_state() {
        let run = |status: &str, rest: Value| {
            let mut run = json!({
                "id": "run_1", "status": status, "created_at": "2026-11-16T07:00:00.000Z",
                "started_at": null, "ended_at": null, "error": null, "result_summary": null,
            });
            for (name, value) in rest.as_object().unwrap() {
                run[name.as_str()] = value.clone();
            }
            run
        };
        let started = "2026-11-16T07:00:01.000Z";
        let ended = "2026-11-16T07:00:13.500Z";
        let runs = [
            run("queued", json!({})),
            run("running", json!({ "started_at": started, "progress": { "last": "bash ls\u{1b}" } })),
            run(
                "failed",
                json!({
                    "started_at": started, "ended_at": ended, "result_summary": "3 steps",
                    "error": { "code": "provider", "message": "it is down" },
                }),
            ),
        ];
        let rows: Vec<_> = runs.iter().map(|run| cells(run, 1_794_812_404_000)).collect();
        let layout = Layout::fit(&COLUMNS, &rows, Page::default(), More::No);
        let lines: Vec<_> = rows.iter().map(|row| layout.line(row)).collect();
        assert_eq!(
            lines,
            [
                "run_1  queued   2026-11-16 07:00:00",
                "run_1  running  2026-11-16 07:00:00  3.0 s  bash ls\\u{1b}",
                "run_1  failed   2026-11-16 07:00:00   12 s  it is down",
            ]
        );
        assert_eq!(runs.iter().map(has_ended).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn only_a_word_goes_into_an_address() {
        assert!(is_one_word("run_01k") && is_one_word("17"));
        assert!(!is_one_word("") && !is_one_word("1&limit=9") && !is_one_word("a b"));
    }
}
