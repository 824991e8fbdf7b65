//! What is old goes, a piece at a time, and what stays can be verified.

use super::*;
use crate::prune::{Piece, goal, piece};

/// Removes all that goes. Returns batches and pieces.
fn prune(connection: &mut Connection, retention: &Retention, now: i64) -> (i64, u32) {
    let goal = goal(connection, retention, now).unwrap();
    let (mut batches, mut pieces) = (0, 0);
    loop {
        let Piece { removed, more } = piece(connection, goal, now, &KEY).unwrap();
        batches += removed;
        pieces += 1;
        if !more {
            return (batches, pieces);
        }
    }
}

#[tokio::test]
async fn what_retention_leaves_can_be_verified() {
    let state = tempfile::tempdir().unwrap();
    let mut connection = filled(state.path(), 100).await;
    let before = verify(&connection, &KEY, None).unwrap();
    let retention = Retention { age: None, size: Some(1) };
    let vacuum: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).unwrap();
    assert_eq!(vacuum, 2, "the file can shrink");
    let (gone, _) = prune(&mut connection, &retention, 5_000);
    assert_eq!(gone.unsigned_abs() + 1, before.batches);
    let after = verify(&connection, &KEY, before.head.as_ref()).unwrap();
    assert!(after.findings.is_empty(), "{:?}", after.findings);
    assert_eq!((after.batches, after.unchecked.len()), (1, 1));
    assert!(after.rows < before.rows && after.rows > 0);
    let ledger = open(state.path());
    ledger.begin(begin("ses_9", 9)).await.unwrap();
    assert!(ledger.close(Duration::from_secs(5)));
    assert!(findings(&connection).is_empty());
    let old = Retention { age: Some(Duration::from_hours(1)), size: None };
    assert_eq!(prune(&mut connection, &old, crate::batch::now()).0, 0);
}

#[tokio::test]
async fn what_is_removed_is_gone_from_the_file_which_shrinks() {
    let state = tempfile::tempdir().unwrap();
    let ledger = open(state.path());
    for number in 0..200 {
        let text = format!("{{\"canary\":\"{}\"}}", "gone-with-its-row ".repeat(2_000));
        let row = Begin { arguments: Some(text.into()), ..*begin("ses_1", number) };
        let entry = ledger.begin(Box::new(row)).await.unwrap();
        ledger.end(entry, end(Outcome::Ok));
        if number % 50 == 49 {
            tokio::time::sleep(Duration::from_millis(120)).await; // Several batches.
        }
    }
    let entry = ledger.begin(begin("ses_2", 1)).await.unwrap();
    ledger.end(entry, end(Outcome::Ok));
    assert!(ledger.close(Duration::from_secs(10)));
    let place = Place::of(state.path());
    let size = || std::fs::metadata(&place.file).unwrap().len();
    let before = size();
    assert!(before > 4_000_000, "{before}");
    // As a process that writes opens it.
    let (mut connection, _) = place.open(false, None).unwrap();
    let retention = Retention { age: None, size: Some(1) };
    prune(&mut connection, &retention, 5_000);
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    assert!(size() < 200_000, "{} of {before} bytes are left", size());
    let bytes = std::fs::read(&place.file).unwrap();
    let there = bytes.windows(17).any(|window| window == b"gone-with-its-row");
    assert!(!there, "what was removed is still in the file");
    assert!(findings(&connection).is_empty());
}

async fn many(state: &Path, calls: u64) {
    let ledger = open(state);
    for number in 0..calls {
        let entry = ledger.begin(begin("ses_1", number)).await.unwrap();
        ledger.end(entry, end(Outcome::Ok));
    }
    assert!(ledger.close(Duration::from_secs(30)));
}

#[tokio::test]
async fn much_goes_in_pieces() {
    let state = tempfile::tempdir().unwrap();
    many(state.path(), 25_000).await;
    let mut connection = Connection::open(Place::of(state.path()).file).unwrap();
    let retention = Retention { age: Some(Duration::ZERO), size: None };
    let now = crate::batch::now() + 1000;
    let goal = goal(&connection, &retention, now).unwrap();
    let rows = |connection: &Connection| verify(connection, &KEY, None).unwrap().rows;
    let mut before = rows(&connection);
    let mut pieces = 0;
    loop {
        let Piece { more, .. } = piece(&mut connection, goal, now, &KEY).unwrap();
        let after = rows(&connection);
        assert!(before - after <= 20_000, "{before} {after}");
        assert!(findings(&connection).is_empty());
        (before, pieces) = (after, pieces + 1);
        if !more {
            break;
        }
    }
    assert!(pieces >= 3, "{pieces}");
    assert!(before <= 1024, "{before}");
}

#[tokio::test]
async fn the_thread_removes_what_is_old_while_others_write() {
    let state = tempfile::tempdir().unwrap();
    many(state.path(), 40_000).await;
    let options = Options { retention: Retention { age: None, size: Some(1) }, ..options(state.path()) };
    let ledger = Ledger::open(options, Arc::new(KEY)).unwrap();
    let other =
        Ledger::open(Options { strict: true, ..super::options(state.path()) }, Arc::new(KEY)).unwrap();
    ledger.begin(begin("ses_2", 1)).await.unwrap();
    let reader = Place::of(state.path()).read().unwrap();
    let rows = || reader.query_row("SELECT count(*) FROM calls", [], |row| row.get::<_, i64>(0)).unwrap();
    let mut slowest = Duration::ZERO;
    while rows() > 1_000 {
        let now = std::time::Instant::now();
        other.begin(begin("ses_3", 1)).await.unwrap();
        slowest = slowest.max(now.elapsed());
    }
    println!("the slowest row took {slowest:?}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    assert!(ledger.close(Duration::from_secs(5)) && other.close(Duration::from_secs(5)));
    assert!(findings(&reader).is_empty());
}
