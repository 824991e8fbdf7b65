//! Sessions and runs as clients see them. `schema.rs` says the same in the words of JSON Schema.

use model::ports::sandbox::Holds;
use model::session::{Ending, RunState, RunUsage, SessionStatus, UnixMillis};
use serde_json::{Map, Value, json};
use sessions::{RunView, SessionView, Temper};

use super::time::rfc3339;

pub(super) fn session(view: &SessionView) -> Map<String, Value> {
    let session = &view.session;
    let status = match session.status {
        SessionStatus::Live => view.hot.map_or(Temper::Stopped, |hot| hot.temper).as_str(),
        SessionStatus::Terminating { .. } | SessionStatus::Terminated { .. } => session.status.as_str(),
    };
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("id", json!(session.id.as_str()));
    put("name", json!(session.name));
    put("reuse_key", json!(session.reuse_key));
    put("status", json!(status));
    put("runtime", json!(session.runtime));
    put("image", json!(session.image));
    put("workspace", json!(session.workspace));
    put("created_at", json!(rfc3339(session.created_at)));
    put("used_at", json!(rfc3339(session.used_at)));
    if let Some(holds) = view.hot.and_then(|hot| hot.holds) {
        put("limits", limits(holds));
    }
    shown
}

fn limits(holds: Holds) -> Value {
    holds.words().into_iter().map(|(name, word)| (name.to_owned(), Value::from(word))).collect()
}

/// A run, as every tool and every page shows it.
pub fn run(view: &RunView) -> Value {
    let run = &view.run;
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("id", json!(run.id.as_str()));
    put("session_id", json!(run.session.as_str()));
    put("status", json!(run.state.as_str()));
    for name in ["final_output", "structured_output", "result_summary", "error"] {
        put(name, Value::Null);
    }
    match &run.state {
        RunState::Ended(Ending::Completed { final_output, structured_output, result_summary }) => {
            put("final_output", json!(final_output));
            put("structured_output", json!(structured_output));
            put("result_summary", json!(result_summary));
        }
        RunState::Ended(Ending::Failed { code, message }) => {
            put("error", json!({ "code": code, "message": message }));
        }
        RunState::Ended(Ending::Canceled { by }) => {
            put("canceled_by", json!(by.as_str()));
        }
        RunState::Queued | RunState::Running { .. } => {
            if let Some(by) = run.cancel_requested {
                put("cancel_requested_by", json!(by.as_str()));
            }
            if let Some(progress) = &view.progress {
                let (steps, tools, last) = (progress.steps, progress.tools, &progress.last);
                put("progress", json!({ "steps": steps, "tools": tools, "last": last }));
            }
        }
    }
    let time = |at: Option<UnixMillis>| json!(at.map(rfc3339));
    put("created_at", time(Some(run.created_at)));
    put("started_at", time(run.started_at));
    put("ended_at", time(run.ended_at));
    if let Some(usage) = run.usage {
        put("usage", used(usage));
    }
    Value::Object(shown)
}

fn used(usage: RunUsage) -> Value {
    let RunUsage {
        input_tokens,
        output_tokens,
        reasoning_tokens,
        cache_read_tokens,
        cache_write_tokens,
        cost_micros,
    } = usage;
    json!({
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "reasoning_tokens": reasoning_tokens,
        "cache_read_tokens": cache_read_tokens,
        "cache_write_tokens": cache_write_tokens,
        "cost_micros": cost_micros,
    })
}

/// What `get_status` answers.
pub(super) fn status(session_view: &SessionView, run_view: Option<&RunView>) -> Value {
    json!({ "session": session(session_view), "run": run_view.map(run) })
}

#[cfg(test)]
mod tests {
    use model::Principal;
    use model::ports::sandbox::Hold;
    use model::session::{CanceledBy, Keep, Phase, Run, RunId, Session, SessionId, Stamp};
    use sessions::{Hot, Progress};

    use super::*;

    const STAMP: Stamp = Stamp { millis: 1, random: [0; 10] };

    fn view(status: SessionStatus, hot: Option<Hot>) -> SessionView {
        let session = Session {
            id: SessionId::new(STAMP),
            principal: Principal::local(),
            name: None,
            reuse_key: None,
            image: String::new(),
            runtime: "local".to_owned(),
            settings: "{}".to_owned(),
            workspace: "/w".to_owned(),
            made_by: Some("never shown".to_owned()),
            agent_session: None,
            status,
            created_at: UnixMillis(0),
            used_at: UnixMillis(0),
        };
        SessionView { session, hot }
    }

    #[test]
    fn a_session_is_as_its_box_is_until_it_ends() {
        let hot = |temper| Some(Hot { temper, since: UnixMillis(0), holds: None });
        let (keep, at) = (Keep::Directories, UnixMillis(0));
        for (status, hot, expected) in [
            (SessionStatus::Live, None, "stopped"),
            (SessionStatus::Live, hot(Temper::Starting), "starting"),
            (SessionStatus::Live, hot(Temper::Ready), "ready"),
            (SessionStatus::Live, hot(Temper::Busy), "busy"),
            (SessionStatus::Live, hot(Temper::Stopping), "stopping"),
            (SessionStatus::Terminating { keep, since: at }, hot(Temper::Busy), "terminating"),
            (SessionStatus::Terminated { keep, at }, None, "terminated"),
        ] {
            let shown = session(&view(status, hot));
            assert_eq!(shown["status"], json!(expected));
            assert!(!shown.contains_key("limits"), "they are not known yet");
        }
    }

    #[test]
    fn limits_are_shown_once_they_are_known() {
        let holds = Holds {
            memory: Hold::Watched,
            pids: Hold::Enforced,
            cpus: Hold::Absent,
            disk: Hold::Watched,
            syscalls: Hold::Enforced,
        };
        let hot = Hot { temper: Temper::Ready, since: UnixMillis(0), holds: Some(holds) };
        let shown = session(&view(SessionStatus::Live, Some(hot)));
        let expected = json!({
            "memory": "watched", "pids": "enforced", "cpus": "absent", "disk": "watched", "syscalls": "enforced",
        });
        assert_eq!(shown["limits"], expected);
    }

    #[test]
    fn a_run_that_goes_on_shows_how_far_it_is() {
        let view = RunView {
            run: Run {
                id: RunId::new(STAMP),
                session: SessionId::new(STAMP),
                principal: Principal::local(),
                seq: 1,
                task: "x".to_owned(),
                output_schema: None,
                model: None,
                idempotency_key: None,
                asked_by: None,
                message_id: None,
                state: RunState::Running { phase: Phase::Prompting, attempt: 1 },
                cancel_requested: Some(CanceledBy::Caller),
                created_at: UnixMillis(0),
                started_at: None,
                ended_at: None,
                usage: None,
            },
            progress: Some(Progress { beat: 9, steps: 2, tools: 3, last: "bash ls".to_owned() }),
        };
        let shown = run(&view);
        assert_eq!(shown["progress"], json!({ "steps": 2, "tools": 3, "last": "bash ls" }));
        assert_eq!((&shown["status"], &shown["cancel_requested_by"]), (&json!("running"), &json!("caller")));
    }
}
