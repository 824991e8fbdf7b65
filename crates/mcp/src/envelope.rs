//! One JSON-RPC message: its bytes, and where the fields lie that routing needs.
//!
//! The whole message is checked to be JSON once; its values stay raw. A member name that routing reads may be
//! spelled with escapes and still counts, and may not stand twice: two readers that disagree about which
//! `method` counts are how a policy is passed by.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::meta;
use crate::scan::{Bad, Scanner};
use crate::splice::{Edit, splice};

/// Nesting beyond this is refused: peers parse recursively.
pub const MAX_DEPTH: usize = 128;

/// A range of a message's bytes.
pub type Span = Range<usize>;

/// A checked message.
#[derive(Debug, Clone)]
pub struct Message {
    bytes: Bytes,
    head: Head,
}

/// What was read of a message.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The `id` as it is written, quotes included.
    pub id: Option<Span>,
    /// None for a response.
    pub method: Option<Box<str>>,
    pub params: Option<Span>,
    /// The value at `params._meta`, whatever it is.
    pub meta: Option<Span>,
    /// `params._meta.progressToken`, or `params.progressToken` of a progress notification.
    pub progress_token: Option<Span>,
    /// `params.requestId` of `notifications/cancelled`.
    pub request_id: Option<Span>,
    /// `params.name`, `params.uri` or `params.taskId`, as the method has it: what `Mcp-Name` mirrors.
    pub name: Option<Span>,
    pub cursor: Option<Span>,
    /// `params.arguments`.
    pub arguments: Option<Span>,
    /// `_meta["io.modelcontextprotocol/protocolVersion"]`.
    pub version: Option<Box<str>>,
    /// Whether `_meta` declares the client's capabilities.
    pub declares_capabilities: bool,
    /// `_meta["io.modelcontextprotocol/subscriptionId"]` of a notification.
    pub subscription_id: Option<Span>,
    pub result: Option<Span>,
    pub error: Option<Span>,
}

/// A place for members: a range to replace, with what must stand before and after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub at: Span,
    pub before: &'static str,
    pub after: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    Notification,
    Response,
}

/// Why bytes are not a message we carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("not JSON: {0}")]
    NotJson(String),
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("a batch; send one message at a time")]
    Batch,
    #[error("not a JSON-RPC 2.0 message: {0}")]
    NotJsonRpc(String),
}

impl Message {
    pub fn parse(bytes: Bytes) -> Result<Self, Refused> {
        let head = read_head(&bytes)?;
        Ok(Self { bytes, head })
    }

    pub fn kind(&self) -> Kind {
        match (&self.head.method, &self.head.id) {
            (Some(_), Some(_)) => Kind::Request,
            (Some(_), None) => Kind::Notification,
            (None, _) => Kind::Response,
        }
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The method, empty for a response.
    pub fn method(&self) -> &str {
        self.head.method.as_deref().unwrap_or_default()
    }

    pub fn slice(&self, span: &Span) -> Bytes {
        self.bytes.slice(span.clone())
    }

    pub fn id(&self) -> Option<Bytes> {
        self.head.id.as_ref().map(|span| self.slice(span))
    }

    /// The tool's or prompt's name, or the uri, decoded.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        self.head.name.as_ref().and_then(|span| decode_string(&self.bytes[span.clone()]))
    }

    /// `params._meta`, if it is an object.
    pub fn meta(&self) -> Option<&[u8]> {
        self.head.meta.as_ref().map(|span| &self.bytes[span.clone()]).filter(|raw| raw.starts_with(b"{"))
    }

    /// Whether the sender speaks the era without `initialize`.
    pub fn is_modern(&self) -> bool {
        self.head.version.as_deref().is_some_and(meta::is_modern)
    }

