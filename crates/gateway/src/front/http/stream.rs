//! A stream of messages as server-sent events, which a client of the old era can leave and come back to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use mcp::sse;
use tokio::sync::Notify;

use crate::outbox::{Outbox, Outgoing};

/// How often a silent stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What is kept of one stream for a client that comes back.
const KEPT_BYTES: usize = 256 * 1024;
const KEPT_EVENTS: usize = 256;

/// A stream whose events have ids.
#[derive(Debug)]
pub struct Resumable {
    number: u64,
    pub outbox: Arc<Outbox>,
    log: Mutex<Log>,
    /// There is more in the log, or somebody else reads.
    changed: Notify,
}

#[derive(Debug)]
struct Log {
    events: VecDeque<(u64, Outgoing)>,
    bytes: usize,
    next: u64,
    /// Who reads now. A client that comes back takes over from its own dead connection.
    reader: u64,
    /// Nothing will follow.
    finished: bool,
    /// When somebody last read, or listened.
    last_read: Instant,
}

impl Resumable {
    pub fn new(number: u64, outbox: Arc<Outbox>) -> Self {
        let log = Log {
            events: VecDeque::new(),
            bytes: 0,
            next: 0,
            reader: 0,
            finished: false,
            last_read: Instant::now(),
        };
        Self { number, outbox, log: Mutex::new(log), changed: Notify::new() }
    }

    pub fn last_read(&self) -> Instant {
        self.lock().last_read
    }

    /// The events after `last`, then those to come. None if some of them are gone.
    pub fn read_after(
        self: &Arc<Self>,
        last: Option<u64>,
    ) -> Option<impl Stream<Item = Bytes> + Send + use<>> {
        let mut log = self.lock();
        let first_kept = log.events.front().map_or(log.next, |(number, _)| *number);
        let from = last.map_or(log.next, |last| last.saturating_add(1));
        if from < first_kept || from > log.next {
            return None;
        }
        log.reader += 1;
        let reader = Reader { stream: Arc::clone(self), number: log.reader, from };
        drop(log);
        // Whoever read until now learns that it is over: its connection is dead and does not know it.
        self.changed.notify_waiters();
        Some(futures_util::stream::unfold(reader, Reader::next))
    }

    /// An event without a message: from here on the client can come back.
    pub fn prime(&self) -> Bytes {
        let mut log = self.lock();
        let number = log.next;
        log.next += 1;
        let empty = Outgoing { bytes: Bytes::new(), last: false, stamp: None };
        log.events.push_back((number, empty));
        Bytes::from(format!("id: {}\ndata:\n\n", self.event_id(number)))
    }

    fn event_id(&self, number: u64) -> String {
        format!("{}-{number}", self.number)
    }

    fn take(&self, outgoing: Option<Outgoing>) {
        match outgoing {
            Some(outgoing) => drop(self.keep(&outgoing)),
            None => self.lock().finished = true,
        }
        self.changed.notify_waiters();
    }

    /// Notes an event and gives it its number.
    pub fn keep(&self, outgoing: &Outgoing) -> u64 {
        let mut log = self.lock();
        let number = log.next;
        log.next += 1;
        log.bytes += outgoing.bytes.len();
        log.finished |= outgoing.last;
        log.events.push_back((number, outgoing.clone()));
        while log.events.len() > 1 && (log.bytes > KEPT_BYTES || log.events.len() > KEPT_EVENTS) {
            if let Some((_, dropped)) = log.events.pop_front() {
                log.bytes -= dropped.bytes.len();
            }
        }
        number
    }

    pub fn encode(&self, number: u64, outgoing: &Outgoing) -> Bytes {
        sse::encode(&outgoing.bytes, Some(&self.event_id(number)))
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits a `Last-Event-ID` of ours.
pub(super) fn parse_event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}

/// Reads from the log. What comes out of the queue goes into the log first, so that no reader takes it from another.
struct Reader {
    stream: Arc<Resumable>,
    number: u64,
    from: u64,
}

enum Next {
    Event(Bytes),
    Over,
    Wait,
}

impl Reader {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let stream = Arc::clone(&self.stream);
        loop {
            let changed = stream.changed.notified();
            match self.look() {
                Next::Event(bytes) => return Some((bytes, self)),
                Next::Over => return None,
                Next::Wait => {}
            }
            tokio::select! {
                outgoing = stream.outbox.pop() => stream.take(outgoing),
                () = changed => {}
                () = tokio::time::sleep(KEEP_ALIVE) => return Some((Bytes::from_static(b": \n\n"), self)),
            }
        }
    }

