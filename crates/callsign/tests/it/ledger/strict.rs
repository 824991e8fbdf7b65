//! `strict`: no call goes out whose row is not on the disk.

use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use super::rig::{House, Way, at_once, call, mine, objects};
use crate::support::{CALLSIGN, name_of, setup};

async fn strict() -> House {
    House::with(setup().toml("[ledger]\nstrict = true"), "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_asked_finds_the_call_in_the_ledger() {
    let house = Arc::new(strict().await);
    let state = house.gateway.files.state();
    // The tool reads the ledger as anybody would, by the name of its own call.
    house.played.look(move |arrived| {
        let call = arrived.meta()["mine/call"].as_str().unwrap_or_default().to_owned();
        let arguments = ["calls", "--json", "--limit", "0", "--call", call.as_str(), "--state-dir"];
        let output = Command::new(CALLSIGN).args(arguments).arg(&state).output().expect("callsign runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            for number in 0..3 {
                let call_name = way.call(&number.to_string());
                let answer =
                    call(&client, "fine", mine(&name, &call_name), json!({})).await.expect("answered");
                let seen = objects(&testkit::client::text(&answer));
                assert_eq!(seen.len(), 1, "{name}: {answer}");
                assert_eq!(
                    (&seen[0]["call"], &seen[0]["outcome"]),
                    (&json!(call_name), &Value::Null),
                    "{name}"
                );
            }
            let rows = house.ended(&["--session", &name], 3).await;
            assert!(rows.len() == 3 && rows.iter().all(|row| row["outcome"] == "ok"), "{name}: {rows:?}");
        }
    }))
    .await;
    house.verifies();
}

/// Whether a ledger that cannot be written was there at the start or came later.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Since {
    Start,
    Later,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_cannot_be_noted_is_not_made() {
    for since in [Since::Start, Since::Later] {
        let house = Arc::new(strict().await);
        let ledger = house.ledger().await;
        let mut clients = Vec::new();
        if since == Since::Later {
            for way in Way::all() {
                clients.push((way, house.client(way).await));
            }
        }
        for end in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{end}", ledger.display())));
        }
        std::fs::create_dir(&ledger).expect("a directory in its place");
        if since == Since::Start {
            for way in Way::all() {
                clients.push((way, house.client(way).await));
            }
        }
        at_once(clients.into_iter().map(|(way, client)| {
            let house = Arc::clone(&house);
            async move {
                let name = format!("{} {since:?}", way.name());
                let failure = call(&client, "fine", mine(&way.name(), &way.name()), json!({})).await;
                let failure = failure.expect_err("it cannot be noted");
                assert_eq!(
                    (failure.code(), name_of(&failure).as_str()),
                    (Some(-31025), "ledger_unavailable"),
                    "{name}: {failure:?}"
                );
                assert_eq!(house.played.of(&way.name()).len(), 0, "{name}: the server was asked");
                client
                    .request("tools/list", json!({}))
                    .await
                    .unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
            }
        }))
        .await;
    }
}

/// When there is a ledger again, calls are made again, without anybody being started anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_made_again_when_they_can_be_noted() {
    let house = strict().await;
    let ledger = house.ledger().await;
    for end in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{end}", ledger.display())));
    }
    std::fs::create_dir(&ledger).expect("a directory in its place");
    let client = house.connect(super::rig::Front::Serve, "pipe", testkit::client::Era::Modern).await;
    call(&client, "fine", mine("s", "first"), json!({})).await.expect_err("it cannot be noted");
    std::fs::remove_dir(&ledger).expect("it can be written again");
    let mut made = false;
    for number in 0..100 {
        made = call(&client, "fine", mine("s", &format!("again-{number}")), json!({})).await.is_ok();
        if made {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(made, "{}", house.gateway.log());
    let rows = house.until(&["--outcome", "ok"], |rows| rows.len() == 1).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
}
