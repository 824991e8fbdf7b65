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
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// From the first byte of a head to its last.
const HEAD: Duration = Duration::from_secs(10);
/// Between two requests.
const IDLE: Duration = Duration::from_mins(5);
/// How much of a head is kept to look at; the library refuses longer ones by itself.
const HEAD_KEPT: usize = 64 * 1024;

/// What the handler and the connection tell each other.
#[derive(Debug, Default)]
pub struct Watch {
    state: AtomicU8,
    /// A response is being made or sent: the client may be silent as long as that takes.
    busy: AtomicBool,
}

const HEAD_WANTED: u8 = 0;
const HEAD_SEEN: u8 = 1;
const BARE_LINE_FEED: u8 = 2;
const TWO_LENGTHS: u8 = 3;

impl Watch {
    /// What is wrong with the head that was just read.
    pub fn wrong(&self) -> Option<&'static str> {
        match self.state.load(Ordering::Acquire) {
            BARE_LINE_FEED => Some("lines of a request end with CR LF\n"),
            TWO_LENGTHS => Some("a request has Content-Length or Transfer-Encoding, not both\n"),
            _ => None,
        }
    }

    pub fn begin(&self) {
        self.busy.store(true, Ordering::Release);
    }

    pub fn finish(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// The body has been read; the next byte begins a head.
    pub fn next_head(&self) {
        self.state.store(HEAD_WANTED, Ordering::Release);
    }
}

/// A connection whose heads are checked.
#[derive(Debug)]
pub(super) struct Strict {
    stream: TcpStream,
    watch: Arc<Watch>,
    head: Vec<u8>,
    /// When the phase we are in ends. The timer is moved there only when it fires, not at every request.
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Strict {
    pub(super) fn new(stream: TcpStream, watch: Arc<Watch>) -> Self {
        Self { stream, watch, head: Vec::new(), deadline: None, timer: None }
    }

    fn look(&mut self, bytes: &[u8]) {
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
        match judged {
            Some(state) => {
                self.watch.state.store(state, Ordering::Release);
                self.head.clear();
                self.deadline = None;
            }
            None if before == 0 => self.head.extend_from_slice(bytes),
            None if self.head.len() > HEAD_KEPT => self.watch.state.store(HEAD_SEEN, Ordering::Release),
            None => {}
        }
    }

    fn expired(&mut self, context: &mut Context<'_>) -> bool {
        let waiting = self.watch.state.load(Ordering::Acquire) == HEAD_WANTED;
        if !waiting || self.watch.busy.load(Ordering::Acquire) {
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

/// None while the head is not complete.
fn judge(bytes: &[u8]) -> Option<u8> {
    let (mut content_length, mut transfer_encoding) = (false, false);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', bytes) {
        if end == start || bytes[end - 1] != b'\r' {
            return Some(BARE_LINE_FEED);
        }
        let line = &bytes[start..end - 1];
        if line.is_empty() && start > 0 {
            let both = content_length && transfer_encoding;
            return Some(if both { TWO_LENGTHS } else { HEAD_SEEN });
        }
        content_length |= has_name(line, b"content-length");
        transfer_encoding |= has_name(line, b"transfer-encoding");
        start = end + 1;
    }
    None
}

fn has_name(line: &[u8], name: &[u8]) -> bool {
    line.len() > name.len() && line[name.len()] == b':' && line[..name.len()].eq_ignore_ascii_case(name)
}

impl AsyncRead for Strict {
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
                if this.watch.state.load(Ordering::Acquire) == HEAD_WANTED {
                    this.look(&buffer.filled()[before..]);
                }
                Poll::Ready(read)
            }
        }
    }
}

impl AsyncWrite for Strict {
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
        let rows: [(&str, Option<u8>); 8] = [
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", Some(HEAD_SEEN)),
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\nbody\nwith lines", Some(HEAD_SEEN)),
            ("POST / HTTP/1.1\r\nHost: x\r\n", None),
            ("POST / HTTP/1.1\nHost: x\n\n", Some(BARE_LINE_FEED)),
            ("POST / HTTP/1.1\r\nHost: x\n\r\n", Some(BARE_LINE_FEED)),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n", Some(TWO_LENGTHS)),
            (
                "POST / HTTP/1.1\r\nX: Content-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
                Some(HEAD_SEEN),
            ),
            ("", None),
        ];
        for (head, expected) in rows {
            assert_eq!(judge(head.as_bytes()), expected, "{head:?}");
        }
    }
}
