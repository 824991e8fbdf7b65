//! Another engine than the one that keeps a session's box, and another runtime of an engine.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::engine::{Kind, PrivateEngine};

use crate::away::{rig_on, running};
use crate::rig::{TURN, text};

#[test]
fn a_session_has_no_second_box_at_another_engine_and_still_ends() {
    let (mut old, new) = (PrivateEngine::start(Kind::DockerLive), PrivateEngine::start(Kind::Docker));
    let mut rig = rig_on(&old, "");
    let client = rig.client();
    let session = client.create("one");
    client.complete(&session, json!([{ "text": "ready" }]));
    let before = running(&old);
    rig.kill();
    rig.set("DOCKER_HOST", &new.host());

    // It answers where it was: the box is used as it is.
    rig.serve();
    let run = client.complete(&session, json!([{ "text": "found again" }]));
    assert_eq!(run["final_output"], "found again", "{run}");
    assert_eq!((running(&old), running(&new)), (before.clone(), Vec::new()));

    old.tell("kill");
    rig.until(TURN, "the engine to be gone", || old.api("GET", "/_ping", None).is_empty());
    let run = client.submit(&session, json!([{ "text": "never" }]));
    let ended = client.wait(&session, &run, TURN);
    let message = text(&ended["error"]["message"]);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("engine_changed")),
        "{ended}"
    );
    assert!(message.contains(&old.host()) && message.contains("no second box"), "{message}");
    assert_eq!(running(&new), Vec::<String>::new());

    client.call("terminate_session", json!({ "session_id": session, "keep": true }));
    rig.until(TURN, "the session to end", || client.session(&session)["status"] == "terminated");
    // The next daemon with that engine finds the box of nobody, and ends it.
    rig.stop();
    old.tell("start");
    old.wait_up();
    assert_eq!(running(&old), before);
    rig.set("DOCKER_HOST", &old.host());
    rig.serve();
    rig.until(TURN, "the box to be gone", || running(&old).is_empty());
}

#[test]
fn a_session_is_run_with_the_runtime_that_isolation_names_or_refused() {
    let engine = PrivateEngine::start(Kind::Docker);
    let mut rig = rig_on(&engine, "isolation = \"second\"\n");
    let client = rig.client();
    let session = client.create("one");
    client.complete(&session, json!([{ "text": "ready" }]));
    let id = running(&engine).remove(0);
    let found: Value =
        serde_json::from_str(&engine.api("GET", &format!("/containers/{id}/json"), None)).unwrap();
    assert_eq!(found["HostConfig"]["Runtime"], json!("second"));
    rig.stop();

    let config: PathBuf = rig.config();
    let written = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, written.replace("\"second\"", "\"runsc\"")).unwrap();
    rig.serve();
    let refused = client.try_call("create_or_reuse_session", json!({ "reuse_key": "two" })).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("has no runtime runsc, but") && refused.contains("second"), "{refused}");
    // One that was made before is told the same by its next task.
    let run = client.submit(&session, json!([{ "text": "never" }]));
    let ended = client.wait(&session, &run, TURN);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("no_box")), "{ended}");
}
