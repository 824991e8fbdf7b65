//! SIGKILL of the daemon at random moments, under load, and what is left of every run afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::llm::provider::{Moment, Provider};

use crate::rig::Rig;
use crate::trial::{Dice, Patient, full, is_ended};

const SESSIONS: usize = 8;
/// Runs of one session that have not ended, at any time.
const AHEAD: usize = 2;
/// How long a box may be without an owner after the last restart.
const ORPHANED: Duration = Duration::from_secs(30);
/// How long everything that was submitted may take to end, once nobody kills any more.
const DRAIN: Duration = Duration::from_secs(100);
/// How long the first task may take.
const FIRST: Duration = Duration::from_mins(1);

struct Size {
    kills: usize,
    max_hot: usize,
}

fn size() -> Size {
    if full() { Size { kills: 300, max_hot: SESSIONS } } else { Size { kills: 30, max_hot: 4 } }
}

/// A run that was acknowledged.
#[derive(Debug, Clone)]
struct Acknowledged {
    session: String,
    run: String,
    /// A text that is in its prompt and in no other.
    marker: String,
    /// How it had ended when that was first seen.
    ended: Option<Value>,
}

/// What the clients have done so far.
#[derive(Debug, Default)]
struct Load {
    runs: Mutex<Vec<Acknowledged>>,
    submitted: Condvar,
    over: AtomicBool,
}

/// Clients stop when whoever kills is done, also where that fails.
struct Over<'a>(&'a Load);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

impl Load {
    fn add(&self, run: Acknowledged) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        self.submitted.notify_all();
    }

    fn ended(&self, run: &str, how: &Value) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs.iter_mut().find(|known| known.run == run).expect("it was acknowledged");
        run.ended = Some(how.clone());
    }

    fn wait_for_submit(&self, within: Duration) {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let before = runs.len();
        drop(self.submitted.wait_timeout_while(runs, within, |runs| runs.len() == before));
    }

    fn all(&self) -> Vec<Acknowledged> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[test]
fn no_run_is_lost_and_no_prompt_is_sent_twice() {
    let Size { kills, max_hot } = size();
    let mut dice = Dice::roll();
    let mut rig = Rig::with(&format!("max_hot = {max_hot}"));
    let provider = Provider::start(rig.model().address());
    rig.serve();
    let patient = Patient::new(&rig, &provider);
    let sessions: Vec<String> =
        (0..SESSIONS).map(|number| patient.create(&format!("killed-{number}"))).collect();
    let load = Load::default();
    let mut report = Report::default();
    let last = std::thread::scope(|scope| {
        let _over = Over(&load);
        for session in &sessions {
            let (patient, dice) = (patient.clone(), dice.more());
            let load = &load;
            scope.spawn(move || submit_until_over(&patient, session, dice, load));
        }
        // Until then there is nothing but boxes that start.
        assert!(provider.wait_for(Moment::Answered, FIRST), "the model was never asked:\n{}", rig.log());
        for _ in 0..kills {
            await_a_moment(&mut dice, &provider, &load, &rig.state());
            rig.model().forget();
            report.kill(&mut rig);
        }
        Instant::now()
    });
    let began = Instant::now();
    let ended = all_end(&patient, &load);
    println!("drained in {:?}", began.elapsed());
    report.print(kills, &ended);
    check_runs(&ended);
    check_deliveries(&provider, &ended, &report.kills);
    check_boxes(&rig, &patient, last, max_hot);
    report.check();
}

/// One client: always a few runs ahead of the daemon.
fn submit_until_over(patient: &Patient, session: &str, mut dice: Dice, load: &Load) {
    let mut open: VecDeque<String> = VecDeque::new();
    for number in 0.. {
        if load.over.load(Ordering::SeqCst) {
            return;
        }
        let marker = format!("marker-{session}-{number}-");
        let look = json!({ "command": format!("echo {marker}"), "description": "looks" });
        let steps = match dice.below(3) {
            0 => json!([{ "text": marker }]),
            1 => json!([{ "delay": dice.below(600), "text": marker }]),
            _ => json!([{ "tool": "bash", "args": look }, { "delay": dice.below(900), "text": marker }]),
        };
        let run = patient.submit(session, &marker, &steps);
        load.add(Acknowledged { session: session.to_owned(), run: run.clone(), marker, ended: None });
        open.push_back(run);
        while open.len() >= AHEAD {
            if load.over.load(Ordering::SeqCst) {
                return;
            }
            let next = open.front().expect("there is one");
            let run = patient.status(session, next, 1);
            if is_ended(&run) {
                load.ended(next, &run);
                open.pop_front();
            }
        }
    }
}

