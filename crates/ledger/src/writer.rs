//! Rows on their way into the file: a queue, and one thread that empties it.
//!
//! ```text
//! begin, end ─→ queue ─→ thread: lock file ─ transaction: rows, batch, signed head ─ commit ─→ committed
//! ```
//!
//! A call puts its row into the queue and goes on; the thread writes what has gathered for a moment. With `strict` the
//! call waits for the commit. A row leaves the queue when it is committed and not before; while the file cannot be
//! written the queue fills, and then calls wait and are refused. An end is always taken: there is one for each begin.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{Notify, watch};

use crate::batch::{self, Author};
use crate::file::{LedgerError, Place};
use crate::prune::{self, Retention};
use crate::row::{Begin, End};
use crate::seal::Seal;

/// Rows that wait at most before calls do.
const QUEUE: usize = 65_536;
/// How long rows gather. A call that waits for its row does not wait for this.
const GATHER: Duration = Duration::from_millis(50);
/// Rows of one transaction: others want to write too.
const BATCH: usize = 1024;
/// How long a call waits for the ledger before it is refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon a write that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often old rows are looked for.
const PRUNE: Duration = Duration::from_mins(5);

/// How the ledger is kept.
#[derive(Debug, Clone)]
pub struct Options {
    pub place: Place,
    /// A call waits for its row to be committed, and is refused if it cannot be.
    pub strict: bool,
    pub retention: Retention,
    /// What writes: `wrap` or `serve`.
    pub kind: &'static str,
}

/// The ledger, for a process that makes calls.
pub struct Ledger {
    shared: Arc<Shared>,
    strict: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A call that has begun. It ends once.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry(u64);

#[derive(Debug)]
pub(crate) enum Row {
    Begin(u64, Box<Begin>),
    End { seq: u64, of: u64, end: Box<End> },
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    room: Notify,
    progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Queue {
    rows: VecDeque<Row>,
    /// Rows that were taken and are not committed yet.
    taken: usize,
    last: u64,
    /// Somebody waits.
    urgent: bool,
    closed: bool,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    /// Every row up to this one is committed.
    committed: u64,
    /// Why the last attempt failed, if it did.
    failed: Option<Arc<LedgerError>>,
    attempts: u64,
}

/// What a process that writes can tell about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub waiting: usize,
    pub committed: u64,
}

impl Ledger {
    /// Opens the ledger and starts the thread. Fails where the file cannot be used at all.
    pub fn open(options: Options, seal: Arc<dyn Seal>) -> Result<Self, LedgerError> {
        let lock = File::options().create(true).append(true).open(&options.place.lock);
        let lock = lock.map_err(|error| LedgerError::Failed { what: "locked", reason: error.to_string() })?;
        // Under the lock: many begin at once, and one of them makes the file.
        let connection = {
            let _held = Held::take(&lock)?;
            let mut connection = options.place.open(options.strict)?;
            options.place.prepare(&mut connection)?;
            connection
        };
        let author = Author::new(options.kind)?;
        let (progress, _) = watch::channel(Progress::default());
        let shared =
            Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new(), room: Notify::new(), progress });
        let strict = options.strict;
        let mut writer =
            Writer { shared: Arc::clone(&shared), options, connection, lock, author, seal, pruned: None };
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| LedgerError::Failed { what: "started", reason: error.to_string() })?;
        Ok(Self { shared, strict, thread: Mutex::new(Some(thread)) })
    }

    /// Notes that a call is about to go out. With `strict`, it is on the disk when this returns.
    pub async fn begin(&self, begin: Box<Begin>) -> Result<Entry, LedgerError> {
        let entry = match self.put(begin) {
            Ok(entry) => entry,
            Err(begin) => self.put_when_there_is_room(begin).await?,
        };
        if self.strict
            && let Err(error) = self.committed(&entry).await
        {
            // It is in the queue and may be written yet; the call does not go out.
            self.end(entry, End::refused("ledger_unavailable"));
            return Err(error);
        }
        Ok(entry)
    }

    /// The same at once, where that can be: not with `strict`, and not while the queue is full.
    pub fn begin_at_once(&self, begin: Box<Begin>) -> Result<Entry, Box<Begin>> {
        if self.strict { Err(begin) } else { self.put(begin) }
    }

    /// Notes how a call ended.
    #[expect(clippy::needless_pass_by_value, reason = "an entry ends once")]
    pub fn end(&self, entry: Entry, end: End) {
        let mut queue = self.shared.lock();
        if queue.closed {
            tracing::warn!("a call ended after the ledger was closed; it will be shown as unknown");
            return;
        }
        queue.last += 1;
        let row = Row::End { seq: queue.last, of: entry.0, end: Box::new(end) };
        self.shared.push(queue, row);
    }

    pub fn depth(&self) -> Depth {
        let queue = self.shared.lock();
        Depth { waiting: queue.rows.len() + queue.taken, committed: self.shared.progress.borrow().committed }
    }

    /// Writes what is left, for as long as `patience` allows. False: something is not written.
    pub fn close(&self, patience: Duration) -> bool {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return true };
        let until = Instant::now() + patience;
        while !thread.is_finished() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        thread.join().is_ok() && self.depth().waiting == 0
    }

    fn put(&self, begin: Box<Begin>) -> Result<Entry, Box<Begin>> {
        let mut queue = self.shared.lock();
        if queue.closed || queue.rows.len() + queue.taken >= QUEUE {
            return Err(begin);
        }
        queue.last += 1;
        queue.urgent |= self.strict;
        let entry = Entry(queue.last);
        self.shared.push(queue, Row::Begin(entry.0, begin));
        Ok(entry)
    }

    async fn put_when_there_is_room(&self, mut begin: Box<Begin>) -> Result<Entry, LedgerError> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let room = self.shared.room.notified();
            if self.shared.lock().closed {
                return Err(LedgerError::Closed);
            }
            match self.put(begin) {
                Ok(entry) => return Ok(entry),
                Err(back) => begin = back,
            }
            if tokio::time::timeout_at(until, room).await.is_err() {
                return Err(LedgerError::Behind(PATIENCE.as_secs()));
            }
        }
    }

    async fn committed(&self, entry: &Entry) -> Result<(), LedgerError> {
        let mut progress = self.shared.progress.subscribe();
        let attempts = progress.borrow().attempts;
        let done = |progress: &Progress| {
            progress.committed >= entry.0 || progress.failed.is_some() && progress.attempts > attempts
        };
        let waited = tokio::time::timeout(PATIENCE, progress.wait_for(done)).await;
        match waited {
            Ok(Ok(progress)) if progress.committed >= entry.0 => Ok(()),
            Ok(Ok(progress)) => {
                Err(progress.failed.as_ref().map_or(LedgerError::Closed, |error| error.again()))
            }
            Ok(Err(_)) => Err(LedgerError::Closed),
            Err(_late) => Err(LedgerError::Behind(PATIENCE.as_secs())),
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("strict", &self.strict).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, row: Row) {
        let wakes = queue.rows.is_empty() || queue.urgent || queue.rows.len() == BATCH;
        queue.rows.push_back(row);
        drop(queue);
        if wakes {
            self.wake.notify_one();
        }
    }
}

