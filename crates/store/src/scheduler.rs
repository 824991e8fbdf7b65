//! Owners, their leases, and what they write under them.
//!
//! An owner is alive until the time in its row; one heartbeat keeps all its sessions. A lease of a session has a number
//! that only grows. Each write under a lease looks first whether the session still has that number: in one transaction, so
//! nobody takes over in between.

use model::ports::store::{
    AdvanceOutcome, ClaimOutcome, FinishOutcome, Idle, Lease, LeaseOutcome, Recovery, RunResult, StoreError,
    TakeOver, TerminatedOutcome, Waiting, Written,
};
use model::session::{
    Ending, MessageId, OwnerId, Phase, Run, RunId, RunState, Session, SessionId, SessionStatus, UnixMillis,
};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::connection::{SqliteStore, Transaction};
use crate::error::while_doing;
use crate::runs::used;
use crate::{rows, sessions};

/// Whether a lease is still the session's.
pub(crate) async fn holds(connection: &mut SqliteConnection, lease: &Lease) -> Result<bool, sqlx::Error> {
    let row = sqlx::query("SELECT 1 FROM sessions WHERE id = ? AND owner = ? AND fence = ?")
        .bind(lease.session.as_str())
        .bind(lease.owner.as_str())
        .bind(rows::signed(lease.fence))
        .fetch_optional(connection)
        .await?;
    Ok(row.is_some())
}

/// A run as an owner sees it.
struct Claimed {
    run: Run,
    /// It is this lease that runs it.
    ours: bool,
}

/// None: it is not a run of this lease's session.
pub(crate) async fn run_under(
    connection: &mut SqliteConnection,
    lease: &Lease,
    run: &RunId,
) -> Result<Option<Run>, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM runs WHERE id = ? AND session = ?")
        .bind(run.as_str())
        .bind(lease.session.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rows::run).transpose()
}

async fn claimed(
    connection: &mut SqliteConnection,
    lease: &Lease,
    run: &RunId,
) -> Result<Option<Claimed>, sqlx::Error> {
    if !holds(connection, lease).await? {
        return Ok(None);
    }
    let row = sqlx::query("SELECT *, fence IS ? AS ours FROM runs WHERE id = ? AND session = ?")
        .bind(rows::signed(lease.fence))
        .bind(run.as_str())
        .bind(lease.session.as_str())
        .fetch_optional(connection)
        .await?;
    let claimed = |row: &SqliteRow| Ok(Claimed { run: rows::run(row)?, ours: row.try_get("ours")? });
    row.as_ref().map(claimed).transpose()
}

impl SqliteStore {
    pub(crate) async fn enroll_owner(
        &self,
        owner: &OwnerId,
        take_over: TakeOver,
        until: UnixMillis,
    ) -> Result<(), StoreError> {
        let doing = "enrolling";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        match take_over {
            TakeOver::Everybody => {
                sqlx::query("DELETE FROM owners").execute(&mut *connection).await.map_err(fail)?;
            }
            TakeOver::Silent => {}
        }
        sqlx::query(
            "INSERT INTO owners (id, until) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET until = excluded.until",
        )
        .bind(owner.as_str())
        .bind(rows::time(until))
        .execute(connection)
        .await
        .map_err(fail)?;
        transaction.commit(()).await
    }

    pub(crate) async fn heartbeat_of(
        &self,
        owner: &OwnerId,
        until: UnixMillis,
    ) -> Result<Written, StoreError> {
        let doing = "showing that this daemon is alive";
        let mut transaction = self.begin(doing).await?;
        let changed = sqlx::query("UPDATE owners SET until = ? WHERE id = ?")
            .bind(rows::time(until))
            .bind(owner.as_str())
            .execute(&mut transaction.connection)
            .await
            .map_err(while_doing(doing))?;
        match changed.rows_affected() {
            0 => transaction.nothing(Written::Fenced).await,
            _ => transaction.commit(Written::Done).await,
        }
    }