/// Some kills come at any time; the others where a run changes hands: submitted, asked, answered, written down.
fn await_a_moment(dice: &mut Dice, provider: &Provider, load: &Load, state: &Path) {
    const WAIT: Duration = Duration::from_secs(3);
    match dice.below(6) {
        0 | 1 => sleep(dice.millis(3_000)),
        2 => {
            load.wait_for_submit(WAIT);
            sleep(dice.millis(20));
        }
        3 => {
            provider.wait_for(Moment::Asked, WAIT);
            sleep(dice.millis(20));
        }
        4 => {
            provider.wait_for(Moment::Answered, WAIT);
            sleep(dice.millis(200));
        }
        _ => await_finishing(load, state, WAIT),
    }
}

/// The answer is written to a file before the run has ended. That takes milliseconds, which chance would miss.
fn await_finishing(load: &Load, state: &Path, within: Duration) {
    let end = Instant::now() + within;
    let mut open: Vec<PathBuf> = Vec::new();
    while Instant::now() < end && !open.iter().any(|file| file.exists()) {
        let all = load.all();
        let runs = all.iter().filter(|run| run.ended.is_none());
        let files = runs.map(|run| {
            state
                .join("sessions")
                .join(&run.session)
                .join("runs")
                .join(&run.run)
                .join("assistant-response.json")
        });
        open = files.filter(|file| !file.exists() || open.contains(file)).collect();
        sleep(Duration::from_micros(300));
    }
}

/// How many runs were where at the kills.
#[derive(Debug, Default)]
struct Report {
    kills: Vec<Instant>,
    at_kills: BTreeMap<String, u64>,
    slowest: Duration,
}

impl Report {
    fn kill(&mut self, rig: &mut Rig) {
        rig.kill();
        self.kills.push(Instant::now());
        let copy = tempfile::tempdir().expect("a directory");
        // What is in the file and its log, before anybody has mended it. Nobody writes it now.
        for name in ["sessions.db", "sessions.db-wal"] {
            let from = rig.state().join(name);
            if from.is_file() {
                std::fs::copy(from, copy.path().join(name)).expect("a copy");
            }
        }
        let began = Instant::now();
        rig.serve();
        self.slowest = self.slowest.max(began.elapsed());
        for (place, count) in places(copy.path()) {
            *self.at_kills.entry(place).or_default() += count;
        }
    }

    fn of(&self, place: &str) -> u64 {
        self.at_kills.get(place).copied().unwrap_or(0)
    }

    fn print(&self, kills: usize, ended: &[Acknowledged]) {
        println!(
            "{kills} kills; runs at the kills: {} queued, {} starting, {} prompting, {} finishing; slowest restart {:?}",
            self.of("queued"),
            self.of("starting"),
            self.of("prompting"),
            self.of("finishing"),
            self.slowest,
        );
        let mut how: BTreeMap<String, usize> = BTreeMap::new();
        for run in ended.iter().filter_map(|run| run.ended.as_ref()) {
            let code = run["error"]["code"].as_str().unwrap_or("");
            *how.entry(format!("{} {code}", run["status"].as_str().unwrap_or("?"))).or_default() += 1;
        }
        println!("{} runs were acknowledged: {how:?}", ended.len());
    }

    /// A trial that never hit a place has shown nothing about it. To be finishing takes milliseconds: few hit it.
    fn check(&self) {
        for place in ["queued", "starting", "prompting"] {
            assert!(self.of(place) > 0, "no run was {place} at any kill: {:?}", self.at_kills);
        }
        assert!(!full() || self.of("finishing") > 0, "no run was finishing at any kill: {:?}", self.at_kills);
    }
}

