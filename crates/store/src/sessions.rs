//! Sessions as their principals see them.

use model::Principal;
use model::ports::store::{
    CreateOutcome, ImageChoice, Listed, ListedSession, MOST_LISTED, NewSession, Page, StoreError,
    TerminateOutcome,
};
use model::session::{CanceledBy, Keep, RunId, Session, SessionId, SessionStatus, UnixMillis};
use sqlx::sqlite::SqliteConnection;

use crate::connection::SqliteStore;
use crate::error::while_doing;
use crate::rows;

/// One session of a principal.
pub(crate) async fn find(
    connection: &mut SqliteConnection,
    principal: &Principal,
    session: &SessionId,
) -> Result<Option<Session>, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM sessions WHERE id = ? AND principal = ?")
        .bind(session.as_str())
        .bind(principal.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rows::session).transpose()
}

/// The run of a session that runs.
pub(crate) async fn running(
    connection: &mut SqliteConnection,
    session: &SessionId,
) -> Result<Option<RunId>, sqlx::Error> {
    let row = sqlx::query("SELECT id FROM runs WHERE session = ? AND state = 'running'")
        .bind(session.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(|row| rows::run_id(row, "id")).transpose()
}

impl SqliteStore {
    pub(crate) async fn create_or_reuse_session(
        &self,
        principal: &Principal,
        wanted: NewSession,
        now: UnixMillis,
    ) -> Result<CreateOutcome, StoreError> {
        let doing = "making a session";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        // Nobody else writes until this transaction has ended, so what is not there now is not there when it is made.
        let live =
            sqlx::query("SELECT * FROM sessions WHERE principal = ? AND reuse_key = ? AND status = 'live'")
                .bind(principal.as_str())
                .bind(&wanted.reuse_key)
                .fetch_optional(&mut transaction.connection)
                .await
                .map_err(fail)?;
        if let Some(row) = live {
            let session = rows::session(&row).map_err(fail)?;
            let outcome = match wanted.image {
                ImageChoice::Asked(asked) if asked != session.image => {
                    CreateOutcome::OtherImage { session, asked }
                }
                ImageChoice::Asked(_) | ImageChoice::Default(_) => CreateOutcome::Reused(session),
            };
            return transaction.nothing(outcome).await;
        }
        let NewSession { id, name, reuse_key, image, runtime, settings, workspace, made_by } = wanted;
        let row = sqlx::query(
            "INSERT INTO sessions (id, principal, name, reuse_key, image, runtime, settings, workspace, status, \
                                   created_at, used_at, made_by) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'live', ?9, ?9, ?10) RETURNING *",
        )
        .bind(id.as_str())
        .bind(principal.as_str())
        .bind(name)
        .bind(reuse_key)
        .bind(image.name())
        .bind(runtime)
        .bind(settings)
        .bind(workspace)
        .bind(rows::time(now))
        .bind(made_by)
        .fetch_one(&mut transaction.connection)
        .await
        .map_err(fail)?;
        let session = rows::session(&row).map_err(fail)?;
        transaction.commit(CreateOutcome::Created(session)).await
    }

    pub(crate) async fn session_of(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Option<Session>, StoreError> {
        let doing = "reading a session";
        let mut reader = self.read(doing).await?;
        let found = find(&mut reader.connection, principal, session).await.map_err(while_doing(doing))?;
        reader.done(found).await
    }

    pub(crate) async fn sessions_of(
        &self,
        principal: &Principal,
        listed: Listed,
        page: Page<SessionId>,
    ) -> Result<Vec<ListedSession>, StoreError> {
        let doing = "listing sessions";
        let fail = while_doing(doing);
        let sql = match listed {
            Listed::Live => {
                "SELECT *, (SELECT count(*) FROM runs WHERE session = sessions.id AND state IN ('queued', 'running')) \
                           AS unfinished \
                 FROM sessions WHERE principal = ?1 AND status = 'live' \
                   AND (?2 IS NULL OR (created_at, id) < \
                        (SELECT created_at, id FROM sessions WHERE id = ?2 AND principal = ?1)) \
                 ORDER BY created_at DESC, id DESC LIMIT ?3"
            }
            Listed::All => {
                "SELECT *, (SELECT count(*) FROM runs WHERE session = sessions.id AND state IN ('queued', 'running')) \
                           AS unfinished \
                 FROM sessions WHERE principal = ?1 \
                   AND (?2 IS NULL OR (created_at, id) < \
                        (SELECT created_at, id FROM sessions WHERE id = ?2 AND principal = ?1)) \
                 ORDER BY created_at DESC, id DESC LIMIT ?3"
            }
        };
        let mut reader = self.read(doing).await?;
        let found = sqlx::query(sql)
            .bind(principal.as_str())
            .bind(page.after.as_ref().map(SessionId::as_str))
            .bind(page.limit.min(MOST_LISTED))
            .fetch_all(&mut reader.connection)
            .await
            .map_err(fail)?;
        let listed = |row| {
            Ok(ListedSession { session: rows::session(row)?, unfinished: rows::count(row, "unfinished")? })
        };
        let sessions = found.iter().map(listed).collect::<Result<_, _>>().map_err(fail)?;
        reader.done(sessions).await
    }

    pub(crate) async fn terminate_session(
        &self,
        principal: &Principal,
        session: &SessionId,
        keep: Keep,
        now: UnixMillis,
    ) -> Result<TerminateOutcome, StoreError> {
        let doing = "ending a session";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        let Some(found) = find(connection, principal, session).await.map_err(fail)? else {
            return transaction.nothing(TerminateOutcome::NoSession).await;
        };
        let less = |kept: Keep| (kept, keep) == (Keep::Directories, Keep::Nothing);
        let again = match found.status {
            SessionStatus::Live => false,
            SessionStatus::Terminating { keep, .. } | SessionStatus::Terminated { keep, .. }
                if less(keep) =>
            {
                false
            }
            SessionStatus::Terminating { .. } => true,
            SessionStatus::Terminated { .. } => {
                return transaction.nothing(TerminateOutcome::Terminated(found)).await;
            }
        };
        let running = running(connection, session).await.map_err(fail)?;
        if again {
            return transaction.nothing(TerminateOutcome::Terminating { session: found, running }).await;
        }
        let row = sqlx::query(
            "UPDATE sessions SET status = 'terminating', keep = ?, status_at = ? WHERE id = ? AND principal = ? \
             RETURNING *",
        )
        .bind(keep.as_str())
        .bind(rows::time(now))
        .bind(session.as_str())
        .bind(principal.as_str())
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
        sqlx::query(
            "UPDATE runs SET state = 'canceled', canceled_by = ?1, ended_at = ?2 \
             WHERE session = ?3 AND principal = ?4 AND state = 'queued'",
        )
        .bind(CanceledBy::Termination.as_str())
        .bind(rows::time(now))
        .bind(session.as_str())
        .bind(principal.as_str())
        .execute(&mut *connection)
        .await
        .map_err(fail)?;
        sqlx::query(
            "UPDATE runs SET cancel_requested = ? \
             WHERE session = ? AND principal = ? AND state = 'running' AND cancel_requested IS NULL",
        )
        .bind(CanceledBy::Termination.as_str())
        .bind(session.as_str())
        .bind(principal.as_str())
        .execute(&mut *connection)
        .await
        .map_err(fail)?;
        let session = rows::session(&row).map_err(fail)?;
        transaction.commit(TerminateOutcome::Terminating { session, running }).await
    }
}
