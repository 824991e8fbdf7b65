//! Submitting, and the order in which it is done.

use super::*;

#[tokio::test]
async fn a_run_is_what_was_submitted_through_all_its_states() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let wanted = NewRun {
        output_schema: Some(r#"{"type":"object"}"#.to_owned()),
        model: Some("ollama/x".to_owned()),
        ..keyed(&session, "k", "profile the files")
    };
    let mut expected = Run {
        id: wanted.id.clone(),
        session: session.clone(),
        principal: alice(),
        seq: 1,
        task: wanted.task.clone(),
        output_schema: wanted.output_schema.clone(),
        model: wanted.model.clone(),
        idempotency_key: wanted.idempotency_key.clone(),
        asked_by: wanted.asked_by.clone(),
        message_id: None,
        state: RunState::Queued,
        cancel_requested: None,
        created_at: at(2_000),
        started_at: None,
        ended_at: None,
        usage: None,
    };
    assert_eq!(submit(&store, &alice(), wanted).await, expected);
    assert_eq!(store.session(&alice(), &session).await.unwrap().unwrap().used_at, at(2_000));
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    assert_eq!(store.waiting(10).await.unwrap()[0].since, at(2_000));
    let message_id = MessageId::new(stamp());
    let claimed = store.claim(&lease, message_id.clone(), at(4_000)).await.unwrap();
    expected.message_id = Some(message_id);
    expected.started_at = Some(at(4_000));
    expected.state = RunState::Running { phase: Phase::Starting, attempt: 1 };
    assert_eq!(claimed, ClaimOutcome::Next(expected.clone()));
    assert_eq!(store.waiting(10).await.unwrap(), []);
    for phase in [Phase::Prompting, Phase::Finishing, Phase::Finishing] {
        expected.state = RunState::Running { phase, attempt: 1 };
        let advanced = store.advance(&lease, &expected.id, phase).await.unwrap();
        assert_eq!(advanced, AdvanceOutcome::Advanced(expected.clone()));
    }
    let back = store.advance(&lease, &expected.id, Phase::Prompting).await.unwrap();
    assert_eq!(back, AdvanceOutcome::OutOfOrder(expected.clone()));
    let result = completed("the answer");
    expected.state = RunState::Ended(result.ending.clone());
    expected.usage = result.usage;
    expected.ended_at = Some(at(5_000));
    assert_eq!(finish(&store, &lease, &expected.id, result).await, FinishOutcome::Finished(expected.clone()));
    assert_eq!(
        finish(&store, &lease, &expected.id, failed()).await,
        FinishOutcome::Already(expected.clone())
    );
    let late = store.advance(&lease, &expected.id, Phase::Finishing).await.unwrap();
    assert_eq!(late, AdvanceOutcome::NotRunning(expected.clone()));
    store.close().await;
    let store = open(state.path()).await;
    assert_eq!(store.run(&alice(), &expected.id).await.unwrap(), Some(expected.clone()));
    assert_eq!(store.latest_run(&alice(), &session).await.unwrap(), Some(expected));
    assert_eq!(store.session(&alice(), &session).await.unwrap().unwrap().used_at, at(5_000));
}

