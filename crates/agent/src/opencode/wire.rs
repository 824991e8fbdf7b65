//! OpenCode's JSON, as far as it is read. What is not named here may change.

mod bounded;

use std::fmt;

use model::ports::agent::Failure;
use model::session::{RunUsage, UnixMillis};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use self::bounded::Summary;
pub(super) use self::bounded::{Anything, AtMost};

/// How much of a text from a box is shown.
const SHOWN: usize = 2000;

#[derive(Debug, Deserialize)]
pub(super) struct Health {
    #[serde(default)]
    pub(super) version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    pub(super) id: String,
    #[serde(rename = "parentID")]
    pub(super) parent: Option<String>,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) time: Times,
    tokens: Option<Tokens>,
    cost: Option<f64>,
}

impl Session {
    pub(super) fn usage(&self) -> RunUsage {
        Used { tokens: self.tokens, cost: self.cost }.usage()
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Status {
    Idle,
    Busy,
    Retry {
        #[serde(default)]
        attempt: u32,
        #[serde(default)]
        message: String,
        #[serde(default)]
        next: Millis,
    },
    #[serde(other)]
    Other,
}

/// Milliseconds since 1970. OpenCode writes some of them with a fraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Millis(pub(super) u64);

impl From<Millis> for UnixMillis {
    fn from(millis: Millis) -> Self {
        Self(millis.0)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(whole(f64::deserialize(deserializer)?)))
    }
}

/// A number of the wire as a count: no fraction, no sign, no infinity.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` stays within the bounds of u64"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Times {
    pub(super) created: Option<Millis>,
    pub(super) completed: Option<Millis>,
    pub(super) start: Option<Millis>,
    pub(super) end: Option<Millis>,
}

/// `tokens` and `cost`, where a message, a step or a session has them. None has it flattened: that would hold all
/// members of the others at once, some tens of times as large as they are written.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Used {
    tokens: Option<Tokens>,
    cost: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input: f64,
    output: f64,
    reasoning: f64,
    cache: Cache,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Cache {
    read: f64,
    write: f64,
}

impl Used {
    fn usage(&self) -> RunUsage {
        let tokens = self.tokens.unwrap_or_default();
        RunUsage {
            input_tokens: whole(tokens.input),
            output_tokens: whole(tokens.output),
            reasoning_tokens: whole(tokens.reasoning),
            cache_read_tokens: whole(tokens.cache.read),
            cache_write_tokens: whole(tokens.cache.write),
            cost_micros: whole((self.cost.unwrap_or_default() * 1_000_000.0).round()),
        }
    }
}

/// `sum` and `more` together.
pub(super) fn add(sum: &mut RunUsage, more: &RunUsage) {
    *sum = sum.plus(*more);
}

/// A message with its parts.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) info: Info,
    #[serde(default)]
    pub(super) parts: AtMost<Part, PARTS>,
}

/// Parts of one message. OpenCode makes a message of each step, with one for each thing that is said or done.
pub(super) const PARTS: usize = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

#[derive(Debug, Deserialize)]
pub(super) struct Info {
    pub(super) id: String,
    pub(super) role: Role,
    #[serde(default)]
    pub(super) time: Times,
    pub(super) error: Option<WireError>,
    pub(super) finish: Option<String>,
    pub(super) structured: Option<Box<RawValue>>,
    /// `true` for an answer that only sums up what was said before; something else for a prompt.
    #[serde(default)]
    summary: Summary,
    pub(super) model: Option<ModelRef>,
    tokens: Option<Tokens>,
    cost: Option<f64>,
}

impl Info {
    pub(super) fn is_summary(&self) -> bool {
        self.summary.0
    }

