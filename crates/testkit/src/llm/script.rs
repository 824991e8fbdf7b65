//! The script language: from a prompt's text to what the model does next.

use serde::Deserialize;
use serde_json::{Map, Value};

const OPEN: &str = "<<<";
const CLOSE: &str = ">>>";

/// A prompt's text with this script in it.
pub fn script(steps: &Value) -> String {
    format!("Please {OPEN}{steps}{CLOSE}")
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default)]
    delay: u64,
    tool: Option<String>,
    args: Option<Map<String, Value>>,
    raw_args: Option<String>,
    calls: Option<Vec<Planned>>,
    spawn: Option<String>,
    text: Option<String>,
    status: Option<u16>,
    message: Option<String>,
}

/// One call as the script has it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Planned {
    pub(super) tool: Option<String>,
    pub(super) args: Map<String, Value>,
    pub(super) raw_args: Option<String>,
    /// The prompt of a subagent, instead of a tool.
    pub(super) spawn: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Text(String),
    Calls(Vec<Planned>),
    Fail { status: u16, message: String },
}

#[derive(Debug, PartialEq)]
pub(super) struct Next {
    /// Milliseconds to wait first.
    pub(super) delay: u64,
    /// The place in the script that the answer was taken from.
    pub(super) step: usize,
    pub(super) answer: Answer,
}

/// What is between the marks. Scripts nest: a subagent's lies in the prompt of its parent's.
pub(super) fn find(text: &str) -> Option<&str> {
    let start = text.find(OPEN)? + OPEN.len();
    let mut depth = 1;
    let mut at = start;
    while depth > 0 {
        let rest = &text[at..];
        let close = rest.find(CLOSE)?;
        match rest.find(OPEN) {
            Some(open) if open < close => {
                depth += 1;
                at += open + OPEN.len();
            }
            _ => {
                depth -= 1;
                at += close + CLOSE.len();
            }
        }
    }
    Some(&text[start..at - CLOSE.len()])
}

/// The step at `start`, or the one after the delays that stand there. Past the end: `last` is said.
pub(super) fn next(source: &str, start: usize, last: &str) -> Next {
    let steps: Vec<Step> = match serde_json::from_str(source) {
        Ok(steps) => steps,
        Err(error) => {
            // No retry helps, so the status is one that hosts do not retry.
            let answer = Answer::Fail { status: 400, message: format!("the script is wrong: {error}") };
            return Next { delay: 0, step: start, answer };
        }
    };
    let mut delay = 0;
    for (index, step) in steps.into_iter().enumerate().skip(start) {
        delay += step.delay;
        if let Some(answer) = step.answer() {
            return Next { delay, step: index, answer };
        }
    }
    Next { delay, step: start, answer: Answer::Text(format!("done; the last tool said: {last}")) }
}

impl Step {
    /// None for a step that only waits.
    fn answer(self) -> Option<Answer> {
        let Self { delay: _, tool, args, raw_args, calls, spawn, text, status, message } = self;
        if let Some(status) = status {
            return Some(Answer::Fail { status, message: message.unwrap_or_else(|| "scripted".to_owned()) });
        }
        if let Some(calls) = calls {
            return Some(Answer::Calls(calls));
        }
        if tool.is_some() || spawn.is_some() {
            let call = Planned { tool, args: args.unwrap_or_default(), raw_args, spawn };
            return Some(Answer::Calls(vec![call]));
        }
        text.map(Answer::Text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_script_is_found_with_the_scripts_inside_it() {
        let inner = script(&json!([{ "tool": "a/b" }]));
        let outer = json!([{ "spawn": inner }]);
        let text = script(&outer);
        assert_eq!(find(&text), Some(outer.to_string().as_str()));
        assert_eq!(find("nothing"), None);
        assert_eq!(find("<<<[1"), None);
    }

    #[test]
    fn steps_follow_each_other_and_delays_are_no_steps() {
        let source = r#"[{"delay":5},{"tool":"x","args":{"a":1}},{"delay":7},{"text":"t","delay":1}]"#;
        let call = Planned {
            tool: Some("x".into()),
            args: json!({ "a": 1 }).as_object().cloned().unwrap(),
            ..Planned::default()
        };
        assert_eq!(next(source, 0, ""), Next { delay: 5, step: 1, answer: Answer::Calls(vec![call]) });
        assert_eq!(next(source, 2, ""), Next { delay: 8, step: 3, answer: Answer::Text("t".into()) });
        let end = Answer::Text("done; the last tool said: r".into());
        assert_eq!(next(source, 4, "r"), Next { delay: 0, step: 4, answer: end });
    }

    #[test]
    fn a_wrong_script_is_refused_with_the_reason() {
        let Answer::Fail { status, message } = next(r#"[{"tol":"x"}]"#, 0, "").answer else { panic!() };
        assert_eq!(status, 400);
        assert!(message.contains("tol"), "{message}");
    }
}
