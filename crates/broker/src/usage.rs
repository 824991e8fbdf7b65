//! What a provider says a request used, seen in a body that passes by.
//!
//! ```text
//! JSON      {"usage":{…}}
//! events    data: {…,"usage":{…}}    in the last piece, or in every one
//! ```
//!
//! Of several, the last counts: pieces that all have one have it for everything up to there.

use model::session::RunUsage;
use serde::Deserialize;

use crate::walk::{Interest, Visit, Walk};

#[derive(Debug)]
pub(crate) struct UsageFinder {
    events: Option<Line>,
    walk: Walk,
    found: Found,
    count: u64,
}

/// Where in a line of a stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So much of `data:` was there, and nothing else.
    Name(usize),
    Data,
    Ignored,
}

const DATA: &[u8] = b"data:";

#[derive(Debug, Default)]
struct Found(Option<RunUsage>);

impl Visit for Found {
    fn member(&mut self, name: &str) -> Interest {
        if name == "usage" { Interest::Keep } else { Interest::Skip }
    }

    fn kept(&mut self, raw: &[u8]) {
        if let Ok(Some(usage)) = serde_json::from_slice::<Option<Usage>>(raw) {
            self.0 = Some(usage.into());
        }
    }

    fn closed(&mut self, _at: usize) {}
}

impl UsageFinder {
    /// For a body of this type. None: nothing is found in it.
    pub(crate) fn of(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let events = if essence.eq_ignore_ascii_case(b"text/event-stream") {
            Some(Line::Name(0))
        } else if essence.eq_ignore_ascii_case(b"application/json") {
            None
        } else {
            return None;
        };
        Some(Self { events, walk: Walk::default(), found: Found::default(), count: 0 })
    }

    /// How many lines of data there were in a stream of events.
    pub(crate) fn events(&self) -> u64 {
        self.count
    }

    pub(crate) fn usage(&self) -> Option<RunUsage> {
        self.found.0
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let Some(mut line) = self.events else {
            self.walk.feed(bytes, &mut self.found);
            return;
        };
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            let used = match (line, first) {
                // A blank line ends an event, and with it what its lines of data made together.
                (Line::Name(0), b'\n' | b'\r') => {
                    self.walk = Walk::default();
                    1
                }
                (_, b'\n' | b'\r') => {
                    line = Line::Name(0);
                    // The second half of a line's end must not look like a blank line.
                    usize::from(*first == b'\r' && rest.get(1) == Some(&b'\n')) + 1
                }
                (Line::Name(have), byte) if DATA.get(have) == Some(byte) => {
                    line = if have + 1 == DATA.len() { Line::Data } else { Line::Name(have + 1) };
                    self.count += u64::from(line == Line::Data);
                    1
                }
                (Line::Name(_), _) => {
                    line = Line::Ignored;
                    1
                }
                (Line::Data | Line::Ignored, _) => {
                    let used = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    if line == Line::Data {
                        self.walk.feed(&rest[..used], &mut self.found);
                    }
                    used
                }
            };
            rest = &rest[used..];
        }
        self.events = Some(line);
    }
}

/// By both names that are in use; a provider that says nothing of a part has it at 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: Count,
    completion_tokens: Count,
    input_tokens: Count,
    output_tokens: Count,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    output_tokens_details: Option<Details>,
    /// `DeepSeek`'s own name for cached ones.
    prompt_cache_hit_tokens: Count,
    /// Dollars, as `OpenRouter` says it.
    cost: Dollars,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "as they are written")]
struct Details {
    cached_tokens: Count,
    cache_write_tokens: Count,
    reasoning_tokens: Count,
}

impl From<Usage> for RunUsage {
    fn from(usage: Usage) -> Self {
        let input = usage.prompt_tokens.0.max(usage.input_tokens.0);
        let output = usage.completion_tokens.0.max(usage.output_tokens.0);
        let asked = usage.prompt_tokens_details.or(usage.input_tokens_details).unwrap_or_default();
        let answered = usage.completion_tokens_details.or(usage.output_tokens_details).unwrap_or_default();
        // Parts of the whole: whatever a provider says, together they are no more than it.
        let cached = asked.cached_tokens.0.max(usage.prompt_cache_hit_tokens.0).min(input);
        let written = asked.cache_write_tokens.0.min(input - cached);
        let reasoning = answered.reasoning_tokens.0.min(output);
        Self {
            input_tokens: input - cached - written,
            output_tokens: output - reasoning,
            reasoning_tokens: reasoning,
            cache_read_tokens: cached,
            cache_write_tokens: written,
            cost_micros: usage.cost.0,
        }
    }
}

