//! The same for a stream of events.

use memchr::memchr2;

use super::{Answer, Glance, Seen};

/// A byte order mark, which may open a stream of events.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";

/// Looks at a stream of server-sent events, each of which may hold a message.
#[derive(Debug, Default)]
pub struct EventGlance {
    line: Line,
    glance: Glance,
    /// Whether the event has had a line of data: the next one is joined to it by a line break.
    has_line: bool,
    /// Whether there was anything in those lines. An event that only primes resumption has nothing.
    has_data: bool,
    /// Whether the last byte was a carriage return: a line feed behind it ends no second line.
    returned: bool,
}

/// Where in a line an [`EventGlance`] is.
#[derive(Debug, Clone, Copy)]
enum Line {
    /// At the beginning of the stream; so much of [`MARK`] was there.
    Mark(usize),
    /// So much of `data` was there, and nothing else.
    Name(usize),
    /// Behind the colon, where one space is no part of the data.
    Space,
    Data,
    Ignored,
}

impl Default for Line {
    fn default() -> Self {
        Self::Mark(0)
    }
}

impl EventGlance {
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `each` at the end of every event that has data; what is not one JSON value is [`Seen::Other`].
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Answer)) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            let used = match (self.line, first) {
                _ if std::mem::take(&mut self.returned) && *first == b'\n' => 1,
                (Line::Mark(have), byte) if *byte == MARK[have] => {
                    self.line = if have + 1 == MARK.len() { Line::Name(0) } else { Line::Mark(have + 1) };
                    1
                }
                (Line::Mark(have), _) => {
                    self.line = if have == 0 { Line::Name(0) } else { Line::Ignored };
                    0
                }
                (line, b'\n' | b'\r') => {
                    self.returned = *first == b'\r';
                    self.end_of_line(line, each);
                    1
                }
                (Line::Name(4), b':') => {
                    self.begin_data();
                    self.line = Line::Space;
                    1
                }
                (Line::Name(have), byte) => {
                    let is_next = b"data".get(have) == Some(byte);
                    self.line = if is_next { Line::Name(have + 1) } else { Line::Ignored };
                    1
                }
                (Line::Space, byte) => {
                    self.line = Line::Data;
                    usize::from(*byte == b' ')
                }
                (Line::Data, _) => {
                    let used = to_line_end(rest);
                    self.has_data = true;
                    self.glance.feed(&rest[..used]);
                    used
                }
                (Line::Ignored, _) => to_line_end(rest),
            };
            rest = &rest[used..];
        }
    }

    fn begin_data(&mut self) {
        if std::mem::replace(&mut self.has_line, true) {
            self.has_data = true;
            self.glance.feed(b"\n");
        }
    }

    fn end_of_line(&mut self, line: Line, each: &mut dyn FnMut(Answer)) {
        self.line = Line::Name(0);
        match line {
            Line::Name(0) => {
                self.has_line = false;
                if std::mem::take(&mut self.has_data) {
                    let answer = self.glance.end();
                    self.glance = Glance { kept: self.glance.kept.take(), ..Glance::new() };
                    each(answer.unwrap_or(Answer { seen: Seen::Other, id: None }));
                }
            }
            // A name without a colon is a field with an empty value.
            Line::Name(4) => self.begin_data(),
            Line::Name(_) | Line::Mark(_) | Line::Space | Line::Data | Line::Ignored => {}
        }
    }
}

fn to_line_end(bytes: &[u8]) -> usize {
    memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len())
}
