//! Calls that took too long, that nobody wanted any more, and those whose gateway is gone.

use std::sync::Arc;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::client::{Call, Client, Era, Failure};
use testkit::harness::{kill, wait_until};

use super::rig::{Back, Front, House, Way, at_once, mine};
use crate::support::{SOON, name_of};

/// A call that is with its server and will not be answered.
async fn silent(house: &House, client: &Client, (session, call): (&str, &str)) -> Call {
    let params = json!({ "name": "silent", "arguments": {}, "_meta": mine(session, call) });
    let started = client.start_as(json!(format!("id of {call}")), "tools/call", params).await;
    assert!(wait_until(SOON, || !house.played.of(call).is_empty()).await, "{call} has not arrived");
    started
}

/// The row of a call that is under way.
#[track_caller]
fn check_under_way(rows: &[Value], name: &str) {
    assert_eq!(rows.len(), 1, "{name}: {rows:?}");
    assert_eq!(
        (&rows[0]["outcome"], &rows[0]["duration_ms"]),
        (&Value::Null, &Value::Null),
        "{name}: {rows:?}"
    );
}

#[track_caller]
fn check(rows: &[Value], outcome: &str, name: &str) {
    let outcomes: Vec<&Value> = rows.iter().map(|row| &row["outcome"]).collect();
    assert_eq!(outcomes, [outcome], "{name}: {rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_too_long_is_a_timeout() {
    let house = Arc::new(House::open("timeout = \"1s\"").await);
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            let late = silent(&house, &client, (&name, &name)).await.wait(SOON).await.expect_err("too late");
            // Of an answer that has begun there is no more than its end.
            let begun = way.front == Front::Serve && way.back == Back::Events;
            let said = late.text().contains("did not answer within 1 s");
            assert!(said || begun && late == Failure::Closed, "{name}: {late:?}");
            let rows = house.ended(&["--session", &name], 1).await;
            check(&rows, "timeout", &name);
            let took = rows[0]["duration_ms"].as_f64().unwrap_or_default();
            assert!((900.0..4000.0).contains(&took), "{name}: {rows:?}");
        }
    }))
    .await;
    house.verifies();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_cancelled_was_under_way_and_is_canceled() {
    let house = Arc::new(House::open("").await);
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            let started = silent(&house, &client, (&name, &name)).await;
            check_under_way(&house.until(&["--session", &name], |rows| rows.len() == 1).await, &name);
            let id = started.id.clone();
            if way.cancels_by_leaving() {
                started.abandon();
            } else {
                client.cancel(&id).await;
            }
            check(&house.ended(&["--session", &name], 1).await, "canceled", &name);
        }
    }))
    .await;
    house.verifies();
}

/// In the old era a client that goes away may come back; the call goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_is_no_cancel_in_the_old_era() {
    let house = House::open("").await;
    let client = house.connect(Front::Serve, "pipe", Era::Legacy).await;
    let started = silent(&house, &client, ("s", "left")).await;
    let id = started.id.clone();
    started.abandon();
    // What happens to it next comes after whatever leaving could have done.
    let after = json!({ "name": "fine", "arguments": {}, "_meta": mine("s", "after") });
    client.request("tools/call", after).await.expect("answered");
    house.until(&["--call", "after", "--outcome", "ok"], |rows| rows.len() == 1).await;
    check_under_way(&house.rows(&["--call", "left"]), "left");
    client.cancel(&id).await;
    check(&house.ended(&["--call", "left"], 1).await, "canceled", "cancelled after all");
}

