//! Making, finding, listing and ending sessions.

use super::*;

#[tokio::test]
async fn a_session_is_what_was_asked_for_and_is_found_again() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).await;
    let wanted = wanted(Some("customer-a"));
    let made = store.create_or_reuse(&alice(), wanted.clone(), at(7)).await.unwrap();
    let expected = Session {
        id: wanted.id.clone(),
        principal: alice(),
        name: wanted.name.clone(),
        reuse_key: wanted.reuse_key.clone(),
        image: "runtime:latest".to_owned(),
        runtime: wanted.runtime.clone(),
        settings: wanted.settings.clone(),
        workspace: wanted.workspace.clone(),
        made_by: wanted.made_by.clone(),
        agent_session: None,
        status: SessionStatus::Live,
        created_at: at(7),
        used_at: at(7),
    };
    assert_eq!(made, CreateOutcome::Created(expected.clone()));
    let again = NewSession { id: SessionId::new(stamp()), name: Some("other".to_owned()), ..wanted };
    assert_eq!(
        store.create_or_reuse(&alice(), again, at(8)).await.unwrap(),
        CreateOutcome::Reused(expected.clone())
    );
    store.close().await;
    let store = open(state.path()).await;
    assert_eq!(store.session(&alice(), &expected.id).await.unwrap(), Some(expected));
}

#[tokio::test]
async fn a_hundred_at_once_with_one_key_get_one_session() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let store = Arc::clone(&store);
        tasks.spawn(async move { store.create_or_reuse(&alice(), wanted(Some("k")), at(1)).await.unwrap() });
    }
    let outcomes = tasks.join_all().await;
    let created: Vec<&Session> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            CreateOutcome::Created(session) => Some(session),
            CreateOutcome::Reused(_) | CreateOutcome::OtherImage { .. } => None,
        })
        .collect();
    assert_eq!(created.len(), 1);
    let reused = CreateOutcome::Reused(created[0].clone());
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == reused).count(), 99);
    // Without a key there is nothing to reuse.
    assert_ne!(new_session(&store, &alice()).await, new_session(&store, &alice()).await);
}

#[tokio::test]
async fn another_image_for_a_live_key_is_refused_with_both_named() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let asked = |image: &str| NewSession { image: ImageChoice::Asked(image.to_owned()), ..wanted(Some("k")) };
    let CreateOutcome::Created(first) = store.create_or_reuse(&alice(), asked("one"), at(1)).await.unwrap()
    else {
        panic!("there is none yet")
    };
    let other = store.create_or_reuse(&alice(), asked("two"), at(2)).await.unwrap();
    assert_eq!(other, CreateOutcome::OtherImage { session: first.clone(), asked: "two".to_owned() });
    // Whoever names none, or the same, means this one.
    for fine in [asked("one"), wanted(Some("k"))] {
        assert_eq!(
            store.create_or_reuse(&alice(), fine, at(3)).await.unwrap(),
            CreateOutcome::Reused(first.clone())
        );
    }
    // Its end frees the key, at once.
    store.terminate(&alice(), &first.id, Keep::Directories, at(4)).await.unwrap();
    let second = store.create_or_reuse(&alice(), asked("two"), at(5)).await.unwrap();
    assert!(
        matches!(&second, CreateOutcome::Created(second) if second.id != first.id && second.image == "two")
    );
}

