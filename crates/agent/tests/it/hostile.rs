//! A box whose "agent" says whatever it likes: what is kept of it, and how often it is asked, has a bound.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use model::ports::agent::Progress;

use super::*;

const BUSY: &str = r#"{"ses_1":{"type":"busy"}}"#;

fn path(line: &str) -> &str {
    let path = line.split(' ').nth(1).unwrap_or_default();
    path.split('?').next().unwrap_or_default()
}

/// Everything of a session that works on its prompt but the events.
fn busy(line: &str) -> Does {
    match path(line) {
        "/session/status" => Does::Answer(200, BUSY.to_owned()),
        path if path.contains("/message/") => {
            Does::Answer(200, r#"{"info":{"id":"msg_1","role":"user"},"parts":[]}"#.to_owned())
        }
        _ => Does::Answer(200, "[]".to_owned()),
    }
}

fn event(kind: &str, properties: &str) -> String {
    format!("data: {{\"type\":\"{kind}\",\"properties\":{properties}}}\n\n")
}

fn subagent(id: &str) -> String {
    event("session.created", &format!(r#"{{"info":{{"id":"{id}","parentID":"ses_1"}}}}"#))
}

/// Watches a box that tells these events, until nothing is told for a while.
async fn told(events: String) -> Vec<Progress> {
    let (address, _fake) = fake(move |_, line| match path(line) {
        "/event" => Does::Tell(events.clone()),
        _ => busy(line),
    })
    .await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let (driver, prompt, policy) = (driver(address), prompt(), Policy::all(Decision::Surface));
    let mut sink = |progress| told.lock().expect("a lock").push(progress);
    let watched = timeout(Duration::from_secs(3), driver.watch(&prompt, &policy, &mut sink)).await;
    assert!(watched.is_err(), "it waits: {watched:?}");
    std::mem::take(&mut *told.lock().expect("a lock"))
}

#[tokio::test]
async fn names_that_no_agent_gives_are_not_kept() {
    let long = "x".repeat(129);
    let mut events: String = ["", "../x", "a b", &long].map(subagent).concat();
    let asked = |id: &str, thread: &str| {
        let body = format!(r#"{{"id":"{id}","sessionID":"{thread}","permission":"edit"}}"#);
        event("permission.asked", &body)
    };
    events += &asked(&long, "ses_1");
    events += &asked("per_1/../x", "ses_1");
    let step = |id: &str| {
        let part = format!(r#"{{"id":"{id}","type":"step-start","messageID":"msg_2"}}"#);
        event("message.part.updated", &format!(r#"{{"sessionID":"ses_1","part":{part}}}"#))
    };
    events += &step(&long);
    assert_eq!(told(events).await, [Progress::Status(model::ports::agent::Status::Busy)]);
    let fine = told(subagent("ses_2") + &asked("per_1", "ses_1") + &step("prt_1")).await;
    assert_eq!(fine.len(), 4, "{fine:?}");
}

#[tokio::test]
async fn a_family_and_its_questions_have_a_bound() {
    let mut events: String = (0..3000).map(|number| subagent(&format!("ses_x{number}"))).collect();
    for number in 0..3000 {
        let asked = format!(r#"{{"id":"per_{number}","sessionID":"ses_1","permission":"edit"}}"#);
        events += &event("permission.asked", &asked);
    }
    let told = told(events).await;
    let met = told.iter().filter(|one| matches!(one, Progress::Subagent { .. })).count();
    let asked = told.iter().filter(|one| matches!(one, Progress::Asked(_))).count();
    assert_eq!((met, asked), (1023, 1024));
}

#[tokio::test]
async fn an_event_over_the_limit_is_skipped() {
    let large = subagent(&format!(r#"ses_3","title":"{}"#, "x".repeat(2 << 20)));
    let lines = format!("{}\n", format!("data: {}\n", "x".repeat(1000)).repeat(1100));
    let told = told(large + &lines + &subagent("ses_2")).await;
    let met: Vec<_> = told
        .iter()
        .filter_map(|one| if let Progress::Subagent { thread, .. } = one { Some(thread) } else { None })
        .collect();
    assert_eq!(met, ["ses_2"]);
}

#[tokio::test]
async fn a_history_has_a_bound_over_all_its_pages() {
    let (furthest, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, looked) = (Arc::clone(&furthest), Arc::clone(&looks));
    let parts = vec!["{}"; 2000].join(",");
    let entry = format!(r#"{{"info":{{"id":"msg_9","role":"assistant"}},"parts":[{parts}]}}"#);
    let page = format!("[{}]", vec![entry.as_str(); 20].join(","));
    let (address, _fake) = fake(move |_, line| match path(line) {
        "/session/status" => {
            looked.fetch_add(1, Ordering::SeqCst);
            busy(line)
        }
        path if path.ends_with("/message") => {
            let before = line.split("before=").nth(1).and_then(|rest| rest.split('&').next());
            let number = before.and_then(|before| before.parse().ok()).unwrap_or(0);
            seen.fetch_max(number, Ordering::SeqCst);
            Does::Page(number + 1, page.clone())
        }
        _ => busy(line),
    })
    .await;
    let timing = Timing { request: Duration::from_secs(10), ..Timing::default() };
    let options = Options { place: Place::Tcp(address), password: "p".to_owned(), timing };
    let (driver, prompt, policy) = (OpenCode::new(options), prompt(), Policy::all(Decision::Allow));
    let mut sink = |_| {};
    let looked_twice = async {
        while looks.load(Ordering::SeqCst) < 2 && furthest.load(Ordering::SeqCst) < 8 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = driver.watch(&prompt, &policy, &mut sink) => panic!("{ended:?}"),
        () = looked_twice => {}
    }
    let furthest = furthest.load(Ordering::SeqCst);
    assert_eq!(furthest, 2, "so many pages of 40 000 parts were read of one turn");
}

#[tokio::test]
async fn answers_that_are_much_too_large_are_not_read() {
    let status = format!(r#"{{"ses_1":{{"type":"busy","x":"{}"}}}}"#, "x".repeat(2 << 20));
    let (address, _fake) = fake(move |_, line| match path(line) {
        "/session/status" => Does::Answer(200, status.clone()),
        _ => busy(line),
    })
    .await;
    let (failure, _) = failure(address).await;
    assert!(matches!(&failure, Failure::Protocol { what } if what.contains("size")), "{failure:?}");
}

#[tokio::test]
async fn events_that_ask_for_looks_are_not_always_obeyed() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&looks);
    let disposed = event("server.instance.disposed", "{}");
    let (address, _fake) = fake(move |_, line| match path(line) {
        "/event" => Does::Repeat(disposed.clone()),
        "/session/status" => {
            counter.fetch_add(1, Ordering::SeqCst);
            busy(line)
        }
        _ => busy(line),
    })
    .await;
    let timing = Timing::default();
    let options = Options { place: Place::Tcp(address), password: "p".to_owned(), timing };
    let (driver, prompt, policy) = (OpenCode::new(options), prompt(), Policy::all(Decision::Allow));
    let mut sink = |_| {};
    let watched = timeout(Duration::from_secs(2), driver.watch(&prompt, &policy, &mut sink)).await;
    assert!(watched.is_err(), "it waits: {watched:?}");
    let looks = looks.load(Ordering::SeqCst);
    assert!((2..=10).contains(&looks), "{looks} looks in 2 s");
}
