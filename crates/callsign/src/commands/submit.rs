//! `callsign submit`: a task for a session, and perhaps what comes of it.

mod display;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::display::Display;
use super::calls::{note, plain};
use super::runs::has_ended;
use super::sessions::find::{Among, find};
use super::sessions::shown::{field, json_line, text};
use super::sessions::without_nulls;
use crate::app::Global;
use crate::client::{self, Client, is_lost};
use crate::exit::{Code, Failure};
use crate::output;

/// How long one request waits. How far a run is comes in between; how many steps it took comes with the answer.
const WAIT: Duration = Duration::from_secs(3);
/// A daemon that does not wait must not be asked without a pause.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a daemon that went away may take to come back.
const PATIENCE: Duration = Duration::from_mins(1);
/// What is read of a task or a schema. The daemon takes less, and says so.
const LONGEST: u64 = 2 << 20;

const EXAMPLES: &str = "\
Examples:
  callsign submit demo \"Fix the failing test.\" --wait
  git diff | callsign submit demo - --wait
  run=$(callsign submit demo \"Write a report.\") && callsign logs \"$run\" --follow

SESSION is the id of a session, its reuse key or its name; `callsign sessions create` makes one.
With --wait it ends with 0 if the run completed, 8 if it failed, 9 if it was canceled. Ctrl-C ends the waiting
(130), not the run.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SubmitArgs {
    session: String,
    /// What is to be done; `-` reads it from stdin.
    task: String,
    /// Wait for the end, and print the final output.
    #[arg(long)]
    wait: bool,
    /// The same task with the same key is one run, however often it is submitted.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// A JSON schema that the result is to have; with --wait that result is printed.
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// The model for this task, such as ollama/gpt-oss:20b.
    #[arg(long)]
    model: Option<String>,
    /// Print what the daemon answers, as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(global: &Global, arguments: &SubmitArgs) -> anyhow::Result<()> {
    // First what can be wrong without a daemon.
    let task = task(&arguments.task)?;
    let schema = arguments.output_schema.as_deref().map(schema).transpose()?;
    client::with(global, async |client| {
        let session = find(client, &arguments.session, Among::Live).await?;
        let wanted = without_nulls(json!({
            "session_id": session,
            "task": task,
            "idempotency_key": arguments.idempotency_key,
            "output_schema": schema,
            "model": arguments.model,
        }));
        let answer = client.call("submit_task", wanted).await.map_err(|error| unsure(error, &session))?;
        let run = field(&answer, "run_id").to_owned();
        if arguments.wait {
            return wait(client, &session, &run, arguments).await;
        }
        if arguments.json {
            return Ok(json_line(&answer)?);
        }
        note(&format!("{}; `callsign logs {run} --follow` shows it", plain(field(&answer, "status"))));
        Ok(output::line(&plain(&run))?)
    })
}

/// A task that is submitted twice is done twice, so whoever asked decides.
fn unsure(error: anyhow::Error, session: &str) -> anyhow::Error {
    if !is_lost(&error) {
        return error;
    }
    let message = format!("{error:#}: it is not known whether the task was accepted");
    let hint = format!(
        "`callsign runs {session}` shows it if so; with --idempotency-key it can be submitted again either way"
    );
    Failure::new(Code::Server, message).with_hint(hint).into()
}

fn task(written: &str) -> anyhow::Result<String> {
    if written != "-" {
        return Ok(written.to_owned());
    }
    let mut task = String::new();
    std::io::stdin().take(LONGEST).read_to_string(&mut task).context("could not read the task from stdin")?;
    Ok(task)
}

fn schema(path: &Path) -> anyhow::Result<Value> {
    let shown = path.display();
    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST).read_to_end(&mut text))
        .map_err(|error| Failure::new(Code::Usage, format!("could not read {shown}: {error}")))?;
    let schema: Value = serde_json::from_slice(&text)
        .map_err(|error| Failure::new(Code::Usage, format!("{shown} is no JSON: {error}")))?;
    if !schema.is_object() {
        return Err(Failure::new(Code::Usage, format!("{shown} is not a JSON object")).into());
    }
    Ok(schema)
}

