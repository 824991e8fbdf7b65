//! Many processes write at once and are killed at any moment.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::children::{again, given, lines, role, say};
use super::*;

/// Calls that a process makes at once.
const TOGETHER: u64 = 16;

/// Somebody who writes calls, and says of each that was acknowledged so. Dies at any time.
#[test]
fn writer() {
    if !role("writer") {
        return;
    }
    let state = given("LEDGER_STATE");
    let name = given("LEDGER_NAME");
    let (mut left, strict): (u64, bool) =
        (given("LEDGER_CALLS").parse().unwrap(), given("LEDGER_STRICT") == "1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let options = Options { strict, ..options(Path::new(&state)) };
        let ledger = Arc::new(Ledger::open(options, Arc::new(KEY)).unwrap());
        while left > 0 {
            let mut together = tokio::task::JoinSet::new();
            for number in left.saturating_sub(TOGETHER)..left {
                let (ledger, id) = (Arc::clone(&ledger), format!("{name}-{number}"));
                together.spawn(async move {
                    let row = Box::new(Begin { call: id.as_str().into(), ..*begin("ses_1", number) });
                    match ledger.begin(row).await {
                        Ok(entry) => {
                            if strict {
                                say(&format!("acknowledged {id}"));
                            }
                            if !number.is_multiple_of(5) {
                                ledger.end(entry, end(Outcome::Ok));
                            }
                        }
                        Err(error) => say(&format!("refused {error}")),
                    }
                });
            }
            together.join_all().await;
            left = left.saturating_sub(TOGETHER);
            say(&format!("left {left}"));
            if !strict {
                // Else all of it is in memory at once, and gone at once.
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
        }
        assert!(ledger.close(Duration::from_mins(1)));
    });
    say("finished");
}

/// One of the places that processes have, one after the other.
struct Slot {
    child: Child,
    left: u64,
    reader: JoinHandle<(u64, bool)>,
}

struct Run {
    state: std::path::PathBuf,
    acknowledged: Arc<Mutex<HashSet<String>>>,
    refused: Arc<Mutex<Vec<String>>>,
    started: u64,
}

impl Run {
    fn start(&mut self, place: usize, left: u64) -> Slot {
        self.started += 1;
        let mut child = again(&[], "tests::killed::writer", "writer")
            .env("LEDGER_STATE", &self.state)
            .env("LEDGER_NAME", format!("{place}-{}", self.started))
            .env("LEDGER_CALLS", left.to_string())
            .env("LEDGER_STRICT", if place.is_multiple_of(2) { "1" } else { "0" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines(&mut child);
        let (acknowledged, refused) = (Arc::clone(&self.acknowledged), Arc::clone(&self.refused));
        let reader = std::thread::spawn(move || {
            let (mut left, mut finished) = (left, false);
            for line in lines {
                match line.split_once(' ') {
                    Some(("acknowledged", id)) => {
                        acknowledged.lock().unwrap().insert(id.to_owned());
                    }
                    Some(("left", number)) => left = number.parse().unwrap(),
                    Some(("refused", why)) => refused.lock().unwrap().push(why.to_owned()),
                    Some(_) | None => finished |= line == "finished",
                }
            }
            (left, finished)
        });
        Slot { child, left, reader }
    }
}

#[test]
fn whoever_is_killed_takes_nothing_along_that_was_acknowledged() {
    let (processes, calls, pause) = if full_size() { (32, 100_000, 40) } else { (8, 4_000, 30) };
    let state = tempfile::tempdir().unwrap();
    let mut run = Run {
        state: state.path().to_owned(),
        acknowledged: Arc::default(),
        refused: Arc::default(),
        started: 0,
    };
    let begun = Instant::now();
    let mut slots: HashMap<usize, Slot> =
        (0..processes).map(|place| (place, run.start(place, calls / processes as u64))).collect();
    let mut random = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()) | 1;
    println!("seed {random}");
    let mut kills = 0;
    while !slots.is_empty() {
        std::thread::sleep(Duration::from_millis(pause));
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let places: Vec<usize> = slots.keys().copied().collect();
        let place = places[usize::try_from(random % 1_000_003).unwrap() % places.len()];
        let Some(Slot { mut child, reader, left: before }) = slots.remove(&place) else { continue };
        let over = child.try_wait().unwrap().is_some();
        if !over {
            child.kill().unwrap();
            kills += 1;
        }
        let status = child.wait().unwrap();
        let (left, finished) = reader.join().unwrap();
        assert!(left <= before);
        assert!(!over || finished && status.success(), "a process ended by itself with {status}");
        if left > 0 {
            slots.insert(place, run.start(place, left));
        }
    }
    let written = begun.elapsed();
    let connection = Place::of(state.path()).read().unwrap();
    let there = calls_of(&connection);
    let acknowledged = run.acknowledged.lock().unwrap();
    let missing: Vec<&String> = acknowledged.iter().filter(|id| !there.contains_key(*id)).collect();
    assert!(missing.is_empty(), "{} acknowledged calls are missing: {:?}", missing.len(), &missing[..1]);
    let report = verify(&connection, &KEY, None).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let without_end: i64 = connection
        .query_row(
            "SELECT count(*) FROM calls AS c LEFT JOIN ends AS e ON e.writer = c.writer AND e.of = c.seq WHERE e.of IS NULL",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let unknown = there.values().filter(|outcome| **outcome == Some(Outcome::Unknown)).count();
    assert_eq!(i64::try_from(unknown).unwrap(), without_end);
    assert!(there.values().all(Option::is_some), "nobody who wrote is alive");
    println!(
        "{processes} processes, {} started, {kills} killed: {} calls written, {} acknowledged, {unknown} unknown, {} refused, \
         {} rows in {} batches, {:.1} s",
        run.started,
        there.len(),
        acknowledged.len(),
        run.refused.lock().unwrap().len(),
        report.rows,
        report.batches,
        written.as_secs_f64(),
    );
    println!("refused: {:?}", run.refused.lock().unwrap().first());
    assert!(kills >= processes / 2, "{kills}");
    assert!(acknowledged.len() as u64 >= calls / 4);
}

fn calls_of(connection: &Connection) -> HashMap<String, Option<Outcome>> {
    calls(connection, &Filter::default()).unwrap().into_iter().map(|call| (call.call, call.outcome)).collect()
}
