//! What is looked up, and that it is not searched for.

use std::ops::ControlFlow;

use rusqlite::params_from_iter;

use super::*;
use crate::query::{Order, statement};

#[tokio::test]
async fn what_is_asked_for_often_is_looked_up() {
    let state = tempfile::tempdir().unwrap();
    let connection = filled(state.path(), 20).await;
    let plan = |filter: &Filter, order: Order| -> String {
        let (sql, values) = statement(filter, order);
        let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = explained.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
        steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    };
    let some = |text: &str| Some(text.to_owned());
    let rows = [
        (
            Filter { session: some("s"), ..Filter::default() },
            "SEARCH c USING INDEX calls_session (session=?)",
        ),
        (Filter { thread: some("t"), ..Filter::default() }, "SEARCH c USING INDEX calls_thread (thread=?)"),
        (Filter { run: some("r"), ..Filter::default() }, "SEARCH c USING INDEX calls_run (run=?)"),
        (
            Filter { session: some("s"), since: Some(1), tool: some("x"), ..Filter::default() },
            "SEARCH c USING INDEX calls_session (session=? AND at>?)",
        ),
        (
            Filter { thread: some("t"), since: Some(1), until: Some(2), limit: Some(5), ..Filter::default() },
            "SEARCH c USING INDEX calls_thread (thread=? AND at>? AND at<?)",
        ),
        (Filter { since: Some(1), ..Filter::default() }, "SEARCH c USING INDEX calls_at (at>?)"),
        (Filter { limit: Some(50), ..Filter::default() }, "SCAN c USING INDEX calls_at"),
        (Filter { server: some("s"), limit: Some(50), ..Filter::default() }, "SCAN c USING INDEX calls_at"),
    ];
    for (filter, first) in rows {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let plan = plan(&filter, order);
            assert!(plan.starts_with(first), "{filter:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "nothing is sorted: {plan}");
            assert!(plan.contains("SEARCH e USING INDEX ends_of (writer=? AND of=?)"), "{plan}");
            assert!(plan.contains("SEARCH w USING INTEGER PRIMARY KEY"), "{plan}");
        }
    }
}

#[tokio::test]
async fn every_filter_leaves_out_what_is_not_wanted() {
    let state = tempfile::tempdir().unwrap();
    let ledger = open(state.path());
    for number in 0..4_u64 {
        let run = number.is_multiple_of(2).then(|| "run_1".into());
        let row = Begin { run, server: format!("s{number}").into(), ..*begin("ses_1", number) };
        ledger.begin(Box::new(row)).await.unwrap();
    }
    assert!(ledger.close(Duration::from_secs(5)));
    let connection = Place::of(state.path()).read().unwrap();
    let of = |filter: Filter| {
        let listed = calls(&connection, &filter).unwrap();
        let mut each = Vec::new();
        each_call(&connection, &filter, &mut |call| {
            each.push(call);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(listed, each, "the same one by one");
        listed.into_iter().map(|call| call.call).collect::<Vec<_>>()
    };
    assert_eq!(of(Filter { run: Some("run_1".into()), ..Filter::default() }), ["call_0", "call_2"]);
    assert_eq!(of(Filter { call: Some("call_3".into()), ..Filter::default() }), ["call_3"]);
    assert_eq!(of(Filter { server: Some("s1".into()), ..Filter::default() }), ["call_1"]);
    assert_eq!(of(Filter { host: Some("other".into()), ..Filter::default() }).len(), 0);
    assert_eq!(of(Filter { limit: Some(2), ..Filter::default() }), ["call_2", "call_3"]);
    let trace = calls(&connection, &Filter::default()).unwrap().remove(0).trace.unwrap();
    assert!(trace.starts_with("00-0af7651916cd43dd"), "{trace}");
    let mut seen = 0;
    each_call(&connection, &Filter::default(), &mut |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(seen, 3);
}
