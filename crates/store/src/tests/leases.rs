//! One owner per session, and what is left of one that is gone.

use std::fmt::Write as _;

use super::*;

#[tokio::test]
async fn of_many_that_want_a_session_one_gets_it() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let owner = owner(&store, TakeOver::Silent).await;
        let (store, session) = (Arc::clone(&store), session.clone());
        tasks.spawn(async move { store.lease(&session, &owner, at(3_000)).await.unwrap() });
    }
    let outcomes = tasks.join_all().await;
    let leased: Vec<&Lease> = outcomes
        .iter()
        .filter_map(|outcome| if let LeaseOutcome::Leased(lease) = outcome { Some(lease) } else { None })
        .collect();
    assert_eq!(leased.len(), 1);
    let held = LeaseOutcome::Held(leased[0].owner.clone());
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == held).count(), 19);
}

#[tokio::test]
async fn a_lease_needs_an_owner_that_is_alive_and_a_session_that_is_there() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let stranger = OwnerId::new(stamp());
    let not_alive = Ok(LeaseOutcome::NotAlive);
    assert_eq!(store.lease(&session, &stranger, at(1)).await.map_err(drop), not_alive);
    assert_eq!(store.heartbeat(&stranger, at(10)).await.unwrap(), Written::Fenced);
    store.enroll(&stranger, TakeOver::Silent, at(10)).await.unwrap();
    assert_eq!(store.lease(&session, &stranger, at(10)).await.map_err(drop), not_alive);
    assert_eq!(store.heartbeat(&stranger, at(11)).await.unwrap(), Written::Done);
    assert!(matches!(store.lease(&session, &stranger, at(10)).await, Ok(LeaseOutcome::Leased(_))));
    let nowhere = SessionId::new(stamp());
    assert_eq!(store.lease(&nowhere, &stranger, at(10)).await.unwrap(), LeaseOutcome::NoSession);
}

/// Every write under a lease that another has now, and what it says.
async fn all_fenced(store: &SqliteStore, lease: &Lease, run: &RunId) {
    let before = dump(store).await;
    assert_eq!(claim(store, lease).await, ClaimOutcome::Fenced);
    for phase in Phase::ALL {
        assert_eq!(store.advance(lease, run, phase).await.unwrap(), AdvanceOutcome::Fenced);
    }
    assert_eq!(finish(store, lease, run, completed("stale")).await, FinishOutcome::Fenced);
    assert_eq!(store.set_agent_session(lease, "ses_stale").await.unwrap(), Written::Fenced);
    assert_eq!(store.record_artifacts(lease, run, Vec::new()).await.unwrap(), Written::Fenced);
    assert_eq!(store.touch(lease, at(99_999)).await.unwrap(), Written::Fenced);
    assert_eq!(store.terminated(lease, at(99_999)).await.unwrap(), TerminatedOutcome::Fenced);
    assert_eq!(store.release(lease).await.unwrap(), Written::Fenced);
    assert_eq!(dump(store).await, before, "nothing is changed by somebody who has no say any more");
}

/// All that a principal sees.
pub(super) async fn dump(store: &SqliteStore) -> String {
    let mut text = String::new();
    for row in store.list_sessions(&alice(), Listed::All, Page::default()).await.unwrap() {
        let runs = store.list_runs(&alice(), &row.session.id, Page::default()).await.unwrap();
        let artifacts = store.artifacts(&alice(), &row.session.id, None).await.unwrap();
        write!(text, "{row:#?}\n{runs:#?}\n{artifacts:#?}\n").unwrap();
    }
    text
}

#[tokio::test]
async fn an_owner_that_was_silent_writes_nothing_after_another_took_over() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    submit(&store, &alice(), task(&session, "one")).await;
    let first = OwnerId::new(stamp());
    store.enroll(&first, TakeOver::Silent, at(3_500)).await.unwrap();
    let stale = lease(&store, &session, &first).await;
    let run = next(&store, &stale).await;
    store.advance(&stale, &run.id, Phase::Prompting).await.unwrap();
    let second = owner(&store, TakeOver::Silent).await;
    let held = store.lease(&session, &second, at(3_499)).await.unwrap();
    assert_eq!(held, LeaseOutcome::Held(first.clone()));
    assert_eq!(store.recover(at(3_499)).await.unwrap(), Recovery::default());
    // It is late, but nobody came: it goes on.
    assert_eq!(store.touch(&stale, at(3_600)).await.unwrap(), Written::Done);
    let left = store.recover(at(3_500)).await.unwrap().running;
    assert_eq!((left.len(), &left[0].id), (1, &run.id));
    assert_eq!(left[0].state, RunState::Running { phase: Phase::Prompting, attempt: 1 });
    let LeaseOutcome::Leased(fresh) = store.lease(&session, &second, at(3_500)).await.unwrap() else {
        panic!("the first was silent")
    };
    assert!(fresh.fence > stale.fence);
    all_fenced(&store, &stale, &run.id).await;
    // What was left is not to be ended by somebody who has not looked at it.
    assert_eq!(finish(&store, &fresh, &run.id, failed()).await, FinishOutcome::Fenced);
    assert_eq!(store.advance(&fresh, &run.id, Phase::Finishing).await.unwrap(), AdvanceOutcome::Fenced);
    let ClaimOutcome::Adopted(adopted) = claim(&store, &fresh).await else { panic!("it was left running") };
    assert_eq!(adopted.state, RunState::Running { phase: Phase::Prompting, attempt: 2 });
    assert_eq!(adopted.message_id, run.message_id, "whoever asks the agent asks for the same message");
    assert!(matches!(claim(&store, &fresh).await, ClaimOutcome::Busy(_)));
    // The first is heard of again: what it lost stays lost.
    assert_eq!(store.heartbeat(&first, at(1_000_000)).await.unwrap(), Written::Done);
    all_fenced(&store, &stale, &run.id).await;
    assert!(matches!(finish(&store, &fresh, &run.id, completed("x")).await, FinishOutcome::Finished(_)));
    all_fenced(&store, &stale, &run.id).await;
}

