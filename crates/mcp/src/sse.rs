//! Server-sent events: the part of the format that Streamable HTTP uses.

use bytes::{Bytes, BytesMut};

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Empty for the default, `message`.
    pub name: String,
    pub id: Option<String>,
    /// Milliseconds.
    pub retry: Option<u64>,
    pub data: Bytes,
}

/// An event whose data is larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than the limit")]
pub struct TooLarge;

/// Turns the bytes of a stream into events. Holds at most one event.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    searched: usize,
    event: Event,
    data: BytesMut,
    has_data: bool,
    cap: usize,
}

impl Decoder {
    pub fn new(cap: usize) -> Self {
        let (buffer, data) = (BytesMut::new(), BytesMut::new());
        Self { buffer, searched: 0, event: Event::default(), data, has_data: false, cap }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.buffer.len() + self.data.len() + bytes.len() > self.cap + 64 * 1024 {
            return Err(TooLarge);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next complete event. One without data is given too if it has an id: it primes resumption.
    pub fn event(&mut self) -> Option<Event> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                let has_data = std::mem::take(&mut self.has_data);
                let mut event = std::mem::take(&mut self.event);
                event.data = self.data.split().freeze();
                if has_data || event.id.is_some() || event.retry.is_some() {
                    return Some(event);
                }
                continue;
            }
            self.field(&line);
        }
        None
    }

    fn line(&mut self) -> Option<Bytes> {
        let found = memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]);
        let Some(found) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        let is_return = self.buffer[end] == b'\r';
        if is_return && end + 1 == self.buffer.len() {
            self.searched = end; // The rest of a \r\n may still come.
            return None;
        }
        let width = if is_return && self.buffer[end + 1] == b'\n' { 2 } else { 1 };
        self.searched = 0;
        let line = self.buffer.split_to(end + width).freeze();
        Some(line.slice(..end))
    }

    fn field(&mut self, line: &[u8]) {
        let colon = memchr::memchr(b':', line);
        let (name, value) = match colon {
            Some(at) => {
                let value = &line[at + 1..];
                (&line[..at], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &line[line.len()..]),
        };
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => {
                if self.has_data {
                    self.data.extend_from_slice(b"\n");
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.event.name = text(),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok(),
            _ => {} // Comments keep a connection open; unknown fields are to be ignored.
        }
    }
}

impl Event {
    /// Writes the event as it would stand in a stream.
    pub fn write(&self, out: &mut Vec<u8>) {
        if !self.name.is_empty() {
            out.extend_from_slice(format!("event: {}\n", self.name).as_bytes());
        }
        if let Some(retry) = self.retry {
            out.extend_from_slice(format!("retry: {retry}\n").as_bytes());
        }
        out.extend_from_slice(&encode(&self.data, self.id.as_deref()));
    }
}

/// One message as an event. `id` makes it resumable.
pub fn encode(data: &[u8], id: Option<&str>) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 64);
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    let at = out.len();
    out.extend_from_slice(data);
    // A raw line break in JSON is white space; in an event it would end the field.
    crate::splice::on_one_line(&mut out[at..]);
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&str]) -> Vec<Event> {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk.as_bytes()).unwrap();
            while let Some(event) = decoder.event() {
                events.push(event);
            }
        }
        events
    }

    fn message(data: &str) -> Event {
        Event { data: Bytes::copy_from_slice(data.as_bytes()), ..Event::default() }
    }

    #[test]
    fn events_survive_any_cut_of_the_stream() {
        let stream = ": hi\n\nid: 1\nretry: 10\ndata:\n\ndata: {\"a\":1}\r\n\r\nevent: endpoint\ndata: /m\n\ndata: a\ndata: b\n\n";
        let whole = decode(&[stream]);
        for cut in 0..stream.len() {
            assert_eq!(decode(&[&stream[..cut], &stream[cut..]]), whole, "cut at {cut}");
        }
        let primed = Event { id: Some("1".into()), retry: Some(10), ..Event::default() };
        let endpoint = Event { name: "endpoint".into(), ..message("/m") };
        assert_eq!(whole, [primed, message("{\"a\":1}"), endpoint, message("a\nb")]);
    }

    #[test]
    fn an_event_over_the_limit_is_an_error() {
        let mut decoder = Decoder::new(1000);
        assert!((0..1000).any(|_| decoder.push(&[b'x'; 1024]).is_err()));
    }

    #[test]
    fn encoding_and_decoding_agree() {
        let bytes = encode(b"{\n\"a\":1}", Some("s-1"));
        let mut decoder = Decoder::new(1000);
        decoder.push(&bytes).unwrap();
        let event = decoder.event().unwrap();
        assert_eq!((event.id.as_deref(), event.data.as_ref()), (Some("s-1"), &b"{ \"a\":1}"[..]));
    }
}
