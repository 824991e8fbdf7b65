//! Row 28: a disk that is full, and a database that is not what it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::harness::alive;

use crate::rig::{Rig, SOON, TURN, text};

const SIZE: u64 = 24 << 20;

/// A small file system in the place of the state directory. Only root can make one.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        let options = format!("size={SIZE},mode=0700");
        let mut command = Command::new("mount");
        let done =
            command.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).status().expect("mount runs");
        assert!(done.success(), "could not mount");
        Self(at.to_owned())
    }

    /// Takes all that is left.
    fn fill(&self) -> PathBuf {
        let ballast = self.0.join("ballast");
        let mut file = fs::File::create(&ballast).expect("a file");
        let block = [0; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        ballast
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Processes with files there go with the rig, which is dropped after this.
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

#[test]
fn a_full_disk_refuses_new_runs_loses_none_and_answers_what_it_knows() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can mount a small file system");
        return;
    }
    let mut rig = Rig::new();
    let small = Small::mount(&rig.state());
    let daemon = rig.serve();
    let client = rig.client();
    let session = client.create("full");
    let before = client.submit(&session, json!([{ "text": "before" }]));
    // No box is needed here, and it would want the room.
    client.call("cancel_run", json!({ "run_id": before }));
    let before = client.wait(&session, &before, TURN);

    let ballast = small.fill();
    let mut accepted = Vec::new();
    let mut refused = 0;
    for number in 0..200 {
        let wanted = json!({ "session_id": session, "task": format!("{number} {}", "x".repeat(20_000)) });
        match client.try_call("submit_task", wanted) {
            Ok(answer) => accepted.push(text(&answer["run_id"])),
            Err(error) => {
                assert_eq!(error["code"], "storage_full", "{error}");
                assert!(text(&error["message"]).contains("not accepted"), "{error}");
                refused += 1;
                if refused == 5 {
                    break;
                }
            }
        }
    }
    assert!(refused == 5, "{} tasks were accepted on a full disk", accepted.len());
    println!("{} tasks were still accepted", accepted.len());
    let error = client.try_call("create_or_reuse_session", json!({ "reuse_key": "one more" }));
    assert!(error.is_err(), "a session was made on a full disk: {error:?}");
    let start = Instant::now();
    assert_eq!(client.call("list_sessions", json!({}))["sessions"][0]["id"], session);
    let known = client.call("get_status", json!({ "session_id": session, "run_id": before["id"] }));
    assert_eq!(known["run"]["status"], before["status"], "what was known is known: {known}");
    assert!(start.elapsed() < Duration::from_secs(2), "reads wait for the disk: {:?}", start.elapsed());
    assert!(alive(daemon), "the daemon died:\n{}", rig.log());

    fs::remove_file(ballast).expect("ours");
    for run in &accepted {
        let known = client.call("get_status", json!({ "session_id": session, "run_id": run }));
        assert_eq!(known["run"]["id"], *run, "it was accepted");
        client.call("cancel_run", json!({ "run_id": run }));
    }
    let after = client.submit(&session, json!([{ "text": "after" }]));
    client.call("cancel_run", json!({ "run_id": after }));
    rig.kill();
    rig.serve();
    for run in accepted.iter().chain([&after]) {
        let known = client.call("get_status", json!({ "session_id": session, "run_id": run }));
        assert_eq!(known["run"]["id"], *run, "it was accepted, and is lost");
    }
    rig.kill();
    rig.until(SOON * 2, "boxes to go", || {
        for found in rig.boxes() {
            testkit::harness::kill(found.keeper, nix::sys::signal::Signal::SIGKILL);
        }
        rig.boxes().is_empty()
    });
    drop(small);
}

