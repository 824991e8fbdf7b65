//! Callers who go away in the middle.

use std::time::{Duration, Instant};

use super::*;

#[tokio::test]
async fn whoever_goes_away_in_the_middle_leaves_all_or_nothing_and_harms_nobody() {
    // A disk takes its time, so that some go away while it does.
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let (mut told, mut went) = (Vec::new(), 0);
    for round in 0..400_u64 {
        let mut tasks = tokio::task::JoinSet::new();
        let going = {
            let (store, session) = (Arc::clone(&store), session.clone());
            tasks.spawn(async move { store.submit(&alice(), task(&session, "goes"), at(1)).await })
        };
        let principal = alice();
        let staying = store.submit(&principal, task(&session, "stays"), at(1));
        let (stayed, ()) = tokio::join!(staying, async {
            // Turns of this thread: the connection's own goes on meanwhile.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(round * 7 % 2_500) {
                tokio::task::yield_now().await;
            }
            going.abort();
        });
        let SubmitOutcome::Submitted(stayed) = stayed.unwrap() else { panic!("there is room") };
        told.push(stayed.id);
        match tasks.join_next().await.unwrap() {
            Ok(outcome) => {
                let SubmitOutcome::Submitted(run) = outcome.unwrap() else { panic!("there is room") };
                told.push(run.id);
            }
            Err(gone) => {
                assert!(gone.is_cancelled());
                went += 1;
            }
        }
        store.latest_run(&alice(), &session).await.unwrap().unwrap();
    }
    let runs = store.list_runs(&alice(), &session, Page { after: None, limit: 1_000 }).await.unwrap();
    println!("{went} went away, {} were told, {} runs", told.len(), runs.len());
    assert!(told.iter().all(|id| runs.iter().any(|run| run.id == *id)), "told and lost");
    assert!(runs.len() >= told.len() && runs.len() <= 800);
    assert!(went > 0);
    let count = u64::try_from(runs.len()).unwrap();
    assert!(runs.iter().rev().map(|run| run.seq).eq(1..=count), "no place is left out");
}

#[tokio::test]
async fn a_store_that_is_closed_says_so() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    store.close().await;
    let submitted = store.submit(&alice(), task(&session, "x"), at(1)).await;
    assert!(matches!(submitted, Err(StoreError::Closed)), "{submitted:?}");
    assert!(matches!(store.session(&alice(), &session).await, Err(StoreError::Closed)));
    store.close().await;
    assert!(!Place::of(state.path()).beside("-wal").exists(), "all of it is in the file");
}
