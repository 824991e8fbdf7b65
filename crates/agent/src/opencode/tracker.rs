//! From parts of messages to progress: each thing once, whether an event or the history tells it.

use std::collections::{HashMap, HashSet};

use model::ports::agent::{Progress, Status};

use super::is_name;
use super::wire::{self, Delta, Part, ToolState};

/// Steps in a row in which the model said nothing at all, until that is taken for the provider's fault. OpenCode itself
/// asks again for ever, twenty times a second.
const EMPTY_STEPS: u32 = 10;
/// Parts that are remembered. A turn of more tells some things twice.
const REMEMBERED: usize = 20_000;

/// How much of a name is shown.
const NAME: usize = 200;
/// How much of what a tool said is shown.
const SAID: usize = 2000;

#[derive(Debug, Default)]
pub(super) struct Tracker {
    told: HashMap<String, Stage>,
    status: Option<Status>,
    /// Messages that have something in them, while they are written.
    filled: HashSet<String>,
    empty_steps: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Started,
    Finished,
}

impl Tracker {
    /// Whether the provider answers with nothing, over and over.
    pub(super) fn is_spinning(&self) -> bool {
        self.empty_steps >= EMPTY_STEPS
    }

    pub(super) fn status(&mut self, status: &wire::Status) -> Option<Progress> {
        let status = match status {
            wire::Status::Busy | wire::Status::Other => Status::Busy,
            wire::Status::Retry { attempt, message, next } => Status::Retry {
                attempt: *attempt,
                message: wire::cut(message, SAID),
                next_at: (*next).into(),
            },
            wire::Status::Idle => return None,
        };
        if self.status.as_ref() == Some(&status) {
            return None;
        }
        self.status = Some(status.clone());
        Some(Progress::Status(status))
    }

    pub(super) fn delta(&mut self, thread: &str, delta: &Delta) -> Option<Progress> {
        self.fill(&delta.message);
        let bytes = delta.delta.len();
        (bytes > 0).then(|| Progress::Text { thread: thread.to_owned(), bytes })
    }

