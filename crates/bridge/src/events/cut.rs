//! A stream of server-sent events, cut where one ends and the next begins. What they say is not looked at.

#[derive(Debug)]
pub(super) struct Cutter {
    event: Vec<u8>,
    most: usize,
    /// The event is larger than that: the rest of it is skipped.
    skips: bool,
    /// The last line had nothing on it so far.
    blank: bool,
    /// The last byte was a carriage return, which a line feed may belong to.
    returned: bool,
}

impl Cutter {
    pub(super) fn new(most: usize) -> Self {
        Self { event: Vec::new(), most, skips: false, blank: true, returned: false }
    }

    /// Calls `whole` with each event that has ended; with nothing where it was too large.
    pub(super) fn push(&mut self, mut data: &[u8], mut whole: impl FnMut(Option<&[u8]>)) {
        while let Some(end) = data.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = data.split_at(end);
            self.add(line);
            let ending = rest[0];
            data = &rest[1..];
            if ending == b'\n' && self.returned && line.is_empty() {
                // The second half of a line's end that was taken for one already.
                self.returned = false;
                continue;
            }
            self.returned = ending == b'\r';
            // One kind of end, so that an event is whole with its own last byte.
            self.append(b"\n");
            if self.blank {
                self.end(&mut whole);
            }
            self.blank = true;
        }
        self.add(data);
    }

    fn add(&mut self, line: &[u8]) {
        if !line.is_empty() {
            self.blank = false;
            self.returned = false;
            self.append(line);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.event.len() + bytes.len() > self.most {
            self.skips = true;
            self.event = Vec::new();
        }
        if !self.skips {
            self.event.extend_from_slice(bytes);
        }
    }

    fn end(&mut self, whole: &mut impl FnMut(Option<&[u8]>)) {
        let skipped = std::mem::take(&mut self.skips);
        // Empty lines between events are nothing.
        if skipped || self.event != b"\n" {
            whole((!skipped).then_some(&self.event));
        }
        self.event.clear();
        // One large event must not cost memory for ever.
        self.event.shrink_to(4 << 10);
    }
}

#[cfg(test)]
mod tests {
    use super::Cutter;

    #[track_caller]
    fn check(stream: &str, expected: &[&str]) {
        for size in 1..=stream.len() {
            let mut cutter = Cutter::new(48);
            let mut found = Vec::new();
            for part in stream.as_bytes().chunks(size) {
                cutter.push(part, |event| {
                    found.push(
                        event.map_or("large".to_owned(), |event| String::from_utf8_lossy(event).into_owned()),
                    );
                });
            }
            assert_eq!(found, expected, "in parts of {size}");
        }
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        check("data: a\n\ndata: b\nid: 1\n\ndata: c\n", &["data: a\n\n", "data: b\nid: 1\n\n"]);
    }

    #[test]
    fn lines_end_in_three_ways() {
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["data: a\n\n", "data: b\n\n"]);
        check("data: a\r\rdata: b\r\r", &["data: a\n\n", "data: b\n\n"]);
    }

    #[test]
    fn empty_lines_alone_are_no_event() {
        check("\n\n\r\n\ndata: a\n\n\n\n", &["data: a\n\n"]);
    }

    #[test]
    fn a_large_event_is_skipped_whole() {
        let large = format!("data: {}\ndata: more\n\ndata: b\n\n", "a".repeat(100));
        check(&large, &["large", "data: b\n\n"]);
    }
}
