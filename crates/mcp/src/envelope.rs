//! One JSON-RPC message: its bytes, and where the fields lie that routing needs.
//!
//! The whole message is checked to be JSON once; its values stay raw. A member name that routing reads may be
//! spelled with escapes and still counts, and may not stand twice: two readers that disagree about which
//! `method` counts are how a policy is passed by.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::meta;
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
    /// The object at `params._meta`.
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

    /// Whether the sender speaks the era without `initialize`.
    pub fn is_modern(&self) -> bool {
        self.head.version.as_deref().is_some_and(meta::is_modern)
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
    serde_json::from_slice::<Text<'_>>(raw).ok().map(|text| text.0)
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta", deserialize_with = "present")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId", deserialize_with = "present")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    cursor: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId", deserialize_with = "present")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken", deserialize_with = "present")]
    progress_token: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken", deserialize_with = "present")]
    progress_token: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/protocolVersion",
        deserialize_with = "present"
    )]
    version: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/clientCapabilities",
        deserialize_with = "present"
    )]
    capabilities: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/subscriptionId",
        deserialize_with = "present"
    )]
    subscription_id: Option<&'a RawValue>,
}

/// Tells `null` from absent, which serde's own `Option` does not.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(deserializer).map(Some)
}

fn read_head(bytes: &[u8]) -> Result<Head, Refused> {
    check_depth(bytes)?;
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    match start.map(|at| bytes[at]) {
        Some(b'{') => {}
        Some(b'[') => {
            // Told apart only if it is JSON at all, so that the sender learns the first thing that is wrong.
            return Err(match serde_json::from_slice::<&RawValue>(bytes) {
                Ok(_) => Refused::Batch,
                Err(error) => Refused::NotJson(error.to_string()),
            });
        }
        _ => return Err(not_json(bytes)),
    }
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Refused::NotJsonRpc(error.to_string()),
        _ => Refused::NotJson(error.to_string()),
    })?;
    if envelope.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
        return Err(Refused::NotJsonRpc(r#""jsonrpc" must be "2.0""#.to_owned()));
    }
    let span = |raw: &RawValue| span_in(bytes, raw);
    let mut head = Head {
        id: envelope.id.map(span),
        params: envelope.params.map(span),
        result: envelope.result.map(span),
        error: envelope.error.map(span),
        ..Head::default()
    };
    match envelope.method {
        Some(raw) => {
            let method = decode_string(raw.get().as_bytes())
                .ok_or_else(|| Refused::NotJsonRpc(r#""method" must be a string"#.to_owned()))?;
            if let Some(id) = envelope.id {
                check_id(id.get())?;
            }
            if head.result.is_some() || head.error.is_some() {
                return Err(Refused::NotJsonRpc("both a request and a response".to_owned()));
            }
            head.method = Some(method.into());
            if let Some(params) = envelope.params {
                read_params(bytes, params, &mut head)?;
            }
        }
        None => check_response(&envelope)?,
    }
    Ok(head)
}

fn read_params(bytes: &[u8], raw: &RawValue, head: &mut Head) -> Result<(), Refused> {
    if !raw.get().starts_with('{') {
        return Ok(()); // An array of parameters is valid JSON-RPC; there is nothing in it for us.
    }
    let bad = |error: serde_json::Error| Refused::NotJsonRpc(format!("params: {error}"));
    let params: Params<'_> = serde_json::from_str(raw.get()).map_err(bad)?;
    let span = |raw: &RawValue| span_in(bytes, raw);
    let method = head.method.as_deref().unwrap_or_default();
    let named = match method {
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => params.uri,
        _ if method.starts_with("tasks/") => params.task_id,
        _ => params.name,
    };
    head.name = named.map(span);
    head.cursor = params.cursor.map(span);
    head.arguments = params.arguments.map(span);
    head.request_id = params.request_id.map(span);
    if method == "notifications/progress" {
        head.progress_token = params.progress_token.map(span);
    }
    if let Some(raw_meta) = params.meta.filter(|meta| meta.get().starts_with('{')) {
        let meta: Meta<'_> = serde_json::from_str(raw_meta.get()).map_err(bad)?;
        head.meta = Some(span(raw_meta));
        if head.progress_token.is_none() {
            head.progress_token = meta.progress_token.map(span);
        }
        head.subscription_id = meta.subscription_id.map(span);
        head.declares_capabilities = meta.capabilities.is_some();
        head.version =
            meta.version.and_then(|raw| decode_string(raw.get().as_bytes())).map(std::convert::Into::into);
    }
    Ok(())
}

fn check_response(envelope: &Envelope<'_>) -> Result<(), Refused> {
    let wrong = |why: &str| Err(Refused::NotJsonRpc(why.to_owned()));
    match (envelope.id, envelope.result, envelope.error) {
        (_, None, None) => wrong("neither a method, a result nor an error"),
        (_, Some(_), Some(_)) => wrong("both a result and an error"),
        (None, _, _) => wrong("a response without an id"),
        // An error that answers something unreadable has the id null.
        (Some(id), None, Some(_)) if id.get() == "null" => Ok(()),
        (Some(id), _, _) => check_id(id.get()),
    }
}

/// A string or an integer that fits 64 bits: what the protocol allows and every peer can hold.
fn check_id(raw: &str) -> Result<(), Refused> {
    let is_string = raw.starts_with('"') && raw.len() <= 1024;
    let is_integer = raw.parse::<i64>().is_ok() || raw.parse::<u64>().is_ok();
    if is_string || is_integer {
        Ok(())
    } else {
        Err(Refused::NotJsonRpc("the id must be a string or an integer".to_owned()))
    }
}

fn not_json(bytes: &[u8]) -> Refused {
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(_) => Refused::NotJsonRpc("not an object".to_owned()),
        Err(error) => Refused::NotJson(error.to_string()),
    }
}

/// Counts brackets outside strings. A message with few brackets cannot be deep and is let through at once.
fn check_depth(bytes: &[u8]) -> Result<(), Refused> {
    if memchr::memchr2_iter(b'{', b'[', bytes).nth(MAX_DEPTH).is_none() {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(Refused::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Where a borrowed raw value lies in the message it was borrowed from.
pub fn span_in(bytes: &[u8], raw: &RawValue) -> Span {
    let start = raw.get().as_ptr() as usize - bytes.as_ptr() as usize;
    start..start + raw.get().len()
}

#[cfg(test)]
mod tests;
