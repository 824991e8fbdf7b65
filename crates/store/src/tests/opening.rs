//! Files that are not what they were: named, left as they are, never made anew.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::children::{again, given, lines, role, say};
use super::*;

async fn raw(state: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(Place::of(state).file).connect().await.unwrap()
}

async fn run_sql(state: &Path, sql: &str) {
    let mut connection = raw(state).await;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// A store with something in it, closed.
async fn filled(state: &Path) -> (SessionId, RunId) {
    let store = open(state).await;
    let session = new_session(&store, &alice()).await;
    let run = submit(&store, &alice(), task(&session, &"x".repeat(20_000))).await;
    store.close().await;
    (session, run.id)
}

/// Opening fails like this, twice, and changes no byte.
async fn check(state: &Path, is: fn(&OpenError) -> bool, what: &str) {
    let file = Place::of(state).file;
    // A log without anything in it is none: whoever looks at the file makes one.
    let bytes =
        || [&file, &Place::of(state).beside("-wal")].map(|file| std::fs::read(file).unwrap_or_default());
    let before = bytes();
    for _ in 0..2 {
        let error = SqliteStore::open(&Place::of(state)).await.expect_err("it is not to be opened");
        assert!(is(&error), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(bytes() == before, "it was changed");
    }
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path()).await;
    run_sql(state.path(), "PRAGMA user_version = 99").await;
    check(state.path(), |error| matches!(error, OpenError::Newer { found: 99, .. }), "newer version").await;
}

#[tokio::test]
async fn a_file_made_by_another_migration_is_refused() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path()).await;
    run_sql(state.path(), "UPDATE migrations SET hash = 'x'").await;
    let is = |error: &OpenError| matches!(error, OpenError::OtherMigration { version: 1, .. });
    check(state.path(), is, "another migration 1").await;
    run_sql(state.path(), "DELETE FROM migrations").await;
    check(state.path(), is, "another migration 1").await;
}

#[tokio::test]
async fn a_file_of_something_else_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let mut other = SqliteConnectOptions::new()
        .filename(Place::of(state.path()).file)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap();
    sqlx::raw_sql("CREATE TABLE other (x)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    check(state.path(), |error| matches!(error, OpenError::Foreign(_)), "something else").await;
    std::fs::write(Place::of(state.path()).file, [b'x'; 5_000]).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Damaged { .. }), "damaged").await;
    std::fs::remove_file(Place::of(state.path()).file).unwrap();
    std::fs::create_dir(Place::of(state.path()).file).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Unwritable { .. }), "directory").await;
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_refused() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path()).await;
    let file = Place::of(state.path()).file;
    let whole = std::fs::read(&file).unwrap();
    for pages in 1..=whole.len() / 4096 {
        std::fs::write(&file, &whole[..whole.len() - pages * 4096]).unwrap();
        let gone = whole.len() == pages * 4096;
        let is: fn(&OpenError) -> bool = if gone {
            |error| matches!(error, OpenError::Gone { .. })
        } else {
            |error| matches!(error, OpenError::Damaged { .. })
        };
        check(state.path(), is, if gone { "gone" } else { "damaged" }).await;
    }
    std::fs::write(&file, &whole[..whole.len() - 100]).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Damaged { .. }), "damaged").await;
    // In the middle: whatever does not hold together is seen before anything is written.
    let mut broken = whole.clone();
    broken[4096 * 3..4096 * 4].fill(0xff);
    std::fs::write(&file, broken).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Damaged { .. }), "damaged").await;
    std::fs::write(&file, whole).unwrap();
    open(state.path()).await.close().await;
}

/// Submits, says so, and is killed with its log full.
#[test]
fn killed_with_a_log() {
    if !role("killed with a log") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&given("STORE_STATE"))).await;
        let session = new_session(&store, &alice()).await;
        say(&format!("session {session}"));
        for _ in 0..5 {
            submit(&store, &alice(), task(&session, "x")).await;
        }
        say("ready");
        std::future::pending::<()>().await;
    });
}

fn kill_with_a_log(state: &Path) -> SessionId {
    let mut child = again(&[], "tests::opening::killed_with_a_log", "killed with a log")
        .env("STORE_STATE", state)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said: Vec<String> = lines(&mut child).take_while(|line| line != "ready").collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let session = said.iter().find_map(|line| line.strip_prefix("session ")).unwrap();
    SessionId::parse(session).unwrap()
}

#[tokio::test]
async fn a_log_that_was_removed_is_missed() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path()).await;
    let session = kill_with_a_log(state.path());
    let place = Place::of(state.path());
    let (log, shared) = (place.beside("-wal"), place.beside("-shm"));
    let aside = state.path().join("aside");
    std::fs::rename(&log, &aside).unwrap();
    std::fs::remove_file(&shared).unwrap();
    let is = |error: &OpenError| matches!(error, OpenError::Behind { missing: 6, .. });
    check(state.path(), is, "`-wal` was removed").await;
    // The file of the first ones may be the one that is gone.
    let file = std::fs::read(&place.file).unwrap();
    std::fs::remove_file(&place.file).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Gone { .. }), "gone").await;
    std::fs::rename(&aside, &log).unwrap();
    std::fs::rename(place.beside(".mark"), &aside).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Gone { .. }), "gone").await;
    std::fs::rename(&aside, place.beside(".mark")).unwrap();
    std::fs::write(&place.file, file).unwrap();
    // With everything in its place everything is there.
    let store = open(state.path()).await;
    assert_eq!(store.list_runs(&alice(), &session, Page::default()).await.unwrap().len(), 5);
    store.close().await;
}

