//! The ledger as one process sees it. `CALLSIGN_FULL=1` for the sizes that take too long for every day.

mod changes;
mod children;
mod full;
mod killed;
mod opening;
mod queries;
mod retention;
mod tampered;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::verify::check;
use crate::*;

/// Signs with a digest and a secret: what matters here is who can.
pub(crate) struct Key(&'static str);

impl Seal for Key {
    fn sign(&self, message: &[u8]) -> Option<Signature> {
        use sha2::Digest as _;
        let bytes = sha2::Sha256::new().chain_update(self.0).chain_update(message).finalize().to_vec();
        Some(Signature { kid: self.0.to_owned(), bytes })
    }

    fn verify(&self, message: &[u8], signature: &Signature) -> Option<bool> {
        (signature.kid == self.0)
            .then(|| self.sign(message).is_some_and(|right| right.bytes == signature.bytes))
    }
}

const KEY: Key = Key("key-1");

fn full_size() -> bool {
    std::env::var_os("CALLSIGN_FULL").is_some_and(|value| value == "1")
}

fn options(state: &Path) -> Options {
    Options { place: Place::of(state), strict: false, retention: Retention::default(), kind: "wrap" }
}

fn open(state: &Path) -> Ledger {
    Ledger::open(options(state), Arc::new(KEY)).unwrap()
}

fn begin(session: &str, number: u64) -> Box<Begin> {
    Box::new(Begin {
        at: 1_000 + number,
        host: Some("opencode".into()),
        session: Some(session.into()),
        thread: Some(
            if number.is_multiple_of(3) { format!("{session}-sub") } else { session.to_owned() }.into(),
        ),
        parent: number.is_multiple_of(3).then(|| session.into()),
        turn: Some("turn_1".into()),
        call: format!("call_{number}").into(),
        server: "tracker".into(),
        tool: Some("search".into()),
        method: "tools/call".into(),
        workspace: Some("/srv/x".into()),
        trust: "host",
        source: Some("seal"),
        digest: Some([7; 32]),
        size: 12,
        arguments: Some("{}".into()),
        spoof: Some("_meta".into()),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..Begin::default()
    })
}

fn end(outcome: Outcome) -> End {
    End {
        at: 2_000,
        outcome,
        reason: Some("because".into()),
        target: Some("pid 7".into()),
        micros: 1_500,
        size: 9,
        result: Some("{}".into()),
    }
}

/// A ledger of so many calls, each with its end, by two writers.
async fn filled(state: &Path, calls: u64) -> Connection {
    for writer in 0..2 {
        let ledger = open(state);
        ledger.ready().await.unwrap();
        for number in 0..calls / 2 {
            let entry = ledger.begin(begin(&format!("ses_{writer}"), number)).await.unwrap();
            ledger.end(entry, end(Outcome::Ok));
            if number % 10 == 9 {
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        }
        assert!(ledger.close(Duration::from_secs(5)));
    }
    Connection::open(Place::of(state).file).unwrap()
}

/// The lock file of a ledger, held.
fn lock(state: &Path) -> std::fs::File {
    let lock = std::fs::File::options().create(true).append(true).open(Place::of(state).lock).unwrap();
    lock.lock().unwrap();
    lock
}

/// Waits for something that will be.
#[track_caller]
fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(std::time::Instant::now() < until, "{what}: in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn findings(connection: &Connection) -> Vec<String> {
    let report = check(connection, &KEY, None).unwrap();
    report.findings.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn what_is_written_is_found_again_and_verifies() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 60).await;
    let report = verify(&connection, &KEY, None).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((report.rows, report.unchecked.len()), (120, 0));
    assert!(report.batches >= 6, "{}", report.batches);
    let of = |filter: Filter| calls(&connection, &filter).unwrap();
    let session = of(Filter { session: Some("ses_1".into()), ..Filter::default() });
    assert_eq!(session.len(), 30);
    let order: Vec<&str> = session.iter().map(|call| call.call.as_str()).collect();
    assert_eq!(order[..3], ["call_0", "call_1", "call_2"]);
    assert_eq!((session[1].outcome, session[1].duration_ms), (Some(Outcome::Ok), Some(1.5)));
    assert_eq!(of(Filter { thread: Some("ses_0-sub".into()), ..Filter::default() }).len(), 10);
    assert_eq!(of(Filter { limit: Some(7), ..Filter::default() }).len(), 7);
    assert_eq!(of(Filter { since: Some(1_025), until: Some(1_027), ..Filter::default() }).len(), 4);
    assert_eq!(of(Filter { outcome: Some(Outcome::Failed), ..Filter::default() }).len(), 0);
    assert_eq!(of(Filter { tool: Some("other".into()), ..Filter::default() }).len(), 0);
}

#[tokio::test]
async fn a_call_without_an_end_is_unknown_once_its_writer_is_gone() {
    let state = tempfile::tempdir().unwrap();
    let ledger = open(state.path());
    ledger.begin(begin("ses_1", 1)).await.unwrap();
    assert!(ledger.close(Duration::from_secs(5)));
    let connection = Connection::open(Place::of(state.path()).file).unwrap();
    let outcome = |connection: &Connection| calls(connection, &Filter::default()).unwrap()[0].outcome;
    assert_eq!(outcome(&connection), None, "this process lives");
    connection.execute("UPDATE writers SET life = 'another'", []).unwrap();
    assert_eq!(outcome(&connection), Some(Outcome::Unknown));
    let filter = Filter { outcome: Some(Outcome::Unknown), limit: Some(1), ..Filter::default() };
    assert_eq!(calls(&connection, &filter).unwrap().len(), 1);
}

#[tokio::test]
async fn a_strict_row_is_there_when_the_call_goes_out() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(Options { strict: true, ..options(state.path()) }, Arc::new(KEY)).unwrap();
    for number in 1..=20 {
        ledger.begin(begin("ses_1", number)).await.unwrap();
        let reader = Place::of(state.path()).read().unwrap();
        let count: u64 = reader
            .query_row("SELECT count(*) FROM calls", [], |row| row.get::<_, i64>(0))
            .unwrap()
            .unsigned_abs();
        assert_eq!(count, number);
    }
}