#[tokio::test]
async fn a_hundred_at_once_with_one_key_make_one_run() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (store, session) = (Arc::clone(&store), session.clone());
        tasks
            .spawn(async move { store.submit(&alice(), keyed(&session, "k", "task"), at(1)).await.unwrap() });
    }
    let outcomes = tasks.join_all().await;
    let only = store.list_runs(&alice(), &session, Page::default()).await.unwrap();
    assert_eq!(only.len(), 1);
    let count = |expected: SubmitOutcome| outcomes.iter().filter(|outcome| **outcome == expected).count();
    assert_eq!(
        (count(SubmitOutcome::Submitted(only[0].clone())), count(SubmitOutcome::Same(only[0].clone()))),
        (1, 99)
    );
    // Something else under this key is refused, with the first one named.
    let others = [
        keyed(&session, "k", "another task"),
        NewRun { model: Some("m".to_owned()), ..keyed(&session, "k", "task") },
        NewRun { output_schema: Some("{}".to_owned()), ..keyed(&session, "k", "task") },
    ];
    for other in others {
        let outcome = store.submit(&alice(), other, at(2)).await.unwrap();
        assert_eq!(outcome, SubmitOutcome::Conflict(only[0].clone()));
    }
    // In another session it is another task.
    let other = new_session(&store, &alice()).await;
    submit(&store, &alice(), keyed(&other, "k", "another task")).await;
    // Whoever asks again is told so also when the session has ended.
    store.terminate(&alice(), &session, Keep::Directories, at(3)).await.unwrap();
    let outcome = store.submit(&alice(), keyed(&session, "k", "task"), at(4)).await.unwrap();
    assert!(matches!(outcome, SubmitOutcome::Same(run) if run.id == only[0].id));
}

#[tokio::test]
async fn a_queue_has_an_end() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    for number in 0..MOST_QUEUED {
        submit(&store, &alice(), keyed(&session, &number.to_string(), "task")).await;
    }
    assert_eq!(
        store.submit(&alice(), task(&session, "more"), at(1)).await.unwrap(),
        SubmitOutcome::QueueFull
    );
    let again = store.submit(&alice(), keyed(&session, "7", "task"), at(1)).await.unwrap();
    assert!(matches!(again, SubmitOutcome::Same(_)), "{again:?}");
    submit(&store, &alice(), task(&new_session(&store, &alice()).await, "elsewhere")).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    next(&store, &lease).await;
    submit(&store, &alice(), task(&session, "one more")).await;
    let (mut seen, mut after) = (0, None);
    loop {
        let runs = store.list_runs(&alice(), &session, Page { after, limit: 300 }).await.unwrap();
        let Some(last) = runs.last() else { break };
        after = Some(last.seq);
        seen += runs.len();
    }
    assert_eq!(seen, 1_001);
}

#[tokio::test]
async fn whoever_submits_while_others_claim_is_served_in_order() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let session = new_session(&store, &alice()).await;
        for submitter in 0..4 {
            let (store, session) = (Arc::clone(&store), session.clone());
            tasks.spawn(async move {
                for number in 0..25 {
                    submit(&store, &alice(), task(&session, &format!("{submitter} {number}"))).await;
                }
                Vec::new()
            });
        }
        let (store, owner) = (Arc::clone(&store), owner.clone());
        tasks.spawn(async move {
            let lease = lease(&store, &session, &owner).await;
            let mut done = Vec::new();
            while done.len() < 100 {
                match claim(&store, &lease).await {
                    ClaimOutcome::Next(run) => {
                        assert!(
                            matches!(claim(&store, &lease).await, ClaimOutcome::Busy(_)),
                            "one at a time"
                        );
                        finish(&store, &lease, &run.id, completed("x")).await;
                        done.push((run.seq, run.task));
                    }
                    ClaimOutcome::Nothing => tokio::task::yield_now().await,
                    other @ (ClaimOutcome::Adopted(_) | ClaimOutcome::Busy(_) | ClaimOutcome::Fenced) => {
                        panic!("{other:?}")
                    }
                }
            }
            done
        });
    }
    let served: Vec<_> = tasks.join_all().await.into_iter().filter(|done| !done.is_empty()).collect();
    assert_eq!(served.len(), 4);
    for done in served {
        assert!(done.iter().map(|(seq, _)| *seq).eq(1..=100));
        for submitter in 0..4 {
            let of = format!("{submitter} ");
            let numbers = done.iter().filter_map(|(_, task)| task.strip_prefix(&of)?.parse::<u64>().ok());
            assert!(numbers.eq(0..25), "what one client submitted one after the other");
        }
    }
}

