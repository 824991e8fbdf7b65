//! Spans as a collector wants them: OTLP in its JSON form.
//!
//! Ids are hexadecimal, numbers of 64 bits are texts, enumerations are numbers, names are in camel case; a receiver
//! ignores what it does not know.

use std::borrow::Cow;
use std::fmt;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::trace::{Trace, push_hex};

/// Something that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace: Trace,
    pub name: String,
    pub kind: Kind,
    pub start_unix_nanos: u64,
    pub end_unix_nanos: u64,
    pub status: Status,
    /// No key stands twice.
    pub attributes: Vec<(Cow<'static, str>, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal,
    Server,
    Client,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It ended without an error, as far as we know.
    Unset,
    /// Somebody says that it went well, whatever it looks like. Instrumentation does not say so.
    Ok,
    Error(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Str(Cow<'static, str>),
    Int(i64),
    Bool(bool),
    Float(f64),
    StrArray(Vec<String>),
}

/// Bits of `flags` beside those of the trace: whether the parent is in another process is known, and it is.
const KNOWN_IF_REMOTE: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// The body of one request to a collector, or one line of a file of them.
pub fn encode(service: &str, version: &str, spans: &[Span]) -> Vec<u8> {
    let text = |text: &str| Value::Str(Cow::Owned(text.to_owned()));
    let resource =
        [(Cow::Borrowed("service.name"), text(service)), (Cow::Borrowed("service.version"), text(version))];
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes: Attributes(&resource) },
            scope_spans: [ScopeSpans { scope: Scope { name: "callsign", version }, spans: Spans(spans) }],
        }],
    };
    let mut body = Vec::with_capacity(256 + spans.len() * 1024);
    let written = serde_json::to_writer(&mut body, &request);
    // Memory takes what it is given, and every key is text.
    debug_assert!(written.is_ok(), "{written:?}");
    body
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Attributes<'a>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope<'a>,
    spans: Spans<'a>,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'a str,
    version: &'a str,
}

struct Spans<'a>(&'a [Span]);

impl Serialize for Spans<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Wire::from))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    trace_id: Hex<'a>,
    span_id: Hex<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<Hex<'a>>,
    flags: u32,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: Decimal<u64>,
    end_time_unix_nano: Decimal<u64>,
    attributes: Attributes<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'a>>,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    code: u8,
}

impl<'a> From<&'a Span> for Wire<'a> {
    fn from(span: &'a Span) -> Self {
        let Span { trace, name, kind, start_unix_nanos, end_unix_nanos, status, attributes } = span;
        // There is one span a call, so whoever is above it is somebody else.
        let remote = if trace.parent.is_some() { REMOTE } else { 0 };
        Wire {
            trace_id: Hex(&trace.trace_id),
            span_id: Hex(&trace.span),
            parent_span_id: trace.parent.as_ref().map(|parent| Hex(parent)),
            flags: u32::from(trace.flags) | KNOWN_IF_REMOTE | remote,
            name,
            kind: match kind {
                Kind::Internal => 1,
                Kind::Server => 2,
                Kind::Client => 3,
            },
            start_time_unix_nano: Decimal(*start_unix_nanos),
            end_time_unix_nano: Decimal(*end_unix_nanos),
            attributes: Attributes(attributes),
            status: match status {
                Status::Unset => None,
                Status::Ok => Some(WireStatus { message: "", code: 1 }),
                Status::Error(message) => Some(WireStatus { message, code: 2 }),
            },
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(2 * self.0.len());
        push_hex(&mut text, self.0);
        serializer.serialize_str(&text)
    }
}

struct Attributes<'a>(&'a [(Cow<'static, str>, Value)]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, value)| Attribute { key, value: AnyValue(value) }))
    }
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

struct AnyValue<'a>(&'a Value);

impl Serialize for AnyValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            Value::Str(text) => map.serialize_entry("stringValue", text)?,
            Value::Int(number) => map.serialize_entry("intValue", &Decimal(number))?,
            Value::Bool(yes) => map.serialize_entry("boolValue", yes)?,
            Value::Float(number) if number.is_finite() => map.serialize_entry("doubleValue", number)?,
            // JSON has no number for these.
            Value::Float(number) if number.is_nan() => map.serialize_entry("doubleValue", "NaN")?,
            Value::Float(number) if number.is_sign_negative() => {
                map.serialize_entry("doubleValue", "-Infinity")?;
            }
            Value::Float(_) => map.serialize_entry("doubleValue", "Infinity")?,
            Value::StrArray(texts) => map.serialize_entry("arrayValue", &Texts { values: Each(texts) })?,
        }
        map.end()
    }
}

/// A number of 64 bits: not every reader of JSON keeps all of them.
struct Decimal<T>(T);

impl<T: fmt::Display> Serialize for Decimal<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[derive(Serialize)]
struct Texts<'a> {
    values: Each<'a>,
}

struct Each<'a>(&'a [String]);

impl Serialize for Each<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|string_value| OneText { string_value }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneText<'a> {
    string_value: &'a str,
}

#[cfg(test)]
mod tests;
