//! What `SQLite` says, in the words of the port.

use model::ports::store::StoreError;
use sqlx::error::DatabaseError;

/// What went wrong, as far as somebody can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Full,
    Busy,
    Damaged,
    Unwritable,
    Other,
}

/// Result codes: <https://sqlite.org/rescode.html>.
const SQLITE_BUSY: i32 = 5;
const SQLITE_LOCKED: i32 = 6;
const SQLITE_READONLY: i32 = 8;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_FULL: i32 = 13;
const SQLITE_CANTOPEN: i32 = 14;
const SQLITE_CONSTRAINT: i32 = 19;
const SQLITE_NOTADB: i32 = 26;
/// The memory that connections share is a file too, and says it in its own way when it cannot grow.
const SQLITE_IOERR_SHMSIZE: i32 = 4874;

pub(crate) fn kind(error: &sqlx::Error) -> Kind {
    let code = error.as_database_error().and_then(DatabaseError::code).and_then(|code| code.parse().ok());
    let code: i32 = match code {
        Some(SQLITE_IOERR_SHMSIZE) => return Kind::Full,
        // The lower eight bits say what it is, the others more about it.
        Some(code) => code & 0xff,
        None => return if is_decoding(error) { Kind::Damaged } else { Kind::Other },
    };
    match code {
        SQLITE_FULL => Kind::Full,
        SQLITE_BUSY | SQLITE_LOCKED => Kind::Busy,
        // What is written fits all constraints, unless what is there does not.
        SQLITE_CORRUPT | SQLITE_NOTADB | SQLITE_CONSTRAINT => Kind::Damaged,
        SQLITE_READONLY | SQLITE_CANTOPEN => Kind::Unwritable,
        _ => Kind::Other,
    }
}

fn is_decoding(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_)
    )
}

/// For `map_err`: what was being done, in words that follow "while".
pub(crate) fn while_doing(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError + Copy {
    move |error| match kind(&error) {
        Kind::Full => StoreError::StorageFull,
        Kind::Busy => StoreError::Busy,
        Kind::Damaged => StoreError::Damaged { doing, reason: error.to_string() },
        Kind::Unwritable | Kind::Other => StoreError::Failed { doing, source: Box::new(error) },
    }
}