/// A state with a session and a run that has ended, and no daemon.
fn left_behind() -> (Rig, String, String) {
    let mut rig = Rig::new();
    rig.serve();
    let client = rig.client();
    let session = client.create("before");
    let run = client.submit(&session, json!([{ "text": "never" }]));
    client.call("cancel_run", json!({ "run_id": run }));
    client.wait(&session, &run, TURN);
    rig.kill();
    rig.until(SOON, "a box that was about to start", || {
        for found in rig.boxes() {
            testkit::harness::kill(found.keeper, nix::sys::signal::Signal::SIGKILL);
        }
        rig.boxes().is_empty()
    });
    (rig, session, run)
}

fn database(rig: &Rig) -> PathBuf {
    let path = rig.state().join("sessions.db");
    assert!(path.is_file(), "no database: {:?}", fs::read_dir(rig.state()).map(Iterator::count));
    path
}

fn sql(path: &Path, statement: &str) {
    let program = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.executescript(sys.argv[2])\ndb.commit()\n";
    let done =
        Command::new("python3").args(["-c", program]).arg(path).arg(statement).output().expect("python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Whether a daemon comes up or not, no session can be had, it is said why, and nothing is made anew.
#[track_caller]
fn check_refused(rig: &mut Rig, path: &Path, parts: &[&str]) {
    let before = fs::read(path).ok();
    let served = rig.try_serve();
    let error = served.err().unwrap_or_else(|| {
        let error = rig.client().try_call("list_sessions", json!({}));
        let error = error.expect_err("sessions are there, as if nothing had happened").to_string();
        let made = rig.client().try_call("create_or_reuse_session", json!({}));
        assert!(made.is_err(), "a session was made: {made:?}");
        // Whoever looks at the log is told as well.
        assert!(rig.log().contains("there are no sessions"), "{}", rig.log());
        rig.stop();
        error
    });
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert!(error.contains(path.to_str().expect("UTF-8")), "which file it is: {error}");
    assert_eq!(fs::read(path).ok(), before, "the database was changed");
}

#[test]
fn a_database_that_is_cut_off_newer_older_or_gone_is_refused_by_name_and_left_as_it_is() {
    let (mut rig, session, run) = left_behind();
    let path = database(&rig);
    let beside = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let names = ["", "-wal", "-shm", ".mark"];
    let saved: Vec<(PathBuf, Option<Vec<u8>>)> =
        names.map(|end| (beside(end), fs::read(beside(end)).ok())).into();
    let restore = || {
        for (path, bytes) in &saved {
            match bytes {
                Some(bytes) => fs::write(path, bytes).expect("put back"),
                None => drop(fs::remove_file(path)),
            }
        }
    };

    fs::remove_file(&path).expect("it is there");
    check_refused(&mut rig, &path, &["gone"]);
    assert!(!path.exists(), "a new one was made");

    // By a page, once everything is in the file itself.
    restore();
    sql(&path, "pragma wal_checkpoint(truncate);");
    let whole = fs::metadata(&path).expect("it is there").len();
    fs::File::options().write(true).open(&path).and_then(|file| file.set_len(whole - 4096)).expect("cut");
    check_refused(&mut rig, &path, &["damaged"]);

    restore();
    drop(fs::remove_file(beside("-wal")));
    fs::write(&path, "this is no database of anybody's").expect("it is there");
    check_refused(&mut rig, &path, &[]);

    restore();
    sql(&path, "pragma user_version = 9999; pragma wal_checkpoint(truncate);");
    check_refused(&mut rig, &path, &["newer"]);

    restore();
    // Its log is removed between two starts: what was answered for is not there.
    assert!(saved[1].1.as_ref().is_some_and(|log| !log.is_empty()), "a killed daemon leaves its log");
    fs::remove_file(beside("-wal")).expect("it is there");
    drop(fs::remove_file(beside("-shm")));
    check_refused(&mut rig, &path, &["-wal"]);

    // As it was, everything is there again.
    restore();
    rig.serve();
    let known = rig.client().call("get_status", json!({ "session_id": session, "run_id": run }));
    assert_eq!((&known["run"]["id"], &known["run"]["status"]), (&json!(run), &json!("canceled")), "{known}");
}
