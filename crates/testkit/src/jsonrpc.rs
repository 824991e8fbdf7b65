//! Raw JSON-RPC for the test servers: only routing fields are decoded, everything else keeps its bytes.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One message. `id` keeps the caller's own bytes, so that `1.0` does not come back as `1`.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

/// What the test servers look at in `params`.
#[derive(Debug, Default, Deserialize)]
pub struct Params<'a> {
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub cursor: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub level: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    pub request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inputResponses")]
    pub input_responses: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub notifications: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "protocolVersion")]
    pub protocol_version: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

/// What the test servers look at in `params._meta`.
#[derive(Debug, Default, Deserialize)]
pub struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    /// Params that are absent or not an object read as empty: the servers here judge methods, not schemas.
    pub fn of(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

impl<'a> Meta<'a> {
    pub fn of(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

/// A whole response line with the caller's id bytes, newline excluded.
pub fn result(id: &str, result: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(result.len() + id.len() + 40);
    for part in [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#, result, "}"] {
        line.extend_from_slice(part.as_bytes());
    }
    line
}

pub fn error(id: &str, code: i64, message: &str) -> Vec<u8> {
    let message = quote(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#).into_bytes()
}

pub fn notification(method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, quote(method)).into_bytes()
}

pub fn request(id: &str, method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#, quote(method)).into_bytes()
}

/// The text as a JSON string.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
