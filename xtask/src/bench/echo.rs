//! The one call that every cell makes, and how its answer is judged.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

pub(super) fn initialize() -> Vec<u8> {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}
    });
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string().into_bytes()
}

/// `text` must need no escaping: this is on the path that is measured.
pub(super) fn call(tool: &str, id: u64, text: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"}}}}}}"#
    )
    .into_bytes()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    Wrong(String),
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: CallResult<'a>,
}

#[derive(Deserialize)]
struct CallResult<'a> {
    #[serde(borrow)]
    content: Vec<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

pub(super) fn check(message: &[u8], id: u64, text: &str) -> Verdict {
    let right = read(message).is_some_and(|(found, content)| found == id && content == text);
    if right {
        return Verdict::Right;
    }
    Verdict::Wrong(format!("asked {id} {text:?}, got {}", String::from_utf8_lossy(message)))
}

/// The id and the text of an answer.
pub(super) fn read(message: &[u8]) -> Option<(u64, Cow<'_, str>)> {
    let answer: Answer<'_> = serde_json::from_slice(message).ok()?;
    let content = answer.result.content.into_iter().next()?;
    Some((answer.id, content.text))
}

/// Times of calls, in tenths of a microsecond.
#[derive(Debug, Default)]
pub(super) struct Latencies(Vec<u32>);

impl Latencies {
    pub(super) fn add(&mut self, latency: Duration) {
        self.0.push(u32::try_from(latency.as_nanos() / 100).unwrap_or(u32::MAX));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// p50 and p99 in microseconds; zeros if there was no call.
    pub(super) fn percentiles(mut self) -> (f64, f64) {
        self.0.sort_unstable();
        let at = |percent: usize| {
            let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
            self.0.get(index).map_or(0.0, |tenths| f64::from(*tenths) / 10.0)
        };
        (at(50), at(99))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Latencies, Verdict, call, check};

    #[track_caller]
    fn check_answer(message: &str, right: bool) {
        assert_eq!(check(message.as_bytes(), 7, "a") == Verdict::Right, right, "{message}");
    }

    #[test]
    fn an_answer_must_have_the_id_and_the_text_of_its_call() {
        check_answer(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a"}]}}"#, true);
        check_answer(
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"\u0061"}]}}"#,
            true,
        );
        check_answer(r#"{"jsonrpc":"2.0","id":8,"result":{"content":[{"type":"text","text":"a"}]}}"#, false);
        check_answer(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"b"}]}}"#, false);
        check_answer(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"a"}}"#, false);
        check_answer("", false);
    }

    #[test]
    fn a_call_is_json() {
        let value: serde_json::Value = serde_json::from_slice(&call("echo", 7, "a b")).unwrap();
        assert_eq!(value["params"]["arguments"]["text"], "a b");
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut latencies = Latencies::default();
        for microseconds in (1..=100).rev() {
            latencies.add(Duration::from_micros(microseconds));
        }
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.percentiles(), (51.0, 100.0));
        assert_eq!(Latencies::default().percentiles(), (0.0, 0.0));
    }
}
