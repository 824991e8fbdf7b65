//! Where a call stands in a trace: W3C Trace Context, taken from `_meta` or from headers, and passed on in both.
//!
//! Where spans are exported the call gets one of its own, and that is what its server is told to continue. Where they
//! are not, what the client sent is passed on as it is, also to servers that the client could not have told.

use std::borrow::Cow;

use http::HeaderMap;
use mcp::splice::Edit;
use mcp::{Message, cut};
use serde::Deserialize;
use telemetry::trace::{Trace, TraceParent};

use identity::projection::write_string;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";
/// The longest that is carried from one place to another. Longer ones stay where they are.
const LONGEST: usize = 8192;

/// What is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// The span of this call, where spans are exported.
    pub ours: Option<Trace>,
    traceparent: String,
    tracestate: Option<String>,
    baggage: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Said<'a> {
    #[serde(default, borrow)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    tracestate: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    baggage: Option<Cow<'a, str>>,
}

/// The message, from which a `traceparent` is gone that is not to be passed on, and what takes its place.
///
/// `exports`: whether the call has a span of its own.
pub fn take(message: Message, headers: Option<&HeaderMap>, exports: bool) -> (Message, Option<Traced>) {
    let said = message.meta().filter(|meta| speaks_of_traces(meta)).map(said).unwrap_or_default();
    let header = |name: &str| {
        let mut values = headers?.get_all(name).iter();
        let first = values.next().filter(|_| values.next().is_none())?;
        first.to_str().ok().map(Cow::Borrowed)
    };
    let in_meta = said.traceparent.is_some();
    let parent = said.traceparent.or_else(|| header(TRACEPARENT));
    let parent = parent.and_then(|text| TraceParent::parse(&text).ok()).map(|parsed| {
        // As it was understood: of a later version the rest is not known, nor how long it is.
        let written = parsed.to_string();
        (parsed, written)
    });
    let carried = |said: Option<Cow<'_, str>>, name: &str| {
        let text = said.or_else(|| header(name))?;
        let fits = text.len() <= LONGEST && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        fits.then(|| text.into_owned())
    };
    // A state without its parent means nothing.
    let tracestate = parent.is_some().then(|| carried(said.tracestate, TRACESTATE)).flatten();
    let baggage = carried(said.baggage, BAGGAGE);
    if exports {
        let ours = parent.map_or_else(Trace::fresh, |(parent, _)| Trace::continuing(&parent));
        let traced = Traced { traceparent: ours.traceparent(), ours: Some(ours), tracestate, baggage };
        let message = if in_meta { without_parent(message) } else { message };
        return (message, Some(traced));
    }
    let traced = parent.map(|(_, traceparent)| Traced { ours: None, traceparent, tracestate, baggage });
    (message, traced)
}

fn said(meta: &[u8]) -> Said<'_> {
    serde_json::from_slice(meta).unwrap_or_default()
}

/// A quick look.
fn speaks_of_traces(meta: &[u8]) -> bool {
    // A name with escapes in it is nobody's way to write this.
    memchr::memmem::find(meta, b"\"traceparent\"").is_some()
        || memchr::memmem::find(meta, b"\"baggage\"").is_some()
}

fn without_parent(message: Message) -> Message {
    let goes = |inside: &[String], name: &str| {
        inside.get(1..).is_some_and(|path| path == ["_meta"]) && name == TRACEPARENT
    };
    let Ok(cuts) = cut::find(message.bytes(), &goes) else { return message };
    let mut edits: Vec<Edit<'_>> =
        cuts.ranges.into_iter().map(|span| Edit { span, with: b"" as &[u8] }).collect();
    let bytes = message.with(&mut edits);
    Message::parse(bytes).unwrap_or(message)
}

impl Traced {
    /// As the ledger keeps it.
    pub fn column(&self) -> Option<Box<str>> {
        match &self.ours {
            Some(ours) => Some(ours.to_column().into()),
            // Not ours, and it says where the call belongs.
            None => TraceParent::parse(&self.traceparent)
                .ok()
                .map(|parent| Trace::continuing(&parent).to_column().into()),
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.tracestate.as_deref().map(|text| (TRACESTATE, text));
        let baggage = self.baggage.as_deref().map(|text| (BAGGAGE, text));
        [(TRACEPARENT, &*self.traceparent)].into_iter().chain(state).chain(baggage)
    }

    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.pairs()
    }

    /// Adds members to `_meta` that are not there.
    pub fn write_meta(&self, message: &Message, members: &mut Vec<u8>) {
        let there = message.meta().filter(|meta| speaks_of_traces(meta)).map(said).unwrap_or_default();
        for (name, text) in self.pairs() {
            let has = match name {
                TRACEPARENT => there.traceparent.is_some(),
                TRACESTATE => there.tracestate.is_some(),
                _ => there.baggage.is_some(),
            };
            if !has {
                members.push(b',');
                write_string(members, name);
                members.push(b':');
                write_string(members, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn call(meta: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","_meta":{meta}}}}}"#
        );
        Message::parse(Bytes::from(text)).unwrap()
    }

    fn meta_of(message: &Message) -> &str {
        std::str::from_utf8(message.meta().unwrap()).unwrap()
    }

    #[test]
    fn what_the_client_sent_is_passed_on_and_carried_over() {
        let (message, traced) =
            take(call(&format!(r#"{{"traceparent":"{PARENT}","tracestate":"a=1"}}"#)), None, false);
        let traced = traced.unwrap();
        let headers: Vec<_> = traced.headers().collect();
        assert_eq!(headers, [("traceparent", PARENT), ("tracestate", "a=1")]);
        let mut members = Vec::new();
        traced.write_meta(&message, &mut members);
        assert_eq!(members, b"", "it is there already");

        let mut headers = HeaderMap::new();
        headers.insert("traceparent", PARENT.parse().unwrap());
        headers.insert("baggage", "k=v".parse().unwrap());
        let (message, traced) = take(call("{}"), Some(&headers), false);
        let mut members = Vec::new();
        traced.unwrap().write_meta(&message, &mut members);
        assert_eq!(
            String::from_utf8(members).unwrap(),
            format!(r#","traceparent":"{PARENT}","baggage":"k=v""#)
        );
    }

    #[test]
    fn a_span_of_our_own_takes_the_place_of_its_parent() {
        let (message, traced) =
            take(call(&format!(r#"{{"a":1,"traceparent":"{PARENT}","b":2}}"#)), None, true);
        assert_eq!(meta_of(&message), r#"{"a":1,"b":2}"#);
        let traced = traced.unwrap();
        let ours = traced.ours.unwrap();
        let passed = TraceParent::parse(&traced.traceparent).unwrap();
        assert_eq!(passed.trace_id, ours.trace_id);
        assert_ne!(passed.parent, TraceParent::parse(PARENT).unwrap().parent);
        assert_eq!(ours.parent, Some(TraceParent::parse(PARENT).unwrap().parent));
    }

    #[test]
    fn what_is_no_trace_is_left_alone() {
        for meta in
            [r#"{"traceparent":"nonsense"}"#, r#"{"traceparent":7}"#, r#"{"x":{"traceparent":"y"}}"#, "{}"]
        {
            let (message, traced) = take(call(meta), None, false);
            assert_eq!((meta_of(&message), traced), (meta, None));
        }
        let (_, traced) = take(call("{}"), None, true);
        assert!(traced.unwrap().ours.unwrap().parent.is_none(), "a trace begins here");
    }
}
