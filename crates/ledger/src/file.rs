//! The file: one `SQLite` database for all processes that write to a state directory.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, ffi};

/// What this version writes. A file of a newer one is left alone.
const VERSION: i64 = 1;

/// How long a statement waits for others. Writers wait for each other at the lock file, not here.
const BUSY: Duration = Duration::from_secs(5);

/// Columns of a call, in the order in which they are hashed.
pub(crate) const CALL: &str = "at, host, session, thread, parent, run, turn, call, server, tool, method, workspace, \
                               trust, source, digest, size, arguments, spoof, trace";
/// … and of its end.
pub(crate) const END: &str = "of, at, outcome, reason, target, micros, size, result";

pub(crate) const SCHEMA: &str = "
CREATE TABLE writers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, pid INTEGER NOT NULL, life TEXT NOT NULL,
    opened INTEGER NOT NULL
) STRICT;
CREATE TABLE calls (
    writer INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, host TEXT, session TEXT, thread TEXT,
    parent TEXT, run TEXT, turn TEXT, call TEXT NOT NULL, server TEXT NOT NULL, tool TEXT, method TEXT NOT NULL,
    workspace TEXT, trust TEXT NOT NULL, source TEXT, digest BLOB, size INTEGER NOT NULL, arguments TEXT, spoof TEXT,
    trace TEXT, mark BLOB NOT NULL, PRIMARY KEY (writer, seq)
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
CREATE INDEX calls_run ON calls (run, at) WHERE run IS NOT NULL;
CREATE UNIQUE INDEX ends_of ON ends (writer, of);
CREATE INDEX batches_writer ON batches (writer, last);
";

/// Why the ledger cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("there is no ledger at {0}")]
    Absent(PathBuf),
    #[error("there is no directory {0} for the ledger: make it, or name another state directory")]
    NoDirectory(PathBuf),
    #[error(
        "the ledger at {path} was written by a newer version (schema {found}, this one knows {VERSION}): use that \
         version, or another state directory"
    )]
    Newer { path: PathBuf, found: i64 },
    #[error(
        "the ledger at {path} is damaged: {reason}; it is left as it is: move it away to begin a new one, with its \
         `-wal` if there is one"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("there is no space left for the ledger: make room")]
    Full,
    #[error("{0} is held by another process: `fuser {0}` says by which; end it if it hangs")]
    Locked(PathBuf),
    #[error("{path} cannot be written ({reason}): it must be a file that this user may write to")]
    Unwritable { path: PathBuf, reason: String },
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
            Self::NoDirectory(path) => Self::NoDirectory(path.clone()),
            Self::Newer { path, found } => Self::Newer { path: path.clone(), found: *found },
            Self::Damaged { path, reason } => Self::Damaged { path: path.clone(), reason: reason.clone() },
            Self::Full => Self::Full,
            Self::Locked(path) => Self::Locked(path.clone()),
            Self::Unwritable { path, reason } => {
                Self::Unwritable { path: path.clone(), reason: reason.clone() }
            }
            Self::Failed { what, reason } => Self::Failed { what, reason: reason.clone() },
            Self::Behind(seconds) => Self::Behind(*seconds),
            Self::Closed => Self::Closed,
        }
    }

    pub(crate) fn from_sqlite(what: &'static str, path: &Path, error: &rusqlite::Error) -> Self {
        let reason = error.to_string();
        let path = path.to_owned();
        // The memory that connections share is a file too, and says it in its own way when it cannot grow.
        let shared = error.sqlite_error().map(|error| error.extended_code) == Some(ffi::SQLITE_IOERR_SHMSIZE);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            _ if shared => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, reason },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(path),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::Unwritable { path, reason },
            _ => Self::Failed { what, reason },
        }
    }

    /// Of a file that was to be made.
    pub(crate) fn from_io(what: &'static str, path: &Path, error: &std::io::Error) -> Self {
        let (reason, kind) = (error.to_string(), error.kind());
        if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            Self::Full
        } else if is_absent(kind) {
            Self::NoDirectory(path.parent().unwrap_or(path).to_owned())
        } else if matches!(
            kind,
            ErrorKind::IsADirectory | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
        ) {
            Self::Unwritable { path: path.to_owned(), reason }
        } else {
            Self::Failed { what, reason }
        }
    }
}

fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode(u64, u64);

impl Inode {
    /// None: there is none. It is not opened for this: to close a file gives back the locks that others of this
    /// process have on it.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for Inode {
    fn from(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// The place of the ledger in a state directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub file: PathBuf,
    /// Writers wait for each other here.
    pub lock: PathBuf,
}

impl Place {
    pub fn of(state: &Path) -> Self {
        Self { file: state.join("ledger.db"), lock: state.join("ledger.lock") }
    }