    /// Where members of `params._meta` can be put in, and what must stand around them there.
    pub fn place_in_meta(&self) -> Option<Place> {
        let object = |span: &Span| self.bytes[span.start] == b'{';
        let is_empty = |span: &Span| self.bytes[span.start + 1..].trim_ascii_start().starts_with(b"}");
        let inside = |span: &Span, before: &'static str, after: [&'static str; 2]| Place {
            at: span.start + 1..span.start + 1,
            before,
            after: after[usize::from(is_empty(span))],
        };
        match (&self.head.meta, &self.head.params) {
            (Some(meta), _) if object(meta) => Some(inside(meta, "", [",", ""])),
            (Some(meta), _) => Some(Place { at: meta.clone(), before: "{", after: "}" }),
            (None, Some(params)) if object(params) => Some(inside(params, r#""_meta":{"#, ["},", "}"])),
            // Parameters by position have no names, and no place for ours.
            (None, Some(_)) => None,
            (None, None) => {
                let at = self.bytes.iter().position(|byte| *byte == b'{')? + 1;
                Some(Place { at: at..at, before: r#""params":{"_meta":{"#, after: "}}," })
            }
        }
    }

    /// The bytes with these ranges replaced.
    pub fn with(&self, edits: &mut [Edit<'_>]) -> Bytes {
        if edits.is_empty() { self.bytes.clone() } else { Bytes::from(splice(&self.bytes, edits)) }
    }
}

/// Decodes a JSON string. None if it is not one.
pub fn decode_string(raw: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let inner = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\""))?;
    if memchr::memchr2(b'\\', b'"', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<Text<'_>>(raw).ok().map(|text| text.0)
}

/// Everything that routing may read, before it is known which of it this method means.
#[derive(Default)]
struct Fields {
    jsonrpc: Option<Span>,
    method: Option<Span>,
    uri: Option<Span>,
    task_id: Option<Span>,
    name: Option<Span>,
    /// `params.progressToken`, as a progress notification has it.
    own_token: Option<Span>,
    version: Option<Span>,
    head: Head,
}

fn read_head(bytes: &[u8]) -> Result<Head, Refused> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(Refused::NotJson(format!("it is not UTF-8 from byte {} on", error.valid_up_to())));
    }
    let mut scanner = Scanner::new(bytes);
    if scanner.peek() != Some(b'{') {
        return Err(no_object(&mut scanner));
    }
    let (mut fields, mut twice) = (Fields::default(), None);
    let scanned =
        scanner.members(|scanner, key| fields.member(scanner, key, &mut twice)).and_then(|()| scanner.end());
    scanned.map_err(refused)?;
    if let Some(key) = twice {
        return Err(Refused::NotJsonRpc(format!("duplicate field `{key}`")));
    }
    let text = |span: &Option<Span>| span.clone().map(|span| &bytes[span]);
    if text(&fields.jsonrpc) != Some(br#""2.0""#) {
        return Err(Refused::NotJsonRpc(r#""jsonrpc" must be "2.0""#.to_owned()));
    }
    match text(&fields.method) {
        Some(raw) => fields.into_request(bytes, raw),
        None => fields.into_response(bytes),
    }
}

impl Fields {
    fn member(
        &mut self,
        scanner: &mut Scanner<'_>,
        key: &str,
        twice: &mut Option<&'static str>,
    ) -> Result<(), Bad> {
        let (name, place) = match key {
            "jsonrpc" => ("jsonrpc", &mut self.jsonrpc),
            "id" => ("id", &mut self.head.id),
            "method" => ("method", &mut self.method),
            "result" => ("result", &mut self.head.result),
            "error" => ("error", &mut self.head.error),
            "params" => {
                let span = scanner.object_or_value(|scanner, key| self.parameter(scanner, key, twice))?;
                note(&mut self.head.params, span, "params", twice);
                return Ok(());
            }
            _ => return scanner.value().map(drop),
        };
        let span = scanner.value()?;
        note(place, span, name, twice);
        Ok(())
    }

    fn parameter(
        &mut self,
        scanner: &mut Scanner<'_>,
        key: &str,
        twice: &mut Option<&'static str>,
    ) -> Result<(), Bad> {
        let (name, place) = match key {
            "name" => ("name", &mut self.name),
            "uri" => ("uri", &mut self.uri),
            "taskId" => ("taskId", &mut self.task_id),
            "cursor" => ("cursor", &mut self.head.cursor),
            "arguments" => ("arguments", &mut self.head.arguments),
            "requestId" => ("requestId", &mut self.head.request_id),
            "progressToken" => ("progressToken", &mut self.own_token),
            "_meta" => {
                let span = scanner.object_or_value(|scanner, key| self.meta(scanner, key, twice))?;
                note(&mut self.head.meta, span, "_meta", twice);
                return Ok(());
            }
            _ => return scanner.value().map(drop),
        };
        let span = scanner.value()?;
        note(place, span, name, twice);
        Ok(())
    }

    fn meta(
        &mut self,
        scanner: &mut Scanner<'_>,
        key: &str,
        twice: &mut Option<&'static str>,
    ) -> Result<(), Bad> {
        let (name, place) = match key {
            "progressToken" => ("progressToken", &mut self.head.progress_token),
            meta::PROTOCOL_VERSION => (meta::PROTOCOL_VERSION, &mut self.version),
            meta::SUBSCRIPTION_ID => (meta::SUBSCRIPTION_ID, &mut self.head.subscription_id),
            meta::CLIENT_CAPABILITIES => {
                if std::mem::replace(&mut self.head.declares_capabilities, true) {
                    *twice = Some(meta::CLIENT_CAPABILITIES);
                }
                return scanner.value().map(drop);
            }
            _ => return scanner.value().map(drop),
        };
        let span = scanner.value()?;
        note(place, span, name, twice);
        Ok(())
    }

    fn into_request(self, bytes: &[u8], raw_method: &[u8]) -> Result<Head, Refused> {
        let Self { uri, task_id, name, own_token, version, mut head, .. } = self;
        let method = decode_string(raw_method)
            .ok_or_else(|| Refused::NotJsonRpc(r#""method" must be a string"#.to_owned()))?;
        if let Some(id) = &head.id {
            check_id(&bytes[id.clone()])?;
        }
        if head.result.is_some() || head.error.is_some() {
            return Err(Refused::NotJsonRpc("both a request and a response".to_owned()));
        }
        head.name = match &*method {
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => uri,
            other if other.starts_with("tasks/") => task_id,
            _ => name,
        };
        if method == "notifications/progress" {
            head.progress_token = own_token;
        }
        head.version = version.and_then(|span| decode_string(&bytes[span])).map(std::convert::Into::into);
        head.method = Some(method.into());
        Ok(head)
    }

    fn into_response(self, bytes: &[u8]) -> Result<Head, Refused> {
        let Head { id, result, error, .. } = self.head;
        let wrong = |why: &str| Err(Refused::NotJsonRpc(why.to_owned()));
        match (&id, &result, &error) {
            (_, None, None) => return wrong("neither a method, a result nor an error"),
            (_, Some(_), Some(_)) => return wrong("both a result and an error"),
            (None, _, _) => return wrong("a response without an id"),
            // An error that answers something unreadable has the id null.
            (Some(id), None, Some(_)) if &bytes[id.clone()] == b"null" => {}
            (Some(id), _, _) => check_id(&bytes[id.clone()])?,
        }
        Ok(Head { id, result, error, ..Head::default() })
    }
}

/// Notes where a member lies, and that it stands there twice if it does.
fn note(place: &mut Option<Span>, span: Span, name: &'static str, twice: &mut Option<&'static str>) {
    if place.replace(span).is_some() {
        *twice = Some(name);
    }
}

fn refused(bad: Bad) -> Refused {
    match bad {
        Bad::TooDeep => Refused::TooDeep,
        Bad::Syntax(at) => Refused::NotJson(format!("it is broken at byte {at}")),
    }
}

fn no_object(scanner: &mut Scanner<'_>) -> Refused {
    let is_list = scanner.peek() == Some(b'[');
    match scanner.value().and_then(|_| scanner.end()) {
        Err(bad) => refused(bad),
        Ok(()) if is_list => Refused::Batch,
        Ok(()) => Refused::NotJsonRpc("not an object".to_owned()),
    }
}

/// A string or an integer that fits 64 bits: what the protocol allows and every peer can hold.
fn check_id(raw: &[u8]) -> Result<(), Refused> {
    let is_string = raw.starts_with(b"\"") && raw.len() <= 1024;
    let number = || std::str::from_utf8(raw).unwrap_or_default();
    let is_integer = !is_string && (number().parse::<i64>().is_ok() || number().parse::<u64>().is_ok());
    if is_string || is_integer {
        Ok(())
    } else {
        Err(Refused::NotJsonRpc("the id must be a string or an integer".to_owned()))
    }
}

/// Where a borrowed raw value lies in the message it was borrowed from.
pub fn span_in(bytes: &[u8], raw: &RawValue) -> Span {
    let start = raw.get().as_ptr() as usize - bytes.as_ptr() as usize;
    start..start + raw.get().len()
}

#[cfg(test)]
mod tests;
