//! Files that cannot be opened or written: said once, left as they are, and tried again.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use super::children::{again, given, lines, mount, role, run_with_mounts, say};
use super::*;

/// What was logged by this program so far.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How many lines say this about something at this place.
fn said(state: &Path, what: &str) -> usize {
    let log = String::from_utf8(log().0.lock().unwrap().clone()).unwrap();
    let place = state.to_str().unwrap();
    log.lines().filter(|line| line.contains(place) && line.contains(what)).count()
}

fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        log
    })
}

const NO_DATABASE: &[u8] =
    b"this is no database, and it is longer than a header of one would be.............................";

fn strict(state: &Path) -> Ledger {
    Ledger::open(Options { strict: true, ..options(state) }, Arc::new(KEY)).unwrap()
}

/// What is in the way is named to those who wait and to the log, once; it is left as it is; what waits is written when
/// somebody has taken it away.
async fn check(state: &Path, is: fn(&LedgerError) -> bool, what: &str, clear: impl FnOnce()) {
    log();
    let (patient, strict) = (open(state), strict(state));
    for ledger in [&patient, &strict] {
        let error = ledger.ready().await.unwrap_err();
        assert!(is(&error), "{error}");
        assert!(ledger.failure().unwrap().contains(what), "{:?}", ledger.failure());
    }
    for number in 0..10 {
        patient.begin(begin("ses_1", number)).await.unwrap();
    }
    let now = Instant::now();
    for number in 10..20 {
        let error = strict.begin(begin("ses_1", number)).await.unwrap_err();
        assert!(is(&error), "{error}");
    }
    assert!(now.elapsed() < Duration::from_millis(500), "at once: {:?}", now.elapsed());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(said(state, what), 2, "once by each of the two");
    clear();
    wait_for("it is written", || (patient.depth().waiting, strict.depth().waiting) == (0, 0));
    assert_eq!((patient.failure(), strict.failure()), (None, None));
    patient.ready().await.unwrap();
    let entry = strict.begin(begin("ses_1", 20)).await.unwrap();
    strict.end(entry, end(Outcome::Ok));
    assert!(patient.close(Duration::from_secs(5)) && strict.close(Duration::from_secs(5)));
    let connection = Place::of(state).read().unwrap();
    assert_eq!(findings(&connection), Vec::<String>::new());
    let there = calls(&connection, &Filter::default()).unwrap();
    assert_eq!(there.len(), 21);
    let refused: Vec<&Call> =
        there.iter().filter(|call| call.reason.as_deref() == Some("ledger_unavailable")).collect();
    assert_eq!(refused.len(), 10);
    assert!(refused.iter().all(|call| call.outcome == Some(Outcome::Refused)));
}

#[tokio::test]
async fn a_damaged_file_is_left_until_somebody_moves_it_away() {
    let state = tempfile::tempdir().unwrap();
    let file = Place::of(state.path()).file;
    std::fs::write(&file, NO_DATABASE).unwrap();
    let aside = state.path().join("aside");
    assert!(matches!(Place::of(state.path()).read(), Err(LedgerError::Damaged { .. })));
    check(
        state.path(),
        |error| matches!(error, LedgerError::Damaged { .. }),
        "move it away",
        || std::fs::rename(&file, &aside).unwrap(),
    )
    .await;
    assert_eq!(std::fs::read(&aside).unwrap(), NO_DATABASE);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let file = Place::of(state.path()).file;
    let connection = filled(state.path(), 4).await;
    connection.pragma_update(None, "user_version", 99).unwrap();
    connection.close().unwrap();
    let before = std::fs::read(&file).unwrap();
    let aside = state.path().join("aside");
    assert!(matches!(Place::of(state.path()).read(), Err(LedgerError::Newer { found: 99, .. })));
    check(
        state.path(),
        |error| matches!(error, LedgerError::Newer { found: 99, .. }),
        "newer version",
        || std::fs::rename(&file, &aside).unwrap(),
    )
    .await;
    assert_eq!(std::fs::read(&aside).unwrap(), before);
}