#[tokio::test]
async fn ending_a_session_cancels_what_waits_and_asks_what_runs() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let runs = [
        submit(&store, &alice(), task(&session, "one")).await,
        submit(&store, &alice(), task(&session, "two")).await,
        submit(&store, &alice(), task(&session, "three")).await,
    ];
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    next(&store, &lease).await;
    assert_eq!(store.terminated(&lease, at(8)).await.unwrap(), TerminatedOutcome::StillRunning);
    let outcome = store.terminate(&alice(), &session, Keep::Directories, at(9)).await.unwrap();
    let TerminateOutcome::Terminating { session: ending, running } = outcome else { panic!("{outcome:?}") };
    assert_eq!(ending.status, SessionStatus::Terminating { keep: Keep::Directories, since: at(9) });
    assert_eq!(running, Some(runs[0].id.clone()));
    let of = async |run: &Run| store.run(&alice(), &run.id).await.unwrap().unwrap();
    assert_eq!(of(&runs[0]).await.cancel_requested, Some(CanceledBy::Termination));
    for run in &runs[1..] {
        let run = of(run).await;
        assert_eq!(run.state, RunState::Ended(Ending::Canceled { by: CanceledBy::Termination }));
        assert_eq!(run.ended_at, Some(at(9)));
    }
    let refused = store.submit(&alice(), task(&session, "four"), at(10)).await.unwrap();
    assert_eq!(refused, SubmitOutcome::Terminated(ending.clone()));
    assert_eq!(store.recover(at(2_000_000)).await.unwrap().terminating, std::slice::from_ref(&ending));
    assert_eq!(store.terminated(&lease, at(10)).await.unwrap(), TerminatedOutcome::StillRunning);
    finish(&store, &lease, &runs[0].id, canceled(CanceledBy::Termination)).await;
    // Once more is the same, with less to keep is less, with more is too late.
    for (keep, expected) in [
        (Keep::Directories, Keep::Directories),
        (Keep::Nothing, Keep::Nothing),
        (Keep::Directories, Keep::Nothing),
    ] {
        let outcome = store.terminate(&alice(), &session, keep, at(9)).await.unwrap();
        let TerminateOutcome::Terminating { session, running: None } = outcome else { panic!("{outcome:?}") };
        assert_eq!(session.status, SessionStatus::Terminating { keep: expected, since: at(9) });
    }
    assert_eq!(store.terminated(&lease, at(11)).await.unwrap(), TerminatedOutcome::Done);
    assert_eq!(store.terminated(&lease, at(12)).await.unwrap(), TerminatedOutcome::Fenced);
    let outcome = store.terminate(&alice(), &session, Keep::Directories, at(13)).await.unwrap();
    let TerminateOutcome::Terminated(ended) = outcome else { panic!("{outcome:?}") };
    assert_eq!(ended.status, SessionStatus::Terminated { keep: Keep::Nothing, at: at(11) });
    assert_eq!(store.recover(at(2_000_000)).await.unwrap(), Recovery::default());
    assert_eq!(store.lease(&session, &owner, at(14)).await.unwrap(), LeaseOutcome::Ended);
}

#[tokio::test]
async fn directories_that_were_kept_can_be_let_go_later() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    store.terminate(&alice(), &session, Keep::Directories, at(9)).await.unwrap();
    let first = lease(&store, &session, &owner).await;
    assert_eq!(store.terminated(&first, at(10)).await.unwrap(), TerminatedOutcome::Done);
    store.terminate(&alice(), &session, Keep::Nothing, at(11)).await.unwrap();
    assert_eq!(store.recover(at(11)).await.unwrap().terminating.len(), 1);
    let second = lease(&store, &session, &owner).await;
    assert_eq!(store.terminated(&second, at(12)).await.unwrap(), TerminatedOutcome::Done);
    // A live one does not end because somebody says that it has.
    let live = new_session(&store, &alice()).await;
    let third = lease(&store, &live, &owner).await;
    assert_eq!(store.terminated(&third, at(12)).await.unwrap(), TerminatedOutcome::NotTerminating);
}

#[tokio::test]
async fn a_list_comes_in_pages_newest_first_and_misses_none() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let mut made = Vec::new();
    for _ in 0..25 {
        made.push(new_session(&store, &alice()).await);
    }
    made.reverse();
    submit(&store, &alice(), task(&made[3], "one")).await;
    submit(&store, &alice(), task(&made[3], "two")).await;
    store.terminate(&alice(), &made[7], Keep::Directories, at(9)).await.unwrap();
    for (listed, expected) in [(Listed::All, 25), (Listed::Live, 24)] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = Page { after: after.clone(), limit: 10 };
            let rows = store.list_sessions(&alice(), listed, page).await.unwrap();
            let Some(last) = rows.last() else { break };
            after = Some(last.session.id.clone());
            // What is made meanwhile is before the first page, and shifts none.
            new_session(&store, &alice()).await;
            seen.extend(rows);
        }
        let ids: Vec<&SessionId> =
            seen.iter().map(|row| &row.session.id).filter(|id| made.contains(id)).collect();
        let all: Vec<&SessionId> =
            made.iter().filter(|id| listed == Listed::All || **id != made[7]).collect();
        assert_eq!((ids.len(), &ids), (expected, &all));
        let unfinished: u64 = seen.iter().map(|row| row.unfinished).sum();
        assert_eq!(unfinished, 2);
    }
}
