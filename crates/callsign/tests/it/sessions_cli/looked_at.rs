//! Lists, files, and what is asked of the daemon for them.

use serde_json::{Value, json};

use super::fake::{Asked, Fake, RUN, Reply, SESSION};

fn session(id: &str, name: Option<&str>, reuse_key: Option<&str>) -> Value {
    json!({
        "id": id, "name": name, "reuse_key": reuse_key, "status": "ready", "runtime": "local", "image": "",
        "workspace": "/state/sessions/x/workspace", "used_at": "2026-11-16T07:00:00.000Z", "unfinished_runs": 1,
    })
}

/// Two pages of sessions; anything else is refused.
fn sessions(asked: &Asked) -> Reply {
    match (asked.what.as_str(), asked.arguments["after"].as_str()) {
        ("list_sessions", None) => {
            Reply::Is(json!({ "sessions": [session("sn_1", Some("a \u{1b}[2J"), None)], "next": "sn_1" }))
        }
        ("list_sessions", Some("sn_1")) => {
            Reply::Is(json!({ "sessions": [session(SESSION, None, Some("demo"))] }))
        }
        _ => Reply::Refused("unable", "not here"),
    }
}

#[test]
fn sessions_are_listed_to_the_last_page() {
    let fake = Fake::new(sessions);
    let printed = fake.run(&["sessions"]);
    let lines: Vec<&str> = printed.ok().lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("SESSION") && lines[0].contains("USED (UTC)"), "{lines:?}");
    assert!(lines[1].contains("a \\u{1b}[2J") && lines[1].contains("2026-11-16 07:00:00"), "{lines:?}");
    assert!(lines[2].starts_with(SESSION) && lines[2].contains("demo"), "{lines:?}");
    assert!(!printed.stdout.contains('\u{1b}'), "no colours where there is no terminal");

    let all = fake.run(&["sessions", "--all", "--json"]).json();
    assert_eq!(all["sessions"].as_array().map(Vec::len), Some(2));
    assert_eq!(fake.calls("list_sessions").last().expect("asked")["all"], true);
}

#[test]
fn a_session_is_created_with_the_settings_of_the_environment() {
    let fake = Fake::new(|_| {
        let mut created = session(SESSION, Some("n"), Some("demo"));
        created["reused"] = true.into();
        Reply::Is(json!({ "session": created, "warnings": ["MCP_X is not used"] }))
    });
    let mut command = fake.command(&["sessions", "create", "--reuse-key", "demo", "--name", "n"]);
    command
        .env("MCP_OPENCODE_API_KEY", "sk-1")
        .env("MCP_TRACKER_TOKEN", "theirs")
        .env("OPENAI_API_KEY", "sk-2");
    let printed = super::fake::Printed::of(command.output().expect("callsign runs"));
    assert_eq!(printed.ok(), format!("{SESSION}\n"), "a program wants the id alone");
    assert!(printed.stderr.contains("warning: MCP_X is not used"), "{}", printed.stderr);
    assert!(printed.stderr.contains("/state/sessions/x/workspace"), "{}", printed.stderr);
    let asked = fake.asked().remove(0);
    assert_eq!(asked.arguments, json!({ "name": "n", "reuse_key": "demo" }));
    let mut settings = asked.settings;
    assert_eq!(settings["MCP_STATE_DIR"].take().as_str(), fake.path("state").to_str());
    let expected = json!({ "MCP_OPENCODE_API_KEY": "sk-1", "MCP_STATE_DIR": null, "MCP_TRACKER_TOKEN": "" });
    assert_eq!(settings, expected, "of strangers only the name");
}

#[test]
fn what_a_tool_refuses_is_told_with_a_hint_and_a_code() {
    let fake = Fake::new(|asked| match asked.what.as_str() {
        "cancel_run" => Reply::Refused("no_run", "there is no run `x`"),
        "create_or_reuse_session" => Reply::Refused("bad_settings", "MCP_OPENCODE_MODEL is wrong"),
        _ => Reply::Refused("unable", "bubblewrap is not installed"),
    });
    fake.run(&["runs", "cancel", "x"]).failed(2, &["error: there is no run `x`", "hint: callsign runs"]);
    fake.run(&["sessions", "create"]).failed(3, &["MCP_OPENCODE_MODEL is wrong", "hint: callsign doctor"]);
    fake.run(&["submit", SESSION, "x"]).failed(5, &["bubblewrap", "hint: callsign doctor"]);
}

