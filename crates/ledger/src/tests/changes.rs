//! What happened since somebody looked last.

use super::*;

fn told(changes: &Changes) -> Vec<String> {
    changes
        .items
        .iter()
        .map(|change| match change {
            Change::Began(call) => format!("{} began {:?}", call.call, call.outcome),
            Change::Ended(call) => format!("{} {}", call.call, call.outcome.unwrap()),
        })
        .collect()
}

#[tokio::test]
async fn a_call_is_told_when_it_begins_and_when_it_ends() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(Options { strict: true, ..options(state.path()) }, Arc::new(KEY)).unwrap();
    let first = ledger.begin(begin("ses_1", 1)).await.unwrap();
    let reader = Place::of(state.path()).read().unwrap();
    let any = Filter::default();
    let seen = changed_since(&reader, 0, &any).unwrap();
    assert_eq!(told(&seen), ["call_1 began None"]);
    let second = ledger.begin(begin("ses_2", 2)).await.unwrap();
    ledger.end(second, end(Outcome::Failed));
    ledger.end(first, end(Outcome::Ok));
    wait_for("it is written", || ledger.depth().waiting == 0);
    let later = changed_since(&reader, seen.cursor, &any).unwrap();
    assert_eq!(told(&later), ["call_2 began None", "call_2 failed", "call_1 ok"]);
    assert!(!later.more);
    assert_eq!(later.cursor, last_batch(&reader).unwrap());
    assert_eq!(changed_since(&reader, later.cursor, &any).unwrap().items, []);
    let of = |filter: Filter| told(&changed_since(&reader, 0, &filter).unwrap());
    let session = Filter { session: Some("ses_1".into()), ..Filter::default() };
    assert_eq!(of(session), ["call_1 began None", "call_1 ok"]);
    assert_eq!(of(Filter { outcome: Some(Outcome::Failed), ..Filter::default() }), ["call_2 failed"]);
    assert_eq!(of(Filter { call: Some("call_2".into()), limit: Some(1), ..Filter::default() }).len(), 2);
    // Another file is there: everything in it is new.
    assert_eq!(told(&changed_since(&reader, later.cursor + 1, &any).unwrap()).len(), 4);
}

#[tokio::test]
async fn whoever_asks_again_and_again_misses_nothing() {
    let state = tempfile::tempdir().unwrap();
    let ledgers: Vec<Ledger> = (0..3).map(|_| open(state.path())).collect();
    ledgers[0].ready().await.unwrap();
    let reader = Place::of(state.path()).read().unwrap();
    let (mut cursor, mut began, mut ended) = (0, 0, 0);
    let mut rounds = 0;
    let mut look = || {
        let changes = changed_since(&reader, cursor, &Filter::default()).unwrap();
        assert!(changes.items.len() < 10_000 + 1024);
        cursor = changes.cursor;
        for change in changes.items {
            match change {
                Change::Began(_) => began += 1,
                Change::Ended(_) => ended += 1,
            }
        }
        (changes.more, began, ended)
    };
    for (number, ledger) in (0..10_000).zip(ledgers.iter().cycle()) {
        let entry = ledger.begin(begin("ses_1", number)).await.unwrap();
        ledger.end(entry, end(Outcome::Ok));
        if number % 1000 == 0 {
            look();
            rounds += 1;
        }
    }
    assert!(ledgers.iter().all(|ledger| ledger.close(Duration::from_secs(10))));
    while look().0 {
        rounds += 1;
    }
    assert_eq!((began, ended), (10_000, 10_000), "in {rounds} rounds");
}
