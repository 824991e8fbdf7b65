//! `cancel_run` at random moments around a run's completion: it ends once, and the answer says how.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::llm::provider::Provider;

use crate::rig::Rig;
use crate::trial::{Dice, Patient, full, is_ended};

const SESSIONS: usize = 4;
const WITHIN: Duration = Duration::from_mins(1);
/// Conversations grow, and every step sends the whole of it: then another session goes on.
const IN_ONE_SESSION: usize = 50;

fn cancels() -> usize {
    if full() { 1_000 } else { 50 }
}

/// What one cancel came to.
#[derive(Debug)]
struct Told {
    session: String,
    run: String,
    marker: String,
    /// What it said, and how long it took to say so.
    said: Value,
    took: Duration,
}

#[test]
fn a_run_ends_once_and_the_answer_agrees() {
    let mut dice = Dice::roll();
    let mut rig = Rig::with(&format!("max_hot = {SESSIONS}"));
    let provider = Provider::start(rig.model().address());
    rig.serve();
    let patient = Patient::new(&rig, &provider);
    let each = cancels().div_ceil(SESSIONS);
    let told: Vec<Told> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (patient, dice) = (patient.clone(), dice.more());
                scope.spawn(move || cancel_often(&patient, number, each, dice))
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            rig.model().forget();
            sleep(WITHIN / 60);
        }
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let mut how: BTreeMap<&str, usize> = BTreeMap::new();
    for Told { said, .. } in &told {
        *how.entry(said["status"].as_str().expect("a status")).or_default() += 1;
    }
    let mut took: Vec<Duration> = told.iter().map(|told| told.took).collect();
    took.sort();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{} cancels: {how:?}; answered in {median:?}, the slowest in {slowest:?}", told.len());
    let opened = provider.first_steps();
    for Told { session, run, marker, said, .. } in &told {
        let now = patient.status(session, run, 0);
        assert_eq!(now, *said, "what was said did not stay so");
        match now["status"].as_str() {
            Some("completed") => assert_eq!(now["final_output"], marker.as_str(), "{now}"),
            Some("canceled") => assert_eq!(now["error"], Value::Null, "{now}"),
            _ => panic!("a canceled run ends canceled or completed: {now}"),
        }
        // A prompt that was not wanted any more was not sent a second time.
        let opened = opened.iter().filter(|step| step.text.contains(marker.as_str())).count();
        assert!(opened <= 1, "{marker} reached the model {opened} times");
    }
    for status in ["completed", "canceled"] {
        assert!(how.contains_key(status), "no cancel came at such a moment: {how:?}");
    }
}

fn cancel_often(patient: &Patient, client: usize, times: usize, mut dice: Dice) -> Vec<Told> {
    let sessions = (0..times).step_by(IN_ONE_SESSION);
    let told = sessions.map(|done| {
        let session = patient.create(&format!("canceled-{client}-{done}"));
        cancel_in_one_session(patient, &session, (times - done).min(IN_ONE_SESSION), &mut dice)
    });
    told.flatten().collect()
}

fn cancel_in_one_session(patient: &Patient, session: &str, times: usize, dice: &mut Dice) -> Vec<Told> {
    let mut usual = Duration::ZERO;
    for warm in 0..2 {
        // The first one starts the box; the second says how long one takes.
        usual = completes(patient, session, &format!("warm-{session}-{warm}-"));
    }
    (0..times)
        .map(|time| {
            let told = cancel_one(patient, session, &format!("marker-{session}-{time}-"), usual, dice);
            usual = completes(patient, session, &format!("next-{session}-{time}-"));
            told
        })
        .collect()
}

/// One run, canceled somewhere between its submission and a little after its usual end.
fn cancel_one(patient: &Patient, session: &str, marker: &str, usual: Duration, dice: &mut Dice) -> Told {
    let run = patient.submit(session, marker, &task(marker));
    let span = u64::try_from(usual.as_millis()).expect("short");
    // Half of them close to the end, where both may win.
    let moment = if dice.below(2) == 0 {
        dice.millis(span * 13 / 10 + 1)
    } else {
        Duration::from_millis(span * 8 / 10) + dice.millis(span * 4 / 10 + 1)
    };
    sleep(moment);
    let began = Instant::now();
    let said = if dice.below(2) == 0 {
        cancel(patient, &run)
    } else {
        // Two at once are told the same.
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| cancel(patient, &run));
            (cancel(patient, &run), other.join().expect("an answer"))
        });
        assert_eq!(one, two, "two cancels of one run");
        one
    };
    let took = began.elapsed();
    let ended = patient.ended(session, &run, WITHIN);
    assert_eq!(
        said["status"], ended["status"],
        "cancel_run after {moment:?} of {usual:?} said {said}, but {ended}"
    );
    Told { session: session.to_owned(), run, marker: marker.to_owned(), said, took }
}

/// What `cancel_run` says of its end. One that takes long is still running in the first answer.
fn cancel(patient: &Patient, run: &str) -> Value {
    let end = Instant::now() + WITHIN;
    loop {
        let said = patient.cancel(run);
        if is_ended(&said) {
            return said;
        }
        assert!(Instant::now() < end, "it was canceled and goes on: {said}");
    }
}

fn task(marker: &str) -> Value {
    let look = json!({ "command": format!("echo {marker}"), "description": "looks" });
    json!([{ "tool": "bash", "args": look }, { "delay": 200, "text": marker }])
}

fn completes(patient: &Patient, session: &str, marker: &str) -> Duration {
    let began = Instant::now();
    let run = patient.submit(session, marker, &task(marker));
    let ended = patient.ended(session, &run, WITHIN);
    assert_eq!((&ended["status"], &ended["final_output"]), (&json!("completed"), &json!(marker)), "{ended}");
    began.elapsed()
}
