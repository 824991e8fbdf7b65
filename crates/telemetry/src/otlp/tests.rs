use serde_json::{Value as Json, json};

use super::*;

/// Whoever changes it has it read by an implementation that is not ours.
const GOLDEN: &str = include_str!("golden.json");

fn trace(parent: Option<[u8; 8]>) -> Trace {
    let trace_id =
        [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36];
    Trace { trace_id, span: [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7], parent, flags: 1 }
}

fn span(name: &str, attributes: Vec<(Cow<'static, str>, Value)>) -> Span {
    Span {
        trace: trace(None),
        name: name.to_owned(),
        kind: Kind::Client,
        start_unix_nanos: 1_794_787_200_000_000_001,
        end_unix_nanos: 1_794_787_200_250_000_002,
        status: Status::Unset,
        attributes,
    }
}

fn written(spans: &[Span]) -> Json {
    serde_json::from_slice(&encode("callsign", "0.1.0", spans)).unwrap()
}

#[test]
fn spans_are_written_as_the_specification_has_it() {
    let attributes = vec![
        ("text".into(), Value::Str("a \"quoted\" \u{0} é \u{1f600}\n".into())),
        ("empty".into(), Value::Str("".into())),
        ("most".into(), Value::Int(i64::MAX)),
        ("least".into(), Value::Int(i64::MIN)),
        ("yes".into(), Value::Bool(true)),
        ("no".into(), Value::Bool(false)),
        ("half".into(), Value::Float(0.5)),
        ("tiny".into(), Value::Float(5e-324)),
        ("nan".into(), Value::Float(f64::NAN)),
        ("inf".into(), Value::Float(f64::INFINITY)),
        ("minus".into(), Value::Float(f64::NEG_INFINITY)),
        ("list".into(), Value::StrArray(vec!["one".to_owned(), "two".to_owned()])),
        ("none".into(), Value::StrArray(Vec::new())),
    ];
    let child = Span {
        trace: Trace { flags: 3, ..trace(Some([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31])) },
        kind: Kind::Server,
        status: Status::Error("it failed".to_owned()),
        end_unix_nanos: u64::MAX,
        ..span("a child", Vec::new())
    };
    let fine = Span { status: Status::Ok, kind: Kind::Internal, ..span("fine", Vec::new()) };
    let mute = Span { status: Status::Error(String::new()), ..span("", Vec::new()) };
    let expected: Json = serde_json::from_str(GOLDEN).unwrap();
    assert_eq!(written(&[span("every kind of value", attributes), child, fine, mute]), expected);
}

#[test]
fn a_request_without_spans_is_still_one() {
    assert_eq!(written(&[])["resourceSpans"][0]["scopeSpans"][0]["spans"], json!([]));
}

#[test]
fn a_request_is_one_line() {
    let body = encode("a\nb", "c\r\nd", &[span("e\u{2028}\nf", Vec::new())]);
    assert!(!body.contains(&b'\n') && !body.contains(&b'\r'));
}