    pub(crate) async fn lease_session(
        &self,
        session: &SessionId,
        owner: &OwnerId,
        now: UnixMillis,
    ) -> Result<LeaseOutcome, StoreError> {
        let doing = "leasing a session";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        let alive = sqlx::query("SELECT id FROM owners WHERE until > ? AND id = ?")
            .bind(rows::time(now))
            .bind(owner.as_str())
            .fetch_optional(&mut *connection)
            .await
            .map_err(fail)?;
        if alive.is_none() {
            return transaction.nothing(LeaseOutcome::NotAlive).await;
        }
        let row = sqlx::query(
            "SELECT sessions.*, owners.id AS held FROM sessions \
             LEFT JOIN owners ON owners.id = sessions.owner AND owners.until > ? WHERE sessions.id = ?",
        )
        .bind(rows::time(now))
        .bind(session.as_str())
        .fetch_optional(&mut *connection)
        .await
        .map_err(fail)?;
        let Some(row) = row else { return transaction.nothing(LeaseOutcome::NoSession).await };
        match rows::session(&row).map_err(fail)?.status {
            SessionStatus::Live | SessionStatus::Terminating { .. } => {}
            SessionStatus::Terminated { .. } => return transaction.nothing(LeaseOutcome::Ended).await,
        }
        let held: Option<&str> = row.try_get("held").map_err(fail)?;
        if let Some(other) = held.and_then(|held| OwnerId::parse(held).ok()).filter(|held| held != owner) {
            return transaction.nothing(LeaseOutcome::Held(other)).await;
        }
        let row =
            sqlx::query("UPDATE sessions SET owner = ?, fence = fence + 1 WHERE id = ? RETURNING fence")
                .bind(owner.as_str())
                .bind(session.as_str())
                .fetch_one(connection)
                .await
                .map_err(fail)?;
        let fence = rows::count(&row, "fence").map_err(fail)?;
        let lease = Lease { session: session.clone(), owner: owner.clone(), fence };
        transaction.commit(LeaseOutcome::Leased(lease)).await
    }

    pub(crate) async fn release_lease(&self, lease: &Lease) -> Result<Written, StoreError> {
        let doing = "giving a session back";
        let sql = "UPDATE sessions SET owner = NULL WHERE id = ? AND owner = ? AND fence = ?";
        let query = sqlx::query(sql)
            .bind(lease.session.as_str())
            .bind(lease.owner.as_str())
            .bind(rows::signed(lease.fence));
        let mut transaction = self.begin(doing).await?;
        let changed = query.execute(&mut transaction.connection).await.map_err(while_doing(doing))?;
        written(transaction, changed.rows_affected()).await
    }

    pub(crate) async fn claim_run(
        &self,
        lease: &Lease,
        message_id: MessageId,
        now: UnixMillis,
    ) -> Result<ClaimOutcome, StoreError> {
        let doing = "claiming a run";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        if !holds(connection, lease).await.map_err(fail)? {
            return transaction.nothing(ClaimOutcome::Fenced).await;
        }
        if let Some(running) = sessions::running(connection, &lease.session).await.map_err(fail)? {
            let Some(claimed) = claimed(connection, lease, &running).await.map_err(fail)? else {
                return transaction.nothing(ClaimOutcome::Fenced).await;
            };
            if claimed.ours {
                return transaction.nothing(ClaimOutcome::Busy(claimed.run)).await;
            }
            let row =
                sqlx::query("UPDATE runs SET fence = ?, attempt = attempt + 1 WHERE id = ? RETURNING *")
                    .bind(rows::signed(lease.fence))
                    .bind(running.as_str())
                    .fetch_one(connection)
                    .await
                    .map_err(fail)?;
            let run = rows::run(&row).map_err(fail)?;
            return transaction.commit(ClaimOutcome::Adopted(run)).await;
        }
        let row = sqlx::query(
            "UPDATE runs SET state = 'running', phase = 'starting', attempt = 1, fence = ?1, message_id = ?2, \
                             started_at = ?3 \
             WHERE id = (SELECT id FROM runs WHERE session = ?4 AND state = 'queued' ORDER BY seq LIMIT 1) \
             RETURNING *",
        )
        .bind(rows::signed(lease.fence))
        .bind(message_id.as_str())
        .bind(rows::time(now))
        .bind(lease.session.as_str())
        .fetch_optional(connection)
        .await
        .map_err(fail)?;
        let Some(row) = row else { return transaction.nothing(ClaimOutcome::Nothing).await };
        let run = rows::run(&row).map_err(fail)?;
        transaction.commit(ClaimOutcome::Next(run)).await
    }

