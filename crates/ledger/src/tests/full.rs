//! A disk that is full, at every moment at which it can be.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

use rusqlite::ErrorCode;

use super::children::{given, mount, role, run_with_mounts};
use super::*;
use crate::prune;
use crate::verify::check;

const SIZE: &str = "16m";

/// A file system that has so much room.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn with_room(path: PathBuf, kib: u64) -> Self {
        std::fs::create_dir(&path).unwrap();
        mount(&["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs", path.to_str().unwrap()]);
        let disk = Self { path };
        disk.fill(kib);
        disk
    }

    /// Leaves so much.
    fn fill(&self, kib: u64) {
        let mut file = std::fs::File::options().create(true).append(true).open(self.filler()).unwrap();
        let block = [7; 4096];
        while file.write_all(&block).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length - kib * 1024).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

/// At what the disk was full.
#[derive(Debug, Default, Clone, Copy)]
struct Hits {
    making: u32,
    log: u32,
    checkpoint: u32,
    retention: u32,
    never: u32,
}

fn large(number: u64) -> Box<Begin> {
    Box::new(Begin { arguments: Some("x".repeat(2000).into()), ..*begin("ses_1", number) })
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Writes until it is full, and goes on when it is not.
fn writing(disk: &Disk, most: u64, hits: &Mutex<Hits>) {
    let place = Place::of(&disk.path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let strict = Options { strict: true, ..options(&disk.path) };
    let strict = Ledger::open(strict, Arc::new(KEY)).unwrap();
    let patient = Ledger::open(options(&disk.path), Arc::new(KEY)).unwrap();
    let (mut acknowledged, mut waiting) = (HashSet::new(), HashSet::new());
    let mut number = 0;
    let full = loop {
        number += 1;
        match runtime.block_on(strict.begin(large(number))) {
            Ok(entry) => {
                strict.end(entry, end(Outcome::Ok));
                acknowledged.insert(format!("call_{number}"));
            }
            Err(LedgerError::Full) => break true,
            Err(other) => panic!("{other}"),
        }
        if number == most {
            break false;
        }
    };
    if full {
        assert!(strict.failure().is_some_and(|why| why.contains("no space")));
        for _ in 0..40 {
            number += 1;
            runtime.block_on(patient.begin(large(number))).unwrap();
            waiting.insert(format!("call_{number}"));
        }
        wait_for("the other finds out too", || patient.failure().is_some());
        let now = std::time::Instant::now();
        runtime.block_on(strict.begin(large(0))).unwrap_err();
        assert!(now.elapsed() < Duration::from_millis(400), "it fails at once: {:?}", now.elapsed());
        let mut hits = hits.lock().unwrap();
        if place.read().is_err() {
            hits.making += 1;
        } else {
            hits.log += 1;
            // The log is as long as it gets where its pages could be brought into the file.
            let long = std::fs::metadata(place.beside("-wal")).is_ok_and(|log| log.len() > 1000 * 4096);
            let connection = Connection::open(&place.file).unwrap();
            let checkpoint =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            hits.checkpoint += u32::from(long && checkpoint.is_err_and(|error| is_full(&error)));
        }
    } else {
        hits.lock().unwrap().never += 1;
    }
    disk.free();
    wait_for("space has returned", || runtime.block_on(strict.begin(large(1_000_000))).is_ok());
    assert!(strict.close(Duration::from_secs(10)) && patient.close(Duration::from_secs(10)));
    assert_eq!((strict.failure(), patient.failure()), (None, None));
    let connection = place.read().unwrap();
    let there: HashSet<String> =
        calls(&connection, &Filter::default()).unwrap().into_iter().map(|call| call.call).collect();
    assert!(acknowledged.is_subset(&there), "acknowledged and lost");
    assert!(waiting.is_subset(&there), "what waited was not written");
    assert_eq!(findings(&connection), Vec::<String>::new());
}

/// Removes what is old, on a disk that has hardly room for that.
fn pruning(disk: &Disk, room: u64, hits: &Mutex<Hits>) {
    let place = Place::of(&disk.path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let strict = Options { strict: true, ..options(&disk.path) };
    let ledger = Ledger::open(strict, Arc::new(KEY)).unwrap();
    for number in 0..200 {
        let entry = runtime.block_on(ledger.begin(large(number))).unwrap();
        ledger.end(entry, end(Outcome::Ok));
    }
    assert!(ledger.close(Duration::from_secs(10)));
    disk.fill(room);
    let retention = Retention { age: None, size: Some(1) };
    let mut connection = Connection::open(&place.file).unwrap();
    let before = verify(&connection, &KEY, None);
    let goal = prune::goal(&connection, &retention, 0).unwrap_or(i64::MAX);
    match prune::piece(&mut connection, goal, 0, &KEY) {
        Ok(_) => hits.lock().unwrap().never += 1,
        Err(error) => {
            assert!(
                matches!(LedgerError::from_sqlite("pruned", &place.file, &error), LedgerError::Full),
                "{error}"
            );
            hits.lock().unwrap().retention += 1;
            let after = verify(&connection, &KEY, None);
            assert_eq!(before.ok().map(|report| report.rows), after.ok().map(|report| report.rows));
        }
    }
    disk.free();
    // It may take a moment until the space that was given back can be had.
    wait_for("space has returned", || check(&connection, &KEY, None).is_ok());
    assert_eq!(findings(&connection), Vec::<String>::new());
    let goal = prune::goal(&connection, &retention, 0).unwrap();
    prune::piece(&mut connection, goal, 0, &KEY).unwrap();
    let report = verify(&connection, &KEY, None).unwrap();
    assert_eq!((report.findings.len(), report.batches), (0, 1));
}

/// What is done where file systems can be mounted.
#[test]
fn small_disks() {
    if !role("small disks") {
        return;
    }
    let directory = PathBuf::from(given("LEDGER_STATE"));
    let step = if full_size() { 1 } else { 3 };
    let hits = Mutex::new(Hits::default());
    // Kibibytes of room: for the first pages one by one, and for what a checkpoint adds to a log that is as long as
    // it gets.
    let first = (0..=320).step_by(4 * step).map(|room| (room, 40));
    let later = (4000..=5200).step_by(20 * step).map(|room| (room, 200));
    let levels: Vec<(u64, u64)> = first.chain(later).collect();
    let next = Mutex::new(levels.iter());
    let prunings = Mutex::new((0..=1200_u64).step_by(20 * step));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((room, most)) = next.lock().unwrap().next() else { break };
                    let disk = Disk::with_room(directory.join(format!("w{room}")), *room);
                    writing(&disk, *most, &hits);
                }
                loop {
                    let Some(room) = prunings.lock().unwrap().next() else { break };
                    let disk = Disk::with_room(directory.join(format!("p{room}")), 15_000);
                    pruning(&disk, room, &hits);
                }
            });
        }
    });
    let hits = hits.into_inner().unwrap();
    println!("\nlevels {}: {hits:?}", levels.len());
    assert!(hits.making > 0 && hits.log > 0 && hits.checkpoint > 0 && hits.retention > 0, "{hits:?}");
    assert!(hits.never > 0, "and there is enough at the end: {hits:?}");
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let state = tempfile::tempdir().unwrap();
    let text = run_with_mounts("tests::full::small_disks", "small disks", state.path());
    println!("{text}");
}