    /// A file that `SQLite` keeps beside.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// For those who write. Makes it where there is none. To be called under the lock. `leftover`: the journal of
    /// another file that was here.
    pub(crate) fn open(
        &self,
        strict: bool,
        leftover: Option<Inode>,
    ) -> Result<(Connection, Inode), LedgerError> {
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("opened", &self.file, &error);
        let journal_of_another = leftover.is_some() && leftover == Inode::of(&self.beside("-wal"));
        self.make(journal_of_another)?;
        let before = Inode::of(&self.file);
        // Not to be made by this: others could read it.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags).map_err(fail)?;
        let inode = before.filter(|before| Inode::of(&self.file) == Some(*before));
        let inode = inode.ok_or_else(|| LedgerError::Failed {
            what: "opened",
            reason: "it was moved meanwhile".to_owned(),
        })?;
        connection.busy_timeout(BUSY).map_err(fail)?;
        self.check(&connection)?;
        // Before anything is in it: later it changes nothing.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(fail)?;
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(fail)?;
        if !mode.eq_ignore_ascii_case("wal") {
            let reason = format!("its journal is `{mode}` and cannot be a write-ahead log there");
            return Err(LedgerError::Failed { what: "opened", reason });
        }
        // What retention removes is gone, also from pages that are used again.
        connection.pragma_update(None, "secure_delete", true).map_err(fail)?;
        // A commit survives the end of any process. Only `strict` also pays for the loss of power.
        let synchronous = if strict { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", synchronous).map_err(fail)?;
        Ok((connection, inode))
    }

    /// Makes an empty file that is nobody else's to read. What lies beside and belongs to another is set aside:
    /// `SQLite` would take it for its own, or remove it with the rows that are only there.
    fn make(&self, journal_of_another: bool) -> Result<(), LedgerError> {
        let fail = |error: std::io::Error| LedgerError::from_io("made", &self.file, &error);
        let there = std::fs::metadata(&self.file).ok();
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err(fail(ErrorKind::IsADirectory.into()));
        }
        let empty = there.as_ref().is_none_or(|there| there.len() == 0);
        if journal_of_another || empty {
            self.set_aside().map_err(fail)?;
        }
        if there.is_some() {
            return Ok(());
        }
        let made = std::fs::OpenOptions::new().create_new(true).append(true).mode(0o600).open(&self.file);
        match made {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(fail(error)),
        }
    }

    fn set_aside(&self) -> std::io::Result<()> {
        let absent = |error: std::io::Error| if is_absent(error.kind()) { Ok(()) } else { Err(error) };
        for end in ["-wal", "-journal"] {
            let path = self.beside(end);
            let Ok(there) = std::fs::metadata(&path) else { continue };
            if there.len() == 0 {
                std::fs::remove_file(&path).or_else(absent)?;
                continue;
            }
            let aside = self.beside(&format!("{end}.{}", crate::batch::now()));
            std::fs::rename(&path, &aside).or_else(absent)?;
            tracing::warn!(
                file = %aside.display(),
                "the ledger was moved without the rows that are in this file beside it; it is kept under this name"
            );
        }
        std::fs::remove_file(self.beside("-shm")).or_else(absent)
    }

    /// Makes the tables. To be called under the lock.
    pub(crate) fn prepare(&self, connection: &mut Connection) -> Result<(), LedgerError> {
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("prepared", &self.file, &error);
        if self.check(connection)? == VERSION {
            return Ok(());
        }
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        // Whoever has another lock file may have been first.
        if self.check(&transaction)? == VERSION {
            return Ok(());
        }
        transaction.execute_batch(SCHEMA).map_err(fail)?;
        transaction.pragma_update(None, "user_version", VERSION).map_err(fail)?;
        transaction.commit().map_err(fail)
    }

    /// For those who read.
    pub fn read(&self) -> Result<Connection, LedgerError> {
        let there = std::fs::metadata(&self.file);
        let there = there.map_err(|_absent| LedgerError::Absent(self.file.clone()))?;
        if there.is_dir() {
            return Err(LedgerError::Failed { what: "opened", reason: "it is a directory".to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let fail = |error: rusqlite::Error| LedgerError::from_sqlite("opened", &self.file, &error);
        let connection = Connection::open_with_flags(&self.file, flags).map_err(fail)?;
        connection.busy_timeout(BUSY).map_err(fail)?;
        let first = connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
        let unshared = first.is_err_and(|error| {
            matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
        });
        let connection = if unshared && !self.beside("-wal").exists() {
            // Nothing can be made beside it, so nobody writes: it is read as it lies there.
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(immutable(&self.file), flags).map_err(fail)?
        } else {
            connection
        };
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
                reason: format!("it has a table {table:?} and says it has none"),
            }),
            _ => Ok(found),
        }
    }
}

fn immutable(file: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = "file:".to_owned();
    for byte in file.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push((*byte).into());
        } else {
            let _infallible = write!(uri, "%{byte:02x}");
        }
    }
    uri + "?immutable=1"
}