    pub(crate) async fn advance_run(
        &self,
        lease: &Lease,
        run: &RunId,
        next: Phase,
    ) -> Result<AdvanceOutcome, StoreError> {
        let doing = "noting how far a run is";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        let Some(Claimed { run: found, ours }) = claimed(connection, lease, run).await.map_err(fail)? else {
            return transaction.nothing(AdvanceOutcome::Fenced).await;
        };
        let RunState::Running { phase, .. } = found.state else {
            return transaction.nothing(AdvanceOutcome::NotRunning(found)).await;
        };
        let outcome = match (ours, phase.may_become(next), next) {
            (false, _, _) => Some(AdvanceOutcome::Fenced),
            (true, false, _) => Some(AdvanceOutcome::OutOfOrder(found)),
            // An answer to whoever canceled says that there will be no prompt, if there was none.
            (true, true, Phase::Prompting | Phase::Starting) if found.cancel_requested.is_some() => {
                Some(AdvanceOutcome::CancelRequested(found))
            }
            (true, true, _) if phase == next => Some(AdvanceOutcome::Advanced(found)),
            (true, true, Phase::Starting | Phase::Prompting | Phase::Finishing) => None,
        };
        if let Some(outcome) = outcome {
            return transaction.nothing(outcome).await;
        }
        let again = i64::from(next == Phase::Starting);
        let row = sqlx::query("UPDATE runs SET phase = ?, attempt = attempt + ? WHERE id = ? RETURNING *")
            .bind(next.as_str())
            .bind(again)
            .bind(run.as_str())
            .fetch_one(connection)
            .await
            .map_err(fail)?;
        let run = rows::run(&row).map_err(fail)?;
        transaction.commit(AdvanceOutcome::Advanced(run)).await
    }

    pub(crate) async fn finish_run(
        &self,
        lease: &Lease,
        run: &RunId,
        result: RunResult,
        now: UnixMillis,
    ) -> Result<FinishOutcome, StoreError> {
        let doing = "ending a run";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        let Some(Claimed { run: found, ours }) = claimed(connection, lease, run).await.map_err(fail)? else {
            return transaction.nothing(FinishOutcome::Fenced).await;
        };
        match (&found.state, ours) {
            (RunState::Queued, _) => return transaction.nothing(FinishOutcome::NotRunning(found)).await,
            (RunState::Ended(_), _) => return transaction.nothing(FinishOutcome::Already(found)).await,
            (RunState::Running { .. }, false) => return transaction.nothing(FinishOutcome::Fenced).await,
            (RunState::Running { .. }, true) => {}
        }
        let row = ended(connection, run, result, now).await.map_err(fail)?;
        let run = rows::run(&row).map_err(fail)?;
        used(connection, &lease.session, now).await.map_err(fail)?;
        transaction.commit(FinishOutcome::Finished(run)).await
    }

    pub(crate) async fn set_agent_session_of(
        &self,
        lease: &Lease,
        agent_session: &str,
    ) -> Result<Written, StoreError> {
        let doing = "noting the agent's session";
        let sql = "UPDATE sessions SET agent_session = ? WHERE id = ? AND owner = ? AND fence = ?";
        let query = sqlx::query(sql)
            .bind(agent_session)
            .bind(lease.session.as_str())
            .bind(lease.owner.as_str())
            .bind(rows::signed(lease.fence));
        let mut transaction = self.begin(doing).await?;
        let changed = query.execute(&mut transaction.connection).await.map_err(while_doing(doing))?;
        written(transaction, changed.rows_affected()).await
    }

