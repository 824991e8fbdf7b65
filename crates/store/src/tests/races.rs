//! Ends, cancels and owners in any order: a run ends once, and everybody is told the same.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// What those who raced were told of how the run ended, if they were told.
fn told(outcome: &FinishOutcome) -> Option<&Run> {
    match outcome {
        FinishOutcome::Finished(run) | FinishOutcome::Already(run) => Some(run),
        FinishOutcome::NotRunning(_) | FinishOutcome::Fenced => None,
    }
}

/// Lets others go first, some of them.
async fn at_any_moment() {
    for _ in 0..stamp().random[0] % 16 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn of_all_who_end_a_run_at_once_one_does() {
    let rounds = if full_size() { 5_000 } else { 1_000 };
    let state = quick_directory();
    let store = open(state.path()).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let mut how = HashMap::new();
    for round in 0..rounds {
        let session = new_session(&store, &alice()).await;
        let run = submit(&store, &alice(), task(&session, "x")).await.id;
        let lease = lease(&store, &session, &owner).await;
        // Half of them race with the claim, too.
        if round % 2 == 0 {
            next(&store, &lease).await;
        }
        let mut ends = tokio::task::JoinSet::new();
        for result in [completed("x"), failed(), canceled(CanceledBy::Caller)] {
            let (store, lease, run) = (Arc::clone(&store), lease.clone(), run.clone());
            ends.spawn(async move {
                at_any_moment().await;
                claim(&store, &lease).await;
                finish(&store, &lease, &run, result).await
            });
        }
        let mut cancels = tokio::task::JoinSet::new();
        for by in [CanceledBy::Caller, CanceledBy::Daemon] {
            let (store, run) = (Arc::clone(&store), run.clone());
            cancels.spawn(async move {
                at_any_moment().await;
                store.request_cancel(&alice(), &run, by, at(6_000)).await.unwrap()
            });
        }
        let (ends, cancels) = (ends.join_all().await, cancels.join_all().await);
        let run = store.run(&alice(), &run).await.unwrap().unwrap();
        assert!(run.state.is_ended());
        assert!(ends.iter().filter_map(told).all(|told| *told == run), "{ends:?} {run:?}");
        let finished = ends.iter().filter(|end| matches!(end, FinishOutcome::Finished(_))).count();
        let canceled = cancels.iter().filter(|cancel| matches!(cancel, CancelOutcome::Canceled(_))).count();
        assert_eq!(finished + canceled, 1, "{ends:?} {cancels:?}");
        for cancel in &cancels {
            match cancel {
                CancelOutcome::Canceled(told) | CancelOutcome::Ended(told) => assert_eq!(*told, run),
                CancelOutcome::Requested(told) => {
                    assert!(!told.state.is_ended());
                    assert_eq!(told.cancel_requested, run.cancel_requested);
                }
                CancelOutcome::NoRun => panic!("it is there"),
            }
        }
        let queued = canceled == 1;
        *how.entry((run.state.as_str(), queued)).or_insert(0) += 1;
    }
    println!("{how:?}");
    assert_eq!(how.len(), 4, "each was first at some time, a cancel also in the queue: {how:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Submit(usize),
    Lease(usize, usize),
    Release(usize),
    Claim(usize),
    Advance(usize, usize, Phase),
    Finish(usize, usize, u8),
    Cancel(usize),
    Terminate(usize),
    Terminated(usize),
    Enroll(usize, TakeOver),
    Silence(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..64_usize;
    let session = 0..2_usize;
    let phase = prop_oneof![Just(Phase::Starting), Just(Phase::Prompting), Just(Phase::Finishing)];
    prop_oneof![
        4 => session.clone().prop_map(Step::Submit),
        4 => (session.clone(), session.clone()).prop_map(|(session, owner)| Step::Lease(session, owner)),
        1 => any.clone().prop_map(Step::Release),
        6 => any.clone().prop_map(Step::Claim),
        6 => (any.clone(), any.clone(), phase).prop_map(|(lease, run, phase)| Step::Advance(lease, run, phase)),
        6 => (any.clone(), any.clone(), 0..3_u8).prop_map(|(lease, run, how)| Step::Finish(lease, run, how)),
        3 => any.clone().prop_map(Step::Cancel),
        1 => session.clone().prop_map(Step::Terminate),
        1 => any.prop_map(Step::Terminated),
        1 => (session.clone(), prop_oneof![Just(TakeOver::Everybody), Just(TakeOver::Silent)])
            .prop_map(|(owner, take_over)| Step::Enroll(owner, take_over)),
        1 => session.prop_map(Step::Silence),
        1 => Just(Step::Restart),
    ]
}

/// What was done so far, and by whom.
struct World {
    state: tempfile::TempDir,
    store: Arc<SqliteStore>,
    sessions: Vec<SessionId>,
    owners: Vec<OwnerId>,
    leases: Vec<Lease>,
    runs: Vec<RunId>,
    /// As they were after the step before.
    before: HashMap<RunId, Run>,
}

impl World {
    async fn new() -> Self {
        let state = quick_directory();
        let store = open(state.path()).await;
        let sessions = vec![new_session(&store, &alice()).await, new_session(&store, &alice()).await];
        let owners = vec![owner(&store, TakeOver::Silent).await, owner(&store, TakeOver::Silent).await];
        Self { state, store, sessions, owners, leases: Vec::new(), runs: Vec::new(), before: HashMap::new() }
    }

    fn lease(&self, number: usize) -> Option<&Lease> {
        // Mostly of the last few, so that some are good.
        self.leases.iter().rev().nth(number % self.leases.len().clamp(1, 4))
    }

    fn run(&self, number: usize) -> Option<&RunId> {
        self.runs.get(number % self.runs.len().max(1))
    }

    async fn take(&mut self, step: Step) {
        let store = Arc::clone(&self.store);
        match step {
            Step::Submit(session) => {
                let outcome =
                    store.submit(&alice(), task(&self.sessions[session], "x"), at(1)).await.unwrap();
                if let SubmitOutcome::Submitted(run) = outcome {
                    self.runs.push(run.id);
                }
            }
            Step::Lease(session, owner) => {
                let outcome =
                    store.lease(&self.sessions[session], &self.owners[owner], at(10)).await.unwrap();
                if let LeaseOutcome::Leased(lease) = outcome {
                    let same = self.leases.iter().filter(|other| other.session == lease.session);
                    assert!(same.map(|other| other.fence).all(|fence| fence < lease.fence));
                    self.leases.push(lease);
                }
            }
            Step::Release(lease) => {
                let Some(lease) = self.lease(lease) else { return };
                store.release(lease).await.unwrap();
            }
            Step::Claim(lease) => {
                let Some(lease) = self.lease(lease) else { return };
                claim(&store, lease).await;
            }
            Step::Advance(lease, run, phase) => {
                let (Some(lease), Some(run)) = (self.lease(lease), self.run(run)) else { return };
                store.advance(lease, run, phase).await.unwrap();
            }
            Step::Finish(lease, run, how) => {
                let (Some(lease), Some(run)) = (self.lease(lease), self.run(run)) else { return };
                let result =
                    [completed("x"), failed(), canceled(CanceledBy::Daemon)][usize::from(how)].clone();
                let newest = self.leases.iter().rfind(|other| other.session == lease.session);
                let stale = newest != Some(lease);
                let outcome = finish(&store, lease, run, result).await;
                assert!(!stale || outcome == FinishOutcome::Fenced, "{outcome:?}");
            }
            Step::Cancel(run) => {
                let Some(run) = self.run(run) else { return };
                store.request_cancel(&alice(), run, CanceledBy::Caller, at(6_000)).await.unwrap();
            }
            Step::Terminate(session) => {
                store.terminate(&alice(), &self.sessions[session], Keep::Nothing, at(7_000)).await.unwrap();
            }
            Step::Terminated(lease) => {
                let Some(lease) = self.lease(lease) else { return };
                store.terminated(lease, at(8_000)).await.unwrap();
            }
            Step::Enroll(owner, take_over) => {
                store.enroll(&self.owners[owner], take_over, at(1_000_000)).await.unwrap();
            }
            Step::Silence(owner) => {
                store.heartbeat(&self.owners[owner], at(0)).await.unwrap();
            }
            Step::Restart => {
                self.store.close().await;
                self.store = open(self.state.path()).await;
            }
        }
    }

    /// What holds whatever was done.
    async fn check(&mut self) {
        for session in &self.sessions {
            let page = Page { after: None, limit: 1_000 };
            let mut runs = self.store.list_runs(&alice(), session, page).await.unwrap();
            runs.reverse();
            assert!(runs.iter().map(|run| run.seq).eq(1..=runs.len() as u64));
            let running = |run: &&Run| matches!(run.state, RunState::Running { .. });
            assert!(runs.iter().filter(running).count() <= 1, "{runs:?}");
            let began = runs.iter().rposition(|run| run.started_at.is_some()).unwrap_or(0);
            let waits = |run: &Run| run.state == RunState::Queued;
            assert!(
                !runs[..began.min(runs.len())].iter().any(waits),
                "one that came later went first: {runs:?}"
            );
            for run in runs {
                if let Some(before) = self.before.get(&run.id) {
                    assert!(!before.state.is_ended() || *before == run, "it ended twice: {before:?} {run:?}");
                    assert!(before.message_id.is_none() || before.message_id == run.message_id);
                    assert!(
                        before.cancel_requested.is_none() || before.cancel_requested == run.cancel_requested
                    );
                    let back = before.state != RunState::Queued && run.state == RunState::Queued;
                    assert!(!back, "it went back into the queue: {run:?}");
                }
                self.before.insert(run.id.clone(), run);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if full_size() { 1_000 } else { 60 }, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn whatever_is_done_in_whatever_order(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in steps {
                world.take(step).await;
                world.check().await;
            }
        });
    }
}
