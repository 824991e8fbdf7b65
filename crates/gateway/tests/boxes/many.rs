//! One box has so much of what all share, and no more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use supervise::Spawner;

use crate::rig::{Request, Rig, call, guest, initialize};

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
    // It is forgotten with the box.
    rig.front.end_bound("session_a");
    assert_eq!(rig.answer(&breaking, call("ses_1", "echo")).await.said(), "ok");
    rig.close().await;
}

pub(crate) async fn one_box_has_so_many_sessions_and_its_own_oldest_go(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let (greedy, other) = (guest("session_a"), guest("session_b"));
    let others = rig.open(&other, "client").await.unwrap();
    let mut own = Vec::new();
    for _ in 0..66 {
        own.push(rig.open(&greedy, "client").await.unwrap());
    }
    assert_eq!(rig.front.sessions.len(), 65);
    let listed = |session: &str| Request {
        headers: vec![("Mcp-Session-Id", session.to_owned())],
        body: json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}).to_string().into_bytes(),
        ..Request::default()
    };
    assert_eq!(rig.answer(&other, listed(&others)).await.status, 200);
    assert_eq!(rig.answer(&greedy, listed(&own[1])).await.status, 404);
    assert_eq!(rig.answer(&greedy, listed(&own[2])).await.status, 200);
    rig.close().await;
}

pub(crate) async fn only_a_request_opens_a_session_and_a_box_that_is_gone_has_none(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let (one, other) = (guest("session_a"), guest("session_b"));
    let before = rig.tasks.len();
    let mut notification = initialize("client");
    notification.body =
        json!({"jsonrpc": "2.0", "method": "initialize", "params": {}}).to_string().into_bytes();
    assert_eq!(rig.answer(&one, notification).await.status, 400);
    assert_eq!(rig.front.sessions.len(), 0);
    assert_eq!(rig.tasks.len(), before + 1, "old sessions are looked for without a listener too");
    for guest in [&one, &one, &other] {
        rig.open(guest, "client").await.unwrap();
    }
    rig.front.end_bound("session_a");
    assert_eq!(rig.front.sessions.len(), 1);
    rig.close().await;
}