    pub(super) fn usage(&self) -> RunUsage {
        Used { tokens: self.tokens, cost: self.cost }.usage()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ModelRef {
    #[serde(rename = "providerID")]
    pub(super) provider: String,
    #[serde(rename = "modelID")]
    pub(super) model: String,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// Any part: which fields it has depends on its kind.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Part {
    #[serde(default)]
    pub(super) id: String,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    #[serde(rename = "messageID", default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) text: String,
    /// Not written by a person or a model.
    #[serde(default)]
    pub(super) synthetic: bool,
    #[serde(default)]
    pub(super) ignored: bool,
    #[serde(default)]
    pub(super) tool: String,
    #[serde(rename = "callID", default)]
    pub(super) call: String,
    pub(super) state: Option<ToolState>,
    pub(super) reason: Option<String>,
    tokens: Option<Tokens>,
    cost: Option<f64>,
}

impl Part {
    pub(super) fn usage(&self) -> RunUsage {
        Used { tokens: self.tokens, cost: self.cost }.usage()
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ToolState {
    #[serde(default)]
    pub(super) status: String,
    pub(super) title: Option<String>,
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) time: Times,
}

/// `{name, data: {message, …}}`
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct WireError {
    #[serde(default)]
    name: String,
    #[serde(default)]
    data: ErrorData,
    /// Some errors have it here.
    #[serde(default)]
    message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ErrorData {
    message: String,
    status_code: Option<u16>,
    is_retryable: bool,
}

impl WireError {
    /// What OpenCode says of itself, told apart by whose fault it is.
    pub(super) fn failure(&self) -> Failure {
        let message = self.message();
        match self.name.as_str() {
            "MessageAbortedError" => Failure::Aborted,
            "APIError" => Failure::Provider {
                status: self.data.status_code,
                message,
                retryable: self.data.is_retryable,
            },
            "ProviderAuthError" => Failure::Provider { status: Some(401), message, retryable: false },
            "MessageOutputLengthError" => {
                Failure::Model { message: "its answer is longer than the model may write".to_owned() }
            }
            "ContextOverflowError" | "ContentFilterError" | "StructuredOutputError" => {
                Failure::Model { message }
            }
            _ => unnamed(message),
        }
    }

    fn message(&self) -> String {
        let text = if self.data.message.is_empty() { &self.message } else { &self.data.message };
        let text = if text.is_empty() { &self.name } else { text };
        // What follows the first line is a stack of OpenCode's own.
        cut(text.split("\n    at ").next().unwrap_or_default(), SHOWN)
    }
}

/// `UnknownError` and whatever comes later: only the words are left to go by.
fn unnamed(message: String) -> Failure {
    const MODEL: [&str; 3] = ["Model not found", "ModelNotFound", "rejected permission"];
    // From the library that OpenCode reads a provider's stream with.
    const PROVIDER: [&str; 6] = [
        "JSON parsing failed",
        "Type validation failed",
        "Invalid JSON",
        "No output generated",
        "socket",
        "fetch",
    ];
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&MODEL) {
        Failure::Model { message }
    } else if has(&PROVIDER) {
        Failure::Provider { status: None, message, retryable: true }
    } else {
        Failure::Protocol { what: message }
    }
}

/// What the body of a refusal says.
pub(super) fn error_message(body: &[u8]) -> String {
    match serde_json::from_slice::<WireError>(body) {
        Ok(error) => error.message(),
        Err(_other) => cut(&String::from_utf8_lossy(body), 300),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(borrow)]
    pub(super) properties: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OfSession {
    #[serde(rename = "sessionID", default)]
    pub(super) session: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct StatusChanged {
    pub(super) status: Status,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorRaised {
    pub(super) error: Option<WireError>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionMade {
    pub(super) info: Session,
}

#[derive(Debug, Deserialize)]
pub(super) struct PartChanged {
    pub(super) part: Part,
}

#[derive(Debug, Deserialize)]
pub(super) struct Delta {
    #[serde(rename = "messageID", default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) delta: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

#[derive(Debug, Deserialize)]
pub(super) struct PermissionAsked {
    pub(super) id: String,
    #[serde(rename = "sessionID")]
    pub(super) session: String,
    pub(super) permission: String,
    #[serde(default)]
    pub(super) patterns: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct QuestionAsked {
    pub(super) id: String,
    #[serde(rename = "sessionID")]
    pub(super) session: String,
    #[serde(default)]
    pub(super) questions: Vec<QuestionText>,
}

#[derive(Debug, Deserialize)]
pub(super) struct QuestionText {
    #[serde(default)]
    pub(super) question: String,
    #[serde(default)]
    pub(super) options: Vec<QuestionOption>,
}

#[derive(Debug, Deserialize)]
pub(super) struct QuestionOption {
    #[serde(default)]
    pub(super) label: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) model: Option<String>,
}

/// The models there are.
#[derive(Debug, Deserialize)]
pub(super) struct Providers {
    pub(super) providers: Vec<ProviderModels>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProviderModels {
    pub(super) id: String,
    #[serde(default)]
    pub(super) models: std::collections::BTreeMap<String, ModelEntry>,
}

/// That there is one is all that matters.
#[derive(Debug, Deserialize)]
pub(super) struct ModelEntry {
    #[serde(default)]
    _id: Option<String>,
}

/// The beginning of a text, without what a terminal would obey.
pub(super) fn cut(text: &str, length: usize) -> String {
    let visible = text.chars().map(|character| {
        if character.is_control() && character != '\n' && character != '\t' { ' ' } else { character }
    });
    visible.take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &str, expected: &Failure) {
        let error: WireError = serde_json::from_str(error).unwrap();
        assert_eq!(&error.failure(), expected);
    }

    #[test]
    fn errors_are_told_apart() {
        check(r#"{"name":"MessageAbortedError","data":{"message":"Aborted"}}"#, &Failure::Aborted);
        let provider = |status, message: &str, retryable| Failure::Provider {
            status,
            message: message.to_owned(),
            retryable,
        };
        check(
            r#"{"name":"APIError","data":{"message":"bad","statusCode":400,"isRetryable":false,"responseBody":"{}"}}"#,
            &provider(Some(400), "bad", false),
        );
        check(
            r#"{"name":"ProviderAuthError","data":{"providerID":"x","message":"no key"}}"#,
            &provider(Some(401), "no key", false),
        );
        check(
            r#"{"name":"UnknownError","data":{"message":"JSON parsing failed: Text: x"}}"#,
            &provider(None, "JSON parsing failed: Text: x", true),
        );
        let model = |message: &str| Failure::Model { message: message.to_owned() };
        check(
            r#"{"name":"UnknownError","data":{"message":"ProviderModelNotFoundError: Model not found: a/b.\n    at <anonymous> (x.js:1)"}}"#,
            &model("ProviderModelNotFoundError: Model not found: a/b."),
        );
        check(r#"{"name":"ContextOverflowError","data":{"message":"too long"}}"#, &model("too long"));
        check(r#"{"name":"New","data":{"message":"what"}}"#, &Failure::Protocol { what: "what".to_owned() });
        check(r#"{"name":"New"}"#, &Failure::Protocol { what: "New".to_owned() });
    }

    #[test]
    fn numbers_of_any_kind_are_counts() {
        for (number, expected) in
            [("1.5", 1), ("-3", 0), ("1e300", u64::MAX), ("1794812747072", 1_794_812_747_072)]
        {
            assert_eq!(serde_json::from_str::<Millis>(number).unwrap(), Millis(expected));
        }
        let used: Used = serde_json::from_str(
            r#"{"cost":0.0123455,"tokens":{"total":9,"input":4,"output":3,"reasoning":2,"cache":{"read":1,"write":0}}}"#,
        )
        .unwrap();
        let RunUsage { input_tokens, cache_read_tokens, cost_micros, .. } = used.usage();
        assert_eq!((input_tokens, cache_read_tokens, cost_micros), (4, 1, 12346));
    }

    #[test]
    fn lists_have_a_bound_and_a_summary_is_not_kept() {
        let entry = |parts: usize, summary: &str| {
            let parts = vec!["{}"; parts].join(",");
            let text =
                format!(r#"{{"info":{{"id":"m","role":"user","summary":{summary}}},"parts":[{parts}]}}"#);
            serde_json::from_str::<Entry>(&text)
        };
        assert_eq!(entry(PARTS, "{}").unwrap().parts.0.len(), PARTS);
        assert!(entry(PARTS + 1, "{}").is_err());
        for (summary, expected) in [
            ("true", true),
            ("false", false),
            ("null", false),
            ("[0,0,0]", false),
            ("1", false),
            ("-1.5", false),
            ("\"true\"", false),
        ] {
            assert_eq!(entry(0, summary).unwrap().info.is_summary(), expected, "{summary}");
        }
    }

    #[test]
    fn states_of_later_versions_are_no_error() {
        assert_eq!(serde_json::from_str::<Status>(r#"{"type":"thinking","x":1}"#).unwrap(), Status::Other);
        let retry: Status =
            serde_json::from_str(r#"{"type":"retry","attempt":2,"message":"boom","next":5,"action":{}}"#)
                .unwrap();
        assert_eq!(retry, Status::Retry { attempt: 2, message: "boom".to_owned(), next: Millis(5) });
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        assert_eq!(cut("a\u{1b}[2Jb\nc", 6), "a [2Jb");
    }
}
