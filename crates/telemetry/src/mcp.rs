//! A call as a span, by OpenTelemetry's conventions for MCP.
//!
//! There is one span a call. It is a client's: what goes on in the server lies below it. A call that was refused went
//! nowhere, so its span is a server's.
//!
//! Names of spans come from few words, so that they can be grouped by: the method, and the name of the tool or prompt;
//! never the uri of a resource. What the conventions have no name for is under `callsign.`.

use std::borrow::Cow;
use std::time::Duration;

use http::Uri;

use crate::otlp::{Kind, Span, Status, Value};
use crate::trace::Trace;

/// What an attribute may weigh. Names and ids are far below it; a uri need not be.
const LONGEST: usize = 1024;
/// What a target may weigh to be in a span's name.
const LONGEST_NAME: usize = 128;

/// What is known of a call that has ended, by whoever made it or from a row of the ledger.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallFacts<'a> {
    pub trace: Option<Trace>,
    /// Writer and number of the row: what ids are derived from where there is no trace.
    pub row: Option<(i64, i64)>,
    pub start_unix_nanos: u64,
    pub duration: Duration,

    pub method: &'a str,
    /// The tool's or prompt's name, or the uri.
    pub tool: Option<&'a str>,
    /// As the configuration calls it.
    pub server: &'a str,

    pub host: Option<&'a str>,
    pub session: Option<&'a str>,
    pub thread: Option<&'a str>,
    pub parent: Option<&'a str>,
    pub run: Option<&'a str>,
    pub turn: Option<&'a str>,
    pub call: Option<&'a str>,
    pub workspace: Option<&'a str>,
    pub trust: Option<&'a str>,
    pub source: Option<&'a str>,
    /// What was forged and removed, separated by commas.
    pub spoof: Option<&'a str>,

    pub outcome: Outcome,
    /// By what it was refused, or how it failed.
    pub reason: Option<&'a str>,
    /// Of the JSON-RPC error that the caller got.
    pub error_code: Option<i64>,

    /// How the server is reached. None: as the target looks.
    pub transport: Option<Transport>,
    /// The process or address that was asked. Of an address, host and port are told.
    pub target: Option<&'a str>,
    pub protocol_version: Option<&'a str>,
    /// `Mcp-Session-Id`, which is not the session of who calls. Whoever has it can speak in that session, where
    /// nothing but the id protects it.
    pub mcp_session: Option<&'a str>,
    /// The JSON-RPC id of the caller's request, as text.
    pub request_id: Option<&'a str>,
    pub arguments_size: Option<u64>,
    pub result_size: Option<u64>,
}

/// How a call ended, in the ledger's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Outcome {
    Ok,
    ToolError,
    Refused,
    Timeout,
    Canceled,
    Failed,
    /// Whoever made the call is gone.
    #[default]
    Unknown,
}

impl Outcome {
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::ToolError,
        Self::Refused,
        Self::Timeout,
        Self::Canceled,
        Self::Failed,
        Self::Unknown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Canceled => "canceled",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Pipe,
    Http,
}

