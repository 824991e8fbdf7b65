//! The file: one `SQLite` database for all processes that write to a state directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};

/// What this version writes. A file of a newer one is left alone.
const VERSION: i64 = 1;

/// How long a statement waits for others. Writers wait for each other at the lock file, not here.
const BUSY: Duration = Duration::from_secs(5);

/// Columns of a call, in the order in which they are hashed.
pub(crate) const CALL: &str = "at, host, session, thread, parent, run, turn, call, server, tool, method, workspace, \
                               trust, source, digest, size, arguments, spoof";
/// … and of its end.
pub(crate) const END: &str = "of, at, outcome, reason, target, micros, size, result";

const SCHEMA: &str = "
CREATE TABLE writers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, pid INTEGER NOT NULL, life TEXT NOT NULL,
    opened INTEGER NOT NULL
) STRICT;
CREATE TABLE calls (
    writer INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, host TEXT, session TEXT, thread TEXT,
    parent TEXT, run TEXT, turn TEXT, call TEXT NOT NULL, server TEXT NOT NULL, tool TEXT, method TEXT NOT NULL,
    workspace TEXT, trust TEXT NOT NULL, source TEXT, digest BLOB, size INTEGER NOT NULL, arguments TEXT, spoof TEXT,
    mark BLOB NOT NULL, PRIMARY KEY (writer, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE ends (
    writer INTEGER NOT NULL, seq INTEGER NOT NULL, of INTEGER NOT NULL, at INTEGER NOT NULL, outcome TEXT NOT NULL,
    reason TEXT, target TEXT, micros INTEGER NOT NULL, size INTEGER NOT NULL, result TEXT, mark BLOB NOT NULL,
    PRIMARY KEY (writer, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE batches (
    id INTEGER PRIMARY KEY, writer INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    at INTEGER NOT NULL, root BLOB NOT NULL, chain BLOB NOT NULL
) STRICT;
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1), batch INTEGER NOT NULL, chain BLOB NOT NULL, pruned INTEGER NOT NULL,
    pruned_chain BLOB NOT NULL, kid TEXT NOT NULL, signature BLOB NOT NULL
) STRICT;
CREATE INDEX calls_at ON calls (at);
CREATE INDEX calls_session ON calls (session, at) WHERE session IS NOT NULL;
CREATE INDEX calls_thread ON calls (thread, at) WHERE thread IS NOT NULL;
CREATE UNIQUE INDEX ends_of ON ends (writer, of);
CREATE INDEX batches_writer ON batches (writer, last);
";

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("there is no ledger at {0}")]
    Absent(PathBuf),
    #[error("the ledger at {path} was written by a newer version (schema {found}, this one knows {VERSION})")]
    Newer { path: PathBuf, found: i64 },
    #[error(
        "the ledger at {path} is damaged: {reason}; it is left as it is: move it away to begin a new one"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("there is no space left for the ledger")]
    Full,
    #[error("the ledger could not be {what}: {reason}")]
    Failed { what: &'static str, reason: String },
    /// The writer has not caught up for a while.
    #[error("the ledger has not taken a row for {0} s")]
    Behind(u64),
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    /// The same once more: several wait for one answer.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Absent(path) => Self::Absent(path.clone()),
            Self::Newer { path, found } => Self::Newer { path: path.clone(), found: *found },
            Self::Damaged { path, reason } => Self::Damaged { path: path.clone(), reason: reason.clone() },
            Self::Full => Self::Full,
            Self::Failed { what, reason } => Self::Failed { what, reason: reason.clone() },
            Self::Behind(seconds) => Self::Behind(*seconds),
            Self::Closed => Self::Closed,
        }
    }

    pub(crate) fn from_sqlite(what: &'static str, path: &Path, error: &rusqlite::Error) -> Self {
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path: path.to_owned(), reason }
            }
            _ => Self::Failed { what, reason },
        }
    }
}

/// The place of the ledger in a state directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub file: PathBuf,
    /// Writers wait for each other here: the waiting that `SQLite` does is guessing.
    pub lock: PathBuf,
}

impl Place {
    pub fn of(state: &Path) -> Self {
        Self { file: state.join("ledger.db"), lock: state.join("ledger.lock") }
    }

    /// For those who write. Makes it where there is none.
    pub(crate) fn open(&self, strict: bool) -> Result<Connection, LedgerError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("opened", &self.file, &error);
        make_private(&self.file)?;
        let connection = Connection::open_with_flags(&self.file, flags).map_err(fail)?;
        connection.busy_timeout(BUSY).map_err(fail)?;
        self.check(&connection)?;
        // Before anything is in it: later it changes nothing.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(fail)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(fail)?;
        // A commit survives the end of any process. Only `strict` also pays for the loss of power.
        let synchronous = if strict { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", synchronous).map_err(fail)?;
        Ok(connection)
    }

    /// Makes the tables. To be called under the lock.
    pub(crate) fn prepare(&self, connection: &mut Connection) -> Result<(), LedgerError> {
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("prepared", &self.file, &error);
        if self.check(connection)? == VERSION {
            return Ok(());
        }
        let transaction = connection.transaction().map_err(fail)?;
        transaction.execute_batch(SCHEMA).map_err(fail)?;
        transaction.pragma_update(None, "user_version", VERSION).map_err(fail)?;
        transaction.commit().map_err(fail)
    }

    /// For those who read.
    pub fn read(&self) -> Result<Connection, LedgerError> {
        if !self.file.exists() {
            return Err(LedgerError::Absent(self.file.clone()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("opened", &self.file, &error);
        let connection = Connection::open_with_flags(&self.file, flags).map_err(fail)?;
        connection.busy_timeout(BUSY).map_err(fail)?;
        if self.check(&connection)? == 0 {
            return Err(LedgerError::Absent(self.file.clone()));
        }
        Ok(connection)
    }

    /// The version of what is there; 0: nothing.
    fn check(&self, connection: &Connection) -> Result<i64, LedgerError> {
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("read", &self.file, &error);
        let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        if found > VERSION {
            return Err(LedgerError::Newer { path: self.file.clone(), found });
        }
        let foreign = connection
            .query_row("SELECT name FROM sqlite_schema LIMIT 1", [], |row| row.get::<_, String>(0))
            .optional()
            .map_err(fail)?;
        match foreign {
            Some(table) if found == 0 => Err(LedgerError::Damaged {
                path: self.file.clone(),
                reason: format!("it has a table `{table}` and says it has none"),
            }),
            _ => Ok(found),
        }
    }
}

/// Others have no business in it.
fn make_private(file: &Path) -> Result<(), LedgerError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file);
    made.map(drop).map_err(|error| {
        if error.kind() == std::io::ErrorKind::StorageFull {
            LedgerError::Full
        } else {
            LedgerError::Failed { what: "made", reason: error.to_string() }
        }
    })
}
