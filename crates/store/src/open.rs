//! Opening: what can be wrong with the file is found before anything is written to it.

use std::fmt::Write as _;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::Digest as _;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use crate::connection::{reading, writing};
use crate::error::{Kind, kind};
use crate::mark::{self, Mark};
use crate::rows::unsigned;

/// In their order. Added to, never edited: files out there have run the old ones.
const MIGRATIONS: [Migration; 3] = [
    Migration { name: "0001_sessions", sql: include_str!("../migrations/0001_sessions.sql") },
    Migration { name: "0002_who_asked", sql: include_str!("../migrations/0002_who_asked.sql") },
    Migration { name: "0003_newest_first", sql: include_str!("../migrations/0003_newest_first.sql") },
];

/// Says whose file it is: "csgn".
const APPLICATION: i64 = 0x6373_676e;

struct Migration {
    name: &'static str,
    sql: &'static str,
}

impl Migration {
    fn hash(&self) -> String {
        let mut text = String::new();
        for byte in sha2::Sha256::digest(self.sql) {
            let _infallible = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Why the store cannot be opened, and what to do about it. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no directory {0} for the sessions: make it, or name another state directory")]
    NoDirectory(PathBuf),
    #[error(
        "the sessions at {path} were written by a newer version (schema {found}, this one knows {known}): use that \
         version, or another state directory", known = MIGRATIONS.len()
    )]
    Newer { path: PathBuf, found: u64 },
    #[error(
        "the sessions at {path} were made by another migration {version} than the one this version has: use the version \
         that made them"
    )]
    OtherMigration { path: PathBuf, version: u64 },
    #[error("{0} is a database of something else: move it away, or name another state directory")]
    Foreign(PathBuf),
    #[error(
        "the sessions at {path} are damaged: {reason}; they are left as they are: put a copy in their place, or move them \
         away, `-wal` and `.mark` with them, to begin anew"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "the sessions at {path} lack {missing} of the {marked} changes that were made to them: their `-wal` was removed, or \
         this is an older copy; put back what is missing, or remove {path}.mark to go on without it"
    )]
    Behind { path: PathBuf, missing: u64, marked: u64 },
    #[error(
        "the sessions at {path} are gone, and what was beside them is not: put them back, or move away all that is named \
         like them to begin anew"
    )]
    Gone { path: PathBuf },
    #[error("there is no space left to open the sessions: make room")]
    StorageFull,
    #[error("{0} is held by another process: `fuser {0}` says by which; end it if it hangs")]
    Locked(PathBuf),
    #[error("{path} cannot be written ({reason}): it must be a file that this user may write to")]
    Unwritable { path: PathBuf, reason: String },
    #[error("the sessions could not be {what}: {reason}")]
    Failed { what: &'static str, reason: String },
}

/// Where the store lies in a state directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub file: PathBuf,
}

impl Place {
    pub fn of(state: &Path) -> Self {
        Self { file: state.join("sessions.db") }
    }

    /// A file beside.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// A connection to a file of this version, and its mark.
    pub(crate) async fn prepare(&self) -> Result<(SqliteConnection, Mark), OpenError> {
        let marked = mark::read(&self.beside(".mark")).map_err(|error| self.from_io("read", &error))?;
        self.make(marked)?;
        self.check(marked).await?;
        let fail = |error: sqlx::Error| self.from_sqlite("opened", &error);
        let mut connection = writing(&self.file).connect().await.map_err(fail)?;
        let mode = sqlx::query("PRAGMA journal_mode = WAL").fetch_one(&mut connection).await.map_err(fail)?;
        let mode: String = mode.try_get(0).map_err(fail)?;
        if !mode.eq_ignore_ascii_case("wal") {
            let reason = format!("its journal is `{mode}` and cannot be a write-ahead log there");
            return Err(OpenError::Failed { what: "opened", reason });
        }
        self.migrate(&mut connection).await?;
        let count = commits(&mut connection).await.map_err(fail)?;
        let mark =
            Mark::make(&self.beside(".mark"), count).map_err(|error| self.from_io("marked", &error))?;
        Ok((connection, mark))
    }

    /// Makes an empty file that is nobody else's to read, where there never was one.
    fn make(&self, marked: Option<u64>) -> Result<(), OpenError> {
        let fail = |error: std::io::Error| self.from_io("made", &error);
        let there = match std::fs::metadata(&self.file) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err(fail(ErrorKind::IsADirectory.into()));
        }
        if there.as_ref().is_some_and(|there| there.len() > 0) {
            return Ok(());
        }
        // SQLite takes an empty file for a new one, and removes a log that lies beside it.
        let log = std::fs::metadata(self.beside("-wal")).is_ok_and(|log| log.len() > 0);
        if log || marked.is_some_and(|marked| marked > 0) {
            return Err(OpenError::Gone { path: self.file.clone() });
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

    /// Looks at what is there, by a connection that can change nothing, not even when it closes.
    async fn check(&self, marked: Option<u64>) -> Result<(), OpenError> {
        let fail = |error: sqlx::Error| self.from_sqlite("read", &error);
        let mut connection = reading(&self.file).connect().await.map_err(fail)?;
        if self.version(&mut connection).await? == 0 {
            // There was something, and it was in the log alone.
            if let Some(marked) = marked.filter(|marked| *marked > 0) {
                return Err(OpenError::Behind { path: self.file.clone(), missing: marked, marked });
            }
        } else {
            self.check_length(&mut connection).await?;
            let found =
                sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut connection).await.map_err(fail)?;
            let found: String = found.try_get(0).map_err(fail)?;
            if found != "ok" {
                return Err(OpenError::Damaged { path: self.file.clone(), reason: found });
            }
            let count = commits(&mut connection).await.map_err(fail)?;
            let marked = marked.unwrap_or(0);
            if count < marked {
                return Err(OpenError::Behind { path: self.file.clone(), missing: marked - count, marked });
            }
        }
        connection.close().await.map_err(fail)
    }

