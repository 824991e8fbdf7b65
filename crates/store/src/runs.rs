//! Runs as their principals see them. The table is the queue: what is `queued` waits, in the order of `seq`.

use model::Principal;
use model::ports::store::{CancelOutcome, MOST_LISTED, MOST_QUEUED, NewRun, Page, StoreError, SubmitOutcome};
use model::session::{CanceledBy, Run, RunId, RunState, SessionId, SessionStatus, UnixMillis};
use sqlx::sqlite::SqliteConnection;

use crate::connection::SqliteStore;
use crate::error::while_doing;
use crate::{rows, sessions};

async fn find(
    connection: &mut SqliteConnection,
    principal: &Principal,
    run: &RunId,
) -> Result<Option<Run>, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM runs WHERE id = ? AND principal = ?")
        .bind(run.as_str())
        .bind(principal.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rows::run).transpose()
}

/// What was submitted to a session under a key.
async fn submitted(
    connection: &mut SqliteConnection,
    principal: &Principal,
    wanted: &NewRun,
) -> Result<Option<SubmitOutcome>, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM runs WHERE session = ? AND principal = ? AND idempotency_key = ?")
        .bind(wanted.session.as_str())
        .bind(principal.as_str())
        .bind(&wanted.idempotency_key)
        .fetch_optional(connection)
        .await?;
    let Some(run) = row.as_ref().map(rows::run).transpose()? else { return Ok(None) };
    // All that makes a task, so that whatever is added to it has to be thought of here.
    // Who asks is no part of it: the same task may come again by another way.
    let NewRun { id: _, session: _, idempotency_key: _, task, output_schema, model, asked_by: _ } = wanted;
    let same = (task, output_schema, model) == (&run.task, &run.output_schema, &run.model);
    Ok(Some(if same { SubmitOutcome::Same(run) } else { SubmitOutcome::Conflict(run) }))
}

/// None: there is room for one more.
async fn refused(
    connection: &mut SqliteConnection,
    principal: &Principal,
    session: &SessionId,
) -> Result<Option<SubmitOutcome>, sqlx::Error> {
    let Some(session) = sessions::find(connection, principal, session).await? else {
        return Ok(Some(SubmitOutcome::NoSession));
    };
    match session.status {
        SessionStatus::Live => {}
        SessionStatus::Terminating { .. } | SessionStatus::Terminated { .. } => {
            return Ok(Some(SubmitOutcome::Terminated(session)));
        }
    }
    let row = sqlx::query("SELECT count(*) AS queued FROM runs WHERE session = ? AND state = 'queued'")
        .bind(session.id.as_str())
        .fetch_one(connection)
        .await?;
    Ok((rows::count(&row, "queued")? >= MOST_QUEUED).then_some(SubmitOutcome::QueueFull))
}

impl SqliteStore {
    pub(crate) async fn submit_run(
        &self,
        principal: &Principal,
        wanted: NewRun,
        now: UnixMillis,
    ) -> Result<SubmitOutcome, StoreError> {
        let doing = "submitting a task";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        // Before anything that could refuse it: whoever asks again was perhaps told before that it is there.
        if let Some(outcome) = submitted(connection, principal, &wanted).await.map_err(fail)? {
            return transaction.nothing(outcome).await;
        }
        if let Some(outcome) = refused(connection, principal, &wanted.session).await.map_err(fail)? {
            return transaction.nothing(outcome).await;
        }
        let NewRun { id, session, task, idempotency_key, output_schema, model, asked_by } = wanted;
        let row = sqlx::query(
            "INSERT INTO runs (id, session, principal, seq, task, output_schema, model, idempotency_key, state, \
                               created_at, asked_by) \
             VALUES (?1, ?2, ?3, (SELECT coalesce(max(seq), 0) + 1 FROM runs WHERE session = ?2), ?4, ?5, ?6, ?7, \
                     'queued', ?8, ?9) RETURNING *",
        )
        .bind(id.as_str())
        .bind(session.as_str())
        .bind(principal.as_str())
        .bind(task)
        .bind(output_schema)
        .bind(model)
        .bind(idempotency_key)
        .bind(rows::time(now))
        .bind(asked_by)
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
        let run = rows::run(&row).map_err(fail)?;
        used(connection, &session, now).await.map_err(fail)?;
        transaction.commit(SubmitOutcome::Submitted(run)).await
    }

    pub(crate) async fn run_of(&self, principal: &Principal, run: &RunId) -> Result<Option<Run>, StoreError> {
        let doing = "reading a run";
        let mut reader = self.read(doing).await?;
        let found = find(&mut reader.connection, principal, run).await.map_err(while_doing(doing))?;
        reader.done(found).await
    }

    pub(crate) async fn runs_of(
        &self,
        principal: &Principal,
        session: &SessionId,
        page: Page<u64>,
    ) -> Result<Vec<Run>, StoreError> {
        let doing = "listing runs";
        let fail = while_doing(doing);
        let mut reader = self.read(doing).await?;
        let found = sqlx::query(
            "SELECT * FROM runs WHERE session = ? AND principal = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
        )
        .bind(session.as_str())
        .bind(principal.as_str())
        .bind(rows::signed(page.after.unwrap_or(u64::MAX)))
        .bind(page.limit.min(MOST_LISTED))
        .fetch_all(&mut reader.connection)
        .await
        .map_err(fail)?;
        let runs = found.iter().map(rows::run).collect::<Result<_, _>>().map_err(fail)?;
        reader.done(runs).await
    }

    pub(crate) async fn request_cancel_of(
        &self,
        principal: &Principal,
        run: &RunId,
        by: CanceledBy,
        now: UnixMillis,
    ) -> Result<CancelOutcome, StoreError> {
        let doing = "canceling a run";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        let Some(found) = find(connection, principal, run).await.map_err(fail)? else {
            return transaction.nothing(CancelOutcome::NoRun).await;
        };
        match (&found.state, found.cancel_requested) {
            (RunState::Ended(_), _) => return transaction.nothing(CancelOutcome::Ended(found)).await,
            (RunState::Running { .. }, Some(_)) => {
                return transaction.nothing(CancelOutcome::Requested(found)).await;
            }
            (RunState::Queued, _) | (RunState::Running { .. }, None) => {}
        }
        let queued = found.state == RunState::Queued;
        let sql = if queued {
            "UPDATE runs SET state = 'canceled', canceled_by = ?1, ended_at = ?2 WHERE id = ?3 AND principal = ?4 \
             RETURNING *"
        } else {
            "UPDATE runs SET cancel_requested = ?1 WHERE ?2 IS NOT NULL AND id = ?3 AND principal = ?4 RETURNING *"
        };
        let row = sqlx::query(sql)
            .bind(by.as_str())
            .bind(rows::time(now))
            .bind(run.as_str())
            .bind(principal.as_str())
            .fetch_one(connection)
            .await
            .map_err(fail)?;
        let run = rows::run(&row).map_err(fail)?;
        let outcome = if queued { CancelOutcome::Canceled(run) } else { CancelOutcome::Requested(run) };
        transaction.commit(outcome).await
    }
}

/// Notes that a session was used, if that is news.
pub(crate) async fn used(
    connection: &mut SqliteConnection,
    session: &SessionId,
    now: UnixMillis,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE sessions SET used_at = ?1 WHERE id = ?2 AND used_at < ?1")
        .bind(rows::time(now))
        .bind(session.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
