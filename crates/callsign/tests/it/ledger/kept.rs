//! Ledgers that cannot be used: calls go on, nothing is written over, and the log says what to do.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use testkit::client::Era;
use testkit::harness::wait_until;

use super::rig::{Front, House, MINE, Way, at_once, call, mine, outcomes, with_echo};
use crate::support::{SOON, setup};

/// A ledger of a version that does not exist yet.
async fn newer() -> Vec<u8> {
    let setup = with_echo(setup().toml(MINE), "");
    let (client, files) = setup.wrap_named(Era::Legacy, "echo", &[]);
    client.connect().await.expect("connected");
    call(&client, "echo", mine("s", "c"), json!({ "text": "x" })).await.expect("answered");
    assert_eq!(client.end().await, Some(0), "{}", client.stderr());
    let mut bytes = std::fs::read(files.state().join("ledger.db")).expect("a ledger");
    assert!(bytes.starts_with(b"SQLite format 3\0"), "a database, and all of it is in the file");
    // SQLite's header has the version of the schema here.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    bytes
}

fn put(ledger: &Path, bytes: &[u8]) {
    for end in ["-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{end}", ledger.display())));
    }
    let new = ledger.with_extension("new");
    std::fs::write(&new, bytes).expect("a file");
    std::fs::rename(new, ledger).expect("in its place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_cannot_be_used_stops_no_call_and_stays_as_it_is() {
    let damaged = b"this is no database at all, and somebody may want to look at it\n".repeat(200);
    let kinds = [("damaged", damaged, "damaged"), ("newer", newer().await, "newer version")];
    for (kind, bytes, says) in kinds {
        let house = Arc::new(House::open("").await);
        let ledger = house.ledger().await;
        put(&ledger, &bytes);
        at_once(Way::all().into_iter().map(|way| {
            let house = Arc::clone(&house);
            async move {
                let (client, name) = (house.client(way).await, format!("{kind}: {}", way.name()));
                call(&client, "fine", mine(&way.name(), &way.name()), json!({})).await.expect("calls go on");
                let log = || if way.front == Front::Wrap { client.stderr() } else { house.gateway.log() };
                let said = || log().lines().any(|line| line.contains("ledger.db") && line.contains(says));
                assert!(wait_until(SOON, said).await, "{name}: it says what is wrong: {}", log());
                let times =
                    log().lines().filter(|line| line.contains("ledger.db") && line.contains(says)).count();
                assert!(times <= 2, "{name}: not with every call: {}", log());
            }
        }))
        .await;
        assert!(std::fs::read(&ledger).expect("a file") == bytes, "{kind}: the file was changed");
        let (code, output, errors) = house.gateway.run(&["calls", "--json"]);
        assert!(code != Some(0) && errors.contains(says), "{kind}: {code:?} {output}{errors}");
        assert!(std::fs::read(&ledger).expect("a file") == bytes, "{kind}: the file was changed");
    }
}

/// What was made meanwhile is written when somebody has moved the damaged file away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_wait_for_a_ledger_that_can_be_written() {
    let house = House::open("").await;
    let ledger = house.ledger().await;
    put(&ledger, b"this is no database at all".repeat(99).as_slice());
    let client = house.connect(Front::Serve, "pipe", Era::Legacy).await;
    for (tool, name) in [("fine", "1"), ("tool-error", "2"), ("rpc-error", "3")] {
        drop(call(&client, tool, mine("s", name), json!({})).await);
    }
    assert!(wait_until(SOON, || house.gateway.log().contains("damaged")).await, "{}", house.gateway.log());
    std::fs::rename(&ledger, ledger.with_extension("moved")).expect("moved away");
    drop(call(&client, "fine", mine("s", "4"), json!({})).await);
    let deadline = std::time::Instant::now() + SOON * 3;
    let mut rows = Vec::new();
    while rows.len() < 4 && std::time::Instant::now() < deadline {
        rows = house.until(&["--session", "s"], |rows| rows.len() == 4).await;
    }
    let wanted = [("fine", "ok"), ("tool-error", "tool_error"), ("rpc-error", "failed"), ("fine", "ok")];
    assert_eq!(outcomes(&rows), wanted.map(|(a, b)| (a.to_owned(), b.to_owned())), "{}", house.gateway.log());
    house.verifies();
}

/// What is in the state directory under the ledger's name.
fn files(state: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state).expect("a directory");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("ledger")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_where_nothing_is_wanted() {
    let house = Arc::new(House::with(setup().toml("[ledger]\nenabled = false"), "").await);
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let client = house.client(way).await;
            call(&client, "fine", mine(&way.name(), &way.name()), json!({})).await.expect("answered");
            client.end().await;
        }
    }))
    .await;
    assert_eq!(files(&house.gateway.files.state()), Vec::<String>::new());
    assert_eq!(house.rows(&[]), Vec::<serde_json::Value>::new());
}

/// Only its user may read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_is_its_users_own() {
    use std::os::unix::fs::PermissionsExt as _;
    let house = House::open("").await;
    let client = house.connect(Front::Serve, "pipe", Era::Legacy).await;
    call(&client, "fine", mine("s", "c"), json!({})).await.expect("answered");
    house.ended(&["--session", "s"], 1).await;
    let state = house.gateway.files.state();
    let names = files(&state);
    assert!(names.iter().any(|name| name == "ledger.db"), "{names:?}");
    for name in names.iter().filter(|name| *name != "ledger.pub") {
        let mode = std::fs::metadata(state.join(name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is {mode:o}");
    }
}
