//! What the daemon answers: a tool's result, a tool's error, or that it could not be asked.

use anyhow::Context as _;
use http::StatusCode;
use serde_json::Value;

use super::ID;
use crate::exit::{Code, Failure};

/// No tool takes it, so these arguments were not looked at.
const INVALID_PARAMS: i64 = -32602;
/// How much of a text is shown where something else was expected.
const SHOWN: usize = 400;

/// The stream of events ended without the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the daemon ended its answer before it was whole")]
pub(super) struct Unanswered;

/// What one event says.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    Nothing,
    /// How far it is.
    Progress(String),
    /// The response, whole.
    Answer(Value),
}

pub(super) fn hear(data: &[u8]) -> anyhow::Result<Heard> {
    // An event without data is there for its id.
    if data.is_empty() {
        return Ok(Heard::Nothing);
    }
    let message: Value = serde_json::from_slice(data).context("the daemon's answer is no JSON")?;
    if message["method"] == "notifications/progress" && message["params"]["progressToken"] == ID {
        let said = message["params"]["message"].as_str().unwrap_or_default();
        return Ok(Heard::Progress(said.to_owned()));
    }
    let is_answer = message.get("method").is_none() && (message["id"] == ID || message["id"].is_null());
    Ok(if is_answer { Heard::Answer(message) } else { Heard::Nothing })
}

/// A response in one piece. What went wrong before the server read it has a status and perhaps a text only.
pub(super) fn message(status: StatusCode, body: &[u8]) -> anyhow::Result<Value> {
    match serde_json::from_slice::<Value>(body) {
        Ok(message) if message.get("result").is_some() || message.get("error").is_some() => result(message),
        Ok(_) | Err(_) => Err(refused(status, body).into()),
    }
}

/// The answer to a request that is no call of a tool.
pub(super) fn plain(status: StatusCode, body: &[u8]) -> anyhow::Result<Value> {
    match serde_json::from_slice::<Value>(body) {
        Ok(answer) if status.is_success() => Ok(answer),
        Ok(answer) if answer["error"].is_object() => Err(of_tool(&answer["error"]).into()),
        Ok(_) | Err(_) if status == StatusCode::NOT_FOUND => {
            let failure = refused(status, body);
            Err(Failure { code: Code::Usage, ..failure }.into())
        }
        Ok(_) | Err(_) => Err(refused(status, body).into()),
    }
}

/// What a tool answered.
pub(super) fn result(mut message: Value) -> anyhow::Result<Value> {
    if let Some(error) = message.get("error") {
        let said = error["message"].as_str().unwrap_or("it did not say why");
        let code = if error["code"] == INVALID_PARAMS { Code::Usage } else { Code::Unexpected };
        return Err(Failure::new(code, said).into());
    }
    let result = message["result"].take();
    if result["isError"] == true {
        let error = &result["structuredContent"]["error"];
        let failure = if error["message"].is_string() {
            of_tool(error)
        } else {
            Failure::new(Code::Unexpected, text(&result).unwrap_or("the tool failed and did not say why"))
        };
        return Err(failure.into());
    }
    if let Some(structured) = result.get("structuredContent") {
        return Ok(structured.clone());
    }
    let text = text(&result).context("the tool answered nothing")?;
    serde_json::from_str(text).context("the tool's answer is no JSON")
}

fn text(result: &Value) -> Option<&str> {
    result["content"].as_array()?.iter().find_map(|block| block["text"].as_str())
}

/// `{code, message}` as a failure. The words are a model's; what a person can do is said beside them.
fn of_tool(error: &Value) -> Failure {
    let said = error["message"].as_str().unwrap_or("it did not say why");
    let (code, hint) = match error["code"].as_str().unwrap_or_default() {
        "no_session" | "session_terminated" | "other_image" => (Code::Usage, Some("callsign sessions")),
        "no_run" => (Code::Usage, Some("callsign runs SESSION")),
        "no_artifact" => (Code::Usage, Some("callsign artifacts SESSION")),
        "idempotency_conflict" | "queue_full" | "bad_argument" => (Code::Usage, None),
        "bad_settings" => (Code::Configuration, Some("callsign doctor")),
        "unable" => (Code::Server, Some("callsign doctor")),
        "storage_full" | "store_failed" | "files_failed" => (Code::State, None),
        _ => (Code::Unexpected, None),
    };
    let failure = Failure::new(code, said);
    hint.map_or(failure.clone(), |hint| failure.with_hint(hint))
}

