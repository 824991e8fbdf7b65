//! Looks at a connection's bytes before the HTTP library does: for heads that two parsers could read differently, and
//! for whoever never finishes one, or never reads what it asked for.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// From the first byte of a head to its last.
const HEAD: Duration = Duration::from_secs(10);
/// Between two requests, and how long nothing of an answer may be taken.
const IDLE: Duration = Duration::from_mins(5);
/// The longest head.
const HEAD_KEPT: usize = 64 * 1024;

/// What the handler and the connection tell each other.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// What was wrong with a head of this connection. Stays: whoever sent one such head may send others.
    wrong: AtomicU8,
    /// A response is being made or sent: the other side may be silent as long as that takes.
    busy: AtomicBool,
    /// Who waits for the next request, and has to look at the clock once the answer is over.
    reader: Mutex<Option<Waker>>,
    /// The end of this request is not looked for: nothing behind it can be trusted.
    last: AtomicBool,
    /// It is no HTTP any more.
    tunnel: AtomicBool,
}

/// Why a head is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    LineEnds,
    TwoLengths,
    Folded,
    TwoHosts,
    TooLong,
}

impl Wrong {
    const ALL: [Self; 5] = [Self::LineEnds, Self::TwoLengths, Self::Folded, Self::TwoHosts, Self::TooLong];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::LineEnds => "lines of a request end with CR LF, and have no CR elsewhere",
            Self::TwoLengths => "a request has one Content-Length or Transfer-Encoding, not several",
            Self::Folded => "a header stands on one line",
            Self::TwoHosts => "a request has one Host",
            Self::TooLong => "the head of the request is too long",
        }
    }
}

impl Watch {
    /// What is wrong with this connection.
    pub(crate) fn wrong(&self) -> Option<Wrong> {
        let code = usize::from(self.wrong.load(Ordering::Acquire));
        code.checked_sub(1).and_then(|index| Wrong::ALL.get(index).copied())
    }

    /// Whether the connection must end with this response.
    pub(crate) fn is_last(&self) -> bool {
        self.last.load(Ordering::Acquire)
    }

    /// From here on it has a deadline of its own, over both directions. Not before: a box may have written its CONNECT
    /// behind a request whose answer it does not take.
    pub(crate) fn becomes_a_tunnel(&self) {
        self.tunnel.store(true, Ordering::Release);
    }

    /// Whether an answer is under way. If so, `context` is woken when it is over.
    fn is_busy(&self, context: &mut Context<'_>) -> bool {
        if !self.busy.load(Ordering::Acquire) {
            return false;
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *reader = Some(context.waker().clone());
        }
        drop(reader);
        // It may have ended before it could know whom to wake.
        self.busy.load(Ordering::Acquire)
    }

    fn refuse(&self, wrong: Wrong) {
        let index = Wrong::ALL.iter().position(|other| *other == wrong).unwrap_or_default();
        self.wrong.store(u8::try_from(index + 1).unwrap_or(u8::MAX), Ordering::Release);
    }
}

/// While it lives, an answer is under way.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Watch>);

impl Busy {
    pub(crate) fn new(watch: &Arc<Watch>) -> Self {
        watch.busy.store(true, Ordering::Release);
        Self(Arc::clone(watch))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
        let reader = self.0.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// A connection whose heads are checked.
#[derive(Debug)]
pub(crate) struct Strict<S> {
    stream: S,
    watch: Arc<Watch>,
    phase: Phase,
    head: Head,
    reading: Deadline,
    writing: Deadline,
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    /// A body with so many bytes to come.
    Body(u64),
    /// Not looked at any more: the connection ends with this request, or becomes a tunnel.
    Last,
}

/// A deadline that is set often and rarely comes: the timer is moved only when it fires.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(crate) fn clear(&mut self) {
        self.at = None;
    }

    /// Whether `wait` has gone by since this was first asked after [`Deadline::clear`].
    pub(crate) fn is_over(&mut self, wait: Duration, context: &mut Context<'_>) -> bool {
        let at = *self.at.get_or_insert_with(|| Instant::now() + wait);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= at {
                return true;
            }
            timer.as_mut().reset(at);
        }
        false
    }
}