#[test]
fn a_session_goes_by_its_id_its_key_or_its_name() {
    let fake = Fake::new(|asked| match asked.what.as_str() {
        "list_sessions" => sessions(asked),
        "terminate_session" => Reply::Is(json!({ "session": { "id": SESSION, "status": "terminating" } })),
        _ => Reply::Is(json!({ "artifacts": [] })),
    });
    let terminated = fake.run(&["sessions", "terminate", "demo", "--remove"]);
    assert_eq!(terminated.ok(), format!("{SESSION} terminating\n"));
    fake.run(&["sessions", "terminate", SESSION]).ok();
    let expected =
        [json!({ "session_id": SESSION, "keep": false }), json!({ "session_id": SESSION, "keep": true })];
    assert_eq!(fake.calls("terminate_session"), expected);
    assert_eq!(fake.calls("list_sessions").len(), 2, "an id needs no list");

    fake.run(&["submit", "nobody", "x", "--wait"]).failed(2, &["no session", "`nobody`", "sessions create"]);
    assert_eq!(fake.calls("submit_task"), [Value::Null; 0], "nothing was made for it");
    // One that was terminated can still be looked at.
    fake.run(&["artifacts", "nobody"]).failed(2, &["no session"]);
    assert_eq!(fake.calls("list_sessions").last().expect("asked")["all"], true);
}

#[test]
fn runs_are_listed_as_many_as_wanted() {
    let run = |number: u32| {
        json!({
            "id": format!("run_{number}"), "status": "completed", "created_at": "2026-11-16T07:00:00.000Z",
            "started_at": "2026-11-16T07:00:00.000Z", "ended_at": "2026-11-16T07:00:12.000Z",
            "result_summary": "3 steps",
        })
    };
    let fake = Fake::new(move |asked| match asked.what.split_once("before=").map(|(_, before)| before) {
        None => Reply::Is(json!({ "runs": [run(3), run(2)], "next": 2 })),
        Some("2") => Reply::Is(json!({ "runs": [run(1)] })),
        Some(_) => Reply::Gone,
    });
    let all = fake.run(&["runs", SESSION, "--limit", "0", "--json"]).json();
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(3));
    let two = fake.run(&["runs", SESSION, "--limit", "2"]);
    assert_eq!(two.ok().lines().count(), 3, "{}", two.stdout);
    assert!(two.stdout.contains("12 s") && two.stdout.contains("3 steps"), "{}", two.stdout);
    let paths: Vec<String> = fake.asked().into_iter().map(|asked| asked.what).collect();
    assert_eq!(paths[0], format!("/v1/sessions/{SESSION}/runs?limit=200"));
    assert_eq!(paths[2], format!("/v1/sessions/{SESSION}/runs?limit=2"));
    assert_eq!(paths.len(), 3, "{paths:?}");
    fake.run(&["runs"]).failed(2, &["SESSION"]);
}

#[test]
fn an_artifact_is_printed_as_it_is() {
    let fake = Fake::new(|asked| match asked.arguments["path"].as_str() {
        Some("sn_1/a.bin") => {
            Reply::Is(json!({ "path": "a", "base64": "/wAb", "size": 3, "truncated": false }))
        }
        Some("sn_1/a.txt") => {
            Reply::Is(json!({ "path": "a", "text": "\u{1b}[1mhi", "size": 99, "truncated": true }))
        }
        Some(_) => Reply::Refused("no_artifact", "there is no artifact"),
        None => Reply::Is(json!({ "artifacts": [{
            "path": "sn_1/a.txt", "size": 99, "modified": "2026-11-16T07:00:00.000Z", "kind": "changed", "run_id": RUN,
        }] })),
    });
    assert_eq!(fake.run(&["artifacts", "read", "sn_1/a.bin"]).bytes, [255, 0, 27]);
    let text = fake.run(&["artifacts", "read", "sn_1/a.txt", "--max-bytes", "6"]);
    assert_eq!(text.ok(), "\u{1b}[1mhi", "a program gets what is there");
    assert!(text.stderr.contains("first 6 of 99 bytes"), "{}", text.stderr);
    assert_eq!(fake.calls("read_artifact")[1], json!({ "path": "sn_1/a.txt", "max_bytes": 6 }));
    fake.run(&["artifacts", "read", "sn_1/a.bin", "--output", "copy"]).ok();
    assert_eq!(std::fs::read(fake.path("copy")).expect("a file"), [255, 0, 27]);
    fake.run(&["artifacts", "read", "sn_1/none"]).failed(2, &["callsign artifacts SESSION"]);
    fake.run(&["artifacts", "read", "sn_1/a.txt", "--max-bytes", "0"]).failed(2, &["max-bytes"]);

    let listed = fake.run(&["artifacts", SESSION, "--run", RUN]);
    assert!(listed.ok().contains("sn_1/a.txt") && listed.stdout.contains("99"), "{}", listed.stdout);
    assert_eq!(fake.calls("list_artifacts"), [json!({ "session_id": SESSION, "run_id": RUN })]);
}

#[test]
fn the_last_lines_of_a_log_are_printed() {
    let fake = Fake::new(|asked| {
        let lines = asked.arguments["tail_lines"].clone();
        Reply::Is(json!({ "run_id": RUN, "text": "one\ntwo\n", "lines": lines, "truncated": false }))
    });
    assert_eq!(fake.run(&["logs", RUN]).ok(), "one\ntwo\n");
    assert_eq!(fake.run(&["logs", RUN, "--tail", "7", "--json"]).json()["lines"], 7);
    let asked = [json!({ "run_id": RUN, "tail_lines": 200 }), json!({ "run_id": RUN, "tail_lines": 7 })];
    assert_eq!(fake.calls("get_run_logs"), asked);
}