/// Every way to change one value that leaves a value of its kind.
fn flipped(value: &Value, every: usize) -> Vec<(String, Vec<u8>)> {
    let bytes = |bytes: &[u8]| -> Vec<Vec<u8>> {
        (0..bytes.len())
            .step_by(every)
            .map(|at| {
                let mut changed = bytes.to_vec();
                changed[at] ^= 1;
                changed
            })
            .collect()
    };
    match value {
        Value::Null => vec![("CAST(? AS TEXT)".to_owned(), b"x".to_vec())],
        Value::Integer(number) => {
            let changed = bytes(&number.to_be_bytes());
            let number =
                |changed: Vec<u8>| i64::from_be_bytes(changed.try_into().unwrap()).to_string().into_bytes();
            changed
                .into_iter()
                .map(|changed| ("CAST(CAST(? AS TEXT) AS INTEGER)".to_owned(), number(changed)))
                .collect()
        }
        Value::Text(text) => bytes(text.as_bytes())
            .into_iter()
            .map(|changed| ("CAST(? AS TEXT)".to_owned(), changed))
            .collect(),
        Value::Blob(blob) => bytes(blob).into_iter().map(|changed| ("?".to_owned(), changed)).collect(),
        Value::Real(_) => unreachable!("no column has one"),
    }
}

/// `CALLSIGN_FULL=1` for every byte; else for some of each value.
#[tokio::test]
async fn every_change_of_a_value_is_found() {
    let (every, calls) = if full_size() { (1, 100) } else { (13, 20) };
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), calls).await;
    connection.close().unwrap();
    let tried: u32 = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let copy = state.path().join(format!("{half}.db"));
            std::fs::copy(Place::of(state.path()).file, &copy).unwrap();
            scope.spawn(move || change_everything(&Connection::open(copy).unwrap(), every, half))
        });
        halves.map(|half| half.join().unwrap()).iter().sum()
    });
    println!("{tried} changes, all found");
    assert!(tried > 500, "{tried}");
}

