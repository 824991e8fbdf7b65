//! Boxes that are kept ready: real ones, with the real agent in them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::rig::{Rig, TURN, bash, text};

/// One is there before anybody asks, and the session that is made next has it. Its neighbour has another.
#[test]
fn a_session_gets_a_box_that_runs_already_and_nobody_gets_it_again() {
    let mut rig = Rig::with("warm = 1\nmax_hot = 3\n");
    rig.serve();
    // Whoever is asked for with the settings of a host's entry is another kind than what the file says.
    let client = rig.client();
    let first = client.create("the first of its kind");
    rig.until(TURN, "a box to be kept ready", || rig.hot().iter().any(|name| *name != first));
    let mut sessions = vec![first];
    for name in ["one", "two"] {
        let known: Vec<String> = sessions.clone();
        rig.until(TURN, "a box that is nobody's", || {
            let mut hot = rig.hot();
            hot.retain(|name| !known.contains(name));
            hot.len() == 1
        });
        // It listens a while after it is there.
        let began = Instant::now();
        let session = loop {
            let view = client.call("create_or_reuse_session", json!({ "reuse_key": name, "name": name }));
            let session = text(&view["session"]["id"]);
            if rig.hot().contains(&session) {
                break session;
            }
            client.call("terminate_session", json!({ "session_id": session, "keep": false }));
            assert!(began.elapsed() < TURN, "no session ever gets the box that is there");
            std::thread::sleep(Duration::from_millis(500));
        };
        let before = keeper(&rig, &session);
        let task = json!([bash("echo here > made.txt; ls /workspace"), { "text": "done" }]);
        let run = client.complete(&session, task);
        assert_eq!(run["final_output"], "done", "{run}");
        assert_eq!(keeper(&rig, &session), before, "another box was started");
        let made = std::path::PathBuf::from(text(&client.session(&session)["workspace"])).join("made.txt");
        assert_eq!(std::fs::read_to_string(made).expect("it was made"), "here\n");
        assert!(client.log(&text(&run["id"])).contains("box found in"), "{}", client.log(&text(&run["id"])));
        sessions.push(session);
    }
    // Killed with it, none is left: the next daemon has one of its own.
    let nobodys = |rig: &Rig| rig.hot().into_iter().find(|name| !sessions.contains(name));
    rig.until(TURN, "another one", || nobodys(&rig).is_some());
    let before = nobodys(&rig);
    rig.kill();
    rig.serve();
    rig.until(TURN, "what was nobody's to be gone", || nobodys(&rig) != before);
    let run = client.complete(&sessions[2], json!([{ "text": "still here" }]));
    assert_eq!(run["final_output"], "still here", "{run}");
    rig.stop();
    assert_eq!(rig.hot(), Vec::<String>::new());
}

fn keeper(rig: &Rig, session: &str) -> u32 {
    let found = rig.boxes().into_iter().find(|found| found.session == session);
    found.expect("it has a box").keeper
}