#[tokio::test]
async fn a_directory_in_its_place_is_named() {
    let state = tempfile::tempdir().unwrap();
    let file = Place::of(state.path()).file;
    std::fs::create_dir(&file).unwrap();
    let read = Place::of(state.path()).read().unwrap_err();
    assert!(read.to_string().contains("it is a directory"), "{read}");
    check(
        state.path(),
        |error| matches!(error, LedgerError::Unwritable { .. }),
        "is a directory",
        || std::fs::remove_dir(&file).unwrap(),
    )
    .await;
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_not_made() {
    let state = tempfile::tempdir().unwrap();
    let inner = state.path().join("inner");
    assert!(matches!(Place::of(&inner).read(), Err(LedgerError::Absent(_))));
    check(
        &inner,
        |error| matches!(error, LedgerError::NoDirectory(_)),
        "make it",
        || {
            assert!(!inner.exists());
            std::fs::create_dir(&inner).unwrap();
        },
    )
    .await;
}

/// Mounts a directory such that nothing can be written to it, and undoes that.
#[test]
fn read_only() {
    if !role("read only") {
        return;
    }
    let state = PathBuf::from(given("LEDGER_STATE"));
    let path = state.to_str().unwrap();
    mount(&["-t", "tmpfs", "-o", "size=4m", "tmpfs", path]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let connection = filled(&state, 4).await;
        connection.close().unwrap();
        for calls in ["DELETE FROM calls", "DELETE FROM ends", "DELETE FROM batches", "DELETE FROM head"] {
            Connection::open(Place::of(&state).file).unwrap().execute_batch(calls).unwrap();
        }
        assert!(!state.join("ledger.db-wal").exists());
        mount(&["-o", "remount,ro", path]);
        let reader = Place::of(&state).read().unwrap();
        assert_eq!(calls(&reader, &Filter::default()).unwrap().len(), 0, "it can still be read");
        drop(reader);
        check(
            &state,
            |error| matches!(error, LedgerError::Unwritable { .. }),
            "cannot be written",
            || mount(&["-o", "remount,rw", path]),
        )
        .await;
    });
}

#[test]
fn a_file_that_can_only_be_read_is_read() {
    let state = tempfile::tempdir().unwrap();
    run_with_mounts("tests::opening::read_only", "read only", state.path());
}

