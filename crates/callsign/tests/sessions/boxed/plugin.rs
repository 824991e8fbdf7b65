//! The plugin is at work in a box that cannot fetch anything, and the agent does not wait for what it cannot fetch.

use std::time::{Duration, Instant};

use serde_json::json;

use super::servers::{NAMED, Servers, identity};
use super::{Lodging, rig};
use crate::rig::{TURN, text};

/// From an agent that listens to its first request to the model. One that waits for a package takes more than 30 s.
const FIRST: Duration = Duration::from_secs(15);
#[test]
fn the_plugin_works_in_a_box() {
    let servers = Servers::start();
    let mut rig = rig(&servers.tables(), NAMED);
    rig.serve();
    let client = rig.client();
    let lodging = Lodging::new(&client, "plugin");
    let began = Instant::now();
    let call = json!({ "tool": "std/echo", "args": { "text": "who am I" } });
    let run = client.submit(&lodging.id, json!([call, { "text": "the first turn" }]));
    let path = rig.state().join("sessions").join(&lodging.id).join("access.json");
    rig.until(TURN, "the agent to listen", || path.is_file() && lodging.access(&rig)["heard"] == true);
    let listened = Instant::now();
    rig.wait_begun("the first turn");
    let first = listened.elapsed();
    println!(
        "listening after {:.1} s; the first request {first:.1?} later",
        began.elapsed().as_secs_f32() - first.as_secs_f32()
    );
    let ended = client.wait(&lodging.id, &run, TURN);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(first < FIRST, "the first prompt took {first:?}");
    let called = servers.called("std");
    let [call] = called.as_slice() else { panic!("{} calls", called.len()) };
    assert!(text(&identity(call)["thread"]).starts_with("ses_"), "the plugin says nothing: {}", call.raw);
    // It asked for nothing that it could not have.
    assert!(!rig.log().contains("not reached"), "{}", rig.log());
}
