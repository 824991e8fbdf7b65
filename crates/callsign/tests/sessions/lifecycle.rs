//! How long boxes, daemons and hosts live, and what of a session outlives them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::client::Era;
use testkit::harness::alive;
use testkit::llm::script;

use crate::rig::{Rig, SOON, TURN, bash, text};

/// A session of nobody: as ids are written, and of no row.
const STRANGER: &str = "sn_0000000000abcdefghjkmnpqrs";
/// Takes out every row that names a session.
const FORGET: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for (name,) in db.execute(\"select name from sqlite_master where type = 'table'\").fetchall():
    columns = [row[1] for row in db.execute(f'pragma table_info({name})')]
    column = 'id' if name == 'sessions' else 'session'
    if column in columns:
        db.execute(f'delete from {name} where {column} = ?', [sys.argv[2]])
db.commit()
";

#[test]
fn an_idle_box_stops_and_wakes_with_its_data_and_its_conversation() {
    let mut rig = Rig::with("idle = \"2s\"");
    rig.serve();
    let client = rig.client();
    let session = client.create("idle");
    let steps = json!([bash("echo kept > /workspace/kept.txt"), { "text": "the word is rosebud" }]);
    client.complete(&session, steps);
    // A run is over a moment before its box rests.
    rig.until(SOON, "the box to rest", || client.session(&session)["status"] == "ready");
    let before = rig.boxes();
    assert_eq!(before.len(), 1, "{before:?}");
    rig.until(SOON * 2, "the idle box to stop", || rig.boxes().is_empty());
    rig.until(SOON, "the session to say so", || client.session(&session)["status"] == "stopped");

    let second = client.complete(&session, json!([bash("cat /workspace/kept.txt"), { "text": "awake" }]));
    assert_eq!(second["final_output"], "awake");
    let asked = rig.model().asked();
    let last = asked.iter().rfind(|asked| asked.body.to_string().contains("awake")).expect("it was asked");
    let conversation = last.body["messages"].to_string();
    assert!(conversation.contains("the word is rosebud"), "the conversation was lost: {conversation}");
    assert!(conversation.contains("kept\\n"), "the file was lost: {conversation}");
    assert_ne!(rig.boxes().first().map(|found| found.keeper), before.first().map(|found| found.keeper));
}

#[test]
fn never_more_boxes_than_max_hot_and_the_least_recently_used_goes_first() {
    let mut rig = Rig::with("max_hot = 2");
    rig.serve();
    let client = rig.client();
    let over = AtomicBool::new(false);
    let most = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let hot = rig.hot();
                let mut most = most.lock().expect("nobody failed with it");
                if hot.len() > most.len() {
                    *most = hot;
                }
                drop(most);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // However this ends, the other thread is told.
        let _told = Told(&over);
        let sessions: Vec<String> = (1..=4).map(|number| client.create(&format!("hot-{number}"))).collect();
        let use_it = |number: usize| client.complete(&sessions[number - 1], json!([{ "text": "used" }]));
        let hot = |numbers: [usize; 2]| {
            let mut expected: Vec<String> = numbers.map(|number| sessions[number - 1].clone()).into();
            expected.sort();
            rig.until(SOON, &format!("{numbers:?} to be hot"), || rig.hot() == expected);
        };
        use_it(1);
        use_it(2);
        hot([1, 2]);
        use_it(3);
        hot([2, 3]);
        use_it(2);
        use_it(4);
        hot([2, 4]);
        // Two more than there is room for, at once.
        let runs: Vec<(String, String)> = [1, 3]
            .map(|number| {
                let session = sessions[number - 1].clone();
                let run = client.submit(&session, json!([{ "text": "at once" }]));
                (session, run)
            })
            .into();
        for (session, run) in runs {
            assert_eq!(client.wait(&session, &run, TURN)["final_output"], "at once");
        }
        hot([1, 3]);
    });
    let most = most.into_inner().expect("nobody failed with it");
    assert_eq!(most.len(), 2, "boxes at one moment: {most:?}");
}

struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn terminate_ends_box_and_runs_and_keeps_or_removes_the_directories() {
    let mut rig = Rig::new();
    rig.serve();
    let client = rig.client();
    let kept = client.create("kept");
    let workspace = PathBuf::from(text(&client.session(&kept)["workspace"]));
    let left = client.complete(&kept, json!([bash("echo left > /workspace/left.txt"), { "text": "done" }]));
    let flying = client.submit(&kept, json!([{ "delay": 120_000 }, { "text": "in flight" }]));
    let queued = client.submit(&kept, json!([{ "text": "never said" }]));
    rig.wait_begun("in flight");
    let ended = client.call("terminate_session", json!({ "session_id": kept }));
    assert_eq!(ended["session"]["id"], kept);
    for run in [&flying, &queued] {
        let ended = client.wait(&kept, run, SOON * 2);
        assert_eq!(ended["status"], "canceled", "{ended}");
    }
    rig.until(SOON * 2, "the box to go", || rig.boxes().is_empty());
    rig.until(SOON, "its end", || client.session(&kept)["status"] == "terminated");
    assert_eq!(std::fs::read_to_string(workspace.join("left.txt")).expect("kept"), "left\n");
    let rows = client.call("list_artifacts", json!({ "session_id": kept, "run_id": left["id"] }));
    let row = rows["artifacts"].as_array().and_then(|rows| rows.iter().find(|row| row["kind"] == "changed"));
    let path = row.unwrap_or_else(|| panic!("no file: {rows}"))["path"].clone();
    assert_eq!(client.call("read_artifact", json!({ "path": path }))["text"], "left\n");
    assert_eq!(rig.begun("never said"), 0, "a canceled run reached the model");

    let removed = client.create("removed");
    let session = client.session(&removed);
    let directory = PathBuf::from(text(&session["workspace"]));
    std::fs::write(directory.join("mine.txt"), "x").expect("a file");
    client.call("terminate_session", json!({ "session_id": removed, "keep": false }));
    let root = directory.parent().expect("the session's directory").to_owned();
    rig.until(SOON, "the directories to go", || !root.exists());

    let ids = |arguments: Value| -> Vec<String> {
        let listed = client.call("list_sessions", arguments);
        listed["sessions"].as_array().into_iter().flatten().map(|row| text(&row["id"])).collect()
    };
    assert_eq!(ids(json!({})), Vec::<String>::new(), "those that live");
    let mut all = ids(json!({ "all": true }));
    all.sort();
    let mut expected = vec![kept.clone(), removed.clone()];
    expected.sort();
    assert_eq!(all, expected);
    // A second time is no error, and changes nothing.
    assert_eq!(
        client.call("terminate_session", json!({ "session_id": kept }))["session"]["status"],
        "terminated"
    );
    assert!(workspace.join("left.txt").exists());
}

#[test]
fn a_run_goes_on_over_the_orderly_end_of_its_daemon() {
    let mut rig = Rig::new();
    rig.serve();
    let client = rig.client();
    let session = client.create("over a restart");
    client.complete(&session, json!([{ "text": "warm" }]));
    let before = rig.boxes();
    let run = client.submit(&session, json!([{ "delay": 5000 }, { "text": "over the end" }]));
    rig.wait_begun("over the end");
    let start = Instant::now();
    rig.stop();
    println!("the daemon ended within {:?}", start.elapsed());
    assert_eq!(rig.boxes(), before, "the box does not end with its daemon");
    rig.serve();
    let ended = client.wait(&session, &run, TURN);
    assert_eq!(
        (&ended["status"], &ended["final_output"]),
        (&json!("completed"), &json!("over the end")),
        "{ended}"
    );
    // What the model was asked while its daemon ended is asked again; the prompt itself is there once.
    let asked = rig.begun("over the end");
    assert!((1..=2).contains(&asked), "the model was asked {asked} times");
    assert_eq!(rig.prompts_with("over the end"), 1, "the prompt was sent again");
    assert_eq!(rig.boxes(), before, "another box was started");
}