impl<S> Strict<S> {
    pub(crate) fn new(stream: S, watch: Arc<Watch>) -> Self {
        let (reading, writing) = (Deadline::default(), Deadline::default());
        Self { stream, watch, phase: Phase::Head, head: Head::default(), reading, writing }
    }

    /// Follows the requests in these bytes.
    fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.phase {
                Phase::Last => return,
                Phase::Body(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    let left = left - taken as u64;
                    self.phase = if left == 0 { Phase::Head } else { Phase::Body(left) };
                }
                Phase::Head => bytes = self.look_at_head(bytes),
            }
        }
    }

    /// Returns what follows the head.
    fn look_at_head<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let before = self.head.come.len();
        if before == 0 {
            self.reading.clear();
        }
        self.head.come.extend_from_slice(bytes);
        let judged = self.head.judge();
        let length = judged.as_ref().map_or(self.head.come.len(), |judged| judged.length);
        if length > HEAD_KEPT {
            self.watch.refuse(Wrong::TooLong);
            self.phase = Phase::Last;
            return &[];
        }
        let Some(Judged { verdict, .. }) = judged else { return &[] };
        self.head = Head::default();
        self.reading.clear();
        self.phase = match verdict {
            Ok(Follows::Nothing) => Phase::Head,
            Ok(Follows::Bytes(length)) => Phase::Body(length),
            Ok(Follows::Unknown) => {
                self.watch.last.store(true, Ordering::Release);
                Phase::Last
            }
            Err(wrong) => {
                self.watch.refuse(wrong);
                Phase::Last
            }
        };
        &bytes[(length - before).min(bytes.len())..]
    }

    fn expired(&mut self, context: &mut Context<'_>) -> bool {
        if self.phase != Phase::Head || self.watch.is_busy(context) {
            self.reading.clear();
            return false;
        }
        let wait = if self.head.come.is_empty() { IDLE } else { HEAD };
        self.reading.is_over(wait, context)
    }

    fn written<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            let tunnel = self.watch.tunnel.load(Ordering::Acquire);
            if !tunnel && self.writing.is_over(IDLE, context) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else {
            self.writing.clear();
        }
        polled
    }
}

/// A complete head.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    length: usize,
    verdict: Result<Follows, Wrong>,
}

/// What a head says will follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    Nothing,
    Bytes(u64),
    /// Chunks, or a tunnel.
    Unknown,
}

/// The part of a head that has come. Each line is looked at once, however small the pieces are that it comes in.
#[derive(Debug, Default)]
struct Head {
    come: Vec<u8>,
    /// Where the line begins that is not complete, and how far its end was looked for.
    start: usize,
    searched: usize,
    length: u64,
    lengths: u32,
    chunked: u32,
    hosts: u32,
}

impl Head {
    /// None while the head is not complete.
    fn judge(&mut self) -> Option<Judged> {
        while let Some(found) = memchr::memchr(b'\n', &self.come[self.searched..]) {
            let end = self.searched + found;
            let verdict = self.line(end);
            (self.start, self.searched) = (end + 1, end + 1);
            if let Some(verdict) = verdict {
                return Some(Judged { length: end + 1, verdict });
            }
        }
        self.searched = self.come.len();
        None
    }

    /// The line whose line feed is at `end`. None: the head goes on.
    fn line(&mut self, end: usize) -> Option<Result<Follows, Wrong>> {
        let Some(line) = self.come[self.start..end].strip_suffix(b"\r") else {
            return Some(Err(Wrong::LineEnds));
        };
        if line.is_empty() && self.start > 0 {
            return Some(self.end());
        }
        if memchr::memchr(b'\r', line).is_some() {
            return Some(Err(Wrong::LineEnds));
        }
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Some(Err(Wrong::Folded));
        }
        self.chunked += u32::from(value_of(line, b"transfer-encoding").is_some());
        self.hosts += u32::from(value_of(line, b"host").is_some());
        if let Some(value) = value_of(line, b"content-length") {
            let text = std::str::from_utf8(value).unwrap_or_default().trim();
            // A sign is part of a number to us and not to the library.
            let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
            let Some(number) = number else { return Some(Err(Wrong::TwoLengths)) };
            (self.length, self.lengths) = (number, self.lengths + 1);
        }
        None
    }

    fn end(&self) -> Result<Follows, Wrong> {
        let tunnel = self.come.starts_with(b"CONNECT ");
        match (self.lengths, self.chunked) {
            _ if self.hosts > 1 => Err(Wrong::TwoHosts),
            (0, 0) if tunnel => Ok(Follows::Unknown),
            (0, 0) => Ok(Follows::Nothing),
            (1, 0) if !tunnel => Ok(Follows::Bytes(self.length)),
            (0, 1) if !tunnel => Ok(Follows::Unknown),
            _ => Err(Wrong::TwoLengths),
        }
    }
}