    fn look(&mut self) -> Next {
        let mut log = self.stream.lock();
        if log.reader != self.number {
            return Next::Over;
        }
        log.last_read = Instant::now();
        let next =
            log.events.iter().find(|(number, outgoing)| *number >= self.from && !outgoing.bytes.is_empty());
        match next {
            Some((number, outgoing)) => {
                self.from = number + 1;
                Next::Event(self.stream.encode(*number, outgoing))
            }
            None if log.finished => Next::Over,
            None => Next::Wait,
        }
    }
}

/// The messages of one call of the new era. Dropping the stream cancels the call.
pub(super) fn once(
    first: Outgoing,
    outbox: Arc<Outbox>,
    guard: impl Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    let state = (Some(first), outbox, guard, false);
    futures_util::stream::unfold(state, |(first, outbox, guard, done)| async move {
        if done {
            return None;
        }
        let next = match first {
            Some(first) => Ok(Some(first)),
            None => tokio::time::timeout(KEEP_ALIVE, outbox.pop()).await,
        };
        match next {
            Err(_silent) => Some((Bytes::from_static(b": \n\n"), (None, outbox, guard, false))),
            Ok(None) => None,
            Ok(Some(outgoing)) => {
                let bytes = sse::encode(&outgoing.bytes, None);
                Some((bytes, (None, outbox, guard, outgoing.last)))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt as _;

    #[tokio::test]
    async fn a_reader_that_is_replaced_takes_nothing_from_the_next() {
        let outbox = Arc::new(Outbox::new());
        let stream = Arc::new(Resumable::new(0, Arc::clone(&outbox)));
        let mut first = Box::pin(stream.read_after(None).unwrap());
        let waiting = futures_util::poll!(first.next());
        assert!(waiting.is_pending());
        let second = stream.read_after(None).unwrap();
        outbox.finish(Bytes::from_static(b"z"));
        assert_eq!(first.next().await, None);
        let got: Vec<Bytes> = second.collect().await;
        assert_eq!(got, ["id: 0-0\ndata: z\n\n"]);
    }

    #[tokio::test]
    async fn a_client_that_comes_back_gets_what_it_missed_and_nothing_twice() {
        let outbox = Arc::new(Outbox::new());
        let stream = Arc::new(Resumable::new(7, Arc::clone(&outbox)));
        for text in ["a", "b", "c"] {
            outbox.push(Bytes::from_static(text.as_bytes()));
        }
        let mut first = Box::pin(stream.read_after(None).unwrap());
        assert_eq!(first.next().await.unwrap(), "id: 7-0\ndata: a\n\n");
        assert_eq!(first.next().await.unwrap(), "id: 7-1\ndata: b\n\n");
        drop(first);
        outbox.finish(Bytes::from_static(b"z"));
        let second: Vec<Bytes> = stream.read_after(Some(0)).unwrap().collect().await;
        assert_eq!(second, ["id: 7-1\ndata: b\n\n", "id: 7-2\ndata: c\n\n", "id: 7-3\ndata: z\n\n"]);
        let third: Vec<Bytes> = stream.read_after(Some(2)).unwrap().collect().await;
        assert_eq!(third, ["id: 7-3\ndata: z\n\n"]);
        let ended: Vec<Bytes> = stream.read_after(Some(3)).unwrap().collect().await;
        assert!(ended.is_empty(), "{ended:?}");
        assert!(stream.read_after(Some(99)).is_none());
        assert!(stream.read_after(Some(u64::MAX)).is_none());
        assert_eq!(parse_event_id("7-3"), Some((7, 3)));
        assert_eq!(parse_event_id("x"), None);
    }
}
