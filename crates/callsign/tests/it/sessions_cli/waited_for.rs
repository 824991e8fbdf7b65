//! `submit --wait` and `logs --follow`: what is seen meanwhile, how it ends, and that Ctrl-C ends the looking only.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::harness::kill;

use super::fake::{Asked, Fake, Printed, RUN, Reply, SESSION};
use crate::support::SOON;

fn run(status: &str, more: &Value) -> Value {
    let mut run = json!({ "id": RUN, "session_id": SESSION, "status": status });
    for (name, value) in more.as_object().into_iter().flatten() {
        run[name.as_str()] = value.clone();
    }
    run
}

fn submitted() -> Reply {
    let queued = run("queued", &json!({}));
    Reply::Is(json!({ "run_id": RUN, "session_id": SESSION, "status": "queued", "run": queued }))
}

/// Takes a task, and says how it is by the number of the question.
fn working(status: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Fake {
    let questions = AtomicUsize::new(0);
    Fake::new(move |asked: &Asked| match asked.what.as_str() {
        "submit_task" => submitted(),
        "get_status" => status(questions.fetch_add(1, Ordering::Relaxed)),
        _ => Reply::Refused("unable", "not here"),
    })
}

fn status(run: &Value) -> Value {
    json!({ "session": { "id": SESSION }, "run": run })
}

fn ended(status_word: &'static str, more: Value) -> Fake {
    working(move |_| Reply::Is(status(&run(status_word, &more))))
}

#[test]
fn a_task_is_submitted_and_its_run_named() {
    let fake = working(|_| Reply::Gone);
    let printed = fake.run_with(&["submit", SESSION, "-", "--idempotency-key", "k"], b"two\nlines\n");
    assert_eq!(printed.ok(), format!("{RUN}\n"));
    assert!(printed.stderr.contains(&format!("callsign logs {RUN} --follow")), "{}", printed.stderr);
    let expected = json!({ "session_id": SESSION, "task": "two\nlines\n", "idempotency_key": "k" });
    assert_eq!(fake.calls("submit_task"), [expected]);
    assert_eq!(fake.run(&["submit", SESSION, "x", "--json"]).json()["run"]["status"], "queued");

    std::fs::write(fake.path("schema.json"), r#"{"type":"object"}"#).expect("a file");
    fake.run(&["submit", SESSION, "x", "--output-schema", "schema.json", "--model", "ollama/m"]).ok();
    let last = fake.calls("submit_task").pop().expect("asked");
    assert_eq!((&last["output_schema"], &last["model"]), (&json!({ "type": "object" }), &json!("ollama/m")));
    std::fs::write(fake.path("schema.json"), "[").expect("a file");
    fake.run(&["submit", SESSION, "x", "--output-schema", "schema.json"]).failed(2, &["schema.json"]);
    assert_eq!(fake.calls("submit_task").len(), 3);
}

#[test]
fn who_waits_sees_how_far_it_is_and_gets_the_output() {
    let fake = working(|question| match question {
        0 => {
            let progress = json!({ "progress": { "steps": 2, "tools": 1, "last": "bash ls" } });
            Reply::After(vec!["running: step 1", "running: bash ls"], status(&run("running", &progress)))
        }
        // A daemon that is killed is asked again.
        1 => Reply::Gone,
        _ => Reply::Is(status(&run("completed", &json!({ "final_output": "All is done.\nReally." })))),
    });
    let printed = fake.run(&["submit", SESSION, "x", "--wait"]);
    assert_eq!(printed.ok(), "All is done.\nReally.\n");
    assert!(printed.stderr.contains("running: step 1"), "{}", printed.stderr);
    assert!(!printed.stderr.contains('\u{1b}'), "plain lines where there is no terminal: {}", printed.stderr);
    assert_eq!(fake.calls("submit_task").len(), 1);
    let asked = fake.calls("get_status").remove(0);
    assert_eq!(asked, json!({ "session_id": SESSION, "run_id": RUN, "wait_seconds": 3 }));
}

#[test]
fn how_a_run_ends_is_how_the_command_ends() {
    let failed = ended("failed", json!({ "error": { "code": "provider", "message": "it is down" } }));
    let printed = failed.run(&["submit", SESSION, "x", "--wait"]);
    printed.failed(8, &["the run failed: it is down (provider)", &format!("hint: callsign logs {RUN}")]);
    assert_eq!(printed.stdout, "");
    let canceled = ended("canceled", json!({ "canceled_by": "caller" }));
    canceled.run(&["submit", SESSION, "x", "--wait"]).failed(9, &["canceled by caller"]);
    let printed = canceled.run(&["submit", SESSION, "x", "--wait", "--json"]);
    printed.failed(9, &[]);
    let told: Value = serde_json::from_str(&printed.stdout).expect("the tool's answer");
    assert_eq!(told["run"]["status"], "canceled");
}

#[test]
fn a_task_that_may_have_been_accepted_is_not_submitted_again() {
    let fake = Fake::new(|_| Reply::Gone);
    fake.run(&["submit", SESSION, "x", "--wait"]).failed(5, &["not known", "--idempotency-key"]);
    assert_eq!(fake.calls("submit_task").len(), 1);
}

#[test]
fn ctrl_c_ends_the_waiting_and_not_the_run() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let fake = working(|_| Reply::Is(status(&run("running", &json!({})))));
        let child = fake.start(&["submit", SESSION, "x", "--wait"]);
        until(|| !fake.calls("get_status").is_empty());
        kill(child.id(), signal);
        let printed = Printed::of(child.wait_with_output().expect("it ends"));
        let (logs, cancel) = (format!("callsign logs {RUN} --follow"), format!("callsign runs cancel {RUN}"));
        printed.failed(130, &["goes on", &logs, &cancel]);
        assert_eq!(fake.calls("cancel_run"), [Value::Null; 0]);
    }
}

