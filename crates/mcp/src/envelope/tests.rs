use super::*;

fn parse(text: &str) -> Result<Message, Refused> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = parse(text).expect_err(text).to_string();
    assert!(error.contains(part), "{text} → {error}, expected {part}");
}

#[test]
fn routing_fields_are_found_where_they_lie() {
    let text = r#" { "jsonrpc":"2.0","id": "a\"b", "method":"tools/call","params":{"name":"n","_meta":{"progressToken":7,"x":1}}}"#;
    let message = parse(text).unwrap();
    assert_eq!(message.kind(), Kind::Request);
    assert_eq!(message.id().unwrap(), r#""a\"b""#);
    assert_eq!(message.method(), "tools/call");
    assert_eq!(message.name().unwrap(), "n");
    let token = message.head().progress_token.clone().unwrap();
    assert_eq!(message.slice(&token), "7");
    let mut edits =
        [Edit { span: token, with: b"99" }, Edit { span: message.head().id.clone().unwrap(), with: b"1" }];
    let expected = text.replace(r#""a\"b""#, "1").replace(":7,", ":99,");
    assert_eq!(message.with(&mut edits), expected.as_bytes());
}

#[test]
fn a_member_spelled_with_escapes_is_that_member() {
    let message = parse(r#"{"jsonrpc":"2.0","id":1,"\u006dethod":"ping"}"#).unwrap();
    assert_eq!(message.method(), "ping");
    refused(r#"{"jsonrpc":"2.0","id":1,"\u006dethod":"ping","method":"tools/call"}"#, "duplicate");
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    refused(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#, "duplicate");
    refused(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#, "duplicate");
    refused(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
        "duplicate",
    );
    refused(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{},"_meta":{}}}"#, "duplicate");
    refused(r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#, "both");
    refused(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "both");
}

#[test]
fn ids_are_strings_or_integers() {
    for bad in ["null", "1e400", "1.5", "{}", "[]", "true", "123456789012345678901234567890"] {
        refused(&format!(r#"{{"jsonrpc":"2.0","id":{bad},"method":"tools/list"}}"#), "id must be");
    }
    for good in ["0", "-1", "18446744073709551615", "\"\"", "\"x\""] {
        parse(&format!(r#"{{"jsonrpc":"2.0","id":{good},"method":"tools/list"}}"#)).unwrap();
    }
}

#[test]
fn what_is_not_a_message_says_so() {
    refused("Debug: starting", "not JSON");
    refused("", "not JSON");
    refused("1", "not an object");
    refused(r#"{"id":1,"method":"x"}"#, "jsonrpc");
    refused("{}", "jsonrpc");
    refused(r#"{"jsonrpc":"2.0","id":1,"method":"x"} {}"#, "not JSON");
    refused(&"[".repeat(100_000), "deeper");
    refused(r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#, "batch");
}

#[test]
fn brackets_in_strings_are_not_depth() {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"s":"\"{}"}}}}"#, "[".repeat(1000));
    parse(&text).unwrap();
    let deep =
        |n: usize| format!(r#"{{"jsonrpc":"2.0","method":"x","params":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    parse(&deep(MAX_DEPTH - 1)).unwrap();
    refused(&deep(MAX_DEPTH), "deeper");
}

#[test]
fn a_lone_surrogate_and_odd_numbers_pass_untouched() {
    let text = r#"{"jsonrpc":"2.0","method":"x","params":{"a":"\ud800","n":1.000e+00400}}"#;
    assert_eq!(parse(text).unwrap().into_bytes(), text.as_bytes());
}

#[test]
fn null_is_not_absent() {
    refused(r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, "id must be");
    let message = parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#).unwrap();
    assert_eq!(message.kind(), Kind::Response);
    let message = parse(r#"{"jsonrpc":"2.0","id":1,"result":null}"#).unwrap();
    assert_eq!(message.kind(), Kind::Response);
}

#[test]
fn eras_are_told_apart_by_the_version_in_meta() {
    let with = |v: &str| {
        parse(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{v}"}}}}}}"#
        ))
        .unwrap()
        .is_modern()
    };
    assert!(with("2026-07-28") && with("2027-01-01") && !with("2025-11-25") && !with("zzz"));
}

#[test]
fn members_can_be_put_into_meta_wherever_it_is_or_is_not() {
    for (text, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, serde_json::json!({"_meta":{"k":1}})),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{ }}"#, serde_json::json!({"_meta":{"k":1}})),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":2}}"#,
            serde_json::json!({"_meta":{"k":1},"a":2}),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{ },"a":2}}"#,
            serde_json::json!({"_meta":{"k":1},"a":2}),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"b":3}}}"#,
            serde_json::json!({"_meta":{"k":1,"b":3}}),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null}}"#,
            serde_json::json!({"_meta":{"k":1}}),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#, serde_json::json!([1])),
    ] {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let bytes = match message.place_in_meta() {
            Some(place) => {
                let with = format!(r#"{}"k":1{}"#, place.before, place.after);
                message.with(&mut [Edit { span: place.at, with: with.as_bytes() }])
            }
            None => message.bytes().clone(),
        };
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["params"], expected, "{text}");
        Message::parse(bytes).unwrap();
    }
}
