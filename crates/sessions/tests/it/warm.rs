//! Boxes that are kept ready: there at once, one session's each, and in nobody's way.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::ports::store::{Listed, Page};
use model::session::Keep;
use sessions::{Options, Temper, Wanted};
use tokio::time::{Instant, sleep};

use crate::played::{Clock, House};
use crate::stories::{Daemon, Dice, local, options, output, start, wanted};

fn warm(max_hot: usize, warm: usize) -> Options {
    Options { warm, ..options(max_hot) }
}

/// With sessions of this kind expected.
async fn expecting(state: &Path, house: &Arc<House>, clock: &Arc<Clock>, options: Options) -> Daemon {
    let daemon = start(state, house, clock, options).await;
    daemon.desk.expect(&local(), &wanted("-"));
    daemon
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !reached() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn names(state: &Path) -> Vec<String> {
    let entries = fs::read_dir(state.join("sessions")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_str().unwrap().to_owned()).collect()
}

fn directories(state: &Path) -> usize {
    names(state).len()
}

#[tokio::test]
async fn a_session_is_ready_at_once_and_the_next_one_too() {
    let (state, house, clock) = (tempfile::tempdir().unwrap(), Arc::default(), Arc::new(Clock::new()));
    let daemon = expecting(state.path(), &house, &clock, warm(8, 2)).await;
    until("two boxes", || house.running() == 2).await;
    // They are ready a moment after they run.
    sleep(Duration::from_millis(50)).await;
    let mut ids = Vec::new();
    for number in 0..2 {
        let (view, reused) = daemon.desk.create(&local(), wanted(&format!("s{number}"))).await.unwrap();
        assert!(!reused);
        assert_eq!(view.hot.map(|hot| hot.temper), Some(Temper::Ready), "no box was ready");
        assert!(house.runs(view.session.id.as_str()), "it has no box");
        ids.push(view.session.id.to_string());
    }
    assert_ne!(ids[0], ids[1]);
    // The same session again is no reason to take another box.
    let again = daemon.create("s0").await;
    assert_eq!(again, ids[0]);
    for id in &ids {
        let run = daemon.submit(id, "1 x").await;
        assert_eq!(output(&daemon.ended(&run).await), "did 1 x");
    }
    until("others to be made ready", || house.running() == 4).await;
    // What differs gets a box of its own.
    let other = Wanted { settings: "{ }".to_owned(), ..wanted("other") };
    let (view, _) = daemon.desk.create(&local(), other).await.unwrap();
    assert_eq!(view.hot, None);
    let all = daemon.desk.list(&local(), Listed::Live, Page::default()).await.unwrap();
    let listed: Vec<String> = all.iter().map(|(view, _)| view.session.id.to_string()).collect();
    assert_eq!(listed, [view.session.id.to_string(), ids[1].clone(), ids[0].clone()], "newest first");
    for id in &ids {
        daemon.at_rest(id).await;
    }
    daemon.stop.cancel();
    daemon.engine.await.unwrap();
    assert_eq!(house.running(), 0);
    assert_eq!(directories(state.path()), 3, "what was nobody's is left");
}

#[tokio::test]
async fn whoever_waits_for_a_place_gets_it_before_boxes_that_are_nobodys() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let daemon = expecting(state.path(), &house, &clock, warm(2, 2)).await;
    until("two boxes", || house.running() == 2).await;
    let mut runs = Vec::new();
    for number in 0..6 {
        let other = Wanted { settings: format!("{{\"n\":{number}}}"), ..wanted(&format!("o{number}")) };
        let session = daemon.desk.create(&local(), other).await.unwrap().0.session.id.to_string();
        runs.push(daemon.submit(&session, "20 x").await);
    }
    for run in &runs {
        assert_eq!(output(&daemon.ended(run).await), "did 20 x");
    }
    assert!(house.most_boxes.load(Ordering::Relaxed) <= 2);
    daemon.kill().await;
}

#[tokio::test]
async fn a_box_that_dies_while_it_waits_is_replaced() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let daemon = expecting(state.path(), &house, &clock, warm(2, 1)).await;
    until("a box", || house.running() == 1).await;
    let first = house.names().remove(0);
    house.lose(&first);
    until("another box", || house.running() == 1 && house.names().iter().all(|name| *name != first)).await;
    assert_eq!(directories(state.path()), 1);
    daemon.kill().await;
}

/// Whatever is cut off where: a box is one session's, what is nobody's goes, and no run is lost.
#[tokio::test]
async fn whoever_is_killed_when_no_box_has_two_sessions_and_none_is_left() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut runs, mut taken, who) = (Vec::new(), 0, local());
    for round in 0..120 {
        // Those at rest make room soon.
        let options = Options { idle: Duration::from_millis(10), ..warm(4, 2) };
        let daemon = expecting(state.path(), &house, &clock, options).await;
        sleep(Duration::from_millis(20 + dice.below(40))).await;
        for number in 0..2 {
            let wish = wanted(&format!("{round}-{number}"));
            let creating = daemon.desk.create(&who, wish);
            // Also whoever asks may be cut off.
            let asked = tokio::time::timeout(Duration::from_millis(1 + dice.below(12)), creating).await;
            let Ok(Ok((view, _))) = asked else { continue };
            taken += usize::from(view.hot.is_some());
            let id = view.session.id.to_string();
            // Few: whoever waits comes first, and then no box is ready.
            if dice.below(3) == 0 {
                runs.push(daemon.submit(&id, &format!("{} x", dice.below(5))).await);
            }
            if dice.below(4) == 0 {
                daemon.desk.terminate(&local(), &id, Keep::Nothing).await.unwrap();
            }
        }
        sleep(Duration::from_millis(dice.below(30))).await;
        daemon.kill().await;
    }
    let daemon = start(state.path(), &house, &clock, warm(4, 0)).await;
    for run in &runs {
        daemon.ended(run).await;
    }
    assert!(taken > 30, "{taken}: boxes that were ready were hardly asked for");
    assert!(house.deliveries().iter().all(|deliveries| *deliveries == 1));
    assert!(house.most_boxes.load(Ordering::Relaxed) <= 4);
    for name in house.names() {
        assert!(daemon.desk.session(&who, &name).await.is_ok(), "the box {name} is nobody's");
    }
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let mut nobodys = Vec::new();
        for name in names(state.path()) {
            if daemon.desk.session(&who, &name).await.is_err() {
                nobodys.push(name);
            }
        }
        if nobodys.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "directories of nobody: {nobodys:?}");
        sleep(Duration::from_millis(20)).await;
    }
    daemon.kill().await;
}
