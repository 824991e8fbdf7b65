//! What else a task can ask for, and what an agent in a box may come upon: one warm session after the other.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::llm::script;

use crate::rig::{Client, Rig, TURN, bash, text};

#[test]
fn a_schema_a_model_a_subagent_and_questions_that_nobody_answers() {
    let mut rig = Rig::new();
    rig.serve();
    let client = rig.client();
    let session = client.create("ways");
    an_output_schema_is_kept_to(&client, &session);
    a_subagent_works_for_a_run(&rig, &client, &session);
    three_identical_calls_hang_nobody(&client, &session);
    a_question_hangs_nobody(&client, &session);
    tasks_run_in_their_order_in_one_conversation(&rig, &client, &session);
    those_who_wait_are_in_nobodys_way(&client, &session);
    a_run_has_the_model_it_asks_for(&rig, &client, &session);
    wrong_tasks_are_refused(&client, &session);
    rig.check_canary();
}

fn submit(client: &Client, session: &str, steps: &Value, more: Value) -> Value {
    let mut wanted = json!({ "session_id": session, "task": script(steps) });
    if let (Value::Object(wanted), Value::Object(more)) = (&mut wanted, more) {
        wanted.extend(more);
    }
    let run = text(&client.call("submit_task", wanted)["run_id"]);
    client.wait(session, &run, TURN)
}

fn an_output_schema_is_kept_to(client: &Client, session: &str) {
    let schema = json!({
        "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"],
        "additionalProperties": false,
    });
    let steps = json!([{ "tool": "StructuredOutput", "args": { "a": "x" } }]);
    // As an object, and as its text: some clients can send only texts.
    for schema in [schema.clone(), json!(schema.to_string())] {
        let ended = submit(client, session, &steps, json!({ "output_schema": schema }));
        assert_eq!(ended["status"], "completed", "{ended}");
        let output = text(&ended["structured_output"]);
        assert_eq!(serde_json::from_str::<Value>(&output).expect("JSON"), json!({ "a": "x" }), "{ended}");
    }
    // It does not stick to the session.
    let ended = client.complete(session, json!([{ "text": "plain again" }]));
    assert_eq!((&ended["structured_output"], &ended["final_output"]), (&Value::Null, &json!("plain again")));
}

fn a_subagent_works_for_a_run(rig: &Rig, client: &Client, session: &str) {
    let inner =
        script(&json!([bash("echo from below > /workspace/below.txt"), { "text": "the subagent is done" }]));
    let ended = client.complete(session, json!([{ "spawn": inner }, { "text": "the agent is done" }]));
    assert_eq!(ended["final_output"], "the agent is done", "{ended}");
    let workspace = text(&client.session(session)["workspace"]);
    let left = std::fs::read_to_string(format!("{workspace}/below.txt")).expect("the subagent's file");
    assert_eq!(left, "from below\n");
    assert!(rig.model().everything().contains("the subagent is done"));
    let log = client.log(&text(&ended["id"]));
    assert!(log.contains("echo from below") || log.contains("a command of a test"), "{log}");
}

/// `OpenCode` asks whether to go on; nobody is there to say so.
fn three_identical_calls_hang_nobody(client: &Client, session: &str) {
    let same = bash("echo the same");
    let ended = client.complete(session, json!([same, same, same, same, { "text": "four times" }]));
    assert_eq!(ended["final_output"], "four times", "{ended}");
}

fn a_question_hangs_nobody(client: &Client, session: &str) {
    let options = json!([{ "label": "red", "description": "r" }, { "label": "blue", "description": "b" }]);
    let question = json!([{ "question": "Which colour?", "header": "Colour", "options": options }]);
    let asks = json!({ "tool": "question", "args": { "questions": question } });
    let run = client.submit(session, json!([asks, { "text": "without an answer" }]));
    let ended = client.wait(session, &run, TURN);
    assert!(["completed", "failed"].contains(&ended["status"].as_str().unwrap_or_default()), "{ended}");
    // It was another run that had a subagent.
    assert!(!ended["result_summary"].to_string().contains("subagent"), "{ended}");
    let next = client.complete(session, json!([{ "text": "and on" }]));
    assert_eq!(next["final_output"], "and on");
}

