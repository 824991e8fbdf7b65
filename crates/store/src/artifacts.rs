//! What runs left: an index for lists. The files are opened elsewhere, beneath the session's directories.

use model::Principal;
use model::ports::store::{Lease, MOST_ARTIFACTS, StoreError, Written};
use model::session::{Artifact, RunId, SessionId};

use crate::connection::SqliteStore;
use crate::error::while_doing;
use crate::rows;
use crate::scheduler::{holds, run_under};

impl SqliteStore {
    pub(crate) async fn artifacts_of(
        &self,
        principal: &Principal,
        session: &SessionId,
        run: Option<&RunId>,
    ) -> Result<Vec<(RunId, Artifact)>, StoreError> {
        let doing = "listing artifacts";
        let fail = while_doing(doing);
        let mut reader = self.read(doing).await?;
        let found = sqlx::query(
            "SELECT artifacts.* FROM artifacts JOIN runs ON runs.id = artifacts.run \
             WHERE artifacts.session = ?1 AND artifacts.principal = ?2 AND (?3 IS NULL OR artifacts.run = ?3) \
             ORDER BY runs.seq DESC, artifacts.path LIMIT ?4",
        )
        .bind(session.as_str())
        .bind(principal.as_str())
        .bind(run.map(RunId::as_str))
        .bind(i64::try_from(MOST_ARTIFACTS).unwrap_or(i64::MAX))
        .fetch_all(&mut reader.connection)
        .await
        .map_err(fail)?;
        let artifacts = found.iter().map(rows::artifact).collect::<Result<_, _>>().map_err(fail)?;
        reader.done(artifacts).await
    }

    pub(crate) async fn record_artifacts_of(
        &self,
        lease: &Lease,
        run: &RunId,
        artifacts: Vec<Artifact>,
    ) -> Result<Written, StoreError> {
        let doing = "noting artifacts";
        let fail = while_doing(doing);
        let mut transaction = self.begin(doing).await?;
        let connection = &mut transaction.connection;
        if !holds(connection, lease).await.map_err(fail)? {
            return transaction.nothing(Written::Fenced).await;
        }
        let found = run_under(connection, lease, run).await.map_err(fail)?;
        let Some(run) = found else { return transaction.nothing(Written::Fenced).await };
        sqlx::query("DELETE FROM artifacts WHERE run = ?")
            .bind(run.id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(fail)?;
        for artifact in artifacts.into_iter().take(MOST_ARTIFACTS) {
            let Artifact { path, kind, size, modified } = artifact;
            // A path that was named twice was seen twice: the later look counts.
            sqlx::query(
                "INSERT OR REPLACE INTO artifacts (run, path, session, principal, kind, size, modified) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(run.id.as_str())
            .bind(path)
            .bind(run.session.as_str())
            .bind(run.principal.as_str())
            .bind(kind.as_str())
            .bind(rows::signed(size))
            .bind(rows::time(modified))
            .execute(&mut *connection)
            .await
            .map_err(fail)?;
        }
        transaction.commit(Written::Done).await
    }
}