/// What the third word of a call is.
enum Subject<'a> {
    Tool(&'a str),
    Prompt(&'a str),
    Resource(&'a str),
    Nothing,
}

impl CallFacts<'_> {
    pub fn span(&self) -> Span {
        let subject = self.subject();
        let trace = match (self.trace, self.row) {
            (Some(trace), _) => trace,
            (None, Some(row)) => Trace::derived(self.session, self.call.unwrap_or_default(), row),
            (None, None) => Trace::fresh(),
        };
        let error_type = self.error_type();
        let nanos = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        let mut attributes = Attributes(Vec::with_capacity(28));
        self.conventional(&subject, error_type.clone(), &mut attributes);
        self.reached(&mut attributes);
        self.ours(&mut attributes);
        Span {
            trace,
            name: self.name(&subject),
            kind: match self.outcome {
                Outcome::Refused => Kind::Server,
                Outcome::Ok
                | Outcome::ToolError
                | Outcome::Timeout
                | Outcome::Canceled
                | Outcome::Failed
                | Outcome::Unknown => Kind::Client,
            },
            start_unix_nanos: self.start_unix_nanos,
            end_unix_nanos: self.start_unix_nanos.saturating_add(nanos),
            status: match error_type {
                Some(_) => Status::Error(clip(self.reason.unwrap_or_default()).to_owned()),
                None => Status::Unset,
            },
            attributes: attributes.0,
        }
    }

    fn subject(&self) -> Subject<'_> {
        match (self.method, self.tool) {
            ("tools/call", Some(name)) => Subject::Tool(name),
            ("prompts/get", Some(name)) => Subject::Prompt(name),
            (
                "resources/read"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "notifications/resources/updated",
                Some(uri),
            ) => Subject::Resource(uri),
            (_, _) => Subject::Nothing,
        }
    }

    fn name(&self, subject: &Subject<'_>) -> String {
        // What a client makes up must not become a name to group by.
        let method = if is_word(self.method) { self.method } else { "_OTHER" };
        match subject {
            Subject::Tool(name) | Subject::Prompt(name) if is_word(name) => format!("{method} {name}"),
            Subject::Tool(_) | Subject::Prompt(_) | Subject::Resource(_) | Subject::Nothing => {
                method.to_owned()
            }
        }
    }

    /// None: nothing went wrong. A caller who cancels has what it wanted.
    fn error_type(&self) -> Option<Cow<'static, str>> {
        match (self.outcome, self.error_code) {
            (Outcome::Ok | Outcome::Canceled, _) => None,
            (Outcome::Failed, Some(code)) => Some(Cow::Owned(code.to_string())),
            (Outcome::Failed, None) => Some(Cow::Borrowed("_OTHER")),
            // The error that the caller got is ours, and says less.
            (Outcome::ToolError | Outcome::Refused | Outcome::Timeout | Outcome::Unknown, _) => {
                Some(Cow::Borrowed(self.outcome.as_str()))
            }
        }
    }

    fn conventional(
        &self,
        subject: &Subject<'_>,
        error_type: Option<Cow<'static, str>>,
        to: &mut Attributes,
    ) {
        to.text("mcp.method.name", Some(self.method));
        match *subject {
            Subject::Tool(name) => {
                to.text("gen_ai.tool.name", Some(name));
                to.word("gen_ai.operation.name", "execute_tool");
            }
            Subject::Prompt(name) => to.text("gen_ai.prompt.name", Some(name)),
            Subject::Resource(uri) => to.text("mcp.resource.uri", Some(uri)),
            Subject::Nothing => {}
        }
        to.text("mcp.session.id", self.mcp_session);
        to.text("mcp.protocol.version", self.protocol_version);
        to.text("jsonrpc.request.id", self.request_id);
        if let Some(error_type) = error_type {
            to.push("error.type", Value::Str(error_type));
        }
        if let Some(code) = self.error_code {
            to.push("rpc.response.status_code", Value::Str(Cow::Owned(code.to_string())));
        }
    }

    /// The rest of an address may hold a secret, so it is not told.
    fn reached(&self, to: &mut Attributes) {
        let uri = self
            .target
            .filter(|target| target.starts_with("http://") || target.starts_with("https://"))
            .map(|target| target.parse::<Uri>().unwrap_or_default());
        let looks = match (self.target, &uri) {
            (_, Some(_)) => Some(Transport::Http),
            (Some(_), None) => Some(Transport::Pipe),
            (None, None) => None,
        };
        match self.transport.or(looks) {
            Some(Transport::Pipe) => to.word("network.transport", "pipe"),
            Some(Transport::Http) => {
                to.word("network.transport", "tcp");
                to.word("network.protocol.name", "http");
            }
            None => {}
        }
        if let Some((uri, host)) = uri.as_ref().and_then(|uri| Some((uri, uri.host()?))) {
            let secure = uri.scheme_str() == Some("https");
            to.text("server.address", Some(host.trim_matches(['[', ']'])));
            to.push(
                "server.port",
                Value::Int(uri.port_u16().unwrap_or(if secure { 443 } else { 80 }).into()),
            );
        }
        // `pid 4711`, or the number alone.
        let process = self.target.filter(|_| uri.is_none()).and_then(|target| target.rsplit(' ').next());
        if let Some(pid) = process.and_then(|pid| pid.parse::<u32>().ok()) {
            to.push("callsign.pid", Value::Int(pid.into()));
        }
    }

    fn ours(&self, to: &mut Attributes) {
        to.text("callsign.server", Some(self.server));
        to.text("callsign.host", self.host);
        to.text("callsign.session", self.session);
        to.text("callsign.thread", self.thread);
        to.text("callsign.parent", self.parent);
        to.text("callsign.run", self.run);
        to.text("callsign.turn", self.turn);
        to.text("callsign.call", self.call);
        to.text("callsign.workspace", self.workspace);
        to.text("callsign.trust", self.trust);
        to.text("callsign.source", self.source);
        to.word("callsign.outcome", self.outcome.as_str());
        let spoof = self.spoof.unwrap_or_default().split(',').map(str::trim);
        let spoof: Vec<String> =
            spoof.filter(|name| !name.is_empty()).map(|name| clip(name).to_owned()).collect();
        if !spoof.is_empty() {
            to.push("callsign.spoof", Value::StrArray(spoof));
        }
        let sizes =
            [("callsign.arguments.size", self.arguments_size), ("callsign.result.size", self.result_size)];
        for (key, size) in sizes {
            if let Some(size) = size {
                to.push(key, Value::Int(i64::try_from(size).unwrap_or(i64::MAX)));
            }
        }
    }
}

struct Attributes(Vec<(Cow<'static, str>, Value)>);

impl Attributes {
    fn push(&mut self, key: &'static str, value: Value) {
        self.0.push((Cow::Borrowed(key), value));
    }

    fn word(&mut self, key: &'static str, word: &'static str) {
        self.push(key, Value::Str(Cow::Borrowed(word)));
    }

    /// What is not known, or empty, is left out.
    fn text(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.push(key, Value::Str(Cow::Owned(clip(text).to_owned())));
        }
    }
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

fn is_word(text: &str) -> bool {
    let odd = |character: char| character.is_control() || character.is_whitespace();
    !text.is_empty() && text.len() <= LONGEST_NAME && !text.contains(odd)
}

/// Every method that MCP has had, in any revision.
const METHODS: [&str; 36] = [
    "completion/complete",
    "elicitation/create",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/elicitation/complete",
    "notifications/initialized",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/subscriptions/acknowledged",
    "notifications/tasks",
    "notifications/tasks/status",
    "notifications/tools/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "sampling/createMessage",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// The method as a label: one of a bounded set, whatever clients send.
pub fn method_label(method: &str) -> &'static str {
    match METHODS.binary_search(&method) {
        Ok(at) => METHODS[at],
        Err(_) => "other",
    }
}

#[cfg(test)]
mod tests;
