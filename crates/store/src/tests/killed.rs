//! Processes that are killed at any moment: what they were told is there.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use super::children::{again, given, lines, role, say};
use super::*;

/// A daemon: submits, claims and ends runs, several at once, and says what it was told. Dies at any time.
#[test]
fn daemon() {
    if !role("daemon") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&given("STORE_STATE"))).await;
        let owner = owner(&store, TakeOver::Everybody).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..4 {
            let made =
                store.create_or_reuse(&alice(), wanted(Some(&number.to_string())), at(1)).await.unwrap();
            let (CreateOutcome::Created(session) | CreateOutcome::Reused(session)) = made else {
                panic!("{made:?}")
            };
            say(&format!("session {}", session.id));
            let (submitter, runner, owner) = (Arc::clone(&store), Arc::clone(&store), owner.clone());
            let id = session.id.clone();
            tasks.spawn(async move {
                loop {
                    match submitter.submit(&alice(), task(&id, "x"), at(2_000)).await.unwrap() {
                        SubmitOutcome::Submitted(run) => say(&format!("queued {}", run.id)),
                        SubmitOutcome::QueueFull => tokio::time::sleep(Duration::from_millis(5)).await,
                        other @ (SubmitOutcome::Same(_)
                        | SubmitOutcome::Conflict(_)
                        | SubmitOutcome::NoSession
                        | SubmitOutcome::Terminated(_)) => panic!("{other:?}"),
                    }
                }
            });
            tasks.spawn(async move {
                let lease = lease(&runner, &session.id, &owner).await;
                loop {
                    let run = match claim(&runner, &lease).await {
                        ClaimOutcome::Next(run) | ClaimOutcome::Adopted(run) => run,
                        ClaimOutcome::Nothing => {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            continue;
                        }
                        other @ (ClaimOutcome::Busy(_) | ClaimOutcome::Fenced) => panic!("{other:?}"),
                    };
                    say(&format!("running {} {}", run.id, run.message_id.unwrap()));
                    if let RunState::Running { phase: Phase::Starting, .. } = run.state {
                        runner.advance(&lease, &run.id, Phase::Prompting).await.unwrap();
                    }
                    let FinishOutcome::Finished(run) = finish(&runner, &lease, &run.id, completed("x")).await
                    else {
                        panic!("it is this lease's")
                    };
                    say(&format!("completed {}", run.id));
                }
            });
        }
        tasks.join_all().await;
    });
}

#[tokio::test]
async fn what_was_acknowledged_survives_the_kill() {
    let kills = if full_size() { 300 } else { 25 };
    let state = tempfile::tempdir().unwrap();
    let mut random = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()) | 1;
    println!("seed {random}");
    // The last thing said about each run.
    let mut said: BTreeMap<String, &str> = BTreeMap::new();
    let (mut messages, mut sessions) = (BTreeMap::new(), BTreeSet::new());
    let mut left_running = 0;
    for _ in 0..kills {
        let mut child = again(&[], "tests::killed::daemon", "daemon")
            .env("STORE_STATE", state.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines(&mut child);
        let reader = std::thread::spawn(move || lines.collect::<Vec<_>>());
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(60 + random % 200));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        for line in reader.join().unwrap() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["session", id] => {
                    sessions.insert(id.to_owned());
                }
                ["queued", id] => {
                    // Whoever claimed it may have spoken first.
                    said.entry(id.to_owned()).or_insert("queued");
                }
                ["running", id, message] if message.starts_with("msg_") => {
                    said.insert(id.to_owned(), "running");
                    let before = messages.insert(id.to_owned(), message.to_owned());
                    assert!(before.is_none_or(|before| before == message), "two messages for one run");
                }
                ["completed", id] => {
                    said.insert(id.to_owned(), "completed");
                }
                _ => {}
            }
        }
        let store = open(state.path()).await;
        left_running += store.recover(at(u64::from(u32::MAX))).await.unwrap().running.len();
        store.close().await;
    }
    assert_eq!(sessions.len(), 4, "a key is one session, whoever died: {sessions:?}");
    let store = open(state.path()).await;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, said) in &said {
        let run = store.run(&alice(), &RunId::parse(id).unwrap()).await.unwrap();
        let run = run.unwrap_or_else(|| panic!("{id} was acknowledged and is gone"));
        let far = |state: &str| {
            ["queued", "running", "completed"].iter().position(|known| *known == state).unwrap()
        };
        assert!(far(run.state.as_str()) >= far(said), "{id} was {said} and is {:?}", run.state);
        assert!(messages.get(id).is_none_or(|message| run.message_id.as_ref().unwrap().as_str() == message));
        *counts.entry(run.state.as_str()).or_default() += 1;
    }
    println!("{kills} kills, {} runs acknowledged, now {counts:?}; {left_running} left running", said.len());
    assert!(said.len() > 100 && left_running > 0);
}