#[tokio::test]
async fn who_waits_longest_is_named_first_and_who_is_idle_is_found() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(new_session(&store, &alice()).await);
    }
    for (session, when) in [(2, 30), (0, 40), (2, 50), (1, 60)] {
        store.submit(&alice(), task(&sessions[session], "x"), at(when)).await.unwrap();
    }
    let waiting = |found: Vec<Waiting>| -> Vec<(SessionId, u64)> {
        found.into_iter().map(|waiting| (waiting.session, waiting.since.0)).collect()
    };
    let all = [(sessions[2].clone(), 30), (sessions[0].clone(), 40), (sessions[1].clone(), 60)];
    assert_eq!(waiting(store.waiting(10).await.unwrap()), all);
    assert_eq!(waiting(store.waiting(2).await.unwrap()), all[..2]);
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease_of = async |session: usize| lease(&store, &sessions[session], &owner).await;
    let lease_2 = lease_of(2).await;
    let run = next(&store, &lease_2).await;
    assert_eq!(waiting(store.waiting(10).await.unwrap()), all[1..], "one at a time");
    let idle = async |before: u64| -> Vec<SessionId> {
        let found = store.idle(&sessions, at(before)).await.unwrap();
        found.into_iter().map(|idle| idle.session).collect()
    };
    assert_eq!(idle(1_000).await, [], "it was made at 1,000");
    assert_eq!(idle(10_000).await, [sessions[3].clone()]);
    finish(&store, &lease_2, &run.id, failed()).await;
    let run = next(&store, &lease_2).await;
    finish(&store, &lease_2, &run.id, failed()).await;
    let lease_3 = lease_of(3).await;
    assert_eq!(idle(10_000).await, [sessions[3].clone(), sessions[2].clone()]);
    store.touch(&lease_3, at(6_000)).await.unwrap();
    assert_eq!(idle(10_000).await, [sessions[2].clone(), sessions[3].clone()]);
    assert_eq!(idle(5_500).await, [sessions[2].clone()]);
    store.terminate(&alice(), &sessions[2], Keep::Directories, at(7_000)).await.unwrap();
    assert_eq!(idle(10_000).await, [sessions[3].clone()]);
}

#[tokio::test]
async fn artifacts_are_listed_and_replaced_whole() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    let artifact = |path: &str, size| Artifact {
        path: path.to_owned(),
        kind: if path.starts_with("runs/") { ArtifactKind::Record } else { ArtifactKind::Changed },
        size,
        modified: at(77),
    };
    let mut runs = Vec::new();
    for number in 0..2 {
        let run = submit(&store, &alice(), task(&session, "x")).await;
        next(&store, &lease).await;
        let first = vec![artifact("gone", 1)];
        assert_eq!(store.record_artifacts(&lease, &run.id, first).await.unwrap(), Written::Done);
        let second = vec![artifact("b.csv", 1), artifact("runs/run.log", number), artifact("b.csv", 2)];
        assert_eq!(store.record_artifacts(&lease, &run.id, second).await.unwrap(), Written::Done);
        finish(&store, &lease, &run.id, completed("x")).await;
        runs.push(run.id);
    }
    let of_second = [(runs[1].clone(), artifact("b.csv", 2)), (runs[1].clone(), artifact("runs/run.log", 1))];
    assert_eq!(store.artifacts(&alice(), &session, Some(&runs[1])).await.unwrap(), of_second);
    let all = store.artifacts(&alice(), &session, None).await.unwrap();
    assert_eq!((&all[..2], all.len()), (&of_second[..], 4));
    // A lease is for one session.
    let other = new_session(&store, &alice()).await;
    let other = super::lease(&store, &other, &owner).await;
    assert_eq!(store.record_artifacts(&other, &runs[1], Vec::new()).await.unwrap(), Written::Fenced);
    assert_eq!(store.artifacts(&alice(), &session, None).await.unwrap(), all);
    let many = (0..=MOST_ARTIFACTS).map(|number| artifact(&number.to_string(), 1)).collect();
    store.record_artifacts(&lease, &runs[0], many).await.unwrap();
    assert_eq!(store.artifacts(&alice(), &session, Some(&runs[0])).await.unwrap().len(), MOST_ARTIFACTS);
}