async fn wait(client: &Client, session: &str, run: &str, arguments: &SubmitArgs) -> anyhow::Result<()> {
    let mut display = Display::of_stderr(Instant::now());
    let answer = tokio::select! {
        answer = ended(client, session, run, &mut display) => Some(answer),
        interrupted = interrupted() => {
            interrupted?;
            None
        }
    };
    display.finish();
    let Some(answer) = answer else {
        let message = format!("no longer waiting; the run {run} goes on");
        let hint = format!("`callsign logs {run} --follow` shows it, `callsign runs cancel {run}` ends it");
        return Err(Failure::new(Code::Interrupted, message).with_hint(hint).into());
    };
    let answer = answer?;
    if arguments.json {
        json_line(&answer)?;
    } else if let Some(result) = result(&answer["run"], arguments.output_schema.is_some()) {
        text(result)?;
    }
    verdict(&answer["run"])
}

/// Ctrl-C and its like.
async fn interrupted() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

/// The answer of `get_status` once the run has ended. A daemon that is killed meanwhile is started again by the next
/// request, and goes on with the run.
async fn ended(client: &Client, session: &str, run: &str, display: &mut Display) -> anyhow::Result<Value> {
    let arguments = json!({ "session_id": session, "run_id": run, "wait_seconds": WAIT.as_secs() });
    let mut heard = Instant::now();
    loop {
        let asked = Instant::now();
        let answer =
            client.call_told("get_status", arguments.clone(), WAIT, &mut |said| display.say(said)).await;
        match answer {
            Ok(answer) => {
                heard = Instant::now();
                display.look(&answer["run"]);
                if has_ended(&answer["run"]) {
                    return Ok(answer);
                }
            }
            Err(error) if is_lost(&error) && heard.elapsed() < PATIENCE => {
                display.say("the daemon went away; asking it again");
            }
            Err(error) => return Err(error),
        }
        if asked.elapsed() < PAUSE {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Who asked for a structured result gets that, if there is one.
fn result(run: &Value, structured: bool) -> Option<&str> {
    let wanted = if structured { run["structured_output"].as_str() } else { None };
    wanted.or_else(|| run["final_output"].as_str()).filter(|text| !text.is_empty())
}

fn verdict(run: &Value) -> anyhow::Result<()> {
    let id = field(run, "id");
    let (code, message) = match field(run, "status") {
        "completed" => return Ok(()),
        "failed" => {
            let error = &run["error"];
            let why = format!("{} ({})", field(error, "message"), field(error, "code"));
            (Code::RunFailed, format!("the run failed: {why}"))
        }
        "canceled" => {
            let by = run["canceled_by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
            (Code::RunCanceled, format!("the run was canceled{by}"))
        }
        other => (Code::Unexpected, format!("the run ended as {other}")),
    };
    Err(Failure::new(code, message).with_hint(format!("callsign logs {}", plain(id))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(run: &Value, code: Code, message: &str) {
        let failure: Failure = verdict(run).unwrap_err().downcast().unwrap();
        assert_eq!((failure.code, failure.message.as_str()), (code, message));
        assert_eq!(failure.hint.as_deref(), Some("callsign logs run_1"));
    }

    #[test]
    fn how_a_run_ended_is_how_the_command_ends() {
        verdict(&json!({ "id": "run_1", "status": "completed" })).unwrap();
        let error = json!({ "code": "provider", "message": "the provider is down" });
        check(
            &json!({ "id": "run_1", "status": "failed", "error": error }),
            Code::RunFailed,
            "the run failed: the provider is down (provider)",
        );
        let canceled = json!({ "id": "run_1", "status": "canceled", "canceled_by": "termination" });
        check(&canceled, Code::RunCanceled, "the run was canceled by termination");
    }

    #[test]
    fn a_structured_result_is_printed_where_one_was_asked_for() {
        let run = json!({ "final_output": "It is done.", "structured_output": "{\"ok\":true}" });
        assert_eq!(result(&run, false), Some("It is done."));
        assert_eq!(result(&run, true), Some("{\"ok\":true}"));
        assert_eq!(result(&json!({ "final_output": "x", "structured_output": null }), true), Some("x"));
        assert_eq!(result(&json!({ "final_output": "" }), false), None);
        assert_eq!(result(&json!({ "final_output": null }), true), None);
    }

    #[test]
    fn a_schema_that_is_none_is_refused_before_anything_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = directory.path().join("schema.json");
            std::fs::write(&path, text).unwrap();
            schema(&path)
        };
        assert_eq!(file(r#"{"type":"object"}"#).unwrap(), json!({ "type": "object" }));
        for bad in ["", "[]", "{", "7"] {
            let failure: Failure = file(bad).unwrap_err().downcast().unwrap();
            assert_eq!(failure.code, Code::Usage, "{bad}");
        }
        assert!(schema(&directory.path().join("absent")).is_err());
    }
}