/// A host that has said its last word may still want answers; one that ends us does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_ends_takes_its_calls_along() {
    let house = Arc::new(House::open("").await);
    at_once(Way::all().into_iter().filter(|way| way.front == Front::Wrap).map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            let _started = silent(&house, &client, (&name, &name)).await;
            kill(client.pid(), Signal::SIGTERM);
            client.end().await;
            // All is written when the process is gone: nobody comes after it.
            check(&house.rows(&["--session", &name]), "canceled", &name);
        }
    }))
    .await;
    house.verifies();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_told_to_end_knows_how_its_calls_ended() {
    let mut house = House::open("").await;
    let mut clients = Vec::new();
    for way in Way::all().into_iter().filter(|way| way.front == Front::Serve) {
        let (client, name) = (house.client(way).await, way.name());
        clients.push((silent(&house, &client, (&name, &name)).await, client, name));
    }
    assert_eq!(house.gateway.terminate(SOON * 3).await, Some(0), "{}", house.gateway.log());
    let rows = house.rows(&[]);
    assert_eq!(rows.len(), clients.len(), "{rows:?}");
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| row["outcome"] != "canceled" && row["outcome"] != "failed")
        .map(|row| format!("{}: {}", row["session"], row["outcome"]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    house.verifies();
}

/// A session of the old era that its client ends takes its calls along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_deleted_takes_its_calls_along() {
    let house = House::open("").await;
    for back in Back::ALL {
        let client = house.connect(Front::Serve, back.server(), Era::Legacy).await;
        let name = format!("deleted-{}", back.server());
        let _started = silent(&house, &client, (&name, &name)).await;
        let ended = client.raw().delete(&[]).await.status;
        assert!(matches!(ended, 200 | 202 | 204 | 404 | 405), "{name}: {ended}");
        // A server without sessions has none to end, and its call goes on.
        if back == Back::Pipe || back == Back::Old {
            let rows = house.ended(&["--session", &name], 1).await;
            check(&rows, "canceled", &name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_knows_how_a_call_ended_whose_gateway_was_killed() {
    let mut house = House::open("").await;
    let mut clients = Vec::new();
    for way in Way::all() {
        let (client, name) = (house.client(way).await, way.name());
        let started = silent(&house, &client, (&name, &name)).await;
        check_under_way(&house.until(&["--session", &name], |rows| rows.len() == 1).await, &name);
        clients.push((way, client, name, started));
    }
    for (way, client, ..) in &clients {
        if way.front == Front::Wrap {
            kill(client.pid(), Signal::SIGKILL);
            // Waits for it, as a host does.
            client.end().await;
        }
    }
    house.gateway.kill();
    for (_, _, name, _) in &clients {
        let rows = house.rows(&["--session", name]);
        check(&rows, "unknown", name);
        assert_eq!(rows[0]["duration_ms"], Value::Null, "{name}: {rows:?}");
    }
    let unknown = house.rows(&["--outcome", "unknown"]);
    assert_eq!(unknown.len(), clients.len(), "they can be asked for");
    house.verifies();
}

/// A server that dies takes all its calls along, and each of them has failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_fails_every_call_it_had() {
    let house = House::open("").await;
    for front in [Front::Wrap, Front::Serve] {
        let (client, name) = (house.connect(front, "pipe", Era::Legacy).await, format!("{front:?}"));
        let (one, two) = (format!("{name}-1"), format!("{name}-2"));
        let waiting =
            [silent(&house, &client, (&name, &one)).await, silent(&house, &client, (&name, &two)).await];
        let params =
            json!({ "name": "hang-up", "arguments": {}, "_meta": mine(&name, &format!("{name}-3")) });
        let died = client.request("tools/call", params).await.expect_err("it is gone");
        assert_eq!(name_of(&died), "server_exited", "{name}: {died:?}");
        for call in waiting {
            assert!(call.wait(SOON).await.is_err(), "{name}");
        }
        let rows = house.ended(&["--session", &name], 3).await;
        assert_eq!(rows.len(), 3, "{name}: {rows:?}");
        for call in [one, two, format!("{name}-3")] {
            let row = house.one(&call);
            assert_eq!(
                (&row["outcome"], &row["reason"]),
                (&json!("failed"), &json!("server_exited")),
                "{row}"
            );
        }
    }
}