/// White space before the colon is no part of a name; the library refuses it, and until then it must not hide one.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let colon = memchr::memchr(b':', line)?;
    line[..colon].trim_ascii().eq_ignore_ascii_case(name).then(|| &line[colon + 1..])
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
            Poll::Pending if this.expired(context) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => {
                this.look(&buffer.filled()[before..]);
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
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.written(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_tunnel_may_be_left_untaken() {
        let rows = ["", "GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"];
        let rows = rows.into_iter().chain(["CONNECT a:1 HTTP/1.1\r\n\r\n", "a\n\n"]);
        for (head, opened) in rows.flat_map(|head| [(head, false), (head, true)]) {
            let (mut inside, outside) = tokio::io::duplex(64);
            let watch = Arc::new(Watch::default());
            let mut strict = Strict::new(outside, Arc::clone(&watch));
            inside.write_all(head.as_bytes()).await.unwrap();
            let _read = strict.read(&mut vec![0; head.len().max(1)][..head.len()]).await.unwrap();
            if opened {
                watch.becomes_a_tunnel();
            }
            let written = tokio::time::timeout(2 * IDLE, strict.write_all(&[0; 100])).await;
            assert_eq!(written.is_err(), opened, "{head:?}: {written:?}");
        }
    }

    #[test]
    fn heads_that_parsers_read_differently_are_told_apart() {
        let rows: [(&str, Option<Result<Follows, Wrong>>); 19] = [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", Some(Ok(Follows::Nothing))),
            ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nbo\ny", Some(Ok(Follows::Bytes(5)))),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Some(Ok(Follows::Unknown))),
            ("CONNECT a:1 HTTP/1.1\r\n\r\n\x16\x03\n", Some(Ok(Follows::Unknown))),
            ("CONNECT a:1 HTTP/1.1\r\nContent-Length: 1\r\n\r\n", Some(Err(Wrong::TwoLengths))),
            ("POST / HTTP/1.1\r\nHost: x\r\n", None),
            ("POST / HTTP/1.1\nHost: x\n\n", Some(Err(Wrong::LineEnds))),
            ("POST / HTTP/1.1\r\nHost: x\n\r\n", Some(Err(Wrong::LineEnds))),
            ("POST / HTTP/1.1\r\nHost: x\rContent-Length: 3\r\n\r\n", Some(Err(Wrong::LineEnds))),
            ("POST / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", Some(Err(Wrong::Folded))),
            ("POST / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", Some(Err(Wrong::Folded))),
            ("POST / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", Some(Err(Wrong::TwoHosts))),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
                Some(Err(Wrong::TwoLengths)),
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                Some(Err(Wrong::TwoLengths)),
            ),
            ("POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", Some(Err(Wrong::TwoLengths))),
            ("POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", Some(Err(Wrong::TwoLengths))),
            (
                "POST / HTTP/1.1\r\nContent-Length : 5\r\nTransfer-Encoding\t: chunked\r\n\r\n",
                Some(Err(Wrong::TwoLengths)),
            ),
            ("POST / HTTP/1.1\r\nX: Content-Length: 5\r\n\r\n", Some(Ok(Follows::Nothing))),
            ("", None),
        ];
        for (head, expected) in rows {
            let mut whole = Head { come: head.as_bytes().to_vec(), ..Head::default() };
            assert_eq!(whole.judge().map(|judged| judged.verdict), expected, "{head:?}");
            let (mut pieces, mut judged) = (Head::default(), None);
            for byte in head.bytes() {
                pieces.come.push(byte);
                judged = pieces.judge();
                if judged.is_some() {
                    break;
                }
            }
            assert_eq!(judged.map(|judged| judged.verdict), expected, "{head:?}, byte by byte");
        }
    }
}