fn tasks_run_in_their_order_in_one_conversation(rig: &Rig, client: &Client, session: &str) {
    let runs: Vec<String> = (0..4)
        .map(|number| client.submit(session, json!([{ "delay": 200 }, { "text": format!("fifo-{number}") }])))
        .collect();
    let ended: Vec<Value> = runs.iter().map(|run| client.wait(session, run, TURN)).collect();
    let starts: Vec<String> = ended.iter().map(|run| text(&run["started_at"])).collect();
    let ends: Vec<String> = ended.iter().map(|run| text(&run["ended_at"])).collect();
    assert!(starts.is_sorted(), "not in their order: {ended:#?}");
    // One at a time: none starts before the one before has ended.
    assert!(ends.iter().zip(&starts[1..]).all(|(end, next)| end <= next), "two at once: {starts:?} {ends:?}");
    let last = rig.model().asked().into_iter().rfind(|asked| asked.body.to_string().contains("fifo-3"));
    let conversation = last.expect("the last one was asked").body.to_string();
    assert!((0..3).all(|number| conversation.contains(&format!("fifo-{number}"))), "the agent forgot");
}

fn those_who_wait_are_in_nobodys_way(client: &Client, session: &str) {
    let run = client.submit(session, json!([{ "delay": 3000 }, { "text": "worth the wait" }]));
    std::thread::scope(|scope| {
        let wait = || {
            let wanted = json!({ "session_id": session, "run_id": run, "wait_seconds": 60 });
            (client.call("get_status", wanted)["run"].clone(), Instant::now())
        };
        let waiting: Vec<_> = (0..60).map(|_| scope.spawn(wait)).collect();
        for _ in 0..10 {
            let start = Instant::now();
            client.call("list_sessions", json!({}));
            let took = start.elapsed();
            assert!(took < Duration::from_secs(1), "it took {took:?} while others waited");
        }
        let ends: Vec<(Value, Instant)> =
            waiting.into_iter().map(|waiting| waiting.join().expect("an answer")).collect();
        assert!(ends.iter().all(|(run, _)| run["final_output"] == "worth the wait"), "{ends:?}");
        let first = ends.iter().map(|(_, at)| *at).min().expect("some");
        let last = ends.iter().map(|(_, at)| *at).max().expect("some");
        assert!(last - first < Duration::from_secs(2), "some were told {:?} later", last - first);
    });
}

fn a_run_has_the_model_it_asks_for(rig: &Rig, client: &Client, session: &str) {
    let model_of = |word: &str| {
        let found = rig.model().asked().into_iter().find(|asked| asked.body.to_string().contains(word));
        text(&found.unwrap_or_else(|| panic!("nobody asked for {word}")).body["model"])
    };
    let steps = json!([{ "text": "of another model" }]);
    let ended = submit(client, session, &steps, json!({ "model": "openai/another" }));
    assert_eq!(ended["final_output"], "of another model", "{ended}");
    assert_eq!(model_of("of another model"), "another");
    client.complete(session, json!([{ "text": "of the first model" }]));
    assert_eq!(model_of("of the first model"), "mock", "the model of one run is not that of the next");
}

fn wrong_tasks_are_refused(client: &Client, session: &str) {
    for (arguments, code, part) in [
        (json!({ "session_id": session, "task": "" }), "bad_argument", "task"),
        (json!({ "session_id": session, "task": "x", "model": "ollama/x" }), "bad_argument", "openai/"),
        (
            json!({ "session_id": session, "task": "x", "output_schema": { "type": "string" } }),
            "bad_argument",
            "object",
        ),
        (
            json!({ "session_id": session, "task": "x", "output_schema": "{" }),
            "bad_argument",
            "output_schema",
        ),
        (json!({ "session_id": "ses_nobody", "task": "x" }), "no_session", "list_sessions"),
        (json!({ "session_id": session, "tasks": "x" }), "bad_argument", "`task`"),
    ] {
        let error = client.try_call("submit_task", arguments.clone()).expect_err("it is wrong");
        assert_eq!(error["code"], code, "{arguments}: {error}");
        assert!(text(&error["message"]).contains(part), "{arguments}: {error}");
    }
}
