//! Looks at a connection's bytes before the HTTP library does: for heads that two parsers could read
//! differently, and for clients that never finish one, or never take their answer.

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
/// Between two requests.
const IDLE: Duration = Duration::from_mins(5);
/// For so much of an answer, or all that is left of it.
const TAKING: Duration = Duration::from_mins(5);
const TAKEN: usize = 64 * 1024;
/// The longest head.
const HEAD_KEPT: usize = 64 * 1024;

/// What the handler and the connection tell each other.
#[derive(Debug, Default)]
pub struct Watch {
    /// What was wrong with a head of this connection. Stays: whoever sent one such head may send others.
    wrong: AtomicU8,
    /// A response is being made or sent: the client may be silent as long as that takes.
    busy: AtomicBool,
    /// Who waits for the next request, and has to look at the clock once the answer is over.
    reader: Mutex<Option<Waker>>,
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
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            reader.wake();
        }
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
}

/// A connection whose heads are checked.
#[derive(Debug)]
pub(super) struct Strict<S> {
    stream: S,
    watch: Arc<Watch>,
    phase: Phase,
    /// The part of a head that has come.
    head: Vec<u8>,
    looked: Looked,
    /// The end of the phase we are in.
    reading: Deadline,
    writing: Deadline,
    /// Bytes that were taken since writing was first waited for.
    taken: usize,
}

/// A deadline that is set often and rarely comes: the timer is moved only when it fires.
#[derive(Debug, Default)]
struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    fn clear(&mut self) {
        self.at = None;
    }

    /// Whether `wait` has gone by since this was first asked after [`Deadline::clear`].
    fn is_over(&mut self, wait: Duration, context: &mut Context<'_>) -> bool {
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
        Self {
            stream,
            watch,
            phase: Phase::Head,
            head: Vec::new(),
            looked: Looked::default(),
            reading: Deadline::default(),
            writing: Deadline::default(),
            taken: 0,
        }
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
            self.reading.clear();
        }
        // Most heads come in one piece and are looked at where they are.
        let judged = if before == 0 {
            self.looked.judge(bytes)
        } else {
            self.head.extend_from_slice(bytes);
            self.looked.judge(&self.head)
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
        self.looked = Looked::default();
        self.reading.clear();
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
        if self.phase != Phase::Head || self.watch.is_busy(context) {
            self.reading.clear();
            return false;
        }
        let wait = if self.head.is_empty() { IDLE } else { HEAD };
        self.reading.is_over(wait, context)
    }

    /// Some of an answer was taken, or has to wait. A little now and then is not enough.
    fn written(
        &mut self,
        polled: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(taken)) => {
                self.taken += taken;
                if self.taken >= TAKEN {
                    self.all_taken();
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending if self.writing.is_over(TAKING, context) => {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Pending => {}
        }
        polled
    }

    fn all_taken(&mut self) {
        self.taken = 0;
        self.writing.clear();
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

/// How far a head was looked at, and what it has said. Each line is looked at once, however small the pieces are that
/// it comes in.
#[derive(Debug, Default)]
struct Looked {
    /// Where the line begins that is not complete, and how far its end was looked for.
    start: usize,
    searched: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Looked {
    /// None while the head is not complete. `bytes` are all of it that have come.
    fn judge(&mut self, bytes: &[u8]) -> Option<Judged> {
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + found;
            let verdict = self.line(&bytes[self.start..end]);
            (self.start, self.searched) = (end + 1, end + 1);
            if let Some(verdict) = verdict {
                return Some(Judged { length: end + 1, verdict });
            }
        }
        self.searched = bytes.len();
        None
    }

    /// One line, up to its line feed. None: the head goes on.
    fn line(&mut self, line: &[u8]) -> Option<Result<Body, u8>> {
        let Some(line) = line.strip_suffix(b"\r") else { return Some(Err(BARE_LINE_FEED)) };
        if line.is_empty() && self.start > 0 {
            return Some(match (self.length, self.chunked) {
                (Some(_), true) => Err(TWO_LENGTHS),
                (Some(length), false) => Ok(Body::Bytes(length)),
                (None, true) => Ok(Body::Chunks),
                (None, false) => Ok(Body::None),
            });
        }
        if let Some(value) = value_of(line, b"content-length") {
            // One that is no number is refused by the library; until then it promises nothing.
            let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
            self.length = Some(number.unwrap_or(0));
        }
        self.chunked |= value_of(line, b"transfer-encoding").is_some();
        None
    }
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
        match Pin::new(&mut self.stream).poll_flush(context) {
            // The library has nothing more to write when it gets here.
            Poll::Ready(flushed) => {
                self.all_taken();
                Poll::Ready(flushed)
            }
            Poll::Pending if self.writing.is_over(TAKING, context) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
            let whole = Looked::default().judge(head.as_bytes());
            assert_eq!(whole.map(|judged| judged.verdict), expected, "{head:?}");
            let mut looked = Looked::default();
            let pieces = (1..=head.len()).find_map(|come| looked.judge(&head.as_bytes()[..come]));
            assert_eq!(pieces.map(|judged| judged.verdict), expected, "{head:?}, byte by byte");
        }
    }

    #[test]
    fn a_line_of_a_head_is_looked_at_once() {
        let (head, mut looked) = (b"a:\r\n".repeat(HEAD_KEPT / 4), Looked::default());
        for come in 1..=head.len() {
            assert_eq!(looked.judge(&head[..come]), None);
            assert_eq!((looked.searched, looked.start), (come, come / 4 * 4), "and from there on next time");
        }
    }

    /// A connection on which `length` bytes are written and flushed, and the end on which they are read.
    async fn answer(length: usize, read: impl AsyncFnOnce(tokio::io::DuplexStream)) -> io::Result<()> {
        let (stream, theirs) = tokio::io::duplex(1024);
        let mut strict = Strict::new(stream, Arc::default());
        let written = async {
            strict.write_all(&vec![0; length]).await?;
            strict.flush().await
        };
        tokio::select! {
            written = written => written,
            () = read(theirs) => panic!("whoever reads waits for all of it"),
        }
    }

    async fn take(theirs: &mut tokio::io::DuplexStream, amount: usize) {
        theirs.read_exact(&mut vec![0; amount]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_take_an_answer_is_left() {
        let begun = Instant::now();
        let never = answer(4096, async |theirs| {
            let _open = theirs;
            std::future::pending::<()>().await;
        });
        assert_eq!(never.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < 2 * TAKING);
        let drops = answer(1 << 20, async |mut theirs| {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                take(&mut theirs, 1).await;
            }
        });
        assert_eq!(drops.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < 4 * TAKING);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_has_time() {
        let slow = answer(8 * TAKEN, async |mut theirs| {
            loop {
                tokio::time::sleep(TAKING / 128).await;
                take(&mut theirs, 1024).await;
            }
        });
        slow.await.unwrap();
        // Between answers there is no hurry.
        let (stream, mut theirs) = tokio::io::duplex(16);
        let mut strict = Strict::new(stream, Arc::default());
        for _ in 0..3 {
            let ((), written) = tokio::join!(take(&mut theirs, 64), strict.write_all(&[0; 64]));
            written.unwrap();
            strict.flush().await.unwrap();
            tokio::time::sleep(2 * TAKING).await;
        }
    }
}