fn lines_of(numbers: Range<usize>) -> String {
    let lines: Vec<String> = numbers.map(|number| format!("line {number}\n")).collect();
    lines.concat()
}

/// A run that writes a line for each time its log is asked for, and ends after some.
fn writing(lines: usize) -> Fake {
    let written = AtomicUsize::new(2);
    Fake::new(move |asked: &Asked| match asked.what.as_str() {
        "get_run_logs" => {
            let count = written.fetch_add(1, Ordering::Relaxed).min(lines);
            let wanted = usize::try_from(asked.arguments["tail_lines"].as_u64().unwrap_or(0)).unwrap_or(0);
            let shown = count.saturating_sub(wanted)..count;
            let mut text = lines_of(shown.clone());
            if count < lines {
                text.push_str("half a li");
            }
            Reply::Is(
                json!({ "run_id": RUN, "text": text, "lines": shown.len(), "truncated": shown.start > 0 }),
            )
        }
        path if path == format!("/v1/runs/{RUN}") => {
            let over = written.load(Ordering::Relaxed) > lines;
            Reply::Is(json!({ "run": run(if over { "completed" } else { "running" }, &json!({})) }))
        }
        _ => Reply::Refused("unable", "not here"),
    })
}

#[test]
fn a_log_is_followed_to_the_end_of_its_run() {
    let all = lines_of(0..6);
    assert_eq!(writing(6).run(&["logs", RUN, "--follow"]).ok(), all);
    // What was there before is left out, and nothing else.
    assert_eq!(writing(6).run(&["logs", RUN, "--follow", "--tail", "1"]).ok(), &all["line 0\n".len()..]);
    assert_eq!(
        writing(6).run(&["logs", RUN, "--follow", "--tail", "0"]).ok(),
        &all["line 0\nline 1\n".len()..]
    );
    let printed = writing(6).run(&["logs", RUN, "--follow", "--json"]);
    let told = printed.ok().lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let text: String = told.map(|part| part["text"].as_str().expect("a text").to_owned()).collect();
    assert_eq!(text, all);
    writing(6).run(&["logs", "nonsense", "--follow"]).failed(2, &["`nonsense` is not the id of a run"]);
}

#[test]
fn following_ends_with_ctrl_c_and_with_its_reader() {
    let fake = writing(usize::MAX);
    let child = fake.start(&["logs", RUN, "--follow"]);
    until(|| fake.calls("get_run_logs").len() > 1);
    kill(child.id(), Signal::SIGINT);
    Printed::of(child.wait_with_output().expect("it ends")).ok();

    let mut child = fake.start(&["logs", RUN, "--follow"]);
    drop(child.stdout.take());
    Printed::of(child.wait_with_output().expect("it ends")).ok();
}

#[track_caller]
fn until(mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !reached() {
        assert!(Instant::now() < deadline, "it does not come to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}
