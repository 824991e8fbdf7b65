//! Newline-delimited messages over a pipe, with a cap on a line.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is asked of the pipe at once; a pipe's default buffer.
const READ_SIZE: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its line end. Never blank.
    Text(Bytes),
    /// A line over the cap. Its bytes were dropped as they came, but for both ends.
    TooLong(Ends),
}

/// The two ends of a line that was dropped: enough to tell whom to say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    pub head: Bytes,
    pub tail: Bytes,
}

impl Ends {
    /// The id of a request, if it stands where writers of JSON-RPC put it: first of all, or last.
    pub fn id(&self) -> Option<Bytes> {
        let head = self
            .head
            .strip_prefix(b"{")
            .map(|rest| rest.strip_prefix(br#""jsonrpc":"2.0","#).unwrap_or(rest));
        let first = head.and_then(|rest| rest.strip_prefix(br#""id":"#));
        let first = first.and_then(|rest| rest.split(|byte| *byte == b',').next());
        let last = self.tail.strip_suffix(b"}").and_then(|rest| {
            let at = memchr::memmem::rfind(rest, br#","id":"#)?;
            Some(&rest[at + br#","id":"#.len()..])
        });
        let written = |raw: &&[u8]| {
            let text = std::str::from_utf8(raw).unwrap_or_default();
            let plain = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            text.parse::<i64>().is_ok() || plain.is_some_and(|text| !text.contains(['"', '\\', ',']))
        };
        first.filter(written).or(last.filter(written)).map(Bytes::copy_from_slice)
    }
}

/// After so many lines others get their turn, though more could be given out: what was made of them is written, and
/// whoever gets it can begin while we go on. With fewer, more is spent on writes than is won.
const EARLY: u32 = 4;
/// How much of each end of a dropped line is kept.
const KEPT_END: usize = 512;

/// Reads lines of at most `cap` bytes. Holds at most the cap and one read.
#[derive(Debug)]
pub struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer was searched for a line end already.
    searched: usize,
    cap: usize,
    /// Lines given out since the last read.
    in_a_row: u32,
    /// The ends of the line that is being dropped.
    dropping: Option<(Bytes, BytesMut)>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(input: R, cap: usize) -> Self {
        Self { input, buffer: BytesMut::new(), searched: 0, cap, in_a_row: 0, dropping: None }
    }

    /// The next line, or None at the end of input. Cancel-safe: what was read stays in the buffer.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        self.in_a_row += 1;
        if self.in_a_row > EARLY {
            self.in_a_row = 0;
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.buffer.capacity() - self.buffer.len() < READ_SIZE / 4 {
                self.grow();
            }
            self.in_a_row = 0;
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.last_line());
            }
        }
    }

    /// Makes room for a read. A long line gets at once what it may need at the most: doubling would hold it twice
    /// while it is copied, and what is never written to costs nothing.
    fn grow(&mut self) {
        if self.buffer.len() <= self.cap / 8 {
            self.buffer.reserve(READ_SIZE);
            return;
        }
        let mut larger = BytesMut::with_capacity(self.cap + READ_SIZE);
        larger.extend_from_slice(&self.buffer);
        self.buffer = larger;
    }

    /// The next line if it has been read already.
    pub fn take_line(&mut self) -> Option<Line> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                if self.dropping.is_some() || self.buffer.len() > self.cap {
                    let read = self.buffer.split().freeze();
                    self.drop_more(&read);
                    self.searched = 0;
                }
                return None;
            };
            let end = self.searched + found;
            let line = self.buffer.split_to(end + 1).freeze();
            self.searched = 0;
            if self.dropping.is_some() || end > self.cap {
                self.drop_more(&line[..end]);
                return self.dropped();
            }
            if let Some(text) = trimmed(&line.slice(..end)) {
                return Some(Line::Text(text));
            }
        }
    }

    fn drop_more(&mut self, bytes: &[u8]) {
        let head = || (Bytes::copy_from_slice(&bytes[..bytes.len().min(KEPT_END)]), BytesMut::new());
        let (_, tail) = self.dropping.get_or_insert_with(head);
        tail.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT_END)..]);
        let over = tail.len().saturating_sub(KEPT_END);
        bytes::Buf::advance(tail, over);
    }

    fn dropped(&mut self) -> Option<Line> {
        let (head, tail) = self.dropping.take()?;
        let tail = trimmed(&tail.freeze()).unwrap_or_default();
        Some(Line::TooLong(Ends { head: trimmed(&head).unwrap_or_default(), tail }))
    }

    /// A writer that ends without a line end still said something.
    fn last_line(&mut self) -> Option<Line> {
        if self.dropping.is_some() {
            self.buffer.clear();
            return self.dropped();
        }
        self.searched = 0;
        trimmed(&self.buffer.split().freeze()).map(Line::Text)
    }
}

fn trimmed(line: &Bytes) -> Option<Bytes> {
    let start = line.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let end = line.iter().rposition(|byte| !byte.is_ascii_whitespace())?;
    Some(line.slice(start..=end))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], cap: usize) -> Vec<Line> {
        let mut reader = LineReader::new(input, cap);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn text(text: &str) -> Line {
        Line::Text(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_are_trimmed_and_blank_ones_skipped() {
        let got = lines(b"a\r\n\n  \n b \nc", 100).await;
        assert_eq!(got, [text("a"), text("b"), text("c")]);
    }

    #[tokio::test]
    async fn a_line_over_the_cap_is_one_event_and_the_next_is_intact() {
        let mut input = vec![b'A'; 300_000];
        input.extend_from_slice(b"\nok\n");
        let long = |line: &Line| matches!(line, Line::TooLong(_));
        let got = lines(&input, 1000).await;
        assert!(long(&got[0]) && got[1..] == [text("ok")], "{got:?}");
        let got = lines(&vec![b'A'; 300_000], 1000).await;
        assert!(long(&got[0]) && got.len() == 1);
        let got = lines(b"12345\n1234\n", 4).await;
        assert!(long(&got[0]) && got[1..] == [text("1234")]);
    }

    #[tokio::test]
    async fn the_id_of_a_dropped_request_is_found_at_either_end() {
        let filler = "x".repeat(300_000);
        let rows = [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"t":"{filler}"}}}}"#), Some("7")),
            (
                format!(r#"{{"method":"m","params":{{"t":"{filler}"}},"jsonrpc":"2.0","id":"a"}}"#),
                Some("\"a\""),
            ),
            (format!(r#"{{"method":"m","params":{{"t":"{filler}","id":9}}}}"#), None),
            (filler.clone(), None),
        ];
        for (line, expected) in rows {
            let got = lines(format!("{line}\n").as_bytes(), 1000).await;
            let [Line::TooLong(ends)] = got.as_slice() else { panic!("{got:?}") };
            assert_eq!(ends.id().as_deref(), expected.map(str::as_bytes));
        }
    }
}