    pub(super) fn part(&mut self, thread: &str, part: &Part) -> Vec<Progress> {
        match part.kind.as_str() {
            "step-start" => self.step_started(thread, part).into_iter().collect(),
            "step-finish" => self.step_finished(thread, part).into_iter().collect(),
            "tool" => {
                self.fill(&part.message);
                let state = part.state.as_ref();
                state.map(|state| self.tool(thread, part, state)).unwrap_or_default()
            }
            "text" | "reasoning" => {
                if !part.text.is_empty() {
                    self.fill(&part.message);
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn step_started(&mut self, thread: &str, part: &Part) -> Option<Progress> {
        self.advance(part, Stage::Finished).then(|| Progress::StepStarted {
            thread: thread.to_owned(),
            message: wire::cut(&part.message, NAME),
        })
    }

    fn step_finished(&mut self, thread: &str, part: &Part) -> Option<Progress> {
        if !self.advance(part, Stage::Finished) {
            return None;
        }
        let finish = part.reason.as_deref().unwrap_or_default();
        let empty = !self.filled.remove(&part.message) && !matches!(finish, "stop" | "tool-calls");
        self.empty_steps = if empty { self.empty_steps + 1 } else { 0 };
        Some(Progress::StepFinished {
            thread: thread.to_owned(),
            message: wire::cut(&part.message, NAME),
            finish: wire::cut(finish, NAME),
            usage: part.usage(),
        })
    }

    fn tool(&mut self, thread: &str, part: &Part, state: &ToolState) -> Vec<Progress> {
        let finished = matches!(state.status.as_str(), "completed" | "error");
        if !finished && state.status != "running" {
            return Vec::new();
        }
        let (thread, call) = (thread.to_owned(), wire::cut(&part.call, NAME));
        let tool = wire::cut(&part.tool, NAME);
        let started_at = state.time.start.unwrap_or_default().into();
        let mut progress = Vec::new();
        if self.advance(part, Stage::Started) {
            let (thread, call, tool) = (thread.clone(), call.clone(), tool.clone());
            progress.push(Progress::ToolStarted { thread, call, tool, at: started_at });
        }
        if finished && self.advance(part, Stage::Finished) {
            let said = |text: &Option<String>| text.as_deref().map(|text| wire::cut(text, SAID));
            progress.push(Progress::ToolFinished {
                thread,
                call,
                tool,
                title: said(&state.title).unwrap_or_default(),
                error: (state.status == "error").then(|| said(&state.error).unwrap_or_default()),
                started_at,
                at: state.time.end.or(state.time.start).unwrap_or_default().into(),
            });
        }
        progress
    }

    /// True the first time that a part gets this far. One without a name never does.
    fn advance(&mut self, part: &Part, stage: Stage) -> bool {
        if !is_name(&part.id) {
            return false;
        }
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        let before = self.told.get(&part.id).copied();
        let further = before < Some(stage);
        if further {
            self.told.insert(part.id.clone(), stage);
        }
        further
    }

    fn fill(&mut self, message: &str) {
        if self.filled.len() >= REMEMBERED {
            self.filled.clear();
        }
        if is_name(message) && !self.filled.contains(message) {
            self.filled.insert(message.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use model::session::UnixMillis;
    use serde_json::json;

    use super::*;

    fn part(json: serde_json::Value) -> Part {
        serde_json::from_value(json).unwrap()
    }

    fn tool(status: &str) -> Part {
        part(json!({ "id": "prt_1", "type": "tool", "messageID": "msg_1", "callID": "c", "tool": "bash",
            "state": { "status": status, "title": "t", "error": "e", "time": { "start": 5, "end": 7 } } }))
    }

    #[test]
    fn a_tool_starts_and_ends_once_whatever_was_missed() {
        let started = Progress::ToolStarted {
            thread: "s".into(),
            call: "c".into(),
            tool: "bash".into(),
            at: UnixMillis(5),
        };
        let finished = |error: Option<&str>| Progress::ToolFinished {
            thread: "s".into(),
            call: "c".into(),
            tool: "bash".into(),
            title: "t".into(),
            error: error.map(str::to_owned),
            started_at: UnixMillis(5),
            at: UnixMillis(7),
        };
        let mut tracker = Tracker::default();
        assert_eq!(tracker.part("s", &tool("pending")), []);
        assert_eq!(tracker.part("s", &tool("running")), std::slice::from_ref(&started));
        assert_eq!(tracker.part("s", &tool("running")), []);
        assert_eq!(tracker.part("s", &tool("completed")), [finished(None)]);
        assert_eq!(tracker.part("s", &tool("running")), []);
        let mut late = Tracker::default();
        assert_eq!(late.part("s", &tool("error")), [started, finished(Some("e"))]);
        assert_eq!(late.part("s", &tool("error")), []);
    }

    #[test]
    fn steps_without_a_word_are_counted_until_there_is_one() {
        let mut tracker = Tracker::default();
        let mut step = |number: u32, reason: &str, text: &str| {
            let message = format!("msg_{number}");
            let said =
                json!({ "id": format!("prt_t{number}"), "type": "text", "messageID": message, "text": text });
            tracker.part("s", &part(said));
            let end = json!({ "id": format!("prt_f{number}"), "type": "step-finish", "messageID": message,
                "reason": reason, "cost": 0, "tokens": { "input": 1, "output": 1, "reasoning": 0, "cache": {} } });
            assert_eq!(tracker.part("s", &part(end)).len(), 1);
            tracker.is_spinning()
        };
        assert!((0..9).all(|number| !step(number, "unknown", "")));
        assert!(!step(9, "unknown", "a word"));
        assert!((10..19).all(|number| !step(number, "unknown", "")));
        assert!(step(19, "unknown", ""));
        assert!(!step(20, "tool-calls", ""));
    }

    #[test]
    fn a_status_is_told_when_it_changes() {
        let mut tracker = Tracker::default();
        let busy = Some(Progress::Status(Status::Busy));
        assert_eq!(tracker.status(&wire::Status::Busy), busy);
        assert_eq!(tracker.status(&wire::Status::Busy), None);
        assert_eq!(tracker.status(&wire::Status::Idle), None);
        let retry = wire::Status::Retry { attempt: 1, message: "m".into(), next: wire::Millis(3) };
        assert!(matches!(tracker.status(&retry), Some(Progress::Status(Status::Retry { attempt: 1, .. }))));
        assert_eq!(tracker.status(&wire::Status::Busy), busy);
    }
}
