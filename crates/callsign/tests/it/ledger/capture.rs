//! `capture` and `redact`: what is kept of arguments and results, and what never is.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rig::{House, Way, at_once, call, mine};
use crate::support::setup;

const REDACT: &str = "[ledger]\nredact = [\"PRIVATE-[0-9]+\"]";

async fn house(capture: &str) -> Arc<House> {
    let house = House::with(setup().toml(REDACT), &format!("capture = \"{capture}\"")).await;
    house.played.look(|_| "an answer for PRIVATE-456, with token=tok-of-an-answer-1234 in it".to_owned());
    Arc::new(house)
}

fn arguments() -> Value {
    json!({ "text": "a question by PRIVATE-123", "list": [1, 2.5, null], "password": "hunter-of-the-tests" })
}

/// What must not be there, wherever anything is kept.
const NEVER: [&str; 4] = ["PRIVATE-123", "PRIVATE-456", "hunter-of-the-tests", "tok-of-an-answer-1234"];

#[track_caller]
fn check(row: &Value, what: &str, says: Option<&str>, name: &str) {
    let Some(says) = says else { return assert!(row[what].is_null(), "{name}: {what}: {row}") };
    let text = row[what].as_str().unwrap_or_else(|| panic!("{name}: no {what}: {row}"));
    assert!(text.contains(says) && text.contains("[redacted]"), "{name}: {what}: {text}");
    assert!(serde_json::from_str::<Value>(text).is_ok(), "{name}: {what} is still JSON: {text}");
    for secret in NEVER {
        assert!(!text.contains(secret), "{name}: {what}: {text}");
    }
}

async fn on_every_way(capture: &'static str) {
    let house = house(capture).await;
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, format!("{} {capture}", way.name()));
            let answer =
                call(&client, "fine", mine(&way.name(), &way.name()), arguments()).await.expect("answered");
            assert!(
                answer.to_string().contains("PRIVATE-456"),
                "{name}: the client gets all of it: {answer}"
            );
            house.ended(&["--call", &way.name()], 1).await;
            let got = house.played.of(&way.name())[0].message();
            assert_eq!(got["params"]["arguments"], arguments(), "{name}: and so does the server");
            let row = house.one(&way.name());
            check(&row, "arguments", (capture != "digests").then_some("a question by"), &name);
            check(&row, "result", (capture == "full").then_some("an answer for"), &name);
            assert!(row["digest"].as_str().is_some_and(|digest| digest.len() == 64), "{name}: {row}");
        }
    }))
    .await;
    let (_, printed, _) = house.gateway.run(&["calls", "--json"]);
    assert!(NEVER.iter().all(|secret| !printed.contains(secret)), "{printed}");
    house.verifies();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn digests_are_kept_where_nothing_else_is_said() {
    on_every_way("digests").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_kept_redacted() {
    on_every_way("arguments").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_kept_redacted() {
    on_every_way("full").await;
}
