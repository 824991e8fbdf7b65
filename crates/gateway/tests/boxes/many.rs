//! One box has so much of what all share, and no more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use supervise::Spawner;

use crate::rig::{Rig, call, guest};

const LONG: Duration = Duration::from_secs(30);

pub(crate) async fn one_box_does_not_take_the_processes_of_a_server_from_others(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let (greedy, other) = (guest("session_a"), guest("session_b"));
    let threads: Vec<String> = (0..12).map(|number| format!("ses_{number}")).collect();
    let held = join_all(threads.iter().map(|thread| rig.ask(&greedy, call(thread, "hold"), LONG)));
    let meanwhile = async {
        let pool = rig.pool();
        while pool.count() < 8 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let answer = rig.answer(&other, call("ses_x", "echo")).await;
        (answer, pool.count())
    };
    let (held, (answer, count)) = tokio::join!(held, meanwhile);
    assert_eq!((answer.said(), count), ("ok", 9));
    let busy = held.iter().flatten().filter(|answer| answer.said() == "server_busy").count();
    assert_eq!(busy, 4, "{held:?}");
    // Its own that do nothing make room.
    let more = guest("session_c");
    for number in 0..10 {
        let answer = rig.answer(&more, call(&format!("ses_c{number}"), "echo")).await;
        assert_eq!(answer.said(), "ok", "{number}");
    }
    assert_eq!(rig.answer(&other, call("ses_x", "echo")).await.said(), "ok");
    rig.close().await;
}

pub(crate) async fn a_box_that_asks_what_a_server_is_over_and_over_has_two_processes(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let greedy = guest("session_a");
    for number in 0..6 {
        // Each client is another question, so that no answer stands in.
        assert!(rig.open(&greedy, &format!("client {number}")).await.is_some());
        assert!(rig.pool().count() <= 2, "{number}: {}", rig.pool().count());
    }
    rig.close().await;
}

pub(crate) async fn starts_that_a_box_makes_fail_are_its_own_trouble(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let (breaking, other) = (guest("session_a"), guest("session_b"));
    for number in 0..6 {
        let answer = rig.answer(&breaking, call("ses_1", "die")).await;
        assert_eq!(answer.said(), "server_exited", "{number}");
    }
    assert_eq!(rig.answer(&breaking, call("ses_1", "echo")).await.said(), "server_unavailable");
    assert_eq!(rig.answer(&other, call("ses_x", "echo")).await.said(), "ok");
    rig.close().await;
}
