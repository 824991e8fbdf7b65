//! What goes wrong, and how it is said: the one table from errors to JSON-RPC and HTTP.
//!
//! A message is read by a model or a person who can act on it; `data.code` is for programs.
//! Our own numbers lie outside the range that JSON-RPC and MCP reserve.
//!
//! What happened to one call is HTTP 200 with an error inside: clients throw the text of other statuses away,
//! and the text is what a model acts on. Other statuses say that the request itself was not taken.

use bytes::Bytes;
use http::StatusCode;
use model::Trust;
use serde::Serialize;

/// Why a call was not carried, or its answer did not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("this is not a message that can be carried: {0}")]
    Refused(#[from] mcp::Refused),
    #[error("a request with the id {0} is already in progress on this connection")]
    DuplicateId(String),
    #[error("a message may be at most {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the server `{server}` could not be started: {reason}")]
    StartFailed { server: String, reason: String },
    #[error("the server `{server}` ended before it answered ({how}){}", shown(.stderr))]
    Exited { server: String, how: String, stderr: String },
    #[error(
        "the server `{server}` failed to start {failures} times within a minute; it is tried again in {retry_after} s{}",
        shown(.stderr)
    )]
    Unavailable { server: String, failures: usize, retry_after: u64, stderr: String },
    #[error("the server `{server}` did not answer within {seconds} s; the call was cancelled")]
    Timeout { server: String, seconds: u64 },
    #[error("all {limit} processes of the server `{server}` are busy; try again later or raise max_children")]
    Busy { server: String, limit: usize },
    #[error("the {limit} processes of the server `{server}` that one box may have are busy; try again later")]
    BoxBusy { server: String, limit: usize },
    #[error(
        "the server `{server}` sent a message of more than {limit} bytes, which was dropped; raise max_message if that is its normal size"
    )]
    AnswerTooLarge { server: String, limit: usize },
    #[error("the server `{server}` sent an answer that cannot be carried: {reason}")]
    AnswerInvalid { server: String, reason: String },
    #[error("the server `{server}` lists more than {limit} {what}")]
    ListTooLong { server: String, what: &'static str, limit: usize },
    #[error("the server `{server}` could not be reached: {reason}")]
    Unreachable { server: String, reason: String },
    #[error(
        "the server `{server}` wants authorization (HTTP 401); set `headers` or `headers_command` for it in callsign.toml"
    )]
    UpstreamUnauthorized { server: String },
    #[error("the server `{server}` answered HTTP {status}{}", shown(.body))]
    UpstreamStatus { server: String, status: u16, body: String },
    #[error(
        "the tool `{tool}` of the server `{server}` has changed since it was approved and is withheld; look at it, then run `callsign servers approve {server}`"
    )]
    Withheld { server: String, tool: String },
    #[error("there is no server `{0}` here")]
    NoSuchServer(String),
    #[error("the session is not known here; initialize again")]
    NoSuchSession,
    #[error("{0}")]
    BadHeaders(String),
    #[error("{0}")]
    MissingMeta(String),
    #[error("the session's stream cannot be resumed from there")]
    NoSuchStream,
    #[error("the server `{server}` is being started again; try again in a moment")]
    Restarting { server: String },
    #[error("callsign is shutting down")]
    ShuttingDown,
    #[error(
        "the server `{server}` wants to know which session calls it (`require = \"{require}\"`), and of this call that is {}; run `callsign doctor` to see what your host can tell",
        said(*.known)
    )]
    IdentityRequired { server: String, require: Trust, known: Trust },
    #[error(
        "the server `{server}` does not start without knowing which session calls it, and nothing in this call says so; run `callsign doctor` to see what your host can tell{hint}{}",
        shown(.stderr)
    )]
    IdentityNeeded { server: String, hint: &'static str, stderr: String },
    #[error("the call cannot be signed for its server: {0}")]
    Unsignable(String),
    #[error(
        "the tool `{tool}` needs `{argument}`, and neither the call nor its session says it{}",
        because(.reason.as_deref())
    )]
    MissingArgument { tool: String, argument: String, reason: Option<String> },
    #[error("the headers for the server `{server}` could not be had from its headers_command: {reason}")]
    HeadersCommand { server: String, reason: String },
    #[error("{what} {fault}")]
    HookRefused { what: &'static str, fault: String },
    #[error("{what} {fault}")]
    HookFailed { what: &'static str, fault: String },
    #[error("{limit} calls of this session wait for an answer that hooks are to see; wait for some of them")]
    TooManyUnanswered { limit: usize },
    #[error("`{0}` without an id is no request, and no notification either")]
    NotANotification(String),
    #[error("the call was not made, because it could not be noted in the ledger first: {0}")]
    Ledger(String),
    #[error("several callers share this server and it did not say whose client it asks")]
    NoSingleCaller,
}

/// A row of the table.
struct Row {
    /// For programs.
    name: &'static str,
    number: i64,
    status: StatusCode,
}

impl CallError {
    /// The stable name of this kind of error.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    #[rustfmt::skip]
    fn row(&self) -> Row {
        let row = |name, number, status| Row { name, number, status };
        match self {
            Self::Refused(mcp::Refused::NotJson(_)) => row("parse_error", -32700, StatusCode::BAD_REQUEST),
            Self::Refused(_) => row("invalid_request", -32600, StatusCode::BAD_REQUEST),
            Self::NotANotification(_) => row("invalid_request", -32600, StatusCode::BAD_REQUEST),
            Self::DuplicateId(_) => row("duplicate_id", -32600, StatusCode::BAD_REQUEST),
            Self::TooLarge { .. } => row("message_too_large", -31001, StatusCode::PAYLOAD_TOO_LARGE),
            Self::StartFailed { .. } => row("server_start_failed", -31002, StatusCode::OK),
            Self::Exited { .. } => row("server_exited", -31003, StatusCode::OK),
            Self::Unavailable { .. } => row("server_unavailable", -31004, StatusCode::OK),
            Self::Timeout { .. } => row("timeout", -31005, StatusCode::OK),
            Self::Busy { .. } | Self::BoxBusy { .. } => row("server_busy", -31006, StatusCode::OK),
            Self::AnswerTooLarge { .. } => row("answer_too_large", -31007, StatusCode::OK),
            Self::AnswerInvalid { .. } => row("answer_invalid", -31008, StatusCode::OK),
            Self::ListTooLong { .. } => row("list_too_long", -31009, StatusCode::OK),
            Self::Unreachable { .. } => row("server_unreachable", -31010, StatusCode::OK),
            Self::UpstreamUnauthorized { .. } => row("server_unauthorized", -31011, StatusCode::OK),
            Self::UpstreamStatus { .. } => row("server_status", -31012, StatusCode::OK),
            Self::Withheld { .. } => row("tool_withheld", -31013, StatusCode::OK),
            Self::NoSuchServer(_) => row("no_such_server", -31014, StatusCode::NOT_FOUND),
            Self::NoSuchSession => row("no_such_session", -31015, StatusCode::NOT_FOUND),
            Self::BadHeaders(_) => row("header_mismatch", -32020, StatusCode::BAD_REQUEST),
            Self::MissingMeta(_) => row("missing_meta", -32602, StatusCode::BAD_REQUEST),
            Self::NoSuchStream => row("no_such_stream", -31016, StatusCode::NOT_FOUND),
            Self::Restarting { .. } => row("server_restarting", -31019, StatusCode::OK),
            Self::ShuttingDown => row("shutting_down", -31017, StatusCode::SERVICE_UNAVAILABLE),
            Self::NoSingleCaller => row("no_single_caller", -31018, StatusCode::OK),
            Self::IdentityRequired { .. } | Self::IdentityNeeded { .. } => row("identity_required", -31020, StatusCode::OK),
            Self::Unsignable(_) => row("arguments_invalid", -32602, StatusCode::OK),
            Self::MissingArgument { .. } => row("missing_argument", -31021, StatusCode::OK),
            Self::HeadersCommand { .. } => row("headers_command_failed", -31022, StatusCode::OK),
            Self::TooManyUnanswered { .. } => row("server_busy", -31006, StatusCode::OK),
            Self::HookRefused { .. } => row("hook_refused", -31023, StatusCode::OK),
            Self::HookFailed { .. } => row("hook_failed", -31024, StatusCode::OK),
            Self::Ledger(_) => row("ledger_unavailable", -31025, StatusCode::OK),
        }
    }

    /// The error as a response to the request with this `id` (as written), or to nobody in particular.
    pub fn to_message(&self, id: Option<&[u8]>) -> Bytes {
        #[derive(Serialize)]
        struct Body<'a> {
            code: i64,
            message: &'a str,
            data: Data,
        }
        #[derive(Serialize)]
        struct Data {
            code: &'static str,
        }
        let row = self.row();
        let message = self.to_string();
        let body = Body { code: row.number, message: &message, data: Data { code: row.name } };
        // A struct of strings and numbers always serializes.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let id = id.unwrap_or(b"null");
        let mut out = Vec::with_capacity(body.len() + id.len() + 40);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id);
        out.extend_from_slice(br#","error":"#);
        out.extend_from_slice(&body);
        out.push(b'}');
        Bytes::from(out)
    }
}

fn said(known: Trust) -> &'static str {
    match known {
        Trust::None => "nothing known",
        Trust::Declared => "only what the client says of itself",
        Trust::Host => "only what its host says",
        Trust::Bound => "enough known",
    }
}

fn because(reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!(": {reason}"),
        None => "; pass it as an argument, or have the client announce it in _meta[\"orbit.workspace\"]"
            .to_owned(),
    }
}

/// A server's own words, where there are any.
fn shown(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("; its last words: {text}") }
}
