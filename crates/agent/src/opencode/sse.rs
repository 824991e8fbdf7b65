//! Server-sent events, as far as OpenCode uses them: `data` alone; and comments, by which a box tells that some are missing.

/// The largest event. One may hold all that a tool said.
const LARGEST: usize = 16 * 1024 * 1024;

/// Comments of whoever keeps the events of a box: some were not kept, or not read by whoever took them.
const GAPS: [&[u8]; 2] = [b": dropped", b": lost"];

/// An event is over the limit.
#[derive(Debug)]
pub(super) struct TooLarge;

/// Turns bytes into events. Holds at most one.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    buffer: Vec<u8>,
    /// Up to where `buffer` was taken.
    start: usize,
    /// Up to where it has no end of a line.
    searched: usize,
    data: Vec<u8>,
    has_data: bool,
    gap: bool,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.len() + self.data.len() + bytes.len() > LARGEST {
            return Err(TooLarge);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    /// The data of the next whole event.
    pub(super) fn event(&mut self) -> Option<Vec<u8>> {
        while let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let end = self.searched + found;
            let line = &self.buffer[self.start..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.start = end + 1;
            self.searched = self.start;
            if line.is_empty() {
                if std::mem::take(&mut self.has_data) {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(value) = line.strip_prefix(b"data:") {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            } else if GAPS.iter().any(|gap| line.starts_with(gap)) {
                self.gap = true;
            }
        }
        self.searched = self.buffer.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_any_cut_of_the_stream() {
        let stream =
            b": hi\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:b\r\ndata: c\r\n\r\ndata: \n\nid: 7\n\ndata: half";
        let expected: [&[u8]; 3] = [b"{\"a\":1}", b"b\nc", b""];
        for cut in 0..stream.len() {
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for piece in [&stream[..cut], &stream[cut..]] {
                decoder.push(piece).unwrap();
                events.extend(std::iter::from_fn(|| decoder.event()));
            }
            assert_eq!(events, expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut decoder = Decoder::default();
        decoder.push(b": hi\n\ndata: a\n\n").unwrap();
        assert!(decoder.event().is_some() && !decoder.take_gap());
        for comment in [": dropped 3\n\n", ": lost\n\n"] {
            decoder.push(comment.as_bytes()).unwrap();
            assert!(decoder.event().is_none() && decoder.take_gap() && !decoder.take_gap());
        }
    }

    #[test]
    fn an_event_over_the_limit_is_an_error() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..17).any(|_| {
            assert!(decoder.event().is_none());
            decoder.push(&piece).is_err()
        }));
    }
}
