//! The ledger as those who make calls see it: a queue, and a thread that empties it.
//!
//! ```text
//! begin, end ─→ queue ─→ thread: lock file ─ transaction: rows, batch, signed head ─ commit ─→ committed
//! ```
//!
//! A call puts its row into the queue and goes on; the thread writes what has gathered for a moment. With `strict` the
//! call waits for the commit. A row leaves the queue when it is committed and not before; while the file cannot be
//! written the queue fills, and then calls wait and are refused. An end is always taken: there is one for each begin.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::file::{LedgerError, Place};
use crate::prune::Retention;
use crate::queue::{Depth, PATIENCE, Progress, Shared};
use crate::row::{Begin, End, Outcome};
use crate::seal::Seal;
use crate::thread::Writer;

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

impl Ledger {
    /// Starts the thread, and fails only where that cannot be. The thread opens the file, and tries again as long as it
    /// cannot: see `ready` and `failure`.
    pub fn open(options: Options, seal: Arc<dyn Seal>) -> Result<Self, LedgerError> {
        let shared = Arc::new(Shared::new(options.place.lock.clone()));
        let strict = options.strict;
        let mut writer = Writer::new(Arc::clone(&shared), options, seal);
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| LedgerError::Failed { what: "started", reason: error.to_string() })?;
        Ok(Self { shared, strict, thread: Mutex::new(Some(thread)) })
    }

    /// Returns when the file was opened, or could not be. It is tried again then.
    pub async fn ready(&self) -> Result<(), LedgerError> {
        self.until(|progress| progress.opened).await
    }

    /// Why the last attempt to open or write failed. None once one has succeeded.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure().map(|error| error.to_string())
    }

    /// Notes that a call is about to go out. With `strict`, it is on the disk when this returns.
    pub async fn begin(&self, begin: Box<Begin>) -> Result<Entry, LedgerError> {
        let entry = match self.put(begin) {
            Ok(entry) => entry,
            Err(begin) => self.put_when_there_is_room(begin).await?,
        };
        if !self.strict {
            return Ok(entry);
        }
        let mut waiting = Waiting { ledger: self, entry: Some(entry) };
        match self.committed(waiting.entry.as_ref()).await {
            Ok(()) => waiting.entry.take().ok_or(LedgerError::Closed),
            Err(error) => {
                // It is in the queue and may be written yet; the call does not go out.
                waiting.end(End::refused("ledger_unavailable"));
                Err(error)
            }
        }
    }

    /// The same at once, where that can be: not with `strict`, and not while the queue is full.
    pub fn begin_at_once(&self, begin: Box<Begin>) -> Result<Entry, Box<Begin>> {
        if self.strict { Err(begin) } else { self.put(begin) }
    }

    /// Notes a call that never goes out: there is nothing to wait for. None: there is no room.
    pub fn note(&self, begin: Box<Begin>) -> Option<Entry> {
        self.put(begin).ok()
    }

    /// Notes how a call ended. Its result is not kept while too much waits: see `Depth::bytes`.
    #[expect(clippy::needless_pass_by_value, reason = "an entry ends once")]
    pub fn end(&self, entry: Entry, end: End) {
        self.shared.put_end(entry.0, Box::new(end));
    }

    pub fn depth(&self) -> Depth {
        self.shared.depth()
    }

    /// Writes what is left, for as long as `patience` allows. False: something is not written.
    pub fn close(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.shared.lock().closing = Some(until);
        self.shared.wake.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return true };
        while !thread.is_finished() {
            if self.shared.lock().idles() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        thread.join().is_ok() && self.depth().waiting == 0
    }

    fn put(&self, begin: Box<Begin>) -> Result<Entry, Box<Begin>> {
        self.shared.put_begin(begin, self.strict).map(Entry)
    }

    async fn put_when_there_is_room(&self, mut begin: Box<Begin>) -> Result<Entry, LedgerError> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let room = self.shared.room.notified();
            if self.shared.lock().closing.is_some() {
                return Err(LedgerError::Closed);
            }
            match self.put(begin) {
                Ok(entry) => return Ok(entry),
                Err(back) => begin = back,
            }
            // It would be refused even if there were room.
            if self.strict
                && let Some(error) = self.shared.failure()
            {
                return Err(error);
            }
            if tokio::time::timeout_at(until, room).await.is_err() {
                return Err(self.shared.late());
            }
        }
    }

    async fn committed(&self, entry: Option<&Entry>) -> Result<(), LedgerError> {
        let Some(Entry(seq)) = entry else { return Err(LedgerError::Closed) };
        self.until(|progress| progress.committed >= *seq).await
    }

    /// Waits for `done`, or for an attempt that failed: it is not waited for another.
    async fn until(&self, done: impl Fn(&Progress) -> bool) -> Result<(), LedgerError> {
        let is_done = done(&self.shared.progress.borrow());
        if !is_done && let Some(error) = self.shared.failure() {
            return Err(error);
        }
        let mut progress = self.shared.progress.subscribe();
        let seen = progress.wait_for(|progress| done(progress) || progress.failed.is_some());
        match tokio::time::timeout(PATIENCE, seen).await {
            Ok(Ok(progress)) if done(&progress) => Ok(()),
            Ok(Ok(progress)) => {
                Err(progress.failed.as_ref().map_or(LedgerError::Closed, |error| error.again()))
            }
            Ok(Err(_)) => Err(LedgerError::Closed),
            Err(_late) => Err(self.shared.late()),
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.shared.lock().closing.get_or_insert_with(Instant::now);
        self.shared.wake.notify_all();
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("strict", &self.strict).finish_non_exhaustive()
    }
}

/// A call that waits for its row. Whoever stops waiting does not make it, and the row that may be written yet has an
/// end that says so.
struct Waiting<'a> {
    ledger: &'a Ledger,
    entry: Option<Entry>,
}

impl Waiting<'_> {
    fn end(&mut self, end: End) {
        if let Some(entry) = self.entry.take() {
            self.ledger.end(entry, end);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.entry.is_some() {
            self.end(End { outcome: Outcome::Canceled, ..End::refused("canceled_before_sent") });
        }
    }
}
