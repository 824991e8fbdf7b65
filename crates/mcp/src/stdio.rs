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
    /// A line over the cap. Its bytes were dropped as they came.
    TooLong,
}

/// Reads lines of at most `cap` bytes. Holds at most the cap and one read.
#[derive(Debug)]
pub struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer was searched for a line end already.
    searched: usize,
    cap: usize,
    dropping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(input: R, cap: usize) -> Self {
        Self { input, buffer: BytesMut::new(), searched: 0, cap, dropping: false }
    }

    /// The next line, or None at the end of input. Cancel-safe: what was read stays in the buffer.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.buffer.capacity() - self.buffer.len() < READ_SIZE / 4 {
                self.buffer.reserve(READ_SIZE);
            }
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.last_line());
            }
        }
    }

    /// The next line if it has been read already.
    pub fn take_line(&mut self) -> Option<Line> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                if self.buffer.len() > self.cap {
                    self.dropping = true;
                }
                if self.dropping {
                    self.buffer.clear();
                    self.searched = 0;
                }
                return None;
            };
            let end = self.searched + found;
            let line = self.buffer.split_to(end + 1).freeze();
            self.searched = 0;
            if std::mem::take(&mut self.dropping) || end > self.cap {
                return Some(Line::TooLong);
            }
            if let Some(text) = trimmed(line.slice(..end)) {
                return Some(Line::Text(text));
            }
        }
    }

    /// A writer that ends without a line end still said something.
    fn last_line(&mut self) -> Option<Line> {
        if std::mem::take(&mut self.dropping) {
            self.buffer.clear();
            return Some(Line::TooLong);
        }
        self.searched = 0;
        trimmed(self.buffer.split().freeze()).map(Line::Text)
    }
}

fn trimmed(line: Bytes) -> Option<Bytes> {
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
        assert_eq!(lines(&input, 1000).await, [Line::TooLong, text("ok")]);
        assert_eq!(lines(&vec![b'A'; 300_000], 1000).await, [Line::TooLong]);
        assert_eq!(lines(b"12345\n1234\n", 4).await, [Line::TooLong, text("1234")]);
    }
}