/// Unfinished runs by their place, in a copy of the store.
fn places(directory: &Path) -> BTreeMap<String, u64> {
    const LOOK: &str = "import json, sqlite3, sys\n\
        rows = sqlite3.connect(sys.argv[1]).execute(\"SELECT coalesce(phase, state), count(*) FROM runs \
        WHERE state IN ('queued', 'running') GROUP BY 1\")\n\
        print(json.dumps(dict(rows.fetchall())))";
    let output = Command::new("python3").args(["-c", LOOK]).arg(directory.join("sessions.db")).output();
    let output = output.expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Every run as it is once nobody kills any more.
fn all_end(patient: &Patient, load: &Load) -> Vec<Acknowledged> {
    let deadline = Instant::now() + DRAIN;
    let mut all = load.all();
    for known in &mut all {
        let run =
            patient.ended(&known.session, &known.run, deadline.saturating_duration_since(Instant::now()));
        if let Some(before) = &known.ended {
            assert_eq!(*before, run, "a run that had ended changed");
        }
        known.ended = Some(run);
    }
    all
}

/// One end each, which is its own, and one after the other in a session.
fn check_runs(ended: &[Acknowledged]) {
    let mut before: HashMap<&str, &Value> = HashMap::new();
    for Acknowledged { session, marker, ended, .. } in ended {
        let run = ended.as_ref().expect("it has ended");
        assert_eq!(run["status"], "completed", "only the daemon was killed: {run}");
        assert_eq!(run["final_output"], marker.as_str(), "{run}");
        // Times of one format can be compared as they are.
        let time = |run: &Value, name: &str| run[name].as_str().expect("a time").to_owned();
        if let Some(before) = before.insert(session, run) {
            assert!(time(run, "started_at") >= time(before, "ended_at"), "two at once: {before} {run}");
        }
    }
}

/// Counted at the model: whose last user text has the marker, with no answer yet behind it, opens that turn. A question
/// that was under way when the daemon was killed, and the broker with it, is asked again; for no other reason, and never
/// as another prompt.
fn check_deliveries(provider: &Provider, ended: &[Acknowledged], kills: &[Instant]) {
    let opened = provider.first_steps();
    let mut again = 0;
    for Acknowledged { marker, run, .. } in ended {
        let times: Vec<Instant> =
            opened.iter().filter(|step| step.text.contains(marker)).map(|step| step.at).collect();
        assert!(!times.is_empty(), "the prompt of {run} ({marker}) never reached the model");
        for (before, after) in times.iter().zip(times.iter().skip(1)) {
            let killed = kills.iter().any(|kill| before <= kill && kill <= after);
            assert!(
                killed,
                "the prompt of {run} ({marker}) reached the model at {times:?}, without a kill between"
            );
            again += 1;
        }
        let twice =
            opened.iter().find(|step| step.prompts.iter().filter(|text| text.contains(marker)).count() > 1);
        assert!(twice.is_none(), "the prompt of {run} ({marker}) is in its conversation twice");
    }
    println!("{again} questions were asked again after a kill");
}

/// Each box is one that the daemon knows of, and there are not too many.
fn check_boxes(rig: &Rig, patient: &Patient, since: Instant, max_hot: usize) {
    loop {
        // Boxes first: one that is stopped meanwhile is no stray.
        let boxes = rig.hot();
        let mut sessions = patient.all_sessions();
        sessions.retain(|_, status| status != "stopped");
        let strays: Vec<&String> = boxes.iter().filter(|session| !sessions.contains_key(*session)).collect();
        if strays.is_empty() && boxes.len() <= max_hot {
            println!("{} boxes, all known to the daemon", boxes.len());
            return;
        }
        assert!(
            since.elapsed() < ORPHANED,
            "boxes {boxes:?}, of which nobody owns {strays:?}; hot: {sessions:?}"
        );
        sleep(Duration::from_millis(200));
    }
}
