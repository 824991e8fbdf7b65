//! Engines that go away for a while, in the middle of everything: what was acknowledged is done all the same.

use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Kind, PrivateEngine};

use crate::rig::{Client, Rig, SOON, TURN};

pub(crate) fn rig_on(engine: &PrivateEngine, more: &str) -> Rig {
    let mut rig = Rig::with(&format!("runtime = \"docker\"\nimage = \"{IMAGE}\"\n{more}"));
    rig.set("DOCKER_HOST", &engine.host());
    rig.serve();
    rig
}

/// Of containers that run.
pub(crate) fn running(engine: &PrivateEngine) -> Vec<String> {
    let listed: Value = serde_json::from_str(&engine.api("GET", "/containers/json", None)).unwrap();
    let mut ids: Vec<String> =
        listed.as_array().unwrap().iter().map(|one| one["Id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

#[track_caller]
fn completed(client: &Client, session: &str, run: &str, output: &str) {
    let ended = client.wait(session, run, TURN);
    assert_eq!((&ended["status"], &ended["final_output"]), (&json!("completed"), &json!(output)), "{ended}");
}

/// Killed with a turn in one box, a task that waits for another, and one that is canceled; then the daemon as well.
#[test]
fn an_engine_that_crashes_and_comes_back_costs_no_run() {
    let mut engine = PrivateEngine::start(Kind::DockerLive);
    let mut rig = rig_on(&engine, "");
    let client = rig.client();
    let (one, two, three) = (client.create("one"), client.create("two"), client.create("three"));
    client.complete(&one, json!([{ "text": "ready" }]));
    let before = running(&engine);

    let under_way = client.submit(&one, json!([{ "delay": 9000 }, { "text": "over a crash" }]));
    let next = client.submit(&one, json!([{ "text": "the next in line" }]));
    rig.wait_begun("over a crash");
    engine.tell("kill");
    rig.until(SOON, "the engine to be gone", || engine.api("GET", "/_ping", None).is_empty());
    let queued = client.submit(&two, json!([{ "text": "waited for" }]));
    let unwanted = client.submit(&three, json!([{ "text": "never" }]));
    for run in [&queued, &unwanted] {
        rig.until(SOON, "it to be said what is waited for", || {
            client.log(run).contains("waits for the container engine")
        });
    }
    let since = Instant::now();
    client.call("cancel_run", json!({ "run_id": unwanted }));
    let ended = client.wait(&three, &unwanted, SOON);
    assert_eq!(ended["status"], "canceled", "{ended}");
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    // A daemon that starts meanwhile is there at once, and takes everything over.
    rig.kill();
    let since = Instant::now();
    rig.serve();
    client.call("list_sessions", json!({}));
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    thread::sleep(Duration::from_secs(3));
    engine.tell("start");
    engine.wait_up();
    completed(&client, &one, &under_way, "over a crash");
    completed(&client, &one, &next, "the next in line");
    completed(&client, &two, &queued, "waited for");
    assert!(running(&engine).contains(&before[0]), "the box of the turn was made anew");
    // A request that was under way when the daemon was killed is made again, within the same turn.
    assert_eq!(rig.prompts_with("over a crash"), 1, "the prompt was sent twice");
}

#[test]
fn an_engine_that_hangs_for_ten_seconds_costs_no_run() {
    let mut engine = PrivateEngine::start(Kind::Docker);
    let rig = rig_on(&engine, "");
    let client = rig.client();
    let (one, two) = (client.create("one"), client.create("two"));
    let under_way = client.submit(&one, json!([{ "delay": 6000 }, { "text": "over a pause" }]));
    rig.wait_begun("over a pause");
    engine.tell("freeze");
    let queued = client.submit(&two, json!([{ "text": "waited for" }]));
    thread::sleep(Duration::from_secs(10));
    // It is reached without the engine.
    completed(&client, &one, &under_way, "over a pause");
    engine.tell("thaw");
    completed(&client, &two, &queued, "waited for");
}

#[test]
fn a_box_that_went_with_its_engine_ends_its_run_and_the_next_has_a_new_one() {
    let mut engine = PrivateEngine::start(Kind::Docker);
    let rig = rig_on(&engine, "");
    let client = rig.client();
    let session = client.create("one");
    let lost = client.submit(&session, json!([{ "delay": 60000 }, { "text": "never" }]));
    let next = client.submit(&session, json!([{ "text": "in a new box" }]));
    rig.wait_begun("never");
    engine.tell("kill");
    rig.until(SOON, "the engine to be gone", || engine.api("GET", "/_ping", None).is_empty());
    engine.tell("start");
    let ended = client.wait(&session, &lost, TURN);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("agent_crashed")),
        "{ended}"
    );
    completed(&client, &session, &next, "in a new box");
}

/// What else the daemon does is not held up: it starts, and local sessions run.
#[test]
fn an_engine_that_never_answers_holds_up_nothing_but_its_own_boxes() {
    let mut rig = Rig::with("");
    let socket = rig.path().join("mute.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            thread::spawn(move || {
                let _all = connection.read_to_end(&mut Vec::new());
            });
        }
    });
    rig.set("DOCKER_HOST", &format!("unix://{}", socket.display()));
    rig.serve();
    let client = rig.client();
    let (one, two) = (client.create("one"), client.create("two"));
    client.complete(&one, json!([{ "text": "ready" }]));
    rig.kill();
    // As if the box of another session had been a container.
    std::fs::create_dir_all(rig.state().join("containers").join(&two)).unwrap();
    let since = Instant::now();
    rig.serve();
    client.call("list_sessions", json!({}));
    let started = since.elapsed();
    client.complete(&one, json!([{ "text": "still here" }]));
    assert!(started < Duration::from_secs(6), "{started:?}");
}
