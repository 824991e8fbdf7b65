//! `calls --follow`: each call once, when it ends.

use std::time::Duration;

use ledger::{End, Outcome};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::rig::{Desk, begin, end};

/// Long enough for a line that would come, if one did.
const A_WHILE: Duration = Duration::from_millis(1500);

fn shown(row: &Value) -> (Value, Value) {
    (row["call"].clone(), row["outcome"].clone())
}

#[tokio::test]
async fn calls_of_every_writer_are_shown_once_when_they_end() {
    let desk = Desk::new();
    let first = desk.writer();
    for number in 0..5 {
        first.call(begin(&format!("c{number}"), "ses_1", number), Outcome::Ok).await;
    }
    let under_way = first.begin(begin("slow", "ses_1", 5)).await;
    first.settled().await;
    let mut follow = desk.start(&["calls", "--follow", "--json", "--limit", "3"]);
    assert_eq!(shown(&follow.row()), (json!("c3"), json!("ok")));
    assert_eq!(shown(&follow.row()), (json!("c4"), json!("ok")));
    let second = desk.writer();
    second.call(begin("new", "ses_2", 0), Outcome::Failed).await;
    assert_eq!(shown(&follow.row()), (json!("new"), json!("failed")));
    let other = second.begin(begin("later", "ses_2", 1)).await;
    second.settled().await;
    first.0.end(under_way, end());
    assert_eq!(shown(&follow.row()), (json!("slow"), json!("ok")));
    second.0.end(other, End { outcome: Outcome::Canceled, ..end() });
    assert_eq!(shown(&follow.row()), (json!("later"), json!("canceled")));
    assert_eq!(follow.line_within(A_WHILE), None);
    follow.signal(Signal::SIGINT);
    assert_eq!(follow.wait(), Some(0));
    first.close();
    second.close();
}

#[tokio::test]
async fn filters_hold_for_what_comes() {
    let desk = Desk::new();
    let writer = desk.writer();
    writer.call(begin("before", "ses_1", 0), Outcome::Refused).await;
    writer.settled().await;
    let mut follow =
        desk.start(&["calls", "--follow", "--json", "--session", "ses_1", "--outcome", "refused"]);
    assert_eq!(follow.row()["call"], "before");
    for (call, session, outcome) in
        [("c1", "ses_1", Outcome::Ok), ("c2", "ses_2", Outcome::Refused), ("c3", "ses_1", Outcome::Refused)]
    {
        writer.call(begin(call, session, 1), outcome).await;
    }
    assert_eq!(follow.row()["call"], "c3");
    follow.signal(Signal::SIGTERM);
    assert_eq!(follow.wait(), Some(0));
    writer.close();
}

#[tokio::test]
async fn it_waits_for_a_ledger_and_goes_on_with_another() {
    let desk = Desk::new();
    let mut follow = desk.start(&["calls", "--follow"]);
    assert!(follow.line().starts_with("TIME (UTC)"));
    let writer = desk.writer();
    writer.call(begin("c1", "ses_1", 0), Outcome::Ok).await;
    writer.close();
    assert!(follow.line().contains("ses_1"));
    // Somebody moves it away, and whoever writes begins anew.
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        drop(std::fs::rename(desk.state(name), desk.state(&format!("old-{name}"))));
    }
    let now = callsign::identification::now_ms() - super::rig::NOON.min(callsign::identification::now_ms());
    let writer = desk.writer();
    writer.call(begin("c2", "ses_2", now + 1000), Outcome::Ok).await;
    writer.settled().await;
    assert!(follow.line().contains("ses_2"));
    writer.call(begin("c3", "ses_3", now + 1001), Outcome::Ok).await;
    writer.settled().await;
    assert!(follow.line().contains("ses_3"));
    follow.signal(Signal::SIGINT);
    assert_eq!(follow.wait(), Some(0));
    writer.close();
}

#[tokio::test]
async fn a_call_whose_maker_is_gone_is_shown_as_unknown() {
    let desk = Desk::new();
    let writer = desk.writer();
    writer.begin(begin("before", "ses_1", 0)).await;
    writer.settled().await;
    let mut follow = desk.start(&["calls", "--follow", "--json"]);
    assert_eq!(follow.line_within(A_WHILE), None);
    writer.begin(begin("after", "ses_1", 1)).await;
    writer.settled().await;
    desk.tamper("UPDATE writers SET life = 'another'");
    assert_eq!(shown(&follow.row()), (json!("before"), json!("unknown")));
    assert_eq!(shown(&follow.row()), (json!("after"), json!("unknown")));
    assert_eq!(follow.line_within(A_WHILE), None);
}

#[tokio::test]
async fn it_ends_when_nobody_reads_it() {
    let desk = Desk::new();
    let mut idle = desk.start(&["calls", "--follow", "--json"]);
    idle.close_stdout();
    assert_eq!(idle.wait(), Some(0));
    let writer = desk.writer();
    writer.call(begin("c1", "ses_1", 0), Outcome::Ok).await;
    writer.close();
    let mut follow = desk.start(&["calls", "--follow"]);
    follow.close_stdout();
    assert_eq!(follow.wait(), Some(0));
}