    /// `SQLite` takes what is missing of the last page for zeros. With a log it may be missing, for want of room: it is
    /// in the log.
    async fn check_length(&self, connection: &mut SqliteConnection) -> Result<(), OpenError> {
        let fail = |error: sqlx::Error| self.from_sqlite("read", &error);
        let row = sqlx::query("PRAGMA page_size").fetch_one(connection).await.map_err(fail)?;
        let page = unsigned(row.try_get(0).map_err(fail)?).map_err(fail)?;
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |there| there.len());
        if length(&self.file).is_multiple_of(page.max(1)) || length(&self.beside("-wal")) > 0 {
            return Ok(());
        }
        let reason = "it ends in the middle of a page".to_owned();
        Err(OpenError::Damaged { path: self.file.clone(), reason })
    }

    /// How many migrations the file has run. It is ours, and so are they.
    async fn version(&self, connection: &mut SqliteConnection) -> Result<u64, OpenError> {
        let fail = |error: sqlx::Error| self.from_sqlite("read", &error);
        let row = sqlx::query(
            "SELECT (SELECT user_version FROM pragma_user_version) AS version, \
                    (SELECT application_id FROM pragma_application_id) AS application, \
                    (SELECT count(*) FROM sqlite_schema) AS things",
        )
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
        let number = |name: &str| row.try_get::<i64, _>(name).map_err(fail);
        let (version, application, things) = (number("version")?, number("application")?, number("things")?);
        if (application, version, things) == (0, 0, 0) {
            return Ok(0);
        }
        let path = self.file.clone();
        let version = u64::try_from(version).unwrap_or_default();
        if application != APPLICATION || version == 0 {
            return Err(OpenError::Foreign(path));
        }
        if version > MIGRATIONS.len() as u64 {
            return Err(OpenError::Newer { path, found: version });
        }
        let rows = sqlx::query("SELECT version, hash FROM migrations ORDER BY version")
            .fetch_all(connection)
            .await
            .map_err(fail)?;
        let ours = (1..=version).zip(MIGRATIONS.iter().map(Migration::hash));
        let mut theirs = rows.iter();
        for (version, hash) in ours {
            let same = theirs.next().is_some_and(|row| {
                let found = (row.try_get::<i64, _>("version"), row.try_get::<String, _>("hash"));
                matches!(found, (Ok(number), Ok(found)) if u64::try_from(number) == Ok(version) && found == hash)
            });
            if !same {
                return Err(OpenError::OtherMigration { path, version });
            }
        }
        Ok(version)
    }

    /// Runs what the file has not run yet, all of it or nothing.
    async fn migrate(&self, connection: &mut SqliteConnection) -> Result<(), OpenError> {
        let fail = |error: sqlx::Error| self.from_sqlite("migrated", &error);
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await.map_err(fail)?;
        // Another process may have been first.
        let version = self.version(connection).await?;
        if version == 0 {
            let made = format!(
                "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
                 PRAGMA application_id = {APPLICATION}"
            );
            sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut *connection).await.map_err(fail)?;
        }
        for (number, migration) in
            (1_i64..).zip(&MIGRATIONS).skip(usize::try_from(version).unwrap_or_default())
        {
            sqlx::raw_sql(migration.sql).execute(&mut *connection).await.map_err(fail)?;
            sqlx::query("INSERT INTO migrations (version, name, hash) VALUES (?, ?, ?)")
                .bind(number)
                .bind(migration.name)
                .bind(migration.hash())
                .execute(&mut *connection)
                .await
                .map_err(fail)?;
            let version = format!("PRAGMA user_version = {number}");
            sqlx::raw_sql(AssertSqlSafe(version)).execute(&mut *connection).await.map_err(fail)?;
        }
        sqlx::query("COMMIT").execute(connection).await.map_err(fail)?;
        Ok(())
    }

    #[expect(clippy::wrong_self_convention, reason = "it makes an error of another, about this place")]
    fn from_sqlite(&self, what: &'static str, error: &sqlx::Error) -> OpenError {
        let (path, reason) = (self.file.clone(), error.to_string());
        match kind(error) {
            Kind::Full => OpenError::StorageFull,
            Kind::Busy => OpenError::Locked(path),
            Kind::Damaged => OpenError::Damaged { path, reason },
            Kind::Unwritable => OpenError::Unwritable { path, reason },
            Kind::Other => OpenError::Failed { what, reason },
        }
    }

    #[expect(clippy::wrong_self_convention, reason = "it makes an error of another, about this place")]
    fn from_io(&self, what: &'static str, error: &std::io::Error) -> OpenError {
        let (path, reason, kind) = (self.file.clone(), error.to_string(), error.kind());
        if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            OpenError::StorageFull
        } else if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
            OpenError::NoDirectory(path.parent().unwrap_or(&path).to_owned())
        } else if matches!(
            kind,
            ErrorKind::IsADirectory | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
        ) {
            OpenError::Unwritable { path, reason }
        } else {
            OpenError::Failed { what, reason }
        }
    }
}

async fn commits(connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("SELECT count FROM commits").fetch_one(connection).await?;
    unsigned(row.try_get("count")?)
}