/// Holds the lock until its input ends.
#[test]
fn holder() {
    if !role("holder") {
        return;
    }
    let _held = lock(Path::new(&given("LEDGER_STATE")));
    say("held");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[tokio::test]
async fn a_lock_that_another_process_keeps_is_named_and_waited_for() {
    log();
    let state = tempfile::tempdir().unwrap();
    drop(filled(state.path(), 4).await);
    let mut holder = again(&[], "tests::opening::holder", "holder")
        .env("LEDGER_STATE", state.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = lines(&mut holder);
    assert!(lines.any(|line| line == "held"));
    let begun = Instant::now();
    let (patient, strict) = (open(state.path()), strict(state.path()));
    for number in 0..10 {
        patient.begin(begin("ses_9", number)).await.unwrap();
    }
    let error = strict.begin(begin("ses_9", 10)).await.unwrap_err();
    assert!(matches!(error, LedgerError::Locked(_)), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(5));
    let now = Instant::now();
    strict.begin(begin("ses_9", 11)).await.unwrap_err();
    strict.ready().await.unwrap_err();
    assert!(now.elapsed() < Duration::from_millis(500), "at once, by now");
    wait_for("the other has waited as long", || patient.failure().is_some());
    assert!(patient.failure().unwrap().contains("another process"));
    assert_eq!(said(state.path(), "another process"), 2, "once by each");
    // Those who read do not wait.
    let reader = Place::of(state.path()).read().unwrap();
    assert_eq!(calls(&reader, &Filter::default()).unwrap().len(), 4);
    let idle = open(state.path());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let now = Instant::now();
    assert!(idle.close(Duration::from_secs(5)), "it has nothing to write");
    assert!(now.elapsed() < Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(10).saturating_sub(begun.elapsed())).await;
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    wait_for("it is written", || (patient.depth().waiting, strict.depth().waiting) == (0, 0));
    assert_eq!((patient.failure(), strict.failure()), (None, None));
    strict.begin(begin("ses_9", 12)).await.unwrap();
    assert!(patient.close(Duration::from_secs(5)) && strict.close(Duration::from_secs(5)));
    let of = |connection: &Connection| {
        calls(connection, &Filter { session: Some("ses_9".into()), ..Filter::default() }).unwrap().len()
    };
    assert_eq!(of(&reader), 13);
    assert!(findings(&reader).is_empty());
}

#[tokio::test]
async fn opening_touches_nothing_on_the_callers_thread() {
    let state = tempfile::tempdir().unwrap();
    let held = lock(state.path());
    let now = Instant::now();
    let ledger = open(state.path());
    ledger.begin(begin("ses_1", 1)).await.unwrap();
    assert!(now.elapsed() < Duration::from_millis(100), "{:?}", now.elapsed());
    assert!(!Place::of(state.path()).file.exists());
    drop(held);
    ledger.ready().await.unwrap();
    assert!(ledger.close(Duration::from_secs(5)));
    for file in ["ledger.db", "ledger.lock"] {
        // The lock file was made by this test.
        let mode = std::fs::metadata(state.path().join(file)).unwrap().permissions().mode() & 0o777;
        assert!(mode == 0o600 || file == "ledger.lock", "{file}: {mode:o}");
    }
    let other = tempfile::tempdir().unwrap();
    open(other.path()).ready().await.unwrap();
    for file in ["ledger.db", "ledger.lock", "ledger.db-wal", "ledger.db-shm"] {
        if let Ok(there) = std::fs::metadata(other.path().join(file)) {
            assert_eq!(there.permissions().mode() & 0o777, 0o600, "{file}");
        }
    }
}

/// Moves a ledger away while two write to it, and looks at what they do then.
async fn moved(state: &Path, by: impl FnOnce()) -> Vec<String> {
    let ledgers = [strict(state), strict(state)];
    let mut number = 0;
    for ledger in ledgers.iter().cycle().take(20) {
        number += 1;
        let entry = ledger.begin(begin("ses_before", number)).await.unwrap();
        ledger.end(entry, end(Outcome::Ok));
    }
    wait_for("it is written", || ledgers.iter().all(|ledger| ledger.depth().waiting == 0));
    by();
    for ledger in ledgers.iter().cycle().take(20) {
        number += 1;
        let entry = ledger.begin(begin("ses_after", number)).await.unwrap();
        ledger.end(entry, end(Outcome::Ok));
    }
    assert!(ledgers.iter().all(|ledger| ledger.close(Duration::from_secs(5))));
    let connection = Place::of(state).read().unwrap();
    assert_eq!(findings(&connection), Vec::<String>::new());
    calls(&connection, &Filter::default()).unwrap().into_iter().filter_map(|call| call.session).collect()
}

#[tokio::test]
async fn what_comes_after_a_file_was_removed_is_written_where_it_is_seen() {
    let state = tempfile::tempdir().unwrap();
    let after = vec!["ses_after".to_owned(); 20];
    let remove = |file: &str| std::fs::remove_file(state.path().join(file)).unwrap();
    let all = || ["ledger.db", "ledger.db-wal", "ledger.db-shm"].into_iter().for_each(remove);
    assert_eq!(moved(state.path(), all).await, after);
    let state = tempfile::tempdir().unwrap();
    assert_eq!(
        moved(state.path(), || std::fs::remove_file(state.path().join("ledger.lock")).unwrap()).await.len(),
        40
    );
}

#[tokio::test]
async fn a_file_that_was_moved_without_its_log_keeps_it() {
    let state = tempfile::tempdir().unwrap();
    let aside = state.path().join("aside.db");
    let file = Place::of(state.path()).file;
    let found = moved(state.path(), || std::fs::rename(&file, &aside).unwrap()).await;
    assert_eq!(found, vec!["ses_after"; 20]);
    // The rows that were in the log are beside it, under another name.
    let log = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ledger.db-wal."))
    });
    std::fs::rename(log.unwrap(), state.path().join("aside.db-wal")).unwrap();
    let connection = Connection::open(&aside).unwrap();
    assert_eq!(findings(&connection), Vec::<String>::new());
    assert_eq!(calls(&connection, &Filter::default()).unwrap().len(), 20);
}

