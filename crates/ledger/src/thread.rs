//! The thread that opens the file and writes to it, however often it takes.
//!
//! ```text
//! open ─→ gather ─→ lock file ─ is it still that file? ─ transaction ─→ committed ─→ a piece of what is too old
//!  ↑ ↓      ↑ ↓
//! failed   failed: said once, tried again; rows wait
//! ```

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::batch::{self, Author};
use crate::file::{Inode, LedgerError};
use crate::lock::{Held, Lock};
use crate::prune::{self, Piece};
use crate::queue::{Row, Shared};
use crate::seal::Seal;
use crate::writer::Options;

/// How long rows gather. A call that waits for its row does not wait for this.
const GATHER: Duration = Duration::from_millis(50);
/// How soon what failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// … and where somebody waits for it.
const RETRY_SOON: Duration = Duration::from_millis(50);
/// How often old rows are looked for.
const PRUNE: Duration = Duration::from_mins(5);
/// Between two pieces of them: whoever waits for the lock needs a moment to take it.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Writer {
    shared: Arc<Shared>,
    options: Options,
    seal: Arc<dyn Seal>,
    author: Option<Author>,
    lock: Option<Lock>,
    open: Option<Open>,
    /// When old rows are looked for next, and up to which batch they go.
    prune_at: Instant,
    prune_goal: Option<i64>,
    /// What the log was told last.
    said: Option<String>,
}

