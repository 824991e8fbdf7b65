//! A hundred at once with one key: one session, one run.

use std::collections::BTreeSet;
use std::sync::Barrier;

use serde_json::{Value, json};
use testkit::llm::script;

use crate::rig::{Client, Rig, TURN, text};

const MANY: usize = 100;

/// The same call by a hundred threads that start together.
fn at_once(client: &Client, tool: &str, arguments: &Value) -> Vec<Value> {
    let start = Barrier::new(MANY);
    std::thread::scope(|scope| {
        let call = || {
            start.wait();
            client.call(tool, arguments.clone())
        };
        let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(call)).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

fn one(answers: &[Value], find: impl Fn(&Value) -> &Value) -> String {
    let found: BTreeSet<String> = answers.iter().map(|answer| text(find(answer))).collect();
    assert_eq!(found.len(), 1, "not one: {found:?}");
    found.into_iter().next().expect("one")
}

#[test]
fn a_hundred_at_once_make_one_session_and_one_run_and_a_restart_none() {
    let mut rig = Rig::with("max_hot = 2");
    rig.serve();
    let mut made = Vec::new();
    for (key, client) in [("by-socket", rig.client()), ("by-http", rig.http())] {
        let wanted = json!({ "reuse_key": key, "name": "one of a hundred" });
        let answers = at_once(&client, "create_or_reuse_session", &wanted);
        let session = one(&answers, |answer| &answer["session"]["id"]);
        let new = answers.iter().filter(|answer| answer["session"]["reused"] == false).count();
        assert_eq!(new, 1, "of a hundred one is told that it is new");

        let said = format!("said once {key}");
        let task = script(&json!([{ "text": said }]));
        let wanted = json!({ "session_id": session, "task": task, "idempotency_key": "the one" });
        let answers = at_once(&client, "submit_task", &wanted);
        let run = one(&answers, |answer| &answer["run_id"]);
        let repeated = answers.iter().filter(|answer| answer["repeated"] == true).count();
        assert_eq!(repeated, MANY - 1, "of a hundred one is the first");

        let other = json!({ "session_id": session, "task": "another task", "idempotency_key": "the one" });
        let error = client.try_call("submit_task", other.clone()).expect_err("the key is taken");
        assert_eq!(error["code"], "idempotency_conflict", "{error}");
        let message = text(&error["message"]);
        assert!(message.contains(&run) && message.contains("idempotency_key"), "{message}");

        let error =
            client.try_call("create_or_reuse_session", json!({ "reuse_key": key, "image": "another:1" }));
        let error = error.expect_err("the key's session has another image");
        let image = text(&client.session(&session)["image"]);
        let message = text(&error["message"]);
        assert!(message.contains("another:1") && message.contains(&image), "it names both: {message}");
        made.push((key, session, run, said, wanted, other));
    }
    // Others have a name of their own for theirs.
    let (code, token, errors) = rig.run(&["token", "create", "bob"]);
    assert_eq!(code, Some(0), "{errors}");
    let bob = rig.http_as(&token);
    rig.until(crate::rig::SOON, "the new token", || bob.try_call("list_sessions", json!({})).is_ok());
    let bobs = bob.create("by-http");
    assert!(made.iter().all(|(_, session, ..)| *session != bobs), "bob was given a session of somebody else");

    rig.kill();
    rig.serve();
    for (key, session, run, said, wanted, other) in &made {
        let client = if *key == "by-http" { rig.http() } else { rig.client() };
        assert_eq!(client.create(key), *session, "after a restart");
        let again = client.call("submit_task", wanted.clone());
        assert_eq!((&again["run_id"], &again["repeated"]), (&json!(run), &json!(true)), "{again}");
        let error = client.try_call("submit_task", other.clone()).expect_err("the key is still taken");
        assert_eq!(error["code"], "idempotency_conflict", "{error}");
        let ended = client.wait(session, run, TURN);
        assert_eq!(ended["final_output"], *said, "{ended}");
        assert_eq!(rig.begun(said), 1, "the prompt of {key} reached the model more than once");
    }
    let listed = rig.client().call("list_sessions", json!({}));
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(2), "{listed}");
}