#[tokio::test]
async fn a_daemon_that_starts_again_takes_over_everything_at_once() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let before = owner(&store, TakeOver::Everybody).await;
    let mut leases = Vec::new();
    for phase in [None, Some(Phase::Prompting), Some(Phase::Finishing)] {
        let session = new_session(&store, &alice()).await;
        submit(&store, &alice(), task(&session, "x")).await;
        submit(&store, &alice(), task(&session, "y")).await;
        let lease = lease(&store, &session, &before).await;
        let run = next(&store, &lease).await;
        if phase.is_some() {
            store.advance(&lease, &run.id, Phase::Prompting).await.unwrap();
        }
        if phase == Some(Phase::Finishing) {
            store.advance(&lease, &run.id, Phase::Finishing).await.unwrap();
        }
        leases.push((lease, run));
    }
    store.close().await;
    let store = open(state.path()).await;
    let after = owner(&store, TakeOver::Everybody).await;
    assert_eq!(store.heartbeat(&before, at(2_000_000)).await.unwrap(), Written::Fenced);
    let left = store.recover(at(3_000)).await.unwrap().running;
    let phases: Vec<RunState> = left.iter().map(|run| run.state.clone()).collect();
    assert_eq!(phases, Phase::ALL.map(|phase| RunState::Running { phase, attempt: 1 }));
    for (stale, run) in leases {
        let fresh = lease(&store, &stale.session, &after).await;
        all_fenced(&store, &stale, &run.id).await;
        assert!(
            matches!(claim(&store, &fresh).await, ClaimOutcome::Adopted(adopted) if adopted.id == run.id)
        );
        assert!(matches!(finish(&store, &fresh, &run.id, failed()).await, FinishOutcome::Finished(_)));
        assert_eq!(next(&store, &fresh).await.task, "y");
    }
}

#[tokio::test]
async fn a_session_that_is_given_back_is_free_and_a_second_lease_ends_the_first() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let run = submit(&store, &alice(), task(&session, "one")).await;
    let (one, other) = (owner(&store, TakeOver::Silent).await, owner(&store, TakeOver::Silent).await);
    let first = lease(&store, &session, &one).await;
    let second = lease(&store, &session, &one).await;
    all_fenced(&store, &first, &run.id).await;
    assert_eq!(store.set_agent_session(&second, "ses_1").await.unwrap(), Written::Done);
    assert_eq!(store.release(&second).await.unwrap(), Written::Done);
    all_fenced(&store, &second, &run.id).await;
    let third = lease(&store, &session, &other).await;
    assert!(third.fence > second.fence);
    assert_eq!(
        store.session(&alice(), &session).await.unwrap().unwrap().agent_session.as_deref(),
        Some("ses_1")
    );
    // What was never claimed is not ended by its owner, and not advanced.
    assert!(matches!(finish(&store, &third, &run.id, failed()).await, FinishOutcome::NotRunning(_)));
    let advanced = store.advance(&third, &run.id, Phase::Starting).await.unwrap();
    assert!(matches!(advanced, AdvanceOutcome::NotRunning(_)));
}

#[tokio::test]
async fn a_run_that_starts_again_counts_it() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    submit(&store, &alice(), task(&session, "one")).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    let run = next(&store, &lease).await;
    let to = async |phase| {
        let outcome = store.advance(&lease, &run.id, phase).await.unwrap();
        let AdvanceOutcome::Advanced(run) = outcome else { panic!("{outcome:?}") };
        run
    };
    assert_eq!(to(Phase::Starting).await.state, RunState::Running { phase: Phase::Starting, attempt: 1 });
    to(Phase::Prompting).await;
    let again = to(Phase::Starting).await;
    assert_eq!(again.state, RunState::Running { phase: Phase::Starting, attempt: 2 });
    assert_eq!(again.message_id, run.message_id);
    assert_eq!(to(Phase::Prompting).await.state, RunState::Running { phase: Phase::Prompting, attempt: 2 });
}

#[tokio::test]
async fn no_prompt_is_sent_after_a_cancel_was_answered() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    submit(&store, &alice(), task(&session, "one")).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    let run = next(&store, &lease).await;
    let cancel = async |by| store.request_cancel(&alice(), &run.id, by, at(9)).await.unwrap();
    let CancelOutcome::Requested(asked) = cancel(CanceledBy::Caller).await else { panic!("it runs") };
    assert_eq!(asked.cancel_requested, Some(CanceledBy::Caller));
    assert_eq!(cancel(CanceledBy::Daemon).await, CancelOutcome::Requested(asked.clone()), "the first counts");
    let refused = store.advance(&lease, &run.id, Phase::Prompting).await.unwrap();
    assert_eq!(refused, AdvanceOutcome::CancelRequested(asked));
    let FinishOutcome::Finished(ended) = finish(&store, &lease, &run.id, canceled(CanceledBy::Caller)).await
    else {
        panic!("it is this lease's")
    };
    assert_eq!(cancel(CanceledBy::Caller).await, CancelOutcome::Ended(ended));
}