#[tokio::test]
async fn an_older_copy_is_noticed_and_can_be_gone_on_with() {
    let state = tempfile::tempdir().unwrap();
    let (session, run) = filled(state.path()).await;
    let place = Place::of(state.path());
    let older = std::fs::read(&place.file).unwrap();
    filled(state.path()).await;
    std::fs::write(&place.file, older).unwrap();
    check(state.path(), |error| matches!(error, OpenError::Behind { missing: 2, .. }), ".mark to go on")
        .await;
    std::fs::remove_file(place.beside(".mark")).unwrap();
    let store = open(state.path()).await;
    assert_eq!(store.latest_run(&alice(), &session).await.unwrap().map(|run| run.id), Some(run));
    store.close().await;
}

#[tokio::test]
async fn a_mark_that_is_behind_or_unreadable_is_no_obstacle() {
    let state = tempfile::tempdir().unwrap();
    let (session, _) = filled(state.path()).await;
    let mark = Place::of(state.path()).beside(".mark");
    let right = std::fs::read_to_string(&mark).unwrap();
    for wrong in ["", "00000000000000000001\n", "\0\0\0\0", "x"] {
        std::fs::write(&mark, wrong).unwrap();
        let store = open(state.path()).await;
        assert!(store.session(&alice(), &session).await.unwrap().is_some());
        store.close().await;
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), right, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_file_that_another_process_holds_is_named() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path()).await;
    let mut holder = raw(state.path()).await;
    sqlx::raw_sql("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE commits SET count = count")
        .execute(&mut holder)
        .await
        .unwrap();
    let error = SqliteStore::open(&Place::of(state.path())).await.expect_err("it is held");
    assert!(matches!(error, OpenError::Locked(_)), "{error:?}");
    assert!(error.to_string().contains("another process"), "{error}");
    holder.close().await.unwrap();
    open(state.path()).await.close().await;
}

#[tokio::test]
async fn a_writer_that_another_process_keeps_waiting_is_told_and_readers_go_on() {
    let state = tempfile::tempdir().unwrap();
    let store = open(state.path()).await;
    let session = new_session(&store, &alice()).await;
    let mut holder = raw(state.path()).await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();
    let principal = alice();
    let waiting = store.submit(&principal, task(&session, "x"), at(1));
    let reading = async {
        for _ in 0..20 {
            assert!(store.session(&alice(), &session).await.unwrap().is_some());
        }
    };
    let (submitted, ()) = tokio::join!(waiting, reading);
    assert!(matches!(submitted, Err(StoreError::Busy)), "{submitted:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    submit(&store, &alice(), task(&session, "x")).await;
}

#[tokio::test]
async fn what_is_made_is_nobody_elses_to_read_and_no_directory_is_made() {
    let state = tempfile::tempdir().unwrap();
    let inner = state.path().join("inner");
    let error = SqliteStore::open(&Place::of(&inner)).await.expect_err("there is no directory");
    assert!(matches!(error, OpenError::NoDirectory(_)), "{error:?}");
    assert!(!inner.exists());
    let store = open(state.path()).await;
    new_session(&store, &alice()).await;
    let place = Place::of(state.path());
    let files: Vec<PathBuf> = ["", "-wal", "-shm", ".mark"].iter().map(|end| place.beside(end)).collect();
    for file in files {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn two_that_open_a_new_file_at_once_both_have_it() {
    let state = tempfile::tempdir().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let path = state.path().to_owned();
        tasks.spawn(async move { open(&path).await });
    }
    let stores = tasks.join_all().await;
    let mut made = std::collections::HashSet::new();
    for store in &stores {
        let outcome = store.create_or_reuse(&alice(), wanted(Some("k")), at(1)).await.unwrap();
        let (CreateOutcome::Created(session) | CreateOutcome::Reused(session)) = outcome else {
            panic!("{outcome:?}")
        };
        made.insert(session.id);
    }
    assert_eq!(made.len(), 1);
}

#[tokio::test]
async fn a_row_that_was_tampered_with_is_an_error_and_no_panic() {
    let state = tempfile::tempdir().unwrap();
    let (session, run) = filled(state.path()).await;
    run_sql(
        state.path(),
        "PRAGMA ignore_check_constraints = ON; UPDATE runs SET seq = -1, principal = 'alice'",
    )
    .await;
    let store = open(state.path()).await;
    let read = store.run(&alice(), &run).await;
    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
    store.close().await;
    run_sql(state.path(), "PRAGMA ignore_check_constraints = ON; UPDATE sessions SET status = 'x'").await;
    let opened = SqliteStore::open(&Place::of(state.path())).await;
    match opened {
        Ok(store) => {
            let read = store.session(&alice(), &session).await;
            assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
        }
        Err(error) => assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}"),
    }
}
