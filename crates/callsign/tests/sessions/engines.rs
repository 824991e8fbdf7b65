//! Sessions whose boxes are containers, on engines of the test's own.

use serde_json::json;
use testkit::engine::{IMAGE, Kind, PrivateEngine};

use crate::rig::{Rig, TURN, bash};

/// Made, worked in, killed with, found again, and gone.
fn a_container_does_what_a_local_box_does(kind: Kind) {
    let engine = PrivateEngine::start(kind);
    let mut rig = Rig::with(&format!("runtime = \"docker\"\nimage = \"{IMAGE}\"\n"));
    rig.set("DOCKER_HOST", &engine.host());
    rig.serve();
    let client = rig.client();
    let session = client.create("in a container");
    let work = "echo from-inside > made.txt; id -u; cat /proc/net/route | wc -l; env | grep -c CANARY";
    let run = client.complete(&session, json!([bash(work), { "text": "done" }]));
    assert_eq!(run["final_output"], "done", "{run}");
    let shown = client.session(&session);
    assert_eq!((&shown["runtime"], &shown["image"]), (&json!("docker"), &json!(IMAGE)), "{shown}");
    let made = std::path::PathBuf::from(crate::rig::text(&shown["workspace"])).join("made.txt");
    assert_eq!(std::fs::read_to_string(made).expect("it was made"), "from-inside\n");
    let containers = || engine.api("GET", "/containers/json?all=true", None);
    assert!(containers().contains(&session), "{}", containers());
    assert!(rig.boxes().is_empty(), "no local box");

    let run = client.submit(&session, json!([{ "delay": 4000 }, { "text": "over a kill" }]));
    rig.wait_begun("over a kill");
    let before = containers();
    rig.kill();
    rig.serve();
    let ended = client.wait(&session, &run, TURN);
    assert_eq!(
        (&ended["status"], &ended["final_output"]),
        (&json!("completed"), &json!("over a kill")),
        "{ended}"
    );
    let id = |listed: &str| serde_json::from_str::<serde_json::Value>(listed).expect("JSON")[0]["Id"].clone();
    assert_eq!(id(&containers()), id(&before), "another box was started");

    client.call("terminate_session", json!({ "session_id": session, "keep": false }));
    rig.until(TURN, "the container to be gone", || !containers().contains(&session));
}

#[test]
fn docker() {
    a_container_does_what_a_local_box_does(Kind::Docker);
}

#[test]
fn podman() {
    a_container_does_what_a_local_box_does(Kind::Podman);
}
