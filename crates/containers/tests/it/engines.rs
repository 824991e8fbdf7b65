//! Engines that hang, change and differ: a box stays with the one that made it.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{BoxName, BoxState, How};
use serde_json::json;

use crate::harness::{Daemon, Kind, World, until};

/// Takes what it is told and says nothing. Ends with the process.
fn mute(socket: &std::path::Path) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            thread::spawn(move || {
                let _all = connection.read_to_end(&mut Vec::new());
            });
        }
    });
}

#[test]
fn a_daemon_does_not_wait_for_an_engine_that_hangs_and_forgets_no_box() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("mute.sock");
    mute(&socket);
    let root = directory.path().join("boxes");
    fs::create_dir_all(root.join("one")).unwrap();
    let mut daemon = Daemon::alone(&root, &socket);
    let since = Instant::now();
    let found: Vec<(BoxName, BoxState)> = daemon.get(&json!("FindAll"));
    // Two, and what a busy machine takes to start the daemon itself; asked to the end, it would be twenty.
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!(found, [(BoxName::new("one").unwrap(), BoxState::Unknown)]);
    // Many who ask at once wait once.
    let since = Instant::now();
    let error = daemon.error(&json!({ "StateMany": ["one", 8] }));
    assert!(error.contains("did not answer within 20 s"), "{error}");
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

#[test]
fn a_box_stays_with_the_engine_that_made_it_whichever_is_at_hand() {
    let mut first = World::new(Kind::DockerLive);
    let second = World::new(Kind::Podman);
    let spec = first.spec("one", "");
    let mut daemon = first.daemon();
    assert_eq!(daemon.start(&spec).how, How::Made);
    first.wait_done("one");
    drop(daemon);

    // Another `DOCKER_HOST`: it is found where it is.
    let mut daemon = first.daemon_of(&first.owner, &second.at("engine.sock"), None);
    let found = daemon.found();
    assert!(matches!(found.as_slice(), [(_, BoxState::Running(_))]), "{found:?}");
    assert_eq!(daemon.start(&spec).how, How::Found);
    let owner = first.owner.clone();
    let elsewhere = || second.api("GET", "/containers/json?all=1", None).contains(&owner);
    assert!(!elsewhere(), "a second box was made");

    // Nobody can ask whether it runs: nothing is started beside it, and nothing is forgotten.
    first.tell("kill");
    until(|| first.api("GET", "/_ping", None).is_empty(), "the engine to be gone");
    let address = first.at("engine.sock").display().to_string();
    for request in [json!({ "State": "one" }), json!({ "Start": spec }), json!({ "Forget": "one" })] {
        let error = daemon.error(&request);
        let says = |word: &str| error.contains(word);
        assert!(
            says(&address)
                && says("not the one at hand")
                && says("no second box")
                && says("terminate_session"),
            "{request}: {error}"
        );
    }
    assert!(!elsewhere() && first.at(&format!("boxes-{}/one", first.owner)).is_dir());
    let found = daemon.found();
    assert_eq!(found, []);

    // It is back, and so is the box. Once that has ended, the next one is the other engine's.
    first.tell("start");
    first.wait_up();
    assert!(matches!(daemon.state("one"), BoxState::Running(_)), "the box is not known again");
    let state: BoxState = daemon.get(&json!({ "Kill": "one" }));
    assert!(matches!(state, BoxState::Ended(_)), "{state:?}");
    fs::remove_file(spec.workspace.join(".done")).unwrap();
    assert_eq!(daemon.start(&spec).how, How::Made);
    first.wait_done("one");
    assert!(elsewhere(), "{}", second.api("GET", "/containers/json?all=1", None));
    assert!(!first.api("GET", "/containers/json?all=1", None).contains(&first.owner), "the old one was left");
    first.clear(daemon);
}

#[test]
fn another_engine_at_the_same_address_is_not_asked_for_the_box() {
    let world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    daemon.start(&world.spec("one", ""));
    let note = world.at(&format!("boxes-{}/one/engine.json", world.owner));
    let kept = fs::read_to_string(&note).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&kept).unwrap();
    other["id"] = json!("another");
    fs::write(&note, other.to_string()).unwrap();
    let error = daemon.error(&json!({ "State": "one" }));
    assert!(error.contains("another engine answers there now") && error.contains("remove"), "{error}");
    fs::write(&note, kept).unwrap();
    assert!(matches!(daemon.state("one"), BoxState::Running(_)));
    world.clear(daemon);
}

#[test]
fn a_container_is_run_with_the_runtime_that_was_named() {
    let world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    for (runtime, expected) in [(Some("second"), "second"), (None, "runc")] {
        let mut spec = world.spec("one", "");
        spec.oci_runtime = runtime.map(str::to_owned);
        daemon.start(&spec);
        let found = world.inspect(&world.container("one"));
        assert_eq!(found["HostConfig"]["Runtime"], json!(expected));
        daemon.ask(&json!({ "Kill": "one" }));
    }
    world.clear(daemon);
}
