//! `ledger export`: every column, and spans.

use std::os::unix::fs::PermissionsExt as _;

use ledger::{Begin, End, Outcome};
use serde_json::Value;

use super::rig::{Desk, begin, end};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331--01";

async fn desk() -> Desk {
    let desk = Desk::new();
    let writer = desk.writer();
    let whole = Begin {
        digest: Some([0xab; 32]),
        arguments: Some(r#"{"q":"x"}"#.into()),
        trace: Some(TRACE.into()),
        ..begin("c1", "ses_1", 0)
    };
    let entry = writer.begin(whole).await;
    let target = Some("https://tracker.example/mcp".into());
    writer.0.end(entry, End { reason: Some("why".into()), target, result: Some("{}".into()), ..end() });
    writer.call(begin("c2", "ses_2", 1), Outcome::Failed).await;
    writer.begin(begin("c3", "ses_2", 2)).await;
    writer.close();
    desk
}

#[tokio::test]
async fn every_column_is_there_after_those_of_calls() {
    let desk = desk().await;
    let printed = desk.run(&["ledger", "export"]).stdout;
    let expected = r#"{"at":"2026-11-16T12:00:00.000Z","host":"opencode","session":"ses_1","thread":"ses_1","parent":null,"run":null,"turn":null,"call":"c1","server":"tracker","tool":"search","method":"tools/call","workspace":null,"trust":"host","source":"seal","outcome":"ok","duration_ms":1.5,"spoof":[],"reason":"why","target":"https://tracker.example/mcp","digest":"abababababababababababababababababababababababababababababababab","size":12,"arguments":"{\"q\":\"x\"}","result_size":9,"result":"{}","trace":"0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331--01","writer":1,"seq":1}"#;
    assert_eq!(printed.lines().next(), Some(expected));
    assert_eq!(printed.lines().count(), 3, "all of them, and those under way");
    let rows = desk.run(&["ledger", "export", "--session", "ses_2", "--limit", "1"]).json();
    assert_eq!((rows.len(), rows[0]["call"].as_str()), (1, Some("c3")));
    assert!(rows[0]["outcome"].is_null() && rows[0]["digest"].is_null(), "{}", rows[0]);
}

#[tokio::test]
async fn a_file_is_written_whole_and_for_its_owner_alone() {
    let desk = desk().await;
    let file = desk.files.path().join("calls.jsonl");
    std::fs::write(&file, "older").expect("a file");
    let name = file.to_str().expect("UTF-8");
    let printed = desk.run(&["ledger", "export", "--output", name]);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), ""), "{}", printed.stderr);
    assert!(printed.stderr.starts_with("3 calls in "), "{}", printed.stderr);
    assert_eq!(std::fs::read_to_string(&file).expect("it").lines().count(), 3);
    assert_eq!(std::fs::metadata(&file).expect("it").permissions().mode() & 0o777, 0o600);
    let nowhere = desk.files.path().join("nowhere/calls.jsonl");
    let printed = desk.run(&["ledger", "export", "--output", nowhere.to_str().expect("UTF-8")]);
    assert_ne!(printed.code, Some(0));
    assert!(printed.stderr.contains("could not write"), "{}", printed.stderr);
    let printed = desk.run(&["ledger", "export", "--output", "-"]);
    assert_eq!(printed.stdout.lines().count(), 3);
}

#[tokio::test]
async fn spans_are_requests_for_a_collector() {
    let desk = desk().await;
    let lines = desk.run(&["ledger", "export", "--format", "otlp"]).json();
    assert_eq!(lines.len(), 1);
    let spans = lines[0]["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans");
    assert_eq!(spans.len(), 2, "one is under way");
    assert_eq!(spans[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(spans[0]["spanId"], "b7ad6b7169203331");
    assert_eq!(spans[0]["name"], "tools/call search");
    assert_eq!(spans[0]["startTimeUnixNano"], "1794830400000000000");
    assert_eq!(spans[0]["endTimeUnixNano"], "1794830400001500000");
    let has = |span: &Value, key: &str, value: &str| {
        let attributes = span["attributes"].as_array().expect("attributes");
        attributes.iter().any(|one| one["key"] == key && one["value"]["stringValue"] == value)
    };
    assert!(has(&spans[0], "callsign.session", "ses_1") && has(&spans[1], "callsign.outcome", "failed"));
    // The same row is the same span, however often it is exported.
    assert_eq!(lines, desk.run(&["ledger", "export", "--format", "otlp"]).json());
}

#[tokio::test]
async fn many_spans_are_many_requests() {
    let desk = Desk::new();
    let writer = desk.writer();
    for number in 0..1_100 {
        writer.call(begin(&format!("c{number}"), "ses_1", number), Outcome::Ok).await;
    }
    writer.close();
    let lines = desk.run(&["ledger", "export", "--format", "otlp"]).json();
    let count =
        |line: &Value| line["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map_or(0, Vec::len);
    assert_eq!(lines.iter().map(count).collect::<Vec<_>>(), [512, 512, 76]);
}
