//! Looks at a connection's bytes before the HTTP library does: for heads that two parsers could read
//! differently, and for clients that never finish one.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// From the first byte of a head to its last.
const HEAD: Duration = Duration::from_secs(10);
/// Between two requests.
const IDLE: Duration = Duration::from_mins(5);
/// The longest head.
const HEAD_KEPT: usize = 64 * 1024;

/// What the handler and the connection tell each other.
#[derive(Debug, Default)]
pub struct Watch {
    /// What was wrong with a head of this connection. Stays: whoever sent one such head may send others.
    wrong: AtomicU8,
    /// A response is being made or sent: the client may be silent as long as that takes.
    busy: AtomicBool,
    /// A body came in chunks, whose end is not looked for: nothing after it can be trusted.
    chunked: AtomicBool,
}

const BARE_LINE_FEED: u8 = 1;
const TWO_LENGTHS: u8 = 2;

impl Watch {
    /// What is wrong with this connection.
    pub fn wrong(&self) -> Option<&'static str> {
        match self.wrong.load(Ordering::Acquire) {
            BARE_LINE_FEED => Some("lines of a request end with CR LF\n"),
            TWO_LENGTHS => Some("a request has Content-Length or Transfer-Encoding, not both\n"),
            _ => None,
        }
    }

    /// Whether the connection must end with this response.
    pub fn is_last(&self) -> bool {
        self.chunked.load(Ordering::Acquire)
    }

    pub fn begin(&self) {
        self.busy.store(true, Ordering::Release);
    }

    pub fn finish(&self) {
        self.busy.store(false, Ordering::Release);
    }
}

/// A connection whose heads are checked.
#[derive(Debug)]
pub(super) struct Strict<S> {
    stream: S,
    watch: Arc<Watch>,
    phase: Phase,
    /// The part of a head that has come.
    head: Vec<u8>,
    /// When the phase we are in ends. The timer is moved there only when it fires, not at every request.
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    /// A body with so many bytes to come.
    Body(u64),
    /// Not looked at any more: the connection ends with this request.
    Last,
}

impl<S> Strict<S> {
    pub(super) fn new(stream: S, watch: Arc<Watch>) -> Self {
        Self { stream, watch, phase: Phase::Head, head: Vec::new(), deadline: None, timer: None }
    }

    /// Follows the requests in these bytes. An error ends the connection.
    fn look(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.phase {
                Phase::Last => return Ok(()),
                Phase::Body(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    let left = left - taken as u64;
                    self.phase = if left == 0 { Phase::Head } else { Phase::Body(left) };
                }
                Phase::Head => bytes = self.look_at_head(bytes)?,
            }
        }
        Ok(())
    }

    /// Returns what follows the head.
    fn look_at_head<'b>(&mut self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        let before = self.head.len();
        if before == 0 {
            self.deadline = None;
        }
        // Most heads come in one piece and are looked at where they are.
        let judged = if before == 0 {
            judge(bytes)
        } else {
            self.head.extend_from_slice(bytes);
            judge(&self.head)
        };
        let Some(head) = judged else {
            if before == 0 {
                self.head.extend_from_slice(bytes);
            }
            if self.head.len() > HEAD_KEPT {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the head of a request is too long"));
            }
            return Ok(&[]);
        };
        self.head.clear();
        self.deadline = None;
        self.phase = match head.verdict {
            Ok(Body::None) => Phase::Head,
            Ok(Body::Bytes(length)) => Phase::Body(length),
            Ok(Body::Chunks) => {
                self.watch.chunked.store(true, Ordering::Release);
                Phase::Last
            }
            Err(wrong) => {
                self.watch.wrong.store(wrong, Ordering::Release);
                Phase::Last
            }
        };
        Ok(&bytes[(head.length - before).min(bytes.len())..])
    }

    fn expired(&mut self, context: &mut Context<'_>) -> bool {
        if self.phase != Phase::Head || self.watch.busy.load(Ordering::Acquire) {
            self.deadline = None;
            return false;
        }
        let wait = if self.head.is_empty() { IDLE } else { HEAD };
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + wait);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        false
    }
}

/// A complete head.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    length: usize,
    verdict: Result<Body, u8>,
}

/// What a head says will follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    Bytes(u64),
    Chunks,
}

/// None while the head is not complete.
fn judge(bytes: &[u8]) -> Option<Judged> {
    let (mut length, mut chunked) = (None, false);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', bytes) {
        let judged = |verdict| Some(Judged { length: end + 1, verdict });
        if end == start || bytes[end - 1] != b'\r' {
            return judged(Err(BARE_LINE_FEED));
        }
        let line = &bytes[start..end - 1];
        if line.is_empty() && start > 0 {
            return judged(match (length, chunked) {
                (Some(_), true) => Err(TWO_LENGTHS),
                (Some(length), false) => Ok(Body::Bytes(length)),
                (None, true) => Ok(Body::Chunks),
                (None, false) => Ok(Body::None),
            });
        }
        if let Some(value) = value_of(line, b"content-length") {
            // One that is no number is refused by the library; until then it promises nothing.
            length =
                Some(std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0));
        }
        chunked |= value_of(line, b"transfer-encoding").is_some();
        start = end + 1;
    }
    None
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let named =
        line.len() > name.len() && line[name.len()] == b':' && line[..name.len()].eq_ignore_ascii_case(name);
    named.then(|| &line[name.len() + 1..])
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => {
                if this.expired(context) {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending
            }
            Poll::Ready(read) => {
                this.look(&buffer.filled()[before..])?;
                Poll::Ready(read)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_parsers_read_differently_are_told_apart() {
        let rows: [(&str, Option<Result<Body, u8>>); 10] = [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", Some(Ok(Body::None))),
            ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nbo\ny", Some(Ok(Body::Bytes(5)))),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Some(Ok(Body::Chunks))),
            ("POST / HTTP/1.1\r\nHost: x\r\n", None),
            ("POST / HTTP/1.1\nHost: x\n\n", Some(Err(BARE_LINE_FEED))),
            ("POST / HTTP/1.1\r\nHost: x\n\r\n", Some(Err(BARE_LINE_FEED))),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
                Some(Err(TWO_LENGTHS)),
            ),
            (
                "POST / HTTP/1.1\r\nX: Content-Length: 5\r\ntransfer-encoding: x\r\n\r\n",
                Some(Ok(Body::Chunks)),
            ),
            ("POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", Some(Ok(Body::Bytes(0)))),
            ("", None),
        ];
        for (head, expected) in rows {
            assert_eq!(judge(head.as_bytes()).map(|judged| judged.verdict), expected, "{head:?}");
        }
    }
}
