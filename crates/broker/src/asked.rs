//! Asks for the usage of a streamed answer where the box does not.
//!
//! Without it a box could use tokens that nobody counts. A body passes by in pieces, and only at its end is it clear
//! whether something is missing; but how long it will be must be said before. So every body becomes longer by the same
//! number of bytes, right before its last brace: the option, or white space.
//!
//! What the box itself says of `stream_options` stands.

use bytes::Bytes;

use crate::walk::{Interest, Visit, Walk};

const OPTION: &[u8] = br#","stream_options":{"include_usage":true}"#;
const SPACE: &[u8] = &[b' '; OPTION.len()];

/// By how much every body grows.
pub(crate) const GROWTH: u64 = OPTION.len() as u64;

#[derive(Debug, Default)]
pub(crate) struct Asked {
    walk: Walk,
    read: Read,
    done: bool,
}

#[derive(Debug, Default)]
struct Read {
    streams: bool,
    has_options: bool,
    closed: Option<usize>,
}

impl Visit for Read {
    fn member(&mut self, _level: u32, name: &str) -> Interest {
        match name {
            "stream" => {
                self.streams = false; // The last one counts.
                Interest::Keep
            }
            "stream_options" => {
                self.has_options = true;
                Interest::Skip
            }
            _ => Interest::Skip,
        }
    }

    fn kept(&mut self, raw: &[u8]) {
        self.streams = raw == b"true";
    }

    fn closed(&mut self, at: usize) {
        self.closed = Some(at);
    }
}

impl Asked {
    /// What to send of this piece: one or three.
    pub(crate) fn pass(&mut self, piece: Bytes) -> [Bytes; 3] {
        self.walk.feed(&piece, &mut self.read);
        match self.read.closed.take() {
            Some(at) if !self.done => [piece.slice(..at), self.added(), piece.slice(at..)],
            Some(_) | None => [piece, Bytes::new(), Bytes::new()],
        }
    }

    /// What is owed when nothing more comes. What never became an object is the provider's to refuse.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let owed = !self.done;
        self.done = true;
        owed.then_some(Bytes::from_static(SPACE))
    }

    fn added(&mut self) -> Bytes {
        self.done = true;
        let missing = self.read.streams && !self.read.has_options;
        Bytes::from_static(if missing { OPTION } else { SPACE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(body: &str, size: usize) -> String {
        let mut asked = Asked::default();
        let mut sent = Vec::new();
        for piece in body.as_bytes().chunks(size.max(1)) {
            for part in asked.pass(Bytes::copy_from_slice(piece)) {
                sent.extend_from_slice(&part);
            }
        }
        sent.extend_from_slice(&asked.finish().unwrap_or_default());
        assert_eq!(sent.len() as u64, body.len() as u64 + GROWTH, "{body}");
        String::from_utf8(sent).unwrap()
    }

    #[track_caller]
    fn check(body: &str, added: bool) {
        for size in [1, 3, body.len()] {
            let sent = through(body, size);
            let before: serde_json::Value = serde_json::from_str(body).unwrap();
            let after: serde_json::Value = serde_json::from_str(&sent).unwrap();
            let mut expected = before;
            if added {
                expected["stream_options"] = serde_json::json!({ "include_usage": true });
            }
            assert_eq!(after, expected, "{sent}");
        }
    }

    #[test]
    fn usage_is_asked_for_where_it_is_missing() {
        check(r#"{"model":"m","stream":true}"#, true);
        check(r#"{"stream" : true , "messages":[{"content":"stream_options}"}] } "#, true);
        check(r#"{"str\u0065am":true,"x":{"stream_options":{}}}"#, true);
        check(r#"{"stream":false,"stream":true}"#, true);
    }

    #[test]
    fn what_the_box_says_of_it_stands() {
        check(r#"{"stream":true,"stream_options":{"include_usage":true}}"#, false);
        check(r#"{"stream_options":null,"stream":true}"#, false);
        check(r#"{"stream":false}"#, false);
        check(r#"{"stream":"true"}"#, false);
        check(r#"{"stream":true,"stream":false}"#, false);
        check(r#"{"messages":[{"stream":true}]}"#, false);
        check("{}", false);
    }

    #[test]
    fn what_is_no_object_only_grows() {
        for body in ["", "[]", "nonsense", "{", r#"{"stream":true"#, r#"{"stream":true}}"#] {
            through(body, 1);
        }
    }
}