/// In every second row. Returns how much was changed.
fn change_everything(connection: &Connection, every: usize, half: usize) -> u32 {
    assert!(findings(connection).is_empty());
    let mut tried = 0;
    for (table, keys) in [
        ("writers", "id"),
        ("calls", "writer, seq"),
        ("ends", "writer, seq"),
        ("batches", "id"),
        ("head", "id"),
    ] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY {keys}")).unwrap();
        let columns: Vec<String> = statement.column_names().iter().map(|name| (*name).to_owned()).collect();
        let rows: Vec<Vec<Value>> = statement
            .query_map([], |row| (0..columns.len()).map(|at| row.get(at)).collect())
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap();
        for row in rows.iter().skip(half).step_by(2) {
            let place = keys
                .split(", ")
                .map(|key| {
                    let at = columns.iter().position(|column| column == key).unwrap();
                    let Value::Integer(number) = row[at] else { panic!("a key is a number") };
                    format!("{key} = {number}")
                })
                .collect::<Vec<_>>()
                .join(" AND ");
            for (column, value) in columns.iter().zip(row) {
                for (expression, bytes) in flipped(value, every) {
                    connection.execute_batch("SAVEPOINT tamper").unwrap();
                    let changed = connection.execute(
                        &format!("UPDATE {table} SET {column} = {expression} WHERE {place}"),
                        [&bytes],
                    );
                    // Some changes the file itself refuses.
                    if changed.is_ok() {
                        let found = check(connection, &KEY, None);
                        assert!(
                            found.is_err() || found.is_ok_and(|report| !report.findings.is_empty()),
                            "{table}.{column} of {place} changed from {value:?} to {bytes:?} unseen"
                        );
                        tried += 1;
                    }
                    connection.execute_batch("ROLLBACK TO tamper; RELEASE tamper").unwrap();
                }
            }
        }
    }
    assert!(findings(connection).is_empty());
    tried
}

#[tokio::test]
async fn what_is_removed_added_or_swapped_is_found_and_named() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 200).await;
    let expect = |sql: &str, what: &str| {
        connection.execute_batch(&format!("SAVEPOINT tamper; {sql}")).unwrap();
        let found = findings(&connection);
        connection.execute_batch("ROLLBACK TO tamper; RELEASE tamper").unwrap();
        assert!(found.iter().any(|finding| finding.contains(what)), "{sql}: {found:?}");
    };
    for seq in 1..=200 {
        let what = format!("row {seq} of writer 1: it is missing");
        expect(
            &format!(
                "DELETE FROM calls WHERE writer = 1 AND seq = {seq}; DELETE FROM ends WHERE writer = 1 AND seq = {seq}"
            ),
            &what,
        );
    }
    expect(
        "UPDATE ends SET outcome = 'failed' WHERE writer = 2 AND seq = 50",
        "row 50 of writer 2: it was changed",
    );
    expect(
        "UPDATE calls SET call = CASE seq WHEN 5 THEN 'call_3' ELSE 'call_2' END WHERE writer = 1 AND seq IN (5, 7)",
        "row 5 of writer 1: it was changed",
    );
    expect(
        "INSERT INTO calls SELECT writer, 999, at, host, session, thread, parent, run, turn, call, server, tool, method, workspace, trust, source, digest, size, arguments, spoof, trace, mark FROM calls WHERE writer = 1 AND seq = 1",
        "row 999 of writer 1: it was added",
    );
    expect(
        "DELETE FROM calls WHERE writer = 2; DELETE FROM ends WHERE writer = 2",
        "of writer 2: it is missing",
    );
    expect(
        "DELETE FROM calls WHERE writer = 2; DELETE FROM ends WHERE writer = 2; DELETE FROM batches WHERE writer = 2; DELETE FROM writers WHERE id = 2",
        "the end was cut off",
    );
    expect(
        "DELETE FROM calls WHERE writer = 1; DELETE FROM ends WHERE writer = 1; DELETE FROM batches WHERE writer = 1; DELETE FROM writers WHERE id = 1",
        "batches before it are missing",
    );
    expect("DELETE FROM batches WHERE id = (SELECT max(id) FROM batches)", "the end was cut off");
    expect("DELETE FROM batches WHERE id = 3", "batches before it are missing");
    expect("DELETE FROM head", "the head is missing");
    // Somebody who makes all hashes anew has no key.
    let forged = Key("key-1-forged");
    let head = crate::batch::Head::read(&connection).unwrap().unwrap();
    let signature = forged.sign(&head.message()).unwrap();
    connection.execute_batch("SAVEPOINT tamper").unwrap();
    connection.execute("UPDATE head SET signature = ?", [&signature.bytes]).unwrap();
    assert_eq!(findings(&connection), ["the head is not what was signed"]);
    connection.execute_batch("ROLLBACK TO tamper; RELEASE tamper").unwrap();
}

