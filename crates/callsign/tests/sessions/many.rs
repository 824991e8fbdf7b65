//! Many sessions on disk, few of them hot.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::harness::{peak, rss};
use testkit::llm::provider::Provider;

use crate::rig::Rig;
use crate::trial::{Dice, Patient, full};

const RESIDENT: u64 = 60 << 20;
/// What a list may take on a machine with nothing else to do, and what is accepted of one that has.
const LISTED: Duration = Duration::from_millis(20);
const LISTED_HERE: Duration = Duration::from_millis(100);
/// How often processes are looked at.
const SAMPLE: Duration = Duration::from_millis(20);

struct Size {
    sessions: usize,
    max_hot: usize,
    tasks: usize,
    within: Duration,
}

fn size() -> Size {
    if full() {
        Size { sessions: 1_000, max_hot: 20, tasks: 300, within: Duration::from_hours(1) }
    } else {
        Size { sessions: 50, max_hot: 4, tasks: 30, within: Duration::from_mins(5) }
    }
}

#[test]
fn all_tasks_complete_within_few_boxes() {
    let Size { sessions, max_hot, tasks, within } = size();
    let mut dice = Dice::roll();
    let mut rig = Rig::with(&format!("max_hot = {max_hot}"));
    let provider = Provider::start(rig.model().address());
    let daemon = rig.serve();
    let patient = Patient::new(&rig, &provider);
    let sessions: Vec<String> =
        (0..sessions).map(|number| patient.create(&format!("many-{number}"))).collect();
    let is_over = AtomicBool::new(false);
    let (most, resident) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (mut most, mut resident) = (BTreeSet::new(), 0);
            while !is_over.load(Ordering::SeqCst) {
                let now: BTreeSet<String> = rig.hot().into_iter().collect();
                if now.len() > most.len() {
                    most = now;
                }
                resident = rss(daemon).max(resident);
                sleep(SAMPLE);
            }
            (most, resident)
        });
        let deadline = Instant::now() + within;
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run_all(&patient, &sessions, tasks, &mut dice, deadline);
        }));
        is_over.store(true, Ordering::SeqCst);
        let watched = watching.join().expect("a watch");
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
        watched
    });
    println!("{tasks} tasks in {} sessions: at most {} boxes of {max_hot}", sessions.len(), most.len());
    assert!(most.len() <= max_hot, "{} boxes at once: {most:?}", most.len());
    assert!(most.len() >= max_hot.min(tasks), "so few boxes show nothing: {most:?}");
    println!("the daemon: {} MiB resident at most, {} MiB at its peak", resident >> 20, peak(daemon) >> 20);
    assert!(resident <= RESIDENT, "{} MiB", resident >> 20);
    check_list(&patient, &sessions);
}

fn run_all(patient: &Patient, sessions: &[String], tasks: usize, dice: &mut Dice, deadline: Instant) {
    let count = u64::try_from(sessions.len()).expect("few");
    let submitted: Vec<(String, String, String)> = (0..tasks)
        .map(|number| {
            let chosen = usize::try_from(dice.below(count)).expect("small");
            let (session, marker) = (sessions[chosen].clone(), format!("marker-{number}-"));
            let run = patient.submit(&session, &marker, &json!([{ "text": marker }]));
            (session, run, marker)
        })
        .collect();
    for (session, run, marker) in submitted {
        let ended = patient.ended(&session, &run, deadline.saturating_duration_since(Instant::now()));
        assert_eq!(ended["status"], "completed", "{ended}");
        assert_eq!(ended["final_output"], marker, "{ended}");
    }
}

fn check_list(patient: &Patient, sessions: &[String]) {
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            let listed = patient.call("list_sessions", &json!({}));
            assert!(!listed["sessions"].as_array().expect("sessions").is_empty());
            began.elapsed()
        })
        .collect();
    took.sort();
    let median = took[took.len() / 2];
    println!("list_sessions: median {median:?}, slowest {:?}; wanted {LISTED:?}", took[took.len() - 1]);
    assert!(median <= LISTED_HERE, "{median:?}");
    let listed = patient.all_sessions();
    assert!(sessions.iter().all(|session| listed.contains_key(session)), "the list lacks some");
}
