//! What was asked and what came of it, as files of a run's own directory.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use model::ports::agent::{Spent, Turn};
use model::session::{CanceledBy, MessageId, RunId, RunUsage, SessionId};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::plain::plain;
use super::{CONTEXT, RESPONSE_JSON, RESPONSE_MD};

/// What came of a run.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub run: &'a RunId,
    pub session: &'a SessionId,
    /// The agent's own name of the conversation, if there was one.
    pub agent_session: Option<&'a str>,
    /// Under which the prompt was sent, if it came to that.
    pub message: Option<&'a MessageId>,
    /// That was asked.
    pub model: Option<&'a str>,
    pub outcome: Outcome<'a>,
}

#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    Completed(&'a Turn),
    Failed { code: &'a str, message: &'a str, partial_text: &'a str, spent: Spent },
    Canceled { by: CanceledBy, partial_text: &'a str, spent: Spent },
}

/// What was asked. No key is in any of it: that is the caller's to see to.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub run: &'a RunId,
    pub session: &'a SessionId,
    pub task: &'a str,
    /// A JSON schema.
    pub output_schema: Option<&'a str>,
    pub model: Option<&'a str>,
    /// That the session was made with.
    pub settings: &'a Value,
    /// Who asked, as far as that is known.
    pub asked_by: &'a Value,
    /// What holds of them, as far as that is known.
    pub limits: &'a Value,
}

/// Written before the prompt is sent. Idempotent; on disk when it returns, and whole or not at all.
pub fn write_context(directory: &Path, context: &Context<'_>) -> io::Result<()> {
    let Context { run, session, task, output_schema, model, settings, asked_by, limits } = *context;
    let written = ContextFile {
        run_id: run.as_str(),
        session_id: session.as_str(),
        task,
        output_schema: output_schema.map(Json::of),
        model,
        settings,
        asked_by,
        limits,
    };
    keep(directory, CONTEXT, &json(&written)?)
}

/// Both forms of it, one after the other. Idempotent; on disk when it returns, and each whole or not at all.
pub fn write_answer(directory: &Path, answer: &Answer<'_>) -> io::Result<()> {
    keep(directory, RESPONSE_JSON, &json(&AnswerFile::of(answer))?)?;
    keep(directory, RESPONSE_MD, markdown(&answer.outcome).as_bytes())
}

#[derive(Serialize)]
struct ContextFile<'a> {
    run_id: &'a str,
    session_id: &'a str,
    task: &'a str,
    output_schema: Option<Json<'a>>,
    model: Option<&'a str>,
    settings: &'a Value,
    asked_by: &'a Value,
    limits: &'a Value,
}

/// Named as in the answers of tools.
#[derive(Serialize)]
struct AnswerFile<'a> {
    run_id: &'a str,
    session_id: &'a str,
    agent_session_id: Option<&'a str>,
    message_id: Option<&'a str>,
    model: Option<&'a str>,
    status: &'static str,
    final_output: Option<&'a str>,
    structured_output: Option<Json<'a>>,
    /// As the provider said.
    finish: Option<&'a str>,
    partial_output: Option<&'a str>,
    error: Option<ErrorFile<'a>>,
    canceled_by: Option<&'static str>,
    steps: u32,
    usage: UsageFile,
    /// On top.
    subagents_usage: UsageFile,
}

#[derive(Serialize)]
struct ErrorFile<'a> {
    code: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct UsageFile {
    input_tokens: u64,
    output_tokens: u64,
    reasoning_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    /// Millionths of a dollar.
    cost_micros: u64,
}

impl From<RunUsage> for UsageFile {
    fn from(usage: RunUsage) -> Self {
        let RunUsage {
            input_tokens,
            output_tokens,
            reasoning_tokens,
            cache_read_tokens,
            cache_write_tokens,
            cost_micros,
        } = usage;
        Self {
            input_tokens,
            output_tokens,
            reasoning_tokens,
            cache_read_tokens,
            cache_write_tokens,
            cost_micros,
        }
    }
}

/// A text that should be JSON: as it stands, so that no number in it changes. If it is none, a string.
#[derive(Serialize)]
#[serde(untagged)]
enum Json<'a> {
    Value(Box<RawValue>),
    Text(&'a str),
}

impl<'a> Json<'a> {
    fn of(text: &'a str) -> Self {
        RawValue::from_string(text.to_owned()).map_or(Self::Text(text), Self::Value)
    }
}