/// A file that is open, and which one it is: somebody may move it away.
struct Open {
    connection: Connection,
    file: Inode,
    wal: Option<Inode>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, options: Options, seal: Arc<dyn Seal>) -> Self {
        Self {
            shared,
            options,
            seal,
            author: None,
            lock: None,
            open: None,
            prune_at: Instant::now(),
            prune_goal: None,
            said: None,
        }
    }

    pub(crate) fn run(&mut self) {
        // There is nothing to write yet, and it is known early whether there will be a place for it.
        if !self.write(&[]) {
            return;
        }
        while let Some(rows) = self.gather() {
            if !rows.is_empty() && !self.write(&rows) {
                return;
            }
            self.prune_now_and_then();
        }
    }

    /// Waits for rows and takes them. Empty: it is time to look for old ones. None: there are none and none will come.
    fn gather(&self) -> Option<Vec<Row>> {
        let mut queue = self.shared.lock();
        while queue.is_empty() {
            if queue.closing.is_some() {
                return None;
            }
            let wake = &self.shared.wake;
            // A process that has written nothing leaves what is old to others.
            let prunes = self.options.retention.is_some() && self.author.is_some();
            let left = self.prune_at.saturating_duration_since(Instant::now());
            queue = if !prunes {
                wake.wait(queue).unwrap_or_else(PoisonError::into_inner)
            } else if left.is_zero() {
                return Some(Vec::new());
            } else {
                wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
            };
        }
        let until = Instant::now() + GATHER;
        while !queue.urgent && queue.closing.is_none() && !queue.has_a_batch() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.wake.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.urgent = false;
        Some(queue.take())
    }

    /// Opens the file and writes rows, however often it takes. False: the process ends, and they are not written.
    /// Nothing that comes after them may be: there would be a gap.
    fn write(&mut self, rows: &[Row]) -> bool {
        loop {
            if self.nothing_left(rows) {
                return false;
            }
            match self.attempt(rows) {
                Ok(committed) => {
                    if self.said.take().is_some() {
                        tracing::info!("the ledger is written again");
                    }
                    self.shared.lock().written();
                    self.shared.progress.send_modify(|progress| {
                        (progress.opened, progress.failed) = (true, None);
                        progress.committed = committed.unwrap_or(progress.committed);
                    });
                    self.shared.room.notify_waiters();
                    return true;
                }
                Err(error) => {
                    self.say(&error);
                    if matches!(error, LedgerError::Damaged { .. }) {
                        // What is known of it may be of no use once somebody has mended it.
                        self.open = None;
                    }
                    self.shared.progress.send_modify(|progress| progress.failed = Some(Arc::new(error)));
                    if !self.wait_to_retry() {
                        return false;
                    }
                }
            }
        }
    }

    /// The process ends before anything was to be written.
    fn nothing_left(&self, rows: &[Row]) -> bool {
        let queue = self.shared.lock();
        rows.is_empty() && queue.closing.is_some() && queue.is_empty()
    }

    /// Each reason once: it is tried twice a second.
    fn say(&mut self, error: &LedgerError) {
        let text = error.to_string();
        if self.said.as_ref() != Some(&text) {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "calls cannot be written into the ledger; they wait in memory");
            self.said = Some(text);
        }
    }

    /// False: the process ends, and its patience with it.
    fn wait_to_retry(&self) -> bool {
        let failed = Instant::now();
        let mut queue = self.shared.lock();
        queue.urgent = false;
        loop {
            let now = Instant::now();
            if queue.closing.is_some_and(|until| now >= until) {
                return false;
            }
            let soon = queue.urgent || queue.closing.is_some();
            let next = failed + if soon { RETRY_SOON } else { RETRY };
            if now >= next {
                return true;
            }
            let waited = self.shared.wake.wait_timeout(queue, next - now);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn attempt(&mut self, rows: &[Row]) -> Result<Option<u64>, LedgerError> {
        let _held = self.hold()?;
        let open = opened(&mut self.open, &self.options)?;
        let place = &self.options.place;
        place.prepare(&mut open.connection)?;
        if rows.is_empty() {
            return Ok(None);
        }
        let author = match &mut self.author {
            Some(author) => author,
            none => none.insert(Author::new(self.options.kind)?),
        };
        self.seal.ready().map_err(|reason| LedgerError::Failed { what: "signed", reason })?;
        let written = batch::write(&mut open.connection, author, rows, &*self.seal)
            .map_err(|error| LedgerError::from_sqlite("written", &place.file, &error))?;
        open.wal = Inode::of(&place.beside("-wal"));
        Ok(Some(written))
    }

    /// Waits for the lock. Others see that it does.
    fn hold(&mut self) -> Result<Held, LedgerError> {
        let path = &self.options.place.lock;
        loop {
            let lock = match self.lock.take() {
                Some(lock) => lock,
                None => Lock::open(path)?,
            };
            let held = if let Some(held) = lock.try_hold()? {
                held
            } else {
                self.shared.waits_for_lock(Some(Instant::now()));
                let held = lock.hold();
                self.shared.waits_for_lock(None);
                held?
            };
            // A lock that others do not find keeps nobody out.
            if lock.is_at(path) {
                self.lock = Some(lock);
                return Ok(held);
            }
        }
    }

    /// One piece: rows that have come meanwhile, and other processes, are not to wait for all of it.
    fn prune_now_and_then(&mut self) {
        if !self.options.retention.is_some()
            || Instant::now() < self.prune_at
            || self.shared.lock().closing.is_some()
        {
            return;
        }
        match self.prune() {
            Ok(Piece { more: true, .. }) => {
                self.prune_at = Instant::now() + PAUSE;
                return;
            }
            Ok(Piece { removed: 0, .. }) => {}
            Ok(Piece { .. }) => tracing::info!("old calls were removed from the ledger"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "old calls could not be removed from the ledger");
            }
        }
        self.prune_goal = None;
        self.prune_at = Instant::now() + PRUNE;
    }

    fn prune(&mut self) -> Result<Piece, LedgerError> {
        let file = self.options.place.file.clone();
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("pruned", &file, &error);
        let now = batch::now();
        let goal = match (self.prune_goal, &self.open) {
            (Some(goal), _) => goal,
            // Others may write while this looks.
            (None, Some(open)) => {
                prune::goal(&open.connection, &self.options.retention, now).map_err(fail)?
            }
            (None, None) => return Ok(Piece::default()),
        };
        self.prune_goal = Some(goal);
        let _held = self.hold()?;
        let open = opened(&mut self.open, &self.options)?;
        prune::piece(&mut open.connection, goal, now, &*self.seal).map_err(fail)
    }
}

/// The file that is at its place now. What is written into one that was moved or removed is seen by nobody. To be
/// called under the lock.
fn opened<'a>(open: &'a mut Option<Open>, options: &Options) -> Result<&'a mut Open, LedgerError> {
    let place = &options.place;
    let there = Inode::of(&place.file);
    let mut leftover = None;
    if let Some(Open { connection, wal, .. }) = open.take_if(|open| Some(open.file) != there) {
        tracing::warn!(
            file = %place.file.display(),
            "the ledger was moved, removed or replaced while it was open; what comes is written to what is there now"
        );
        drop(connection);
        leftover = wal;
    }
    match open {
        Some(open) => Ok(open),
        none => {
            let (connection, file) = place.open(options.strict, leftover)?;
            Ok(none.insert(Open { connection, file, wal: None }))
        }
    }
}
