//! Server-sent events out of a response body.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
}

/// The events of one body, in order. Comments and `retry` are skipped.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    /// Where the search for the next empty line goes on.
    searched: usize,
}

impl Events {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new(), searched: 0 }
    }

    /// None at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(block) = self.block() {
                if let Some(event) = parse(&block) {
                    return Some(event);
                }
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Takes one block, up to the empty line that ends it.
    fn block(&mut self) -> Option<String> {
        let found = (self.searched..self.buffer.len()).find_map(|at| {
            let rest = &self.buffer[at..];
            if rest.starts_with(b"\n\n") {
                Some((at, 2))
            } else if rest.starts_with(b"\r\n\r\n") {
                Some((at, 4))
            } else {
                None
            }
        });
        let Some((at, length)) = found else {
            self.searched = self.buffer.len().saturating_sub(3);
            return None;
        };
        self.searched = 0;
        let rest = self.buffer.split_off(at + length);
        let block = std::mem::replace(&mut self.buffer, rest);
        Some(String::from_utf8_lossy(&block[..at]).into_owned())
    }
}

/// None for a block of comments only. An event that has an id and no data is one (it primes a stream).
fn parse(block: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut seen = false;
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if seen && !event.data.is_empty() {
                    event.data.push('\n');
                }
                event.data.push_str(value);
                seen = true;
            }
            "id" => {
                event.id = Some(value.to_owned());
                seen = true;
            }
            "event" => event.event = Some(value.to_owned()),
            _ => {}
        }
    }
    seen.then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_events() {
        let event = |id: Option<&str>, event: Option<&str>, data: &str| {
            Some(Event { id: id.map(str::to_owned), event: event.map(str::to_owned), data: data.to_owned() })
        };
        assert_eq!(parse(": comment"), None);
        assert_eq!(parse("event: message\ndata: {}"), event(None, Some("message"), "{}"));
        assert_eq!(parse("id: 7\ndata:"), event(Some("7"), None, ""));
        assert_eq!(parse("data: a\r\ndata: b"), event(None, None, "a\nb"));
    }
}
