//! `OpenCode` dies in the middle of a turn.

use std::time::Duration;

use model::ports::agent::{Agent as _, Delivery, Failure, Origin, Progress};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Rig, allow, intent, run, says, watch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_opencode_is_noticed_and_its_session_goes_on() {
    let mut rig = Rig::start().await;
    let driver = rig.driver();
    let session = rig.session(&driver).await;
    let before = intent(&session, &json!([{ "text": "before" }]));
    let first = run(&driver, &before, &allow()).await;
    let file = rig.home.project().join("file.txt").display().to_string();
    let read = json!({ "tool": "read", "args": { "filePath": file } });
    let killed = intent(&session, &json!([read, { "delay": 60_000, "text": "never" }]));
    assert_eq!(driver.prompt(&killed).await, Ok(Delivery::Delivered));
    let policy = allow();
    let (shown, mut showing) = tokio::sync::mpsc::channel(8);
    let mut sink = |told: Progress| {
        if matches!(told, Progress::StepFinished { .. }) {
            let _ = shown.try_send(());
        }
    };
    let killing = async {
        showing.recv().await.expect("a step");
        rig.kill().await;
        Instant::now()
    };
    let (ended, at) = tokio::join!(driver.watch(&killed.prompt, &policy, &mut sink), killing);
    let took = at.elapsed();
    let failure = ended.expect_err("it was killed").failure;
    assert!(matches!(failure, Failure::Crashed { .. }), "{failure:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let gone = driver.was_delivered(&killed.prompt).await.expect_err("nobody listens");
    assert_eq!(gone.code(), "agent_unreachable");

    rig.restart().await;
    let driver = rig.driver();
    let found = driver.ensure_session(&rig.wanted(Some(&session.id))).await.expect("a session");
    assert_eq!(found.origin, Origin::Reused);
    // The cut turn was delivered, is not delivered again, and has no end; the one before is as it was.
    assert_eq!(driver.prompt(&killed).await, Ok(Delivery::Already));
    let cut = watch(&driver, &killed.prompt, &allow()).await;
    let failed = cut.failed();
    assert!(matches!(failed.failure, Failure::Crashed { .. }), "{failed:?}");
    assert!((1..=2).contains(&failed.spent.steps), "{failed:?}");
    says(&driver, &session, "after").await;
    let again = watch(&driver, &before.prompt, &allow()).await;
    assert_eq!(again.turn(), first.turn());
    assert_eq!(rig.turns_with("never"), 1);
}
