//! Server-sent events, as far as OpenCode uses them: `data` alone; and comments, by which a box tells that some are missing.

/// The largest event. What a tool said stands in one, cut by OpenCode at some 50 kB. What is larger is skipped, and is
/// missing like one that was not kept: the history has it.
const LARGEST: usize = 1024 * 1024;

/// Comments of whoever keeps the events of a box: some were not kept, or not read by whoever took them.
const GAPS: [&[u8]; 2] = [b": dropped", b": lost"];

/// Turns bytes into events. Holds at most one, and the piece that came last.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    buffer: Vec<u8>,
    /// Up to where `buffer` was taken.
    start: usize,
    /// Up to where it has no end of a line.
    searched: usize,
    event: Event,
    /// The beginning of the line under way was not kept.
    cut: bool,
    gap: bool,
}

/// What has come of the event under way.
#[derive(Debug, Default)]
enum Event {
    #[default]
    Nothing,
    Data(Vec<u8>),
    /// Nothing of it is kept.
    TooLarge,
}

impl Event {
    fn len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Nothing | Self::TooLarge => 0,
        }
    }

    /// One line of its data.
    fn add(&mut self, line: &[u8]) {
        match self {
            _ if self.len() + line.len() > LARGEST => *self = Self::TooLarge,
            Self::Nothing => *self = Self::Data(line.to_vec()),
            Self::Data(data) => {
                data.push(b'\n');
                data.extend_from_slice(line);
            }
            Self::TooLarge => {}
        }
    }
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    /// The data of the next whole event.
    pub(super) fn event(&mut self) -> Option<Vec<u8>> {
        while let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let end = self.searched + found;
            let line = self.start..end;
            self.start = end + 1;
            self.searched = self.start;
            if std::mem::take(&mut self.cut) {
                continue; // The end of a line that was skipped.
            }
            if let Some(data) = self.line(line) {
                return Some(data);
            }
        }
        self.searched = self.buffer.len();
        if self.searched - self.start + self.event.len() > LARGEST {
            self.event = Event::TooLarge;
            self.cut = true;
            self.buffer.clear();
            (self.start, self.searched) = (0, 0);
        }
        None
    }

    /// One whole line; the data of the event that it ends.
    fn line(&mut self, line: std::ops::Range<usize>) -> Option<Vec<u8>> {
        let line = &self.buffer[line];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            match std::mem::take(&mut self.event) {
                Event::Data(data) => return Some(data),
                Event::Nothing => {}
                Event::TooLarge => self.gap = true,
            }
        } else if let Some(value) = line.strip_prefix(b"data:") {
            self.event.add(value.strip_prefix(b" ").unwrap_or(value));
        } else if GAPS.iter().any(|gap| line.starts_with(gap)) {
            self.gap = true;
        }
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
                decoder.push(piece);
                events.extend(std::iter::from_fn(|| decoder.event()));
            }
            assert_eq!(events, expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut decoder = Decoder::default();
        decoder.push(b": hi\n\ndata: a\n\n");
        assert!(decoder.event().is_some() && !decoder.take_gap());
        for comment in [": dropped 3\n\n", ": lost\n\n"] {
            decoder.push(comment.as_bytes());
            assert!(decoder.event().is_none() && decoder.take_gap() && !decoder.take_gap());
        }
    }

    #[test]
    fn an_event_over_the_limit_is_skipped_and_the_next_is_not() {
        let long = "x".repeat(3 * LARGEST);
        let lines = format!("data: {}\n", "x".repeat(1000)).repeat(3000);
        let most = format!("data: {}\n\n", "x".repeat(LARGEST - 100));
        let rows =
            [format!("data: {long}\n\n"), format!("{lines}\n"), format!(": {long}\r\ndata: x\r\n\r\n")];
        for skipped in rows {
            for size in [1 << 10, 1 << 14, 1 << 19, usize::MAX] {
                let mut decoder = Decoder::default();
                let (mut events, mut held) = (Vec::new(), 0);
                for piece in format!("{skipped}{most}data: next\n\n").as_bytes().chunks(size) {
                    decoder.push(piece);
                    events.extend(std::iter::from_fn(|| decoder.event()).map(|event| event.len()));
                    held = held.max((decoder.buffer.len() + decoder.event.len()).saturating_sub(piece.len()));
                }
                assert_eq!(events.as_slice().last_chunk(), Some(&[LARGEST - 100, 4]), "in pieces of {size}");
                assert!(decoder.take_gap() || size == usize::MAX, "in pieces of {size}");
                assert!(held <= 2 * LARGEST || size == usize::MAX, "{held} bytes were held");
            }
        }
    }
}