impl<'a> AnswerFile<'a> {
    fn of(answer: &Answer<'a>) -> Self {
        let Answer { run, session, agent_session, message, model, outcome } = *answer;
        let spent = match outcome {
            Outcome::Completed(turn) => turn.spent,
            Outcome::Failed { spent, .. } | Outcome::Canceled { spent, .. } => spent,
        };
        let Spent { steps, usage, subagents } = spent;
        let empty = Self {
            run_id: run.as_str(),
            session_id: session.as_str(),
            agent_session_id: agent_session,
            message_id: message.map(MessageId::as_str),
            model,
            status: "completed",
            final_output: None,
            structured_output: None,
            finish: None,
            partial_output: None,
            error: None,
            canceled_by: None,
            steps,
            usage: usage.into(),
            subagents_usage: subagents.into(),
        };
        match outcome {
            Outcome::Completed(turn) => Self {
                final_output: Some(&turn.final_text),
                structured_output: turn.structured.as_deref().map(Json::of),
                finish: Some(&turn.finish),
                ..empty
            },
            Outcome::Failed { code, message, partial_text, .. } => Self {
                status: "failed",
                partial_output: Some(partial_text),
                error: Some(ErrorFile { code, message }),
                ..empty
            },
            Outcome::Canceled { by, partial_text, .. } => Self {
                status: "canceled",
                partial_output: Some(partial_text),
                canceled_by: Some(by.as_str()),
                ..empty
            },
        }
    }
}

