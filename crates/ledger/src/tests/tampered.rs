//! Changes of the file that are not changes of a row.

use super::*;
use crate::prune;

/// A file that somebody changes, and what is found then.
async fn expect(sql: &str, what: &str) {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 20).await;
    connection.execute_batch(sql).unwrap();
    drop(connection);
    let connection = Connection::open(Place::of(state.path()).file).unwrap();
    let found = findings(&connection);
    assert!(found.iter().any(|finding| finding.contains(what)), "{sql}: {found:?}");
}

#[tokio::test]
async fn what_is_added_to_the_tables_or_taken_from_them_is_found() {
    expect(
        "CREATE TRIGGER gone AFTER INSERT ON calls BEGIN DELETE FROM calls WHERE seq = NEW.seq; END",
        "the trigger `gone` was added",
    )
    .await;
    expect("CREATE VIEW seen AS SELECT * FROM calls", "the view `seen` was added").await;
    expect("CREATE TABLE more (x)", "the table `more` was added").await;
    expect("DROP INDEX calls_session", "the index `calls_session` is missing").await;
    expect(
        "DROP INDEX calls_session; CREATE INDEX calls_session ON calls (session)",
        "the index `calls_session` was changed",
    )
    .await;
    expect("ALTER TABLE calls ADD COLUMN note TEXT", "the table `calls` was changed").await;
}

#[tokio::test]
async fn a_row_that_an_index_hides_is_found() {
    // An index that leaves out a row, and says of itself that it does not.
    let whole = "CREATE INDEX calls_session ON calls (session, at) WHERE session IS NOT NULL";
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 20).await;
    let set = |connection: &Connection, sql: &str| {
        connection.execute_batch("PRAGMA writable_schema = ON").unwrap();
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'calls_session'", [sql]).unwrap();
        connection.execute_batch("PRAGMA writable_schema = RESET").unwrap();
    };
    set(&connection, &format!("{whole} AND seq <> 3"));
    connection.execute_batch("REINDEX calls_session").unwrap();
    set(&connection, whole);
    drop(connection);
    let connection = Connection::open(Place::of(state.path()).file).unwrap();
    let session = Filter { session: Some("ses_0".into()), ..Filter::default() };
    assert_eq!(calls(&connection, &session).unwrap().len(), 9, "it is hidden");
    let found = findings(&connection);
    assert!(found.iter().any(|finding| finding.contains("calls_session")), "{found:?}");
}

#[tokio::test]
async fn a_page_that_was_overwritten_is_found() {
    use std::os::unix::fs::FileExt as _;
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 60).await;
    let root: i64 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'ends'", [], |row| row.get(0))
        .unwrap();
    connection.close().unwrap();
    let file = std::fs::File::options().write(true).open(Place::of(state.path()).file).unwrap();
    file.write_all_at(&[0xff; 64], (root.unsigned_abs() - 1) * 4096).unwrap();
    drop(file);
    let connection = Connection::open(Place::of(state.path()).file).unwrap();
    let found = findings(&connection);
    assert!(found.iter().any(|finding| finding.contains("the file is damaged")), "{found:?}");
}

/// Nobody has a key, so that nothing stops at the signature.
struct NoKey;

impl Seal for NoKey {
    fn has_key(&self) -> bool {
        false
    }

    fn sign(&self, _: &[u8]) -> Option<Signature> {
        None
    }

    fn verify(&self, _: &[u8], _: &Signature) -> Option<bool> {
        None
    }
}

#[tokio::test]
async fn the_largest_and_smallest_numbers_are_found_and_harm_nobody() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 40).await;
    // A head without a signature: who has no key takes it as it is.
    connection.execute_batch("UPDATE head SET kid = '', signature = x''").unwrap();
    connection.close().unwrap();
    let places = [
        ("batches", "id", "id = (SELECT max(id) FROM batches)"),
        ("batches", "id", "id = (SELECT min(id) FROM batches)"),
        ("batches", "first", "id = 2"),
        ("batches", "last", "id = 2"),
        ("batches", "at", "id = 2"),
        ("batches", "writer", "id = 2"),
        ("calls", "seq", "writer = 1 AND seq = (SELECT max(seq) FROM calls WHERE writer = 1)"),
        ("calls", "writer", "writer = 1 AND seq = 1"),
        ("calls", "at", "writer = 1 AND seq = 1"),
        ("ends", "seq", "writer = 2 AND seq = (SELECT max(seq) FROM ends WHERE writer = 2)"),
        ("ends", "of", "writer = 2 AND seq = (SELECT max(seq) FROM ends WHERE writer = 2)"),
        ("ends", "micros", "writer = 2 AND seq = (SELECT max(seq) FROM ends WHERE writer = 2)"),
        ("head", "batch", "id = 1"),
        ("head", "pruned", "id = 1"),
        ("writers", "id", "id = 1"),
        ("writers", "opened", "id = 1"),
    ];
    for (table, column, place) in places {
        for value in [i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1, -1] {
            let copy = state.path().join("copy.db");
            std::fs::copy(Place::of(state.path()).file, &copy).unwrap();
            let mut connection = Connection::open(&copy).unwrap();
            assert_eq!(check(&connection, &NoKey, None).unwrap().findings, []);
            let changed = format!("UPDATE {table} SET {column} = {value} WHERE {place}");
            assert_eq!(connection.execute(&changed, []).unwrap(), 1, "{changed}");
            let report = check(&connection, &NoKey, None).unwrap();
            assert!(!report.findings.is_empty(), "{changed}");
            check(&connection, &NoKey, Some(&Anchor { batch: value, chain: [0; 32] })).unwrap();
            calls(&connection, &Filter::default()).unwrap();
            changed_since(&connection, 0, &Filter::default()).unwrap();
            // Whoever writes to such a file and removes from it may be refused, and does not die of it.
            let retention = Retention { age: Some(Duration::from_secs(1)), size: Some(1) };
            let goal = prune::goal(&connection, &retention, crate::batch::now()).unwrap();
            let author = crate::batch::Author::new("wrap").unwrap();
            let rows = [crate::queue::Row::Begin(1, begin("ses_9", 1))];
            let _may_be_refused = crate::batch::write(&mut connection, &author, &rows, &NoKey);
            let _may_be_refused = prune::piece(&mut connection, goal, 0, &NoKey);
            connection.close().unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_head_is_said_however_much_is_wrong() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 600).await;
    connection
        .execute_batch(
            "UPDATE batches SET at = at + 1; UPDATE head SET signature = x'00'; CREATE TABLE more (x);
             INSERT INTO ends SELECT writer, seq + 100000, of + 100000, at, outcome, reason, target, micros, size, result, mark FROM ends LIMIT 1",
        )
        .unwrap();
    let report = verify(&connection, &KEY, Some(&Anchor { batch: 1, chain: [9; 32] })).unwrap();
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.more > 10, "{}", report.more);
    assert_eq!(
        found.iter().filter(|finding| finding.starts_with("batch ")).count(),
        21,
        "one is the anchor's"
    );
    for what in
        ["not what was signed", "an older copy", "`more` was added", "row 100002 of writer 1: it was added"]
    {
        assert!(found.iter().any(|finding| finding.contains(what)), "{what}: {found:?}");
    }
}