    pub(crate) async fn touch_session(&self, lease: &Lease, now: UnixMillis) -> Result<Written, StoreError> {
        let doing = "noting that a session is used";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        if !holds(&mut transaction.connection, lease).await.map_err(fail)? {
            return transaction.nothing(Written::Fenced).await;
        }
        used(&mut transaction.connection, &lease.session, now).await.map_err(fail)?;
        transaction.commit(Written::Done).await
    }

    pub(crate) async fn session_terminated(
        &self,
        lease: &Lease,
        now: UnixMillis,
    ) -> Result<TerminatedOutcome, StoreError> {
        let doing = "noting that a session has ended";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        if !holds(connection, lease).await.map_err(fail)? {
            return transaction.nothing(TerminatedOutcome::Fenced).await;
        }
        if sessions::running(connection, &lease.session).await.map_err(fail)?.is_some() {
            return transaction.nothing(TerminatedOutcome::StillRunning).await;
        }
        let changed = sqlx::query(
            "UPDATE sessions SET status = 'terminated', status_at = ?, owner = NULL \
             WHERE id = ? AND status = 'terminating'",
        )
        .bind(rows::time(now))
        .bind(lease.session.as_str())
        .execute(connection)
        .await
        .map_err(fail)?;
        match changed.rows_affected() {
            0 => transaction.nothing(TerminatedOutcome::NotTerminating).await,
            _ => transaction.commit(TerminatedOutcome::Done).await,
        }
    }

    pub(crate) async fn unattended(&self, now: UnixMillis) -> Result<Recovery, StoreError> {
        let doing = "looking for what nobody sees to";
        let fail = while_doing(doing);
        let mut reader = self.read(doing).await?;
        let running = sqlx::query(
            "SELECT runs.* FROM runs JOIN sessions ON sessions.id = runs.session \
             WHERE runs.state = 'running' \
               AND NOT EXISTS (SELECT 1 FROM owners WHERE owners.id = sessions.owner AND owners.until > ?) \
             ORDER BY runs.started_at, runs.id",
        )
        .bind(rows::time(now))
        .fetch_all(&mut reader.connection)
        .await
        .map_err(fail)?;
        let terminating = sqlx::query(
            "SELECT * FROM sessions WHERE status = 'terminating' \
               AND NOT EXISTS (SELECT 1 FROM owners WHERE owners.id = sessions.owner AND owners.until > ?) \
             ORDER BY id",
        )
        .bind(rows::time(now))
        .fetch_all(&mut reader.connection)
        .await
        .map_err(fail)?;
        let recovery = Recovery {
            running: running.iter().map(rows::run).collect::<Result<_, _>>().map_err(fail)?,
            terminating: terminating.iter().map(rows::session).collect::<Result<_, _>>().map_err(fail)?,
        };
        reader.done(recovery).await
    }

    pub(crate) async fn waiting_sessions(&self, limit: u32) -> Result<Vec<Waiting>, StoreError> {
        let doing = "looking for work";
        let fail = while_doing(doing);
        let mut reader = self.read(doing).await?;
        let found = sqlx::query(
            "SELECT session, principal, min(created_at) AS since FROM runs AS next WHERE state = 'queued' \
               AND NOT EXISTS (SELECT 1 FROM runs WHERE session = next.session AND state = 'running') \
             GROUP BY session, principal ORDER BY since, session LIMIT ?",
        )
        .bind(limit)
        .fetch_all(&mut reader.connection)
        .await
        .map_err(fail)?;
        let waiting = |row: &SqliteRow| {
            Ok(Waiting {
                session: rows::session_id(row, "session")?,
                principal: rows::principal(row)?,
                since: UnixMillis(rows::count(row, "since")?),
            })
        };
        let waiting = found.iter().map(waiting).collect::<Result<_, _>>().map_err(fail)?;
        reader.done(waiting).await
    }