#[tokio::test]
async fn nobody_signs_what_somebody_else_has_changed() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 40).await;
    // The end is cut off, and the head made to fit: all but the signature.
    let last: i64 = connection.query_row("SELECT max(id) FROM batches", [], |row| row.get(0)).unwrap();
    connection
        .execute_batch(&format!(
            "DELETE FROM calls WHERE (writer, seq) IN (SELECT c.writer, c.seq FROM calls c JOIN batches b ON b.writer = c.writer AND c.seq BETWEEN b.first AND b.last WHERE b.id = {last});
             DELETE FROM ends WHERE (writer, seq) IN (SELECT e.writer, e.seq FROM ends e JOIN batches b ON b.writer = e.writer AND e.seq BETWEEN b.first AND b.last WHERE b.id = {last});
             UPDATE head SET batch = {last} - 1, chain = (SELECT chain FROM batches WHERE id = {last} - 1);
             DELETE FROM batches WHERE id = {last};"
        ))
        .unwrap();
    assert_eq!(findings(&connection), ["the head is not what was signed"]);
    for forged in ["UPDATE head SET signature = x'00'", "UPDATE head SET signature = x'', kid = ''"] {
        connection.execute_batch(forged).unwrap();
        let ledger = open(state.path());
        ledger.begin(begin("ses_9", 1)).await.unwrap();
        assert!(!ledger.close(Duration::from_millis(300)), "{forged}");
        assert!(!findings(&connection).is_empty(), "{forged}");
    }
}

#[tokio::test]
async fn an_older_copy_is_found_by_a_head_that_was_kept() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 20).await;
    let older = verify(&connection, &KEY, None).unwrap().head.unwrap();
    let copy = state.path().join("copy.db");
    connection.execute("VACUUM INTO ?", [copy.to_str().unwrap()]).unwrap();
    drop(connection);
    let connection = filled(state.path(), 20).await;
    let newer = verify(&connection, &KEY, None).unwrap().head.unwrap();
    assert_ne!(older, newer);
    assert!(verify(&connection, &KEY, Some(&older)).unwrap().findings.is_empty());
    let copy = Connection::open(copy).unwrap();
    assert!(verify(&copy, &KEY, None).unwrap().findings.is_empty(), "by itself an older copy is sound");
    let found = verify(&copy, &KEY, Some(&newer)).unwrap().findings;
    assert!(found[0].to_string().contains("this is an older copy"), "{found:?}");
    assert_eq!(Anchor::parse(&newer.to_string()), Some(newer));
}

#[tokio::test]
async fn rows_wait_for_a_lock_and_are_not_lost() {
    let state = tempfile::tempdir().unwrap();
    let ledger = open(state.path());
    ledger.ready().await.unwrap();
    let lock = lock(state.path());
    for number in 0..100 {
        ledger.begin(begin("ses_1", number)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ledger.depth().committed, 0);
    lock.unlock().unwrap();
    assert!(ledger.close(Duration::from_secs(5)));
    assert_eq!(ledger.depth().committed, 100);
}