/// The answer itself where there is one: it is Markdown more often than not.
fn markdown(outcome: &Outcome<'_>) -> String {
    const HEADING: usize = 200;
    let (heading, partial) = match outcome {
        Outcome::Completed(Turn { final_text, structured: Some(structured), .. })
            if final_text.trim().is_empty() =>
        {
            return format!("```json\n{}\n```\n", structured.trim_end());
        }
        Outcome::Completed(turn) => return ended(&turn.final_text),
        Outcome::Failed { code, message, partial_text, .. } => {
            (format!("# The run failed: {}\n\n{}", plain(code, HEADING), ended(message)), partial_text)
        }
        Outcome::Canceled { by, partial_text, .. } => {
            let by = match by {
                CanceledBy::Caller => "by its caller",
                CanceledBy::Termination => "as its session was terminated",
                CanceledBy::Daemon => "by the daemon",
            };
            (format!("# The run was canceled {by}\n"), partial_text)
        }
    };
    if partial.trim().is_empty() {
        return format!("{heading}\nNothing had been said until then.\n");
    }
    format!("{heading}\n## What had been said until then\n\n{}", ended(partial))
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// One who writes at a time: what another left behind in the middle is written over.
fn keep(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = directory.join(format!(".{name}.new"));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use model::session::Stamp;
    use serde_json::json;

    use super::*;

    const STAMP: Stamp = Stamp { millis: 1, random: [7; 10] };

    fn spent() -> Spent {
        let usage = RunUsage { input_tokens: 12, output_tokens: 3, cost_micros: 5, ..RunUsage::default() };
        Spent { steps: 2, usage, subagents: RunUsage::default() }
    }

    fn turn(text: &str, structured: Option<&str>) -> Turn {
        let structured = structured.map(str::to_owned);
        Turn { final_text: text.into(), structured, finish: "stop".into(), spent: spent() }
    }

    /// Writes it twice, since that is the same, and returns both files.
    fn written(outcome: Outcome<'_>) -> (Value, String) {
        let place = tempfile::tempdir().unwrap();
        let (run, session, message) = (RunId::new(STAMP), SessionId::new(STAMP), MessageId::new(STAMP));
        let answer = Answer {
            run: &run,
            session: &session,
            agent_session: Some("ses_1"),
            message: Some(&message),
            model: Some("ollama/gpt-oss:20b"),
            outcome,
        };
        let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        write_answer(place.path(), &answer).unwrap();
        let first = (read(RESPONSE_JSON), read(RESPONSE_MD));
        write_answer(place.path(), &answer).unwrap();
        assert_eq!(first, (read(RESPONSE_JSON), read(RESPONSE_MD)));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing else is left");
        let value: Value = serde_json::from_str(&first.0).unwrap();
        assert_eq!(
            (&value["run_id"], &value["session_id"]),
            (&json!(run.as_str()), &json!(session.as_str()))
        );
        assert_eq!((&value["agent_session_id"], &value["steps"]), (&json!("ses_1"), &json!(2)));
        assert_eq!(value["message_id"], json!(message.as_str()));
        assert_eq!(value["usage"]["input_tokens"], json!(12));
        assert_eq!(value["usage"]["cost_micros"], json!(5));
        (value, first.1)
    }

    #[test]
    fn an_answer_is_kept_in_both_forms() {
        let turn = turn("**Done.**", Some(r#"{"big": 12345678901234567890123, "a": [1.0]}"#));
        let (value, text) = written(Outcome::Completed(&turn));
        assert_eq!(text, "**Done.**\n");
        assert_eq!((&value["status"], &value["finish"]), (&json!("completed"), &json!("stop")));
        assert_eq!((&value["final_output"], &value["error"]), (&json!("**Done.**"), &Value::Null));
        assert_eq!(value["structured_output"]["a"], json!([1.0]));
        let place = tempfile::tempdir().unwrap();
        let (run, session) = (RunId::new(STAMP), SessionId::new(STAMP));
        let outcome = Outcome::Completed(&turn);
        let answer =
            Answer { run: &run, session: &session, agent_session: None, message: None, model: None, outcome };
        write_answer(place.path(), &answer).unwrap();
        let raw = fs::read_to_string(place.path().join(RESPONSE_JSON)).unwrap();
        assert!(raw.contains("12345678901234567890123"), "a number was changed: {raw}");
    }

    #[test]
    fn structured_output_stands_in_for_a_text_and_need_not_be_json() {
        let (_, text) = written(Outcome::Completed(&turn("", Some("{\"a\":1}\n"))));
        assert_eq!(text, "```json\n{\"a\":1}\n```\n");
        let (value, text) = written(Outcome::Completed(&turn("", Some("{broken"))));
        assert_eq!(
            (&value["structured_output"], text.as_str()),
            (&json!("{broken"), "```json\n{broken\n```\n")
        );
        let (value, text) = written(Outcome::Completed(&turn("", None)));
        assert_eq!((&value["structured_output"], text.as_str()), (&Value::Null, ""));
    }

    #[test]
    fn a_failure_says_what_failed_and_what_had_been_said() {
        let (value, text) = written(Outcome::Failed {
            code: "provider_failed",
            message: "the model's provider failed: refused",
            partial_text: "I will",
            spent: spent(),
        });
        assert_eq!(value["status"], json!("failed"));
        let error = json!({ "code": "provider_failed", "message": "the model's provider failed: refused" });
        assert_eq!((&value["error"], &value["partial_output"]), (&error, &json!("I will")));
        assert_eq!(value["final_output"], Value::Null);
        assert_eq!(
            text,
            "# The run failed: provider_failed\n\nthe model's provider failed: refused\n\n\
             ## What had been said until then\n\nI will\n"
        );
        let by = CanceledBy::Caller;
        let (value, text) = written(Outcome::Canceled { by, partial_text: "", spent: spent() });
        assert_eq!((&value["status"], &value["canceled_by"]), (&json!("canceled"), &json!("caller")));
        assert_eq!(text, "# The run was canceled by its caller\n\nNothing had been said until then.\n");
    }

    #[test]
    fn what_was_asked_is_kept_as_it_was_asked() {
        let place = tempfile::tempdir().unwrap();
        let (run, session) = (RunId::new(STAMP), SessionId::new(STAMP));
        let (settings, asked_by, limits) =
            (json!({ "model": "m" }), json!({ "host": "codex" }), json!({ "memory": "enforced" }));
        let context = Context {
            run: &run,
            session: &session,
            task: "say \"hello\"\n",
            output_schema: Some(r#"{"type":"object"}"#),
            model: None,
            settings: &settings,
            asked_by: &asked_by,
            limits: &limits,
        };
        // What another left behind in the middle is no hindrance.
        fs::write(place.path().join(".context.json.new"), "{ half").unwrap();
        write_context(place.path(), &context).unwrap();
        write_context(place.path(), &context).unwrap();
        let text = fs::read_to_string(place.path().join(CONTEXT)).unwrap();
        let expected = json!({
            "run_id": run.as_str(), "session_id": session.as_str(), "task": "say \"hello\"\n",
            "output_schema": { "type": "object" }, "model": null, "settings": settings, "asked_by": asked_by,
            "limits": limits,
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(place.path().join(CONTEXT)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        assert!(write_context(&place.path().join("gone"), &context).is_err());
    }
}
