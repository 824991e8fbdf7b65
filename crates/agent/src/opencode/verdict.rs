//! How a stored turn ended, once its session is idle.
//!
//! ```text
//! no answer at all ──────────────────────────▶ Open: Unanswered   it is about to begin, or never will
//! error ─────────────────────────────────────▶ Failed
//! structured, or finish: stop, length … ─────▶ Ended
//! completed without finish and error ────────▶ Failed: Aborted    how an abort between retries looks
//! finish: tool-calls, a tool was turned down ▶ Failed: Aborted
//! anything else ─────────────────────────────▶ Open: Unfinished   cut off: OpenCode was killed, or aborted between steps
//! ```

use model::ports::agent::{Failure, Spent, Turn};

use super::wire::{self, Entry, Info};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ended(Turn),
    Failed(Failure),
    /// It has no end. Busy or settled, that means two things.
    Open(Open),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    Unanswered,
    Unfinished,
}

/// `answers`: everything that a model said in this turn, in order.
pub(super) fn judge(answers: &[Entry]) -> Verdict {
    let Some(last) = answers.last() else { return Verdict::Open(Open::Unanswered) };
    if let Some(error) = &last.info.error {
        return Verdict::Failed(error.failure());
    }
    let Info { finish, structured, time, .. } = &last.info;
    let ended = |finish: &str| {
        Verdict::Ended(Turn {
            final_text: text(last),
            structured: structured.as_ref().map(|json| json.get().to_owned()),
            finish: wire::cut(finish, 100),
            spent: spent(answers),
        })
    };
    if last.info.is_summary() {
        // What was summed up is gone on with afterwards.
        return Verdict::Open(Open::Unfinished);
    }
    match finish.as_deref() {
        Some(finish) if structured.is_some() => ended(finish),
        Some("tool-calls") if turned_down(last) => Verdict::Failed(Failure::Aborted),
        // OpenCode asks the model again after these.
        Some("tool-calls" | "unknown") => Verdict::Open(Open::Unfinished),
        Some(finish) => ended(finish),
        None if time.completed.is_some() => Verdict::Failed(Failure::Aborted),
        None => Verdict::Open(Open::Unfinished),
    }
}

/// What one answer says.
pub(super) fn text(entry: &Entry) -> String {
    let said = entry.parts.0.iter().filter(|part| part.kind == "text" && !part.synthetic && !part.ignored);
    said.map(|part| part.text.as_str()).collect()
}

/// Without what subagents took, which stands elsewhere.
pub(super) fn spent(answers: &[Entry]) -> Spent {
    let mut spent = Spent { steps: u32::try_from(answers.len()).unwrap_or(u32::MAX), ..Spent::default() };
    for entry in answers {
        wire::add(&mut spent.usage, &entry.info.usage());
    }
    spent
}

/// A question or a permission was refused without a word for the model: OpenCode ends the turn then.
fn turned_down(entry: &Entry) -> bool {
    let states = entry.parts.0.iter().filter_map(|part| part.state.as_ref());
    let mut errors =
        states.filter(|state| state.status == "error").filter_map(|state| state.error.as_deref());
    entry.info.time.completed.is_some()
        && errors.any(|error| error.contains("rejected permission") || error.contains("dismissed"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(info: &Value, parts: &Value, expected: &Verdict) {
        let mut whole =
            json!({ "id": "msg_a", "role": "assistant", "time": { "created": 1, "completed": 2 } });
        for (name, value) in info.as_object().unwrap() {
            whole[name] = value.clone();
        }
        let entry: Entry = serde_json::from_value(json!({ "info": whole, "parts": parts })).unwrap();
        assert_eq!(&judge(&[entry]), expected, "{info} {parts}");
    }

    fn ended(final_text: &str, structured: Option<&str>, finish: &str) -> Verdict {
        Verdict::Ended(Turn {
            final_text: final_text.to_owned(),
            structured: structured.map(str::to_owned),
            finish: finish.to_owned(),
            spent: Spent { steps: 1, ..Spent::default() },
        })
    }

    #[test]
    fn every_way_a_turn_can_stand() {
        let none = json!([]);
        assert_eq!(judge(&[]), Verdict::Open(Open::Unanswered));
        let said = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "hidden", "synthetic": true },
            { "type": "reasoning", "text": "hm" }, { "type": "text", "text": "b" }]);
        check(&json!({ "finish": "stop" }), &said, &ended("ab", None, "stop"));
        check(&json!({ "finish": "length" }), &none, &ended("", None, "length"));
        let structured = json!({ "finish": "tool-calls", "structured": { "a": [1, "x"] } });
        check(&structured, &none, &ended("", Some(r#"{"a":[1,"x"]}"#), "tool-calls"));
        let error = json!({ "error": { "name": "MessageAbortedError" }, "finish": "stop" });
        check(&error, &said, &Verdict::Failed(Failure::Aborted));
        check(&json!({}), &none, &Verdict::Failed(Failure::Aborted));
        let unfinished = Verdict::Open(Open::Unfinished);
        check(&json!({ "time": { "created": 1 } }), &none, &unfinished);
        check(&json!({ "finish": "tool-calls" }), &none, &unfinished);
        check(&json!({ "finish": "unknown" }), &none, &unfinished);
        check(&json!({ "finish": "stop", "summary": true }), &said, &unfinished);
    }

    #[test]
    fn a_refusal_without_a_word_ends_the_turn() {
        let part = |error: &str| json!([{ "type": "tool", "state": { "status": "error", "error": error } }]);
        let finish = json!({ "finish": "tool-calls" });
        let aborted = Verdict::Failed(Failure::Aborted);
        check(&finish, &part("The user rejected permission to use this specific tool call."), &aborted);
        check(&finish, &part("The user dismissed this question"), &aborted);
        check(&finish, &part("no such file"), &Verdict::Open(Open::Unfinished));
    }
}
