//! One message in, one [`Reply`] out: everything but the tools themselves.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::session::{Headers, Listen};
use super::{Reply, Session, Slow, tools};
use crate::jsonrpc::{self, Envelope, Meta, Params, quote};

pub(super) const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{},"logging":{},"completions":{},"experimental":{"dev.callsign/echo":{}}}"#;
const INFO: &str = r#"{"name":"echo-server","version":"0.1.0"}"#;

/// A request with what every branch needs.
pub(super) struct Call<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) id: &'a str,
    pub(super) params: Params<'a>,
    pub(super) raw_params: &'a str,
    pub(super) meta: Meta<'a>,
    pub(super) headers: &'a Headers,
}

impl Call<'_> {
    pub(super) fn modern(&self) -> bool {
        self.meta.version.is_some()
    }

    pub(super) fn ok(&self, body: &str) -> Reply {
        Reply::Now(self.ok_line(body))
    }

    /// `body` is the inside of the result object; the modern era wants its type with it.
    pub(super) fn ok_line(&self, body: &str) -> Vec<u8> {
        ok_line(self.id, self.modern(), body)
    }

    pub(super) fn refuse(&self, code: i64, message: &str) -> Reply {
        let line = jsonrpc::error(self.id, code, message);
        if !self.modern() {
            return Reply::Now(line);
        }
        match code {
            -32601 => Reply::Status(404, line),
            -32602 | -32020 | -32022 => Reply::Status(400, line),
            _ => Reply::Now(line),
        }
    }

    fn list(&self, body: &str) -> Reply {
        let cache = if self.modern() { r#","ttlMs":0,"cacheScope":"private""# } else { "" };
        self.ok(&format!("{body}{cache}"))
    }
}

