//! Connections: one that writes, a few that read.
//!
//! # Synchronization
//!
//! The writer's connection is taken out of its slot for a transaction and put back when that has ended well. Whoever fails
//! or goes away in between drops it, with whatever was open on it: its thread finishes the statement it is in, rolls back
//! and closes. The next one opens another and waits for that at the file's own lock. So there is no transaction of one
//! caller that another could find itself in, and none that `SQLite` has ended while we count it as open, as it does when
//! the disk is full.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::ports::store::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};

use crate::error::while_doing;
use crate::mark::Mark;
use crate::open::{OpenError, Place};
use crate::rows::unsigned;

/// How long a statement waits for other processes, and for a connection that was dropped to close.
const BUSY: Duration = Duration::from_secs(5);
/// Reads at once. They take microseconds; each connection is a thread.
const READERS: usize = 4;
/// The log is cut back to this after it has been brought into the file.
const LOG_BYTES: &str = "4194304";

/// Sessions, runs and artifacts in a `SQLite` file.
#[derive(Debug)]
pub struct SqliteStore {
    writing: SqliteConnectOptions,
    writer: tokio::sync::Mutex<Slot>,
    mark: Mark,
    reading: SqliteConnectOptions,
    readers: Mutex<Vec<SqliteConnection>>,
    permits: Semaphore,
}

#[derive(Debug)]
enum Slot {
    There(SqliteConnection),
    /// In use, or dropped by whoever used it.
    Taken,
    Closed,
}

/// For those who write. Not to make a file: others could read it then.
pub(crate) fn writing(file: &Path) -> SqliteConnectOptions {
    reading(file).read_only(false).pragma("journal_size_limit", LOG_BYTES).pragma("synchronous", "FULL")
}

pub(crate) fn reading(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .read_only(true)
        .busy_timeout(BUSY)
        .thread_name(|number| format!("store-{number}"))
        .disable_statement_logging()
}

impl SqliteStore {
    /// Makes the file where there never was one.
    pub async fn open(place: &Place) -> Result<Self, OpenError> {
        let (connection, mark) = place.prepare().await?;
        Ok(Self {
            writing: writing(&place.file),
            writer: tokio::sync::Mutex::new(Slot::There(connection)),
            mark,
            reading: reading(&place.file),
            readers: Mutex::default(),
            permits: Semaphore::new(READERS),
        })
    }

    /// Waits for what is being done and brings the log into the file. What comes later is refused. Whoever does not call
    /// this loses nothing.
    pub async fn close(&self) {
        self.permits.close();
        let readers = std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in readers {
            let _nothing_to_do_about_it = connection.close().await;
        }
        let mut slot = self.writer.lock().await;
        if let Slot::There(mut connection) = std::mem::replace(&mut *slot, Slot::Closed) {
            let checkpoint = sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await;
            let _left_in_the_log = checkpoint;
            let _nothing_to_do_about_it = connection.close().await;
        }
    }

    /// A transaction that writes. The next one waits until it has ended.
    pub(crate) async fn begin(&self, doing: &'static str) -> Result<Transaction<'_>, StoreError> {
        let fail = while_doing(doing);
        let mut slot = self.writer.lock().await;
        let mut connection = match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::There(connection) => connection,
            Slot::Taken => self.writing.connect().await.map_err(fail)?,
            Slot::Closed => {
                *slot = Slot::Closed;
                return Err(StoreError::Closed);
            }
        };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.map_err(fail)?;
        Ok(Transaction { connection, slot, mark: &self.mark, doing })
    }

    /// A connection to read on; what is read in one method is of one moment.
    pub(crate) async fn read(&self, doing: &'static str) -> Result<Reader<'_>, StoreError> {
        let fail = while_doing(doing);
        let permit = self.permits.acquire().await.map_err(|_closed| StoreError::Closed)?;
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.reading.connect().await.map_err(fail)?,
        };
        sqlx::query("BEGIN").execute(&mut connection).await.map_err(fail)?;
        Ok(Reader { connection, store: self, _permit: permit, doing })
    }
}

/// Dropped without [`Self::commit`] or [`Self::nothing`] it has never been.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) connection: SqliteConnection,
    slot: MutexGuard<'a, Slot>,
    mark: &'a Mark,
    doing: &'static str,
}

impl Transaction<'_> {
    /// On the disk when it returns.
    pub(crate) async fn commit<T>(self, outcome: T) -> Result<T, StoreError> {
        let Self { mut connection, mut slot, mark, doing } = self;
        let fail = while_doing(doing);
        let row = sqlx::query("UPDATE commits SET count = count + 1 RETURNING count")
            .fetch_one(&mut connection)
            .await
            .map_err(fail)?;
        let count = unsigned(row.try_get("count").map_err(fail)?).map_err(fail)?;
        sqlx::query("COMMIT").execute(&mut connection).await.map_err(fail)?;
        mark.set(count);
        *slot = Slot::There(connection);
        Ok(outcome)
    }

    /// Nothing was to be written.
    pub(crate) async fn nothing<T>(self, outcome: T) -> Result<T, StoreError> {
        let Self { mut connection, mut slot, mark: _, doing } = self;
        sqlx::query("ROLLBACK").execute(&mut connection).await.map_err(while_doing(doing))?;
        *slot = Slot::There(connection);
        Ok(outcome)
    }
}

#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) connection: SqliteConnection,
    store: &'a SqliteStore,
    _permit: SemaphorePermit<'a>,
    doing: &'static str,
}

impl Reader<'_> {
    pub(crate) async fn done<T>(self, outcome: T) -> Result<T, StoreError> {
        let Self { mut connection, store, _permit, doing } = self;
        sqlx::query("COMMIT").execute(&mut connection).await.map_err(while_doing(doing))?;
        if !store.permits.is_closed() {
            store.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        Ok(outcome)
    }
}
