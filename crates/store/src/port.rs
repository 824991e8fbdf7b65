//! The ports of `model`, by name.

use model::Principal;
use model::ports::store::{
    AdvanceOutcome, CancelOutcome, ClaimOutcome, CreateOutcome, FinishOutcome, Idle, Lease, LeaseOutcome,
    Listed, ListedSession, NewRun, NewSession, Page, Recovery, RunResult, Store, StoreError,
    StoreForScheduler, SubmitOutcome, TakeOver, TerminateOutcome, TerminatedOutcome, Waiting, Written,
};
use model::session::{
    Artifact, CanceledBy, Keep, MessageId, OwnerId, Phase, Run, RunId, Session, SessionId, UnixMillis,
};

use crate::connection::SqliteStore;

impl Store for SqliteStore {
    async fn create_or_reuse(
        &self,
        principal: &Principal,
        wanted: NewSession,
        now: UnixMillis,
    ) -> Result<CreateOutcome, StoreError> {
        self.create_or_reuse_session(principal, wanted, now).await
    }

    async fn session(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Option<Session>, StoreError> {
        self.session_of(principal, session).await
    }

    async fn list_sessions(
        &self,
        principal: &Principal,
        listed: Listed,
        page: Page<SessionId>,
    ) -> Result<Vec<ListedSession>, StoreError> {
        self.sessions_of(principal, listed, page).await
    }

    async fn terminate(
        &self,
        principal: &Principal,
        session: &SessionId,
        keep: Keep,
        now: UnixMillis,
    ) -> Result<TerminateOutcome, StoreError> {
        self.terminate_session(principal, session, keep, now).await
    }

    async fn submit(
        &self,
        principal: &Principal,
        run: NewRun,
        now: UnixMillis,
    ) -> Result<SubmitOutcome, StoreError> {
        self.submit_run(principal, run, now).await
    }

    async fn run(&self, principal: &Principal, run: &RunId) -> Result<Option<Run>, StoreError> {
        self.run_of(principal, run).await
    }

    async fn latest_run(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Option<Run>, StoreError> {
        let page = Page { after: None, limit: 1 };
        Ok(self.runs_of(principal, session, page).await?.pop())
    }

    async fn list_runs(
        &self,
        principal: &Principal,
        session: &SessionId,
        page: Page<u64>,
    ) -> Result<Vec<Run>, StoreError> {
        self.runs_of(principal, session, page).await
    }

    async fn request_cancel(
        &self,
        principal: &Principal,
        run: &RunId,
        by: CanceledBy,
        now: UnixMillis,
    ) -> Result<CancelOutcome, StoreError> {
        self.request_cancel_of(principal, run, by, now).await
    }

    async fn artifacts(
        &self,
        principal: &Principal,
        session: &SessionId,
        run: Option<&RunId>,
    ) -> Result<Vec<(RunId, Artifact)>, StoreError> {
        self.artifacts_of(principal, session, run).await
    }
}

impl StoreForScheduler for SqliteStore {
    async fn enroll(
        &self,
        owner: &OwnerId,
        take_over: TakeOver,
        until: UnixMillis,
    ) -> Result<(), StoreError> {
        self.enroll_owner(owner, take_over, until).await
    }

    async fn heartbeat(&self, owner: &OwnerId, until: UnixMillis) -> Result<Written, StoreError> {
        self.heartbeat_of(owner, until).await
    }

    async fn lease(
        &self,
        session: &SessionId,
        owner: &OwnerId,
        now: UnixMillis,
    ) -> Result<LeaseOutcome, StoreError> {
        self.lease_session(session, owner, now).await
    }

    async fn release(&self, lease: &Lease) -> Result<Written, StoreError> {
        self.release_lease(lease).await
    }

    async fn claim(
        &self,
        lease: &Lease,
        message_id: MessageId,
        now: UnixMillis,
    ) -> Result<ClaimOutcome, StoreError> {
        self.claim_run(lease, message_id, now).await
    }

    async fn advance(&self, lease: &Lease, run: &RunId, phase: Phase) -> Result<AdvanceOutcome, StoreError> {
        self.advance_run(lease, run, phase).await
    }

    async fn finish(
        &self,
        lease: &Lease,
        run: &RunId,
        result: RunResult,
        now: UnixMillis,
    ) -> Result<FinishOutcome, StoreError> {
        self.finish_run(lease, run, result, now).await
    }

    async fn set_agent_session(&self, lease: &Lease, agent_session: &str) -> Result<Written, StoreError> {
        self.set_agent_session_of(lease, agent_session).await
    }

    async fn record_artifacts(
        &self,
        lease: &Lease,
        run: &RunId,
        artifacts: Vec<Artifact>,
    ) -> Result<Written, StoreError> {
        self.record_artifacts_of(lease, run, artifacts).await
    }

    async fn touch(&self, lease: &Lease, now: UnixMillis) -> Result<Written, StoreError> {
        self.touch_session(lease, now).await
    }

    async fn terminated(&self, lease: &Lease, now: UnixMillis) -> Result<TerminatedOutcome, StoreError> {
        self.session_terminated(lease, now).await
    }

    async fn recover(&self, now: UnixMillis) -> Result<Recovery, StoreError> {
        self.unattended(now).await
    }

    async fn waiting(&self, limit: u32) -> Result<Vec<Waiting>, StoreError> {
        self.waiting_sessions(limit).await
    }

    async fn idle(&self, among: &[SessionId], before: UnixMillis) -> Result<Vec<Idle>, StoreError> {
        self.idle_sessions(among, before).await
    }

    async fn known(&self, among: &[SessionId]) -> Result<Vec<Session>, StoreError> {
        self.known_sessions(among).await
    }
}
