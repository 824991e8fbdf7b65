//! A queue of messages for one reader: a host's stdout, a child's stdin, or one HTTP stream.
//!
//! Two ways in, because two things must not happen. An answer is never dropped, so it is always taken:
//! there is at most one per call. A notification may be one of a flood, so it is dropped at the bound.
//! Whoever reads from a peer on behalf of this queue waits for [`Outbox::room`] before it reads on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::caller::Stamp;
use crate::connection::{Connection, Outlet};

/// How much may wait for a slow reader before those who fill the queue are held back.
pub const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// The same in messages: a flood of small ones costs more than its bytes.
const QUEUE_MESSAGES: usize = 1024;

#[derive(Debug, Default)]
pub struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Outgoing>,
    bytes: usize,
    /// Nothing is taken any more; what is queued can still be read.
    closed: bool,
}

/// One message on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub bytes: Bytes,
    /// The answer itself: nothing follows on the stream of this call.
    pub last: bool,
    /// Who is behind it, where the reader needs to know.
    pub stamp: Option<Arc<Stamp>>,
}

/// Whether a message was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Yes,
    Dropped,
    Closed,
}

impl Outbox {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what must not be lost.
    pub fn push(&self, bytes: Bytes) -> Taken {
        self.put(Outgoing { bytes, last: false, stamp: None }, Bound::Ignored)
    }

    /// Takes a request, with who makes it.
    pub fn push_stamped(&self, bytes: Bytes, stamp: Arc<Stamp>) -> Taken {
        self.put(Outgoing { bytes, last: false, stamp: Some(stamp) }, Bound::Ignored)
    }

    /// Takes the answer of a call.
    pub fn finish(&self, bytes: Bytes) -> Taken {
        self.put(Outgoing { bytes, last: true, stamp: None }, Bound::Ignored)
    }

    /// Takes what may be dropped when the reader is slow.
    pub fn offer(&self, bytes: Bytes) -> Taken {
        self.put(Outgoing { bytes, last: false, stamp: None }, Bound::Kept)
    }

    fn put(&self, outgoing: Outgoing, bound: Bound) -> Taken {
        {
            let mut inner = self.lock();
            if inner.closed {
                return Taken::Closed;
            }
            if bound == Bound::Kept && inner.is_full() {
                return Taken::Dropped;
            }
            inner.bytes += outgoing.bytes.len();
            inner.queue.push_back(outgoing);
        }
        self.filled.notify_one();
        Taken::Yes
    }

    /// Waits for a message. None once the queue is closed and empty.
    pub async fn pop(&self) -> Option<Outgoing> {
        loop {
            let waiting = self.filled.notified();
            match self.take() {
                Ok(outgoing) => return Some(outgoing),
                Err(Empty::Closed) => return None,
                Err(Empty::Open) => waiting.await,
            }
        }
    }

    /// The next message if there is one.
    pub fn try_pop(&self) -> Option<Outgoing> {
        self.take().ok()
    }

    fn take(&self) -> Result<Outgoing, Empty> {
        let mut inner = self.lock();
        let was_full = inner.is_full();
        let Some(outgoing) = inner.queue.pop_front() else {
            return Err(if inner.closed { Empty::Closed } else { Empty::Open });
        };
        inner.bytes -= outgoing.bytes.len();
        let has_room = was_full && !inner.is_full();
        drop(inner);
        if has_room {
            self.drained.notify_waiters();
        }
        Ok(outgoing)
    }

    pub fn has_room(&self) -> bool {
        let inner = self.lock();
        inner.closed || !inner.is_full()
    }

    /// Waits until the reader has caught up, or is gone.
    pub async fn room(&self) {
        loop {
            let waiting = self.drained.notified();
            if self.has_room() {
                return;
            }
            waiting.await;
        }
    }

    /// No more is taken. Both sides learn it at once.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Waits until nothing is taken any more.
    pub async fn closed(&self) {
        loop {
            let waiting = self.drained.notified();
            if self.is_closed() {
                return;
            }
            waiting.await;
        }
    }

    /// Ends the stream of one call. A host's pipe serves all its calls and goes on.
    pub fn close_unless_shared(&self, connection: &Connection) {
        if !matches!(connection.outlet, Outlet::Stdio(_)) {
            self.close();
        }
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.lock().queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is nothing to take.
enum Empty {
    Open,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Kept,
    Ignored,
}

impl Inner {
    fn is_full(&self) -> bool {
        self.bytes > QUEUE_BYTES || self.queue.len() > QUEUE_MESSAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_cut_at_the_bound_and_an_answer_still_gets_through() {
        let outbox = Outbox::new();
        let mut dropped = 0;
        for _ in 0..5000 {
            dropped += usize::from(outbox.offer(Bytes::from_static(b"n")) == Taken::Dropped);
        }
        assert!(dropped > 3000, "{dropped}");
        assert!(!outbox.has_room());
        assert_eq!(outbox.finish(Bytes::from_static(b"answer")), Taken::Yes);
        outbox.close();
        let mut last = None;
        while let Some(outgoing) = outbox.pop().await {
            last = Some(outgoing);
        }
        assert!(last.is_some_and(|outgoing| outgoing.last));
        assert_eq!(outbox.push(Bytes::from_static(b"late")), Taken::Closed);
    }
}
