//! Sees to it that the usage of a streamed answer is told, whatever the box says of it.
//!
//! Without it a box could use tokens that nobody counts. A body passes by in pieces, and only at its end is it clear
//! whether something is missing; but how long it will be must be said before. So every body becomes longer by the same
//! number of bytes, right before its last brace: the option, or white space. Of a member that is there twice the last
//! counts, so what the box says of `stream_options` does not.
//!
//! Until those bytes have come the provider has no whole request. So what is not clear can be refused there, late as it
//! is: a body whose end we do not find, and a `stream` that one may take for true and another for false.

use bytes::Bytes;
use serde::Deserialize;

use crate::walk::{Interest, Visit, Walk};

const OPTION: &[u8] = br#","stream_options":{"include_usage":true}"#;
const SPACE: &[u8] = &[b' '; OPTION.len()];

/// By how much every body grows.
pub(crate) const GROWTH: u64 = OPTION.len() as u64;

/// Why a body is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclear {
    NoObject,
    Stream,
}

#[derive(Debug, Default)]
pub(crate) struct Asked {
    walk: Walk,
    read: Read,
    done: bool,
}

#[derive(Debug, Default)]
struct Read {
    stream: Stream,
    /// Whether the last `stream_options` there was asks for the usage.
    asks: bool,
    current: Option<Member>,
    closed: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stream {
    #[default]
    Unsaid,
    Said(bool),
    /// Neither true nor false, or said twice.
    Unclear,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Stream,
    Options,
}

#[derive(Debug, Deserialize)]
struct Options {
    include_usage: bool,
}

impl Visit for Read {
    fn member(&mut self, name: &str) -> Interest {
        // Some providers take a name in any case, and letters that only look like others.
        match name.to_uppercase().as_str() {
            "STREAM" => {
                let first = self.stream == Stream::Unsaid;
                self.current = first.then_some(Member::Stream);
                // Until its value is known; one that is too long to be told stays so.
                self.stream = Stream::Unclear;
            }
            "STREAM_OPTIONS" => {
                self.asks = false;
                // Another writing of it may be another member to the provider.
                self.current = (name == "stream_options").then_some(Member::Options);
            }
            _ => self.current = None,
        }
        if self.current.is_some() { Interest::Keep } else { Interest::Skip }
    }

    fn kept(&mut self, raw: &[u8]) {
        match self.current {
            Some(Member::Stream) => {
                self.stream = match raw {
                    b"true" => Stream::Said(true),
                    b"false" => Stream::Said(false),
                    _ => Stream::Unclear,
                }
            }
            Some(Member::Options) => {
                self.asks = serde_json::from_slice::<Options>(raw).is_ok_and(|options| options.include_usage);
            }
            None => {}
        }
    }

    fn closed(&mut self, at: usize) {
        self.closed = Some(at);
    }
}

impl Asked {
    /// What to send of this piece: one or three.
    pub(crate) fn pass(&mut self, piece: Bytes) -> Result<[Bytes; 3], Unclear> {
        self.walk.feed(&piece, &mut self.read);
        match self.read.closed.take() {
            Some(at) if !self.done => Ok([piece.slice(..at), self.added()?, piece.slice(at..)]),
            Some(_) | None => Ok([piece, Bytes::new(), Bytes::new()]),
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&self) -> Result<(), Unclear> {
        if self.done { Ok(()) } else { Err(Unclear::NoObject) }
    }

    fn added(&mut self) -> Result<Bytes, Unclear> {
        self.done = true;
        let missing = match self.read.stream {
            Stream::Said(true) => !self.read.asks,
            Stream::Said(false) | Stream::Unsaid => false,
            Stream::Unclear => return Err(Unclear::Stream),
        };
        Ok(Bytes::from_static(if missing { OPTION } else { SPACE }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(body: &str, size: usize) -> Result<String, Unclear> {
        let mut asked = Asked::default();
        let mut sent = Vec::new();
        for piece in body.as_bytes().chunks(size.max(1)) {
            for part in asked.pass(Bytes::copy_from_slice(piece))? {
                sent.extend_from_slice(&part);
            }
        }
        asked.finish()?;
        assert_eq!(sent.len() as u64, body.len() as u64 + GROWTH, "{body}");
        Ok(String::from_utf8(sent).unwrap())
    }

    #[track_caller]
    fn check(body: &str, added: bool) {
        for size in [1, 3, body.len()] {
            let sent = through(body, size).unwrap();
            let before: serde_json::Value = serde_json::from_str(body).unwrap();
            let after: serde_json::Value = serde_json::from_str(&sent).unwrap();
            let mut expected = before;
            if added {
                expected["stream_options"] = serde_json::json!({ "include_usage": true });
            }
            assert_eq!(after, expected, "{sent}");
        }
    }

    #[track_caller]
    fn refused(body: &str, expected: Unclear) {
        for size in [1, 3, body.len()] {
            assert_eq!(through(body, size), Err(expected), "{body}");
        }
    }

    #[test]
    fn usage_is_asked_for_where_it_is_missing() {
        check(r#"{"model":"m","stream":true}"#, true);
        check(r#"{"stream" : true , "messages":[{"content":"stream_options}"}] } "#, true);
        check(r#"{"str\u0065am":true,"x":{"stream_options":{}}}"#, true);
        check(r#"{"Stream":true}"#, true);
        check("{\"\u{17f}tream\":true}", true);
    }

    #[test]
    fn usage_is_asked_for_whatever_the_box_says_of_it() {
        check(r#"{"stream":true,"stream_options":{"include_usage":false}}"#, true);
        check(r#"{"stream_options":null,"stream":true}"#, true);
        check(r#"{"stream_options":{},"stream":true}"#, true);
        check(r#"{"stream_options":{"include_usage":"true"},"stream":true}"#, true);
        check(
            r#"{"stream":true,"stream_options":{"include_usage":true},"stream_options":{"include_usage":false}}"#,
            true,
        );
        check(
            r#"{"stream":true,"stream_options":{"include_usage":true},"Stream_Options":{"include_usage":false}}"#,
            true,
        );
        let long = format!(r#"{{"stream":true,"stream_options":{{"a":"{}"}}}}"#, "x".repeat(10_000));
        check(&long, true);
    }

    #[test]
    fn nothing_is_added_where_nothing_is_missing() {
        check(r#"{"stream":true,"stream_options":{"include_usage":true}}"#, false);
        check(r#"{"stream":false}"#, false);
        check(r#"{"messages":[{"stream":true}]}"#, false);
        check("{}", false);
    }

    #[test]
    fn what_one_takes_for_true_and_another_for_false_is_refused() {
        for value in ["1", "0", "\"true\"", "null", "{}", "[true]", "truE", "true1"] {
            refused(&format!(r#"{{"stream":{value}}}"#), Unclear::Stream);
        }
        refused(r#"{"stream":false,"stream":true}"#, Unclear::Stream);
        refused(r#"{"stream":true,"STREAM":true}"#, Unclear::Stream);
        refused(&format!(r#"{{"stream":"{}"}}"#, "x".repeat(10_000)), Unclear::Stream);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "[]", "nonsense", "{", r#"{"stream":true"#, "{'stream':true}", "{\"a\":\"b\"/**/}"] {
            refused(body, Unclear::NoObject);
        }
        through(r#"{"stream":true}}"#, 1).unwrap(); // The provider's to refuse.
    }
}