/// A host that is killed takes its whole process group with it.
#[tokio::test]
async fn twenty_hosts_start_one_daemon_and_their_kill_stops_no_run() {
    let rig = Rig::new();
    let hosts: Vec<_> = (0..20).map(|_| rig.mcp(Era::Legacy)).collect();
    let mut sessions = Vec::new();
    for host in &hosts {
        host.connect()
            .await
            .unwrap_or_else(|failure| panic!("{failure:?}\n{}\n{}", host.stderr(), rig.log()));
        let made = host.call_tool("create_or_reuse_session", json!({ "reuse_key": "shared" })).await;
        sessions.push(text(&made["structuredContent"]["session"]["id"]));
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let daemon = rig.daemon_pid().expect("a daemon");
    let session = &sessions[0];
    let task = script(
        &json!([{ "delay": 2000 }, bash("sleep 1; echo on > /workspace/on.txt"), { "text": "went on" }]),
    );
    let submitted = hosts[7].call_tool("submit_task", json!({ "session_id": session, "task": task })).await;
    let run = text(&submitted["structuredContent"]["run_id"]);
    for host in &hosts {
        let group = Pid::from_raw(i32::try_from(host.pid()).expect("a pid"));
        killpg(group, Signal::SIGKILL).expect("the host and its group are there");
    }
    let dead = || hosts.iter().all(|host| !alive(host.pid()));
    assert!(testkit::harness::wait_until(SOON, dead).await, "a host is not dead");
    drop(hosts);
    assert_eq!(rig.daemon_pid(), Some(daemon), "the daemon went with its hosts:\n{}", rig.log());
    let ended = rig.client().wait(session, &run, TURN);
    assert_eq!(ended["final_output"], "went on", "{ended}");
    let workspace = text(&rig.client().session(session)["workspace"]);
    assert_eq!(std::fs::read_to_string(format!("{workspace}/on.txt")).expect("its file"), "on\n");
}

#[test]
fn boxes_without_a_daemon_end_after_their_grace_and_the_session_wakes_again() {
    let mut rig = Rig::with("orphan_grace = \"3s\"");
    rig.serve();
    let client = rig.client();
    let session = client.create("orphan");
    client.complete(&session, json!([{ "text": "alone soon" }]));
    rig.kill();
    let start = Instant::now();
    assert_eq!(rig.boxes().len(), 1, "the box went with its daemon");
    rig.until(SOON * 2, "the orphan to end", || rig.boxes().is_empty());
    assert!(start.elapsed() > Duration::from_secs(2), "it had no grace: {:?}", start.elapsed());
    rig.serve();
    let ended = client.complete(&session, json!([{ "text": "found again" }]));
    assert_eq!(ended["final_output"], "found again");
    let asked = rig.model().asked();
    let last =
        asked.iter().rfind(|asked| asked.body.to_string().contains("found again")).expect("it was asked");
    assert!(last.body.to_string().contains("alone soon"), "the conversation was lost");
}

#[test]
fn what_nobody_owns_is_removed_at_the_next_start() {
    let mut rig = Rig::new();
    rig.serve();
    let client = rig.client();
    let (lost, kept) = (client.create("lost"), client.create("kept"));
    client.complete(&lost, json!([{ "text": "soon nobody's" }]));
    let mine = PathBuf::from(text(&client.session(&kept)["workspace"])).join("mine.txt");
    std::fs::write(&mine, "mine").expect("a file");
    rig.kill();
    assert_eq!(rig.hot(), std::slice::from_ref(&lost), "the box outlives its daemon");
    // As if the row had never been written.
    let mut forget = Command::new("python3");
    forget.args(["-c", FORGET]).arg(rig.state().join("sessions.db")).arg(&lost);
    let forgot = forget.output().expect("python3 runs");
    assert!(forgot.status.success(), "{}", String::from_utf8_lossy(&forgot.stderr));
    let stranger = rig.state().join("sessions").join(STRANGER);
    std::fs::create_dir_all(stranger.join("workspace")).expect("a directory");
    rig.serve();
    assert!(client.try_call("get_status", json!({ "session_id": lost })).is_err(), "it is still known");
    rig.until(SOON * 3, "the box of nobody to end", || rig.boxes().is_empty());
    rig.until(SOON, "its directory to go", || !rig.state().join("sessions").join(&lost).exists());
    rig.until(SOON, "the stranger's to go", || !stranger.exists());
    assert_eq!(std::fs::read_to_string(&mine).expect("it is somebody's"), "mine");
}