pub(super) fn ok_line(id: &str, modern: bool, body: &str) -> Vec<u8> {
    match (modern, body.is_empty()) {
        (false, _) => jsonrpc::result(id, &format!("{{{body}}}")),
        (true, true) => jsonrpc::result(id, r#"{"resultType":"complete"}"#),
        (true, false) => jsonrpc::result(id, &format!(r#"{{"resultType":"complete",{body}}}"#)),
    }
}

impl Session {
    /// Answers one message. What is no JSON-RPC at all gets a parse error.
    pub fn handle(self: &Arc<Self>, message: &[u8], headers: &Headers) -> Reply {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(message) else {
            return Reply::Status(400, jsonrpc::error("null", -32700, "not a JSON-RPC message"));
        };
        let params = Params::of(envelope.params);
        match (&envelope.id, &envelope.method) {
            (Some(id), Some(method)) => {
                let meta = Meta::of(params.meta);
                let raw_params = envelope.params.map_or("{}", |raw| raw.get());
                let call = Call { session: self, id: id.get(), params, raw_params, meta, headers };
                answer(&call, method)
            }
            (Some(id), None) => {
                if let Some(answer) = envelope.result.or(envelope.error) {
                    self.answered(id.get(), answer.get());
                }
                Reply::Nothing
            }
            (None, Some(method)) => {
                if method == "notifications/cancelled"
                    && let Some(id) = params.request_id
                {
                    self.cancel(id.get());
                }
                Reply::Nothing
            }
            (None, None) => Reply::Nothing,
        }
    }
}

fn answer(call: &Call<'_>, method: &str) -> Reply {
    let params = &call.params;
    match method {
        "tools/call" => tools::call(call),
        "tools/list" => tools_list(call),
        "initialize" => initialize(call),
        "server/discover" => call.list(&format!(
            r#""supportedVersions":["{MODERN}","2025-11-25","2025-06-18"],"capabilities":{CAPABILITIES},"instructions":"echo","_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}"#
        )),
        "subscriptions/listen" => listen(call),
        "ping" => call.ok(""),
        "logging/setLevel" => {
            call.session.state().level = params.level.as_deref().map(str::to_owned);
            call.ok("")
        }
        "resources/list" => call.list(
            r#""resources":[{"uri":"test://static","name":"static","mimeType":"text/plain"},{"uri":"test://watched","name":"watched"}]"#,
        ),
        "resources/templates/list" => call.list(r#""resourceTemplates":[]"#),
        "resources/read" => match params.uri.as_deref() {
            Some(uri @ "test://whoami") => call.list(&format!(
                r#""contents":[{{"uri":"{uri}","mimeType":"application/json","text":{}}}]"#,
                quote(&tools::whoami(call, "").to_string())
            )),
            Some(uri) if uri.starts_with("test://") => call.list(&format!(
                r#""contents":[{{"uri":{uri},"mimeType":"text/plain","text":{uri}}}]"#,
                uri = quote(uri)
            )),
            _ => call.refuse(-32602, "no such resource"),
        },
        "resources/subscribe" | "resources/unsubscribe" => {
            let Some(uri) = params.uri.as_deref() else { return call.refuse(-32602, "no uri") };
            let mut state = call.session.state();
            if method == "resources/subscribe" {
                state.subscriptions.insert(uri.to_owned());
            } else {
                state.subscriptions.remove(uri);
            }
            call.ok("")
        }
        "prompts/list" => call.list(r#""prompts":[{"name":"greet","description":"Greets."}]"#),
        "prompts/get" => call.ok(
            r#""description":"Greets.","messages":[{"role":"user","content":{"type":"text","text":"Hello."}}]"#,
        ),
        "completion/complete" => call.ok(r#""completion":{"values":["echo"],"hasMore":false}"#),
        // A method that no specification knows and that is answered all the same, byte by byte.
        "vendor/echo" => Reply::Now(jsonrpc::result(call.id, call.raw_params)),
        unknown => call.refuse(-32601, &format!("method not found: {unknown}")),
    }
}

fn initialize(call: &Call<'_>) -> Reply {
    let asked = call.params.protocol_version.as_deref().unwrap_or(LEGACY[0]);
    let version = LEGACY.iter().find(|known| **known == asked).unwrap_or(&LEGACY[0]);
    call.session.state().initialize = Some(call.raw_params.to_owned());
    call.ok(&format!(
        r#""protocolVersion":"{version}","capabilities":{CAPABILITIES},"serverInfo":{INFO},"instructions":"echo","x-vendor":{{"kept":1.0}}"#
    ))
}

fn tools_list(call: &Call<'_>) -> Reply {
    let mut all: Vec<String> = tools::TOOLS.iter().map(tools::Tool::json).collect();
    all.extend(call.session.options.workspace_tool.then(|| tools::WORKSPACE_TOOL.to_owned()));
    let grown = call.session.state().grown;
    all.extend((1..=grown).map(|number| {
        format!(r#"{{"name":"grown-{number}","description":"Grown.","inputSchema":{{"type":"object"}}}}"#)
    }));
    let pid = std::process::id();
    let start = match call.params.cursor.as_deref() {
        None => 0,
        // A cursor belongs to the process that gave it: a proxy that mixes children up is found out here.
        Some(cursor) => match cursor.strip_prefix(&format!("{pid}.")).and_then(|rest| rest.parse().ok()) {
            Some(start) if start <= all.len() => start,
            _ => return call.refuse(-32602, "not a cursor of this process"),
        },
    };
    let end = call.session.options.page_size.map_or(all.len(), |size| (start + size).min(all.len()));
    let mut body = format!(r#""tools":[{}]"#, all[start..end].join(","));
    if end < all.len() {
        let _ = write!(body, r#","nextCursor":"{pid}.{end}""#);
    }
    call.list(&body)
}

/// The modern subscription: acknowledged first, open until it is cancelled.
fn listen(call: &Call<'_>) -> Reply {
    let wanted: Value =
        call.params.notifications.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let tools = wanted["toolsListChanged"] == true;
    let uris: Vec<String> =
        serde_json::from_value(wanted["resourceSubscriptions"].clone()).unwrap_or_default();
    let (session, running) = (call.session.clone(), call.session.start(call.id));
    Reply::Stream(Slow::cancellable(running.clone(), move |outlet| {
        let accepted = serde_json::json!({ "toolsListChanged": tools, "resourceSubscriptions": uris });
        let listen = Listen { running: running.clone(), outlet: outlet.clone(), tools, uris };
        session.state().listens.push(listen);
        let id = &running.id;
        outlet.send(jsonrpc::notification(
            "notifications/subscriptions/acknowledged",
            &format!(
                r#"{{"notifications":{accepted},"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}"#
            ),
        ));
        // The thread only keeps the stream open; who cancels it removes the listen as well.
        running.wait(std::time::Duration::from_hours(24));
        None
    }))
}