fn refused(status: StatusCode, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let said: String = text.trim().chars().take(SHOWN).collect();
    let message = match (status, said.as_str()) {
        // It says what it cannot do in a sentence.
        (StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_FOUND, said) if !said.is_empty() => {
            said.to_owned()
        }
        (status, "") => format!("the daemon answered {status}"),
        (status, said) => format!("the daemon answered {status}: {said}"),
    };
    Failure::new(Code::Server, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(answer: anyhow::Result<Value>) -> Failure {
        answer.unwrap_err().downcast().unwrap()
    }

    fn answer(result: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": ID, "result": result })
    }

    #[test]
    fn among_events_the_answer_and_how_far_it_is_are_heard() {
        let progress = |token: Value| {
            let params = json!({ "progressToken": token, "progress": 2, "message": "running: step 2" });
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        };
        let of_another = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
        let done = answer(&json!({ "structuredContent": {} }));
        for (event, expected) in [
            (progress(ID.into()), Heard::Progress("running: step 2".to_owned())),
            (progress("x".into()), Heard::Nothing),
            (json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} }), Heard::Nothing),
            (of_another, Heard::Nothing),
            (done.clone(), Heard::Answer(done)),
        ] {
            assert_eq!(hear(event.to_string().as_bytes()).unwrap(), expected, "{event}");
        }
        assert_eq!(hear(b"").unwrap(), Heard::Nothing);
        assert!(hear(b"{").is_err());
    }

    #[test]
    fn a_result_is_what_is_structured_in_it() {
        let both = json!({ "content": [{ "type": "text", "text": "{}" }], "structuredContent": { "a": 1 } });
        assert_eq!(result(answer(&both)).unwrap(), json!({ "a": 1 }));
        let text = json!({ "content": [{ "type": "text", "text": "{\"a\":1}" }] });
        assert_eq!(result(answer(&text)).unwrap(), json!({ "a": 1 }));
        assert!(result(answer(&json!({ "content": [] }))).is_err());
    }

    #[test]
    fn a_tools_error_is_told_in_its_own_words() {
        let error = |code: &str| {
            let structured = json!({ "error": { "code": code, "message": "there is no session `x`" } });
            answer(&json!({ "isError": true, "content": [], "structuredContent": structured }))
        };
        for (code, expected, hint) in [
            ("no_session", Code::Usage, Some("callsign sessions")),
            ("unable", Code::Server, Some("callsign doctor")),
            ("storage_full", Code::State, None),
            ("something_new", Code::Unexpected, None),
        ] {
            let failure = failure(result(error(code)));
            assert_eq!((failure.code, failure.hint.as_deref()), (expected, hint), "{code}");
            assert_eq!(failure.message, "there is no session `x`");
        }
        let bare = answer(&json!({ "isError": true, "content": [{ "type": "text", "text": "no" }] }));
        assert_eq!(failure(result(bare)).message, "no");
        let refused = json!({ "id": ID, "error": { "code": -32602, "message": "`tsak` is no argument" } });
        let failure = failure(result(refused));
        assert_eq!((failure.code, failure.message.as_str()), (Code::Usage, "`tsak` is no argument"));
    }

    #[test]
    fn what_is_no_answer_of_a_tool_is_told_with_its_status() {
        let unavailable = failure(message(StatusCode::SERVICE_UNAVAILABLE, b"there are no sessions: why\n"));
        assert_eq!(unavailable.message, "there are no sessions: why");
        assert_eq!(unavailable.code, Code::Server);
        let odd = failure(message(StatusCode::BAD_GATEWAY, b"<html>"));
        assert_eq!(odd.message, "the daemon answered 502 Bad Gateway: <html>");
        assert_eq!(failure(plain(StatusCode::NOT_FOUND, b"")).message, "the daemon answered 404 Not Found");
        let absent = failure(plain(StatusCode::NOT_FOUND, b"there is no session `x`"));
        assert_eq!((absent.code, absent.message.as_str()), (Code::Usage, "there is no session `x`"));
        let no_run = br#"{"error":{"code":"no_run","message":"there is no run"}}"#;
        let no_run = failure(plain(StatusCode::NOT_FOUND, no_run));
        assert_eq!((no_run.code, no_run.message.as_str()), (Code::Usage, "there is no run"));
        assert_eq!(plain(StatusCode::OK, br#"{"runs":[]}"#).unwrap(), json!({ "runs": [] }));
    }
}