    pub(crate) async fn idle_sessions(
        &self,
        among: &[SessionId],
        before: UnixMillis,
    ) -> Result<Vec<Idle>, StoreError> {
        let doing = "looking for idle sessions";
        let fail = while_doing(doing);
        let mut reader = self.read(doing).await?;
        let mut idle = Vec::new();
        for session in among {
            let row = sqlx::query(
                "SELECT used_at FROM sessions WHERE id = ? AND status = 'live' AND used_at < ? AND NOT EXISTS \
                 (SELECT 1 FROM runs WHERE session = sessions.id AND state IN ('queued', 'running'))",
            )
            .bind(session.as_str())
            .bind(rows::time(before))
            .fetch_optional(&mut reader.connection)
            .await
            .map_err(fail)?;
            if let Some(row) = row {
                let used_at = UnixMillis(rows::count(&row, "used_at").map_err(fail)?);
                idle.push(Idle { session: session.clone(), used_at });
            }
        }
        idle.sort_by(|one, other| (one.used_at, &one.session).cmp(&(other.used_at, &other.session)));
        reader.done(idle).await
    }

    pub(crate) async fn known_sessions(&self, among: &[SessionId]) -> Result<Vec<Session>, StoreError> {
        let doing = "looking sessions up";
        let fail = while_doing(doing);
        let mut reader = self.read(doing).await?;
        let mut known = Vec::new();
        for session in among {
            let row = sqlx::query("SELECT * FROM sessions WHERE id = ?")
                .bind(session.as_str())
                .fetch_optional(&mut reader.connection)
                .await
                .map_err(fail)?;
            known.extend(row.as_ref().map(rows::session).transpose().map_err(fail)?);
        }
        reader.done(known).await
    }
}

/// For updates that change the session's row if the lease holds, and nothing else.
async fn written(transaction: Transaction<'_>, changed: u64) -> Result<Written, StoreError> {
    match changed {
        0 => transaction.nothing(Written::Fenced).await,
        _ => transaction.commit(Written::Done).await,
    }
}

async fn ended(
    connection: &mut SqliteConnection,
    run: &RunId,
    result: RunResult,
    now: UnixMillis,
) -> Result<SqliteRow, sqlx::Error> {
    let RunResult { ending, usage } = result;
    let state = RunState::Ended(ending);
    let state_name = state.as_str();
    let (mut output, mut structured, mut summary) = (None, None, None);
    let (mut code, mut message, mut canceled_by) = (None, None, None);
    match state {
        RunState::Ended(Ending::Completed { final_output, structured_output, result_summary }) => {
            (output, structured, summary) = (Some(final_output), structured_output, Some(result_summary));
        }
        RunState::Ended(Ending::Failed { code: what, message: why }) => {
            (code, message) = (Some(what), Some(why));
        }
        RunState::Ended(Ending::Canceled { by }) => canceled_by = Some(by.as_str()),
        RunState::Queued | RunState::Running { .. } => {}
    }
    sqlx::query(
        "UPDATE runs SET state = ?1, phase = NULL, final_output = ?2, structured_output = ?3, result_summary = ?4, \
                         error_code = ?5, error_message = ?6, canceled_by = ?7, ended_at = ?8, input_tokens = ?9, \
                         output_tokens = ?10, reasoning_tokens = ?11, cache_read_tokens = ?12, \
                         cache_write_tokens = ?13, cost_micros = ?14 \
         WHERE id = ?15 RETURNING *",
    )
    .bind(state_name)
    .bind(output)
    .bind(structured)
    .bind(summary)
    .bind(code)
    .bind(message)
    .bind(canceled_by)
    .bind(rows::time(now))
    .bind(usage.map(|usage| rows::signed(usage.input_tokens)))
    .bind(usage.map(|usage| rows::signed(usage.output_tokens)))
    .bind(usage.map(|usage| rows::signed(usage.reasoning_tokens)))
    .bind(usage.map(|usage| rows::signed(usage.cache_read_tokens)))
    .bind(usage.map(|usage| rows::signed(usage.cache_write_tokens)))
    .bind(usage.map(|usage| rows::signed(usage.cost_micros)))
    .bind(run.as_str())
    .fetch_one(connection)
    .await
}