#[tokio::test]
async fn a_copy_that_was_put_in_its_place_is_gone_on_with() {
    let state = tempfile::tempdir().unwrap();
    let copy = state.path().join("copy.db");
    let connection = filled(state.path(), 6).await;
    connection.execute("VACUUM INTO ?", [copy.to_str().unwrap()]).unwrap();
    drop(connection);
    let found = moved(state.path(), || std::fs::rename(&copy, Place::of(state.path()).file).unwrap()).await;
    assert_eq!((found.len(), found.iter().filter(|session| *session == "ses_after").count()), (26, 20));
}

#[tokio::test]
async fn rows_that_are_there_already_are_not_written_twice() {
    use crate::batch::{Author, write};
    use crate::queue::Row;
    let state = tempfile::tempdir().unwrap();
    let mut connection = filled(state.path(), 4).await;
    let author = Author::new("wrap").unwrap();
    let rows = |seqs: std::ops::RangeInclusive<u64>| -> Vec<Row> {
        seqs.map(|seq| Row::Begin(seq, begin("ses_1", seq))).collect()
    };
    for _ in 0..2 {
        assert_eq!(write(&mut connection, &author, &rows(1..=3), &KEY).unwrap(), 3);
    }
    write(&mut connection, &author, &rows(2..=4), &KEY).unwrap_err();
    assert_eq!(write(&mut connection, &author, &rows(4..=5), &KEY).unwrap(), 5);
    assert!(findings(&connection).is_empty());
    assert_eq!(calls(&connection, &Filter::default()).unwrap().len(), 9);
}

#[tokio::test]
async fn whoever_stops_waiting_for_a_row_has_not_made_the_call() {
    let state = tempfile::tempdir().unwrap();
    let held = lock(state.path());
    let ledger = strict(state.path());
    let waited = tokio::time::timeout(Duration::from_millis(50), ledger.begin(begin("ses_1", 1))).await;
    assert!(waited.is_err());
    drop(held);
    assert!(ledger.close(Duration::from_secs(5)));
    let connection = Place::of(state.path()).read().unwrap();
    let call = &calls(&connection, &Filter::default()).unwrap()[0];
    assert_eq!(call.outcome, Some(Outcome::Canceled));
}

#[tokio::test]
async fn what_waits_is_bounded_by_its_bytes() {
    let state = tempfile::tempdir().unwrap();
    let held = lock(state.path());
    let ledger = open(state.path());
    let text = "x".repeat(1 << 20);
    let large = |number| Box::new(Begin { arguments: Some(text.as_str().into()), ..*begin("ses_1", number) });
    let mut entries: Vec<Entry> =
        (0..63).map(|number| ledger.begin_at_once(large(number)).unwrap()).collect();
    ledger.begin_at_once(large(63)).unwrap_err();
    let small = ledger.begin_at_once(begin("ses_1", 64)).unwrap();
    let mut end_of = |reason: Option<&str>| {
        let end =
            End { reason: reason.map(Into::into), result: Some(text.as_str().into()), ..end(Outcome::Ok) };
        ledger.end(entries.remove(0), end);
    };
    end_of(None);
    end_of(Some("because"));
    assert!(ledger.depth().bytes < 64 << 20, "{:?}", ledger.depth());
    drop(held);
    wait_for("it is written", || ledger.depth().waiting == 0);
    assert_eq!(ledger.depth().bytes, 0);
    end_of(None);
    ledger.end(small, end(Outcome::Ok));
    // A row that is larger than the bound is taken by an empty queue.
    wait_for("it is written", || ledger.depth().waiting == 0);
    let huge = Begin { arguments: Some("x".repeat(65 << 20).into()), ..*begin("ses_1", 65) };
    ledger.begin_at_once(Box::new(huge)).unwrap();
    assert!(ledger.close(Duration::from_secs(20)));
    let connection = Place::of(state.path()).read().unwrap();
    let there = calls(&connection, &Filter::default()).unwrap();
    let ends = |at: usize| (there[at].reason.as_deref(), there[at].result.as_deref().map(str::len));
    assert_eq!(
        (there.len(), ends(0), ends(1), ends(2)),
        (65, (Some("result_not_kept"), None), (Some("because"), None), (None, Some(1 << 20)))
    );
    assert_eq!(there[0].result_size, Some(9));
    assert!(findings(&connection).is_empty());
}
