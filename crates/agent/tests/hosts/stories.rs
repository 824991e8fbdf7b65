//! What a session goes through, on one `OpenCode`.

use std::time::Duration;

use agent::{OpenCode, Place};
use model::ports::agent::{
    About, Agent as _, AgentError, Answer, Answered, Decision, Delivery, Failure, Origin, Policy, Progress,
    PromptIntent, SessionRef, Status, WantedSession,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::proxy::{Cut, Proxy};
use crate::support::{Rig, allow, intent, message, run, says, timing, watch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stories_of_one_opencode() {
    let rig = Rig::start().await;
    let driver = rig.driver();
    a_session_is_found_again(&rig, &driver).await;
    // Sessions side by side, as a directory has them.
    tokio::join!(
        a_prompt_becomes_a_text(&rig, &driver),
        tools_are_told_with_their_times(&rig, &driver),
        an_output_schema_is_kept_to(&rig, &driver),
        a_permission_is_decided_by_policy(&rig, &driver),
        a_question_is_shown_and_answered(&rig, &driver),
        a_subagent_belongs_to_its_turn(&rig, &driver),
    );
    tokio::join!(
        a_provider_that_fails_is_told_apart(&rig, &driver),
        a_provider_that_may_recover_is_retried(&rig, &driver),
        a_slow_provider_is_no_stall(&rig),
        a_model_that_is_not_there(&rig, &driver),
        a_watch_may_come_first_last_and_again(&rig, &driver),
    );
    tokio::join!(a_lost_answer_delivers_once(&rig), aborts_at_any_moment(&rig, &driver), fifty_prompts(&rig),);
}

async fn a_session_is_found_again(rig: &Rig, driver: &OpenCode) {
    let wrong = OpenCode::new(agent::Options {
        place: Place::Tcp(rig.address),
        password: "wrong".to_owned(),
        timing: timing(),
    });
    assert_eq!(wrong.ready(Duration::from_secs(5)).await, Err(AgentError::Unauthorized));
    let first = driver.ensure_session(&rig.wanted(None)).await.expect("a session");
    assert_eq!(first.origin, Origin::New);
    let again = driver.ensure_session(&rig.wanted(Some(&first.session.id))).await.expect("a session");
    assert_eq!((&again.session, &again.origin), (&first.session, &Origin::Reused));
    let lost = "ses_that_never_was".to_owned();
    let other = driver.ensure_session(&rig.wanted(Some(&lost))).await.expect("a session");
    assert_eq!(other.origin, Origin::Replaced { lost });
    assert_ne!(other.session.id, first.session.id);
    let bad = WantedSession { known: Some("../global/dispose".into()), ..rig.wanted(None) };
    assert!(matches!(driver.ensure_session(&bad).await, Err(AgentError::Protocol { .. })));
}

async fn a_prompt_becomes_a_text(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let first = intent(&session, &json!([{ "text": "hello" }]));
    assert_eq!(driver.was_delivered(&first.prompt).await, Ok(false));
    let watched = run(driver, &first, &allow()).await;
    let turn = watched.turn();
    assert_eq!((turn.final_text.as_str(), turn.finish.as_str(), turn.spent.steps), ("hello", "stop", 1));
    assert_eq!((turn.spent.usage.input_tokens, turn.spent.usage.output_tokens), (1, 1));
    assert_eq!(turn.structured, None);
    let finished = watched.progress.iter().any(|told| matches!(told, Progress::StepFinished { .. }));
    assert!(finished, "{:#?}", watched.progress);
    assert_eq!(driver.was_delivered(&first.prompt).await, Ok(true));
    assert_eq!(driver.prompt(&first).await, Ok(Delivery::Already));
    let refused = driver.prompt(&PromptIntent { model: Some("nothing".into()), ..first }).await;
    assert_eq!(refused.expect_err("no model").code(), "agent_refused");
    let elsewhere = SessionRef { id: "ses_that_never_was".into(), ..session };
    let lost = driver.prompt(&intent(&elsewhere, &json!([]))).await;
    assert_eq!(lost.expect_err("no session").code(), "agent_lost");
}

async fn tools_are_told_with_their_times(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let file = rig.home.project().join("file.txt").display().to_string();
    let steps = json!([
        { "calls": [{ "tool": "read", "args": { "filePath": file } }, { "tool": "read", "args": { "filePath": "/no" } }] },
        { "text": "read" },
    ]);
    let watched = run(driver, &intent(&session, &steps), &allow()).await;
    assert_eq!((watched.turn().final_text.as_str(), watched.turn().spent.steps), ("read", 2));
    let mut ends = Vec::new();
    for told in &watched.progress {
        if let Progress::ToolFinished { thread, tool, error, started_at, at, .. } = told {
            assert!(
                thread == &session.id && tool == "read" && started_at.0 > 0 && at >= started_at,
                "{told:?}"
            );
            ends.push(error.is_some());
        }
    }
    ends.sort_unstable();
    assert_eq!(ends, [false, true], "{:#?}", watched.progress);
    let starts = watched.progress.iter().filter(|told| matches!(told, Progress::ToolStarted { .. })).count();
    assert_eq!(starts, 2);
}

async fn an_output_schema_is_kept_to(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    says(driver, &session, "before").await;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
    let steps = json!([{ "tool": "StructuredOutput", "args": { "a": "x" } }]);
    let wanted = PromptIntent { output_schema: Some(schema.to_string()), ..intent(&session, &steps) };
    let watched = run(driver, &wanted, &allow()).await;
    assert_eq!(watched.turn().structured.as_deref(), Some(r#"{"a":"x"}"#));
    // Such a prompt cannot be read from the history; what was asked about it is answered all the same.
    assert_eq!(driver.was_delivered(&wanted.prompt).await, Ok(true));
    assert_eq!(driver.prompt(&wanted).await, Ok(Delivery::Already));
    let again = watch(driver, &wanted.prompt, &allow()).await;
    assert_eq!(again.turn(), watched.turn());
    says(driver, &session, "after").await;
}

async fn a_permission_is_decided_by_policy(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let bash = |word: &str| json!({ "tool": "bash", "args": { "command": format!("echo {word}"), "description": "d" } });
    let steps = json!([bash("one"), { "text": "end" }]);
    let allowed = run(driver, &intent(&session, &steps), &allow()).await;
    assert_eq!(allowed.turn().final_text, "end");
    let decided = |watched: &[Progress], wanted: Decision| {
        watched.iter().any(|told| matches!(told, Progress::Decided { decision, .. } if *decision == wanted))
    };
    assert!(decided(&allowed.progress, Decision::Allow), "{:#?}", allowed.progress);

    let policy = allow().with("bash", Decision::Deny);
    let denied = run(driver, &intent(&session, &steps), &policy).await;
    assert_eq!(denied.turn().final_text, "end", "a refusal is an answer, not the end");
    assert!(decided(&denied.progress, Decision::Deny));
    let refused = |told: &Progress| matches!(told, Progress::ToolFinished { error: Some(error), .. } if error.contains("not permitted"));
    assert!(denied.progress.iter().any(refused), "{:#?}", denied.progress);

    let surfacing = Policy::all(Decision::Surface);
    let wanted = intent(&session, &steps);
    assert_eq!(driver.prompt(&wanted).await, Ok(Delivery::Delivered));
    let (shown, mut showing) = tokio::sync::mpsc::channel(8);
    let mut sink = |told: Progress| {
        if let Progress::Asked(question) = told {
            drop(shown.try_send(question));
        }
    };
    let answering = async {
        let question = showing.recv().await.expect("a question");
        assert_eq!(question.thread, session.id);
        let expected = About::Permission { permission: "bash".into(), patterns: vec!["echo one".into()] };
        assert_eq!(question.about, expected);
        assert_eq!(driver.answer(&question.id, &Answer::Allow).await, Ok(Answered::Taken));
        assert_eq!(driver.answer(&question.id, &Answer::Allow).await, Ok(Answered::Gone));
    };
    let (ended, ()) = tokio::join!(driver.watch(&wanted.prompt, &surfacing, &mut sink), answering);
    assert_eq!(ended.expect("an end").final_text, "end");

    // Three identical calls in one answer.
    let file = rig.home.project().join("file.txt").display().to_string();
    let read = json!({ "tool": "read", "args": { "filePath": file } });
    let steps = json!([{ "calls": [read, read, read, read] }, { "text": "end" }]);
    let repeated = run(driver, &intent(&session, &steps), &allow()).await;
    assert_eq!(repeated.turn().final_text, "end");
    let loops = |told: &Progress| {
        matches!(told, Progress::Decided { question, .. }
            if matches!(&question.about, About::Permission { permission, .. } if permission == "doom_loop"))
    };
    assert!(repeated.progress.iter().any(loops), "{:#?}", repeated.progress);
}

async fn a_question_is_shown_and_answered(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let options = json!([{ "label": "red", "description": "R" }, { "label": "blue", "description": "B" }]);
    let questions = json!([{ "question": "Which?", "header": "W", "options": options }]);
    let steps = json!([{ "tool": "question", "args": { "questions": questions } }]);
    for (decision, word) in [(Decision::Allow, "Choose"), (Decision::Deny, "not answered")] {
        let policy = allow().with("question", decision);
        let watched = run(driver, &intent(&session, &steps), &policy).await;
        let text = &watched.turn().final_text;
        assert!(text.contains(word), "{text}");
    }
    let wanted = intent(&session, &steps);
    assert_eq!(driver.prompt(&wanted).await, Ok(Delivery::Delivered));
    let (shown, mut showing) = tokio::sync::mpsc::channel(8);
    let mut sink = |told: Progress| {
        if let Progress::Asked(question) = told {
            drop(shown.try_send(question));
        }
    };
    let surfacing = Policy::all(Decision::Surface);
    let answering = async {
        let question = showing.recv().await.expect("a question");
        assert_eq!(question.about, About::Question { texts: vec!["Which? (red | blue)".into()] });
        let answer = Answer::Say { texts: vec!["red".into()] };
        assert_eq!(driver.answer(&question.id, &answer).await, Ok(Answered::Taken));
    };
    let (ended, ()) = tokio::join!(driver.watch(&wanted.prompt, &surfacing, &mut sink), answering);
    let text = ended.expect("an end").final_text;
    assert!(text.contains("red"), "{text}");
}

async fn a_subagent_belongs_to_its_turn(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let bash = json!({ "tool": "bash", "args": { "command": "echo sub", "description": "d" } });
    let inner = testkit::llm::script(&json!([bash, { "text": "inner" }]));
    let steps = json!([{ "spawn": inner }, { "text": "outer" }]);
    let watched = run(driver, &intent(&session, &steps), &allow()).await;
    let turn = watched.turn();
    assert_eq!((turn.final_text.as_str(), turn.spent.steps), ("outer", 2));
    assert_eq!(turn.spent.subagents.input_tokens, 2, "{turn:?}");
    let child = watched.progress.iter().find_map(|told| {
        let Progress::Subagent { thread, parent, .. } = told else { return None };
        (*parent == session.id).then_some(thread)
    });
    let child = child.expect("a subagent");
    let asked =
        |told: &Progress| matches!(told, Progress::Decided { question, .. } if question.thread == *child);
    assert!(watched.progress.iter().any(asked), "{:#?}", watched.progress);
    let worked = |told: &Progress| matches!(told, Progress::ToolFinished { thread, .. } if thread == child);
    assert!(watched.progress.iter().any(worked), "{:#?}", watched.progress);
}

async fn a_provider_that_fails_is_told_apart(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let watched =
        run(driver, &intent(&session, &json!([{ "status": 400, "message": "bad thing" }])), &allow()).await;
    let expected = Failure::Provider { status: Some(400), message: "bad thing".into(), retryable: false };
    assert_eq!(watched.failed().failure, expected);
    let watched =
        run(driver, &intent(&session, &json!([{ "status": 401, "message": "who" }])), &allow()).await;
    assert_eq!(watched.failed().failure.code(), "provider_refused_key");
    let model =
        |name: &str| PromptIntent { model: Some(format!("ollama/{name}")), ..intent(&session, &json!([])) };
    let watched = run(driver, &model("garbage"), &allow()).await;
    let failure = &watched.failed().failure;
    assert!(matches!(failure, Failure::Provider { message, .. } if message.contains("JSON")), "{failure:?}");
    // OpenCode would ask a provider for ever that answers with nothing.
    let empty = model("empty");
    let watched = run(driver, &empty, &allow()).await;
    let failed = watched.failed();
    assert!(
        matches!(&failed.failure, Failure::Provider { message, .. } if message.contains("nothing")),
        "{failed:?}"
    );
    assert!(failed.spent.steps >= 10, "{failed:?}");
    says(driver, &session, "fine again").await;
}

async fn a_provider_that_may_recover_is_retried(rig: &Rig, driver: &OpenCode) {
    let rate_limited = json!([{ "status": 429, "message": "slow down" }]);
    for (model, steps, word) in
        [("one", rate_limited, "slow down"), ("hangup", json!([]), "connect"), ("half", json!([]), "")]
    {
        let session = rig.session(driver).await;
        let wanted = PromptIntent { model: Some(format!("ollama/{model}")), ..intent(&session, &steps) };
        assert_eq!(driver.prompt(&wanted).await, Ok(Delivery::Delivered));
        let (shown, mut showing) = tokio::sync::mpsc::channel(8);
        let mut sink = |told: Progress| {
            if let Progress::Status(Status::Retry { message, next_at, attempt }) = told {
                assert!(next_at.0 > 0 && attempt > 0);
                drop(shown.try_send(message));
            }
        };
        let policy = allow();
        let aborting = async {
            let message = showing.recv().await.expect("a retry");
            assert!(message.contains(word), "{message}");
            driver.abort(&wanted.prompt).await.expect("an abort");
        };
        let (ended, ()) = tokio::join!(driver.watch(&wanted.prompt, &policy, &mut sink), aborting);
        assert_eq!(ended.expect_err("it was aborted").failure, Failure::Aborted);
        says(driver, &session, "fine again").await;
    }
}

async fn a_slow_provider_is_no_stall(rig: &Rig) {
    let timing = agent::Timing { stalled: Duration::from_secs(2), ..timing() };
    let driver = Rig::driver_at(Place::Tcp(rig.address), timing);
    let session = rig.session(&driver).await;
    let watched =
        run(&driver, &intent(&session, &json!([{ "delay": 4000, "text": "at last" }])), &allow()).await;
    assert_eq!(watched.turn().final_text, "at last");
}

async fn a_model_that_is_not_there(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let wanted =
        PromptIntent { model: Some("ollama/nope".into()), ..intent(&session, &json!([{ "text": "x" }])) };
    let watched = run(driver, &wanted, &allow()).await;
    let is_right =
        |failure: &Failure| matches!(failure, Failure::Model { message } if message.contains("ollama/nope"));
    assert!(is_right(&watched.failed().failure), "{:?}", watched.ended);
    // Nothing in the history says so; whoever comes later finds out as well.
    let again = watch(driver, &wanted.prompt, &allow()).await;
    assert!(is_right(&again.failed().failure), "{:?}", again.ended);
}

async fn a_watch_may_come_first_last_and_again(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let file = rig.home.project().join("file.txt").display().to_string();
    let read = json!({ "tool": "read", "args": { "filePath": file } });
    let wanted = intent(&session, &json!([read, { "delay": 700, "text": "same" }]));
    let policy = allow();
    let delivering = async {
        sleep(Duration::from_millis(200)).await;
        driver.prompt(&wanted).await.expect("a delivery");
    };
    let (first, ()) = tokio::join!(watch(driver, &wanted.prompt, &policy), delivering);
    assert_eq!(first.turn().final_text, "same");
    // Another process, which knows nothing but the ids, in the middle of a turn whose watch was dropped.
    let wanted = intent(&session, &json!([read, { "delay": 1500, "text": "same" }]));
    assert_eq!(driver.prompt(&wanted).await, Ok(Delivery::Delivered));
    let mut sink = |_: Progress| {};
    let dropped =
        tokio::time::timeout(Duration::from_millis(700), driver.watch(&wanted.prompt, &policy, &mut sink));
    assert!(dropped.await.is_err(), "the turn is still going on");
    let other = rig.driver();
    let (middle, beside) =
        tokio::join!(watch(&other, &wanted.prompt, &policy), watch(driver, &wanted.prompt, &policy));
    let last = watch(&rig.driver(), &wanted.prompt, &policy).await;
    assert_eq!(middle.turn().final_text, "same");
    assert_eq!(middle.turn(), beside.turn());
    assert_eq!(middle.turn(), last.turn());
    for watched in [&middle, &beside, &last] {
        let tools =
            watched.progress.iter().filter(|told| matches!(told, Progress::ToolFinished { .. })).count();
        assert_eq!(tools, 1, "what happened before is told too: {:#?}", watched.progress);
    }
}

/// Through a socket, as into a box.
async fn a_lost_answer_delivers_once(rig: &Rig) {
    let proxy = Proxy::start(rig.address);
    let driver = Rig::driver_at(proxy.place(), timing());
    driver.ready(Duration::from_secs(10)).await.expect("it answers through the socket");
    let session = rig.session(&driver).await;
    for cut in [Cut::No, Cut::Answer, Cut::Request, Cut::Answer] {
        let word = format!("word-{}", message());
        let wanted = intent(&session, &json!([{ "text": word }]));
        proxy.cut(cut);
        let watched = run(&driver, &wanted, &allow()).await;
        assert_eq!(watched.turn().final_text, word, "{cut:?}");
        assert_eq!(rig.turns_with(&word), 1, "{cut:?}");
    }
    // Many at once, as nobody should: still one prompt.
    let word = format!("word-{}", message());
    let wanted = intent(&session, &json!([{ "delay": 300, "text": word }]));
    let (one, two, three) =
        tokio::join!(driver.prompt(&wanted), driver.prompt(&wanted), driver.prompt(&wanted));
    assert!(one.is_ok() && two.is_ok() && three.is_ok(), "{one:?} {two:?} {three:?}");
    let watched = watch(&driver, &wanted.prompt, &allow()).await;
    assert_eq!(watched.turn().final_text, word);
    assert_eq!(rig.turns_with(&word), 1);
}

async fn aborts_at_any_moment(rig: &Rig, driver: &OpenCode) {
    let session = rig.session(driver).await;
    let file = rig.home.project().join("file.txt").display().to_string();
    let read = json!({ "tool": "read", "args": { "filePath": file } });
    let steps = json!([read, { "delay": 100 }, read, { "delay": 100, "text": "done" }]);
    let (mut aborted, mut done) = (0, 0);
    for number in 0..12 {
        let wanted = intent(&session, &steps);
        assert_eq!(driver.prompt(&wanted).await, Ok(Delivery::Delivered));
        let policy = allow();
        let mut random = [0];
        getrandom::fill(&mut random).expect("random bytes");
        // The first at once, the last after the end.
        let moment = Duration::from_millis(if number == 0 { 0 } else { u64::from(random[0]) * 4 });
        let aborting = async {
            sleep(moment).await;
            let begun = Instant::now();
            driver.abort(&wanted.prompt).await.expect("an abort");
            begun.elapsed()
        };
        let (watched, took) = tokio::join!(watch(driver, &wanted.prompt, &policy), aborting);
        match &watched.ended {
            Ok(turn) => {
                assert_eq!(turn.final_text, "done");
                done += 1;
            }
            Err(failed) => {
                assert_eq!(failed.failure, Failure::Aborted, "after {moment:?}");
                aborted += 1;
            }
        }
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    assert_eq!(aborted + done, 12);
    assert!(aborted > 0, "none was in time");
    says(driver, &session, "fine again").await;
}

async fn fifty_prompts(rig: &Rig) {
    let driver = rig.driver();
    let session = rig.session(&driver).await;
    for number in 0..50 {
        says(&driver, &session, &format!("answer {number}")).await;
    }
}
