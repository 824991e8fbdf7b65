//! Rows that wait: bounded by their number and by their bytes, since captured arguments and results can be large.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::file::LedgerError;
use crate::row::{Begin, End};

/// Rows that wait at most before calls do.
pub(crate) const QUEUE: usize = 65_536;
/// … and their bytes.
pub(crate) const QUEUE_BYTES: usize = 64 << 20;
/// Rows of one transaction: others want to write too.
pub(crate) const BATCH: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;
/// How long a call waits for the ledger before it is refused.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What stands in an end whose result did not fit.
pub(crate) const NOT_KEPT: &str = "result_not_kept";

#[derive(Debug)]
pub(crate) enum Row {
    Begin(u64, Box<Begin>),
    End { seq: u64, of: u64, end: Box<End> },
}

impl Row {
    pub(crate) fn seq(&self) -> u64 {
        match self {
            Self::Begin(seq, _) | Self::End { seq, .. } => *seq,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Begin(_, begin) => begin.bytes(),
            Self::End { end, .. } => end.bytes(),
        }
    }
}

/// What those who call and the thread that writes have in common.
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    /// For the thread.
    pub(crate) wake: Condvar,
    /// For calls that wait for room.
    pub(crate) room: Notify,
    pub(crate) progress: watch::Sender<Progress>,
    lock_file: PathBuf,
}

#[derive(Default)]
pub(crate) struct Queue {
    rows: VecDeque<Row>,
    /// Of the rows, and of those that were taken.
    bytes: usize,
    /// Rows that were taken and are not committed yet.
    taken: usize,
    taken_bytes: usize,
    last: u64,
    /// Somebody waits.
    pub(crate) urgent: bool,
    /// No more rows come; those that are left are tried until then.
    pub(crate) closing: Option<Instant>,
    /// Since when the thread waits for the lock file.
    locking: Option<Instant>,
    /// What the log was told already.
    told_locked: bool,
    told_dropped: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(crate) opened: bool,
    /// Every row up to this one is committed.
    pub(crate) committed: u64,
    /// Why the last attempt failed, if it did.
    pub(crate) failed: Option<Arc<LedgerError>>,
}

/// What a process that writes can tell about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub waiting: usize,
    pub bytes: usize,
    pub committed: u64,
}

impl Shared {
    pub(crate) fn new(lock_file: PathBuf) -> Self {
        Self {
            queue: Mutex::default(),
            wake: Condvar::new(),
            room: Notify::new(),
            progress: watch::channel(Progress::default()).0,
            lock_file,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a begin if there is room. Returns its number.
    pub(crate) fn put_begin(&self, begin: Box<Begin>, urgent: bool) -> Result<u64, Box<Begin>> {
        let bytes = begin.bytes();
        let mut queue = self.lock();
        self.tell_if_locked(&mut queue);
        // One that is larger than the bound by itself is taken by an empty queue: it would never be.
        let full = queue.waiting() >= QUEUE || queue.bytes > 0 && queue.bytes + bytes > QUEUE_BYTES;
        if queue.closing.is_some() || full {
            return Err(begin);
        }
        queue.last += 1;
        queue.urgent |= urgent;
        let seq = queue.last;
        self.push(queue, Row::Begin(seq, begin), bytes);
        Ok(seq)
    }

    /// Takes an end, always: there is one for each begin. What it captured may stay behind.
    pub(crate) fn put_end(&self, of: u64, mut end: Box<End>) {
        let mut bytes = end.bytes();
        let mut queue = self.lock();
        self.tell_if_locked(&mut queue);
        if queue.closing.is_some() {
            tracing::warn!("a call ended after the ledger was closed; it will be shown as unknown");
            return;
        }
        if end.result.is_some() && queue.bytes > 0 && queue.bytes + bytes > QUEUE_BYTES {
            end.result = None;
            end.reason.get_or_insert_with(|| NOT_KEPT.into());
            bytes = end.bytes();
            if !std::mem::replace(&mut queue.told_dropped, true) {
                tracing::warn!(
                    "too much waits to be written into the ledger; results of calls are not kept until it is less"
                );
            }
        }
        queue.last += 1;
        let row = Row::End { seq: queue.last, of, end };
        self.push(queue, row, bytes);
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, row: Row, bytes: usize) {
        let wakes = queue.rows.is_empty() || queue.urgent || queue.rows.len() == BATCH;
        queue.rows.push_back(row);
        queue.bytes += bytes;
        drop(queue);
        if wakes {
            self.wake.notify_one();
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        let queue = self.lock();
        Depth { waiting: queue.waiting(), bytes: queue.bytes, committed: self.progress.borrow().committed }
    }

    /// Why rows are not written, if they are not.
    pub(crate) fn failure(&self) -> Option<LedgerError> {
        let failed = self.progress.borrow().failed.as_ref().map(|error| error.again());
        failed.or_else(|| {
            let mut queue = self.lock();
            self.tell_if_locked(&mut queue);
            queue.locked_out().then(|| self.locked())
        })
    }

    /// Why somebody waited in vain.
    pub(crate) fn late(&self) -> LedgerError {
        let queue = self.lock();
        if queue.locking.is_some() { self.locked() } else { LedgerError::Behind(PATIENCE.as_secs()) }
    }

    fn locked(&self) -> LedgerError {
        LedgerError::Locked(self.lock_file.clone())
    }

    /// Nobody wakes the thread while it waits for the lock, so those who come by tell.
    fn tell_if_locked(&self, queue: &mut Queue) {
        if queue.locked_out() && !std::mem::replace(&mut queue.told_locked, true) {
            let error = &self.locked() as &dyn std::error::Error;
            tracing::error!(error, "calls cannot be written into the ledger; they wait in memory");
        }
    }

    /// The thread begins or ends to wait for the lock.
    pub(crate) fn waits_for_lock(&self, since: Option<Instant>) {
        let mut queue = self.lock();
        queue.locking = since;
        if since.is_none() && std::mem::take(&mut queue.told_locked) {
            tracing::info!("the ledger is free again");
        }
    }
}

impl Queue {
    pub(crate) fn waiting(&self) -> usize {
        self.rows.len() + self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn has_a_batch(&self) -> bool {
        self.rows.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    /// The thread waits for a lock that somebody does not give back.
    fn locked_out(&self) -> bool {
        self.locking.is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    /// Nothing is left to be written, and the thread waits for a lock: nobody needs to wait for it.
    pub(crate) fn idles(&self) -> bool {
        self.waiting() == 0 && self.locking.is_some()
    }

    /// Takes what fits into one transaction.
    pub(crate) fn take(&mut self) -> Vec<Row> {
        let (mut count, mut bytes) = (0, 0);
        for row in self.rows.iter().take(BATCH) {
            let more = row.bytes();
            if count > 0 && bytes + more > BATCH_BYTES {
                break;
            }
            (count, bytes) = (count + 1, bytes + more);
        }
        (self.taken, self.taken_bytes) = (count, bytes);
        self.rows.drain(..count).collect()
    }

    /// What was taken is written.
    pub(crate) fn written(&mut self) {
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut self.taken_bytes));
        self.taken = 0;
        if self.bytes < QUEUE_BYTES / 2 {
            self.told_dropped = false;
        }
    }
}
