//! A box's body on its way out: within its size, and never silent for long.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::asked::{Asked, GROWTH, Unclear};
use crate::body::BoxError;
use crate::strict::Deadline;

/// How long a box may send nothing of a body that it began.
const STALL: Duration = Duration::from_secs(30);

/// What is known of a body that somebody else sends.
#[derive(Debug)]
pub(crate) struct Moved {
    begun: Instant,
    /// When something was last sent, in milliseconds since then.
    last: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicBool,
    fate: AtomicU8,
}

/// Why a body did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    TooLarge = 1,
    Stalled = 2,
    Broken = 3,
    NoObject = 4,
    UnclearStream = 5,
}

impl Fate {
    const ALL: [Self; 5] = [Self::TooLarge, Self::Stalled, Self::Broken, Self::NoObject, Self::UnclearStream];
}

impl From<Unclear> for Fate {
    fn from(unclear: Unclear) -> Self {
        match unclear {
            Unclear::NoObject => Self::NoObject,
            Unclear::Stream => Self::UnclearStream,
        }
    }
}

impl Moved {
    pub(crate) fn new() -> Self {
        let (last, bytes, fate) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU8::new(0));
        Self { begun: Instant::now(), last, bytes, whole: AtomicBool::new(false), fate }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether all of it was sent.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed)
    }

    pub(crate) fn fate(&self) -> Option<Fate> {
        Fate::ALL.into_iter().find(|fate| *fate as u8 == self.fate.load(Ordering::Relaxed))
    }

    /// Returns when nothing has been sent for so long.
    pub(crate) async fn rests(&self, patience: Duration) {
        loop {
            let deadline = self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed)) + patience;
            if Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }

    pub(crate) fn add(&self, bytes: usize) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn fail(&self, fate: Fate) -> BoxError {
        self.fate.store(fate as u8, Ordering::Relaxed);
        match fate {
            Fate::TooLarge => "the request is too large".into(),
            Fate::Stalled => "the request stalled".into(),
            Fate::Broken => "the request broke off".into(),
            Fate::NoObject | Fate::UnclearStream => "the request is not clear".into(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sent {
    /// None: there is no body.
    inner: Option<Incoming>,
    /// How much may still come.
    room: u64,
    moved: Arc<Moved>,
    asked: Option<Asked>,
    queue: VecDeque<Bytes>,
    stall: Deadline,
}

impl Sent {
    pub(crate) fn nothing(moved: &Arc<Moved>) -> Self {
        let (queue, stall) = (VecDeque::new(), Deadline::default());
        Self { inner: None, room: 0, moved: Arc::clone(moved), asked: None, queue, stall }
    }

    pub(crate) fn new(inner: Incoming, room: u64, moved: &Arc<Moved>) -> Self {
        Self { inner: Some(inner), room, ..Self::nothing(moved) }
    }

    #[must_use]
    pub(crate) fn asking_for_usage(mut self) -> Self {
        self.asked = self.inner.is_some().then(Asked::default);
        self
    }

    fn queued(&mut self) -> Option<Frame<Bytes>> {
        let data = self.queue.pop_front()?;
        self.moved.add(data.len());
        // Whoever was told a length does not ask again once it has come.
        if self.queue.is_empty() && self.inner.as_ref().is_none_or(HttpBody::is_end_stream) {
            self.moved.whole.store(true, Ordering::Relaxed);
        }
        Some(Frame::data(data))
    }

    fn take(&mut self, data: Bytes) -> Result<(), BoxError> {
        self.room =
            self.room.checked_sub(data.len() as u64).ok_or_else(|| self.moved.fail(Fate::TooLarge))?;
        match &mut self.asked {
            Some(asked) => {
                let parts = asked.pass(data).map_err(|unclear| self.moved.fail(unclear.into()))?;
                self.queue.extend(parts.into_iter().filter(|part| !part.is_empty()));
            }
            None => self.queue.push_back(data),
        }
        Ok(())
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(frame) = this.queued() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Some(inner) = &mut this.inner else {
                this.moved.whole.store(true, Ordering::Relaxed);
                return Poll::Ready(None);
            };
            match Pin::new(inner).poll_frame(context) {
                Poll::Pending if this.stall.is_over(STALL, context) => {
                    return Poll::Ready(Some(Err(this.moved.fail(Fate::Stalled))));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    this.stall.clear();
                    // Trailers are left out: they are headers that nobody has looked at.
                    if let Ok(data) = frame.into_data()
                        && let Err(error) = this.take(data)
                    {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(this.moved.fail(Fate::Broken)))),
                Poll::Ready(None) => {
                    this.inner = None;
                    if let Some(Err(unclear)) = this.asked.as_ref().map(Asked::finish) {
                        return Poll::Ready(Some(Err(this.moved.fail(unclear.into()))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_none() && self.queue.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let Some(inner) = &self.inner else { return SizeHint::with_exact(0) };
        // Asked once, before anything is taken.
        let grows = if self.asked.is_some() { GROWTH } else { 0 };
        inner.size_hint().exact().map_or_else(SizeHint::new, |size| SizeHint::with_exact(size + grows))
    }
}