/// A count as providers write it: whole, as `12.0`, or `null`. Anything else is nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(number(&serde_json::Value::deserialize(deserializer)?, 1.0)))
    }
}

/// In millionths.
#[derive(Debug, Clone, Copy, Default)]
struct Dollars(u64);

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(number(&serde_json::Value::deserialize(deserializer)?, 1e6)))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float that is too large or below zero becomes the nearest number there is"
)]
fn number(value: &serde_json::Value, times: f64) -> u64 {
    match value.as_u64() {
        Some(whole) if times <= 1.0 => whole,
        // Rounded up: many small requests cost something too.
        Some(_) | None => value.as_f64().map_or(0, |float| (float * times).ceil() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, body: &str, expected: Option<[u64; 6]>) {
        let expected = expected.map(|[input, output, reasoning, read, write, cost]| RunUsage {
            input_tokens: input,
            output_tokens: output,
            reasoning_tokens: reasoning,
            cache_read_tokens: read,
            cache_write_tokens: write,
            cost_micros: cost,
        });
        for size in [1, 2, 7, body.len().max(1)] {
            let mut finder = UsageFinder::of(content_type.as_bytes()).unwrap();
            for piece in body.as_bytes().chunks(size) {
                finder.feed(piece);
            }
            assert_eq!(finder.usage(), expected, "{body:?} in pieces of {size}");
        }
    }

    #[test]
    fn usage_of_a_body() {
        let json = "application/json; charset=utf-8";
        check(
            json,
            r#"{"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}"#,
            Some([10, 3, 0, 0, 0, 0]),
        );
        check(
            json,
            r#"{"choices":[{"usage":{"prompt_tokens":9}}],"usage":{"prompt_tokens":10,"completion_tokens":8,
               "prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}}"#,
            Some([6, 3, 5, 4, 0, 0]),
        );
        check(
            json,
            r#"{"output":[],"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":2},"output_tokens":4,
               "output_tokens_details":{"reasoning_tokens":1},"total_tokens":11}}"#,
            Some([5, 3, 1, 2, 0, 0]),
        );
        check(
            json,
            r#"{"usage":{"prompt_tokens":10,"cost":0.0000125,"prompt_tokens_details":null}}"#,
            Some([10, 0, 0, 0, 0, 13]),
        );
        check(
            json,
            r#"{"usage":{"prompt_tokens":10,"prompt_cache_hit_tokens":10}}"#,
            Some([0, 0, 0, 10, 0, 0]),
        );
        check(json, r#"{"usage":{"prompt_tokens":5.0,"completion_tokens":null}}"#, Some([5, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn usage_of_a_stream() {
        let events = "text/event-stream";
        check(
            events,
            "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
            Some([2, 1, 0, 0, 0, 0]),
        );
        check(
            events,
            "event: end\r\ndata:{\"type\":\"end\",\"usage\":{\"input_tokens\":2,\"output_tokens\":1}}\r\n\r\n",
            Some([2, 1, 0, 0, 0, 0]),
        );
        // Each piece has what there was until then.
        check(
            events,
            ": hello\ndata: {\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2}}\n\ndata: {\"usage\":nul",
            Some([2, 2, 0, 0, 0, 0]),
        );
        check(events, "data: {\"usage\":\ndata: {\"prompt_tokens\":2}}\n\n", Some([2, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn what_a_model_says_is_no_usage() {
        let said = r#"{"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":999}"}}]}"#;
        check("application/json", said, None);
        check("text/event-stream", &format!("data: {said}\n\n"), None);
        check("text/event-stream", "xdata: {\"usage\":{\"prompt_tokens\":2}}\n\n", None);
        assert!(UsageFinder::of(b"text/html").is_none() && UsageFinder::of(b"").is_none());
    }

    #[test]
    fn numbers_that_no_provider_means() {
        let json = "application/json";
        check(json, r#"{"usage":{"prompt_tokens":-5,"completion_tokens":1e400}}"#, None);
        check(
            json,
            r#"{"usage":{"prompt_tokens":-5,"completion_tokens":1e40}}"#,
            Some([0, u64::MAX, 0, 0, 0, 0]),
        );
        check(
            json,
            r#"{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":9}}}"#,
            Some([0, 0, 0, 3, 0, 0]),
        );
        check(json, r#"{"usage":"none"}"#, None);
        check(json, r#"{"usage":{"prompt_tokens":"5"}}"#, Some([0, 0, 0, 0, 0, 0]));
    }
}