struct Writer {
    shared: Arc<Shared>,
    options: Options,
    connection: Connection,
    lock: File,
    author: Author,
    seal: Arc<dyn Seal>,
    pruned: Option<Instant>,
}

impl Writer {
    fn run(&mut self) {
        while let Some(rows) = self.gather() {
            if !self.write(&rows) {
                return;
            }
            self.prune_now_and_then();
        }
    }

    /// Waits for rows and takes them. None: there are none and none will come.
    fn gather(&self) -> Option<Vec<Row>> {
        let mut queue = self.shared.lock();
        while queue.rows.is_empty() {
            if queue.closed {
                return None;
            }
            queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + GATHER;
        while !queue.urgent && !queue.closed && queue.rows.len() < BATCH {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.wake.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.urgent = false;
        let count = queue.rows.len().min(BATCH);
        queue.taken = count;
        Some(queue.rows.drain(..count).collect())
    }

    /// Writes rows, however often it takes. False: the process ends, and they are not written. Nothing that comes
    /// after them may be: there would be a gap.
    fn write(&mut self, rows: &[Row]) -> bool {
        let mut said = false;
        loop {
            match self.attempt(rows) {
                Ok(committed) => {
                    if said {
                        tracing::info!("the ledger is written again");
                    }
                    self.shared.lock().taken = 0;
                    self.shared.progress.send_modify(|progress| {
                        (progress.committed, progress.failed) = (committed, None);
                    });
                    self.shared.room.notify_waiters();
                    return true;
                }
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(
                            error,
                            "calls cannot be written into the ledger; they wait in memory"
                        );
                    }
                    let failed = Some(Arc::new(error));
                    self.shared.progress.send_modify(|progress| {
                        progress.failed = failed;
                        progress.attempts += 1;
                    });
                    if self.shared.lock().closed {
                        return false;
                    }
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    fn attempt(&mut self, rows: &[Row]) -> Result<u64, LedgerError> {
        let _held = Held::take(&self.lock)?;
        self.options.place.prepare(&mut self.connection)?;
        let written = batch::write(&mut self.connection, &self.author, rows, &*self.seal);
        written.map_err(|error| LedgerError::from_sqlite("written", &self.options.place.file, &error))
    }

    fn prune_now_and_then(&mut self) {
        if self.pruned.is_some_and(|at| at.elapsed() < PRUNE) {
            return;
        }
        self.pruned = Some(Instant::now());
        let pruned = Held::take(&self.lock).and_then(|_held| {
            let pruned =
                prune::prune(&mut self.connection, &self.options.retention, batch::now(), &*self.seal);
            pruned.map_err(|error| LedgerError::from_sqlite("pruned", &self.options.place.file, &error))
        });
        match pruned {
            Ok(0) => {}
            Ok(batches) => tracing::info!(batches, "old calls were removed from the ledger"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "old calls could not be removed from the ledger");
            }
        }
    }
}

/// The lock file, held. It is free again when this is gone, or the process is.
pub(crate) struct Held<'a>(&'a File);

impl<'a> Held<'a> {
    pub(crate) fn take(file: &'a File) -> Result<Self, LedgerError> {
        file.lock().map_err(|error| LedgerError::Failed { what: "locked", reason: error.to_string() })?;
        Ok(Self(file))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Where this fails the file is closed, and the lock with it.
        let _gone = self.0.unlock();
    }
}
