use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::events::MARK;
use super::*;
use crate::sse::Decoder;

const NOTHING: Answer = Answer { seen: Seen::Other, id: None };

fn glance<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Answer> {
    let mut glance = Glance::new();
    pieces.into_iter().for_each(|piece| glance.feed(piece));
    glance.finish()
}

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Answer> {
    let (mut glance, mut answers) = (EventGlance::new(), Vec::new());
    pieces.into_iter().for_each(|piece| glance.feed(piece, &mut |answer| answers.push(answer)));
    answers
}

fn answer(seen: Seen, id: &str) -> Answer {
    let id = (!id.is_empty()).then(|| Bytes::copy_from_slice(id.as_bytes()));
    Answer { seen, id }
}

/// Whole, byte by byte, and cut in two anywhere.
#[track_caller]
fn check(body: &str, expected: Option<&Answer>) {
    let bytes = body.as_bytes();
    assert_eq!(glance([bytes]).as_ref(), expected, "{body}");
    assert_eq!(glance(bytes.chunks(1)).as_ref(), expected, "{body}, byte by byte");
    for cut in 0..bytes.len().min(1000) {
        assert_eq!(glance([&bytes[..cut], &bytes[cut..]]).as_ref(), expected, "{body}, cut at {cut}");
    }
}

#[track_caller]
fn result(body: &str, is_error: bool, id: &str) {
    check(body, Some(&answer(Seen::Result { is_error }, id)));
}

#[track_caller]
fn error(body: &str, code: Option<i64>, id: &str) {
    check(body, Some(&answer(Seen::Error { code }, id)));
}

#[track_caller]
fn other(body: &str, id: &str) {
    check(body, Some(&answer(Seen::Other, id)));
}

#[test]
fn results_and_what_tools_say_of_them() {
    result(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, false, "1");
    result(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}"#, true, "1");
    result(r#"{"result":{"isError":true,"content":[]},"id":"a\"b\\"}"#, true, r#""a\"b\\""#);
    result(r#"{"id":1,"result":{"isError":false}}"#, false, "1");
    result(r#"{"id":1,"result":{"isError":"true"}}"#, false, "1");
    result(r#"{"id":1,"result":{"isError":[true]}}"#, false, "1");
    result(r#"{"id":1,"result":{"isError":null}}"#, false, "1");
    result(r#"{"id":1,"result":true}"#, false, "1");
    result(r#"{"id":1,"result":null}"#, false, "1");
    result(r#"{"id":1,"result":"isError"}"#, false, "1");
    result(r#"{"id":1,"result":[{"isError":true}]}"#, false, "1");
    result("\r\n\t{ \"id\" :\n1 ,\"result\"\r:\t{ \"isError\" : true\n} } \n", true, "1");
}

#[test]
fn errors_and_their_codes() {
    error(r#"{"id":1,"error":{"code":-32601,"message":"no"}}"#, Some(-32601), "1");
    error(r#"{"error":{"message":"no","code":-32601},"id":null}"#, Some(-32601), "null");
    error(r#"{"error":{"code":-32601.0}}"#, Some(-32601), "");
    error(r#"{"error":{"code":-3.2601E+4}}"#, Some(-32601), "");
    error(r#"{"error":{"code":-0}}"#, Some(0), "");
    error(r#"{"error":{"code":-9223372036854775808}}"#, Some(i64::MIN), "");
    error(r#"{"error":{"code":9223372036854775808}}"#, None, "");
    error(r#"{"error":{"code":1.5}}"#, None, "");
    error(r#"{"error":{"code":1e400}}"#, None, "");
    error(r#"{"error":{"code":"-32601"}}"#, None, "");
    error(r#"{"error":{"data":{"code":1}}}"#, None, "");
    error(r#"{"error":"code"}"#, None, "");
    error(r#"{"error":null}"#, None, "");
}

#[test]
fn requests_and_what_is_no_message() {
    other(r#"{"id":7,"method":"sampling/createMessage","params":{"result":{}}}"#, "7");
    other(r#"{"method":"notifications/progress","params":{"error":{"code":1}}}"#, "");
    other(r#"{"id":7,"method":"m","result":{}}"#, "7");
    other(r#"{"id":7,"result":{},"error":{}}"#, "7");
    for body in
        ["{}", " { } ", "0", "-1.5e3 ", "true", "null\n", r#""{\"result\":{}}""#, r#"{"a":{"result":{}}}"#]
    {
        other(body, "");
    }
}

#[test]
fn only_the_place_of_a_name_makes_it_count() {
    result(r#"{"id":1,"result":{"content":[{"isError":true,"text":"\"isError\":true"}]}}"#, false, "1");
    result(r#"{"id":1,"result":{"a":{"isError":true},"b":"isError","c":[[{"isError":true}]]}}"#, false, "1");
    result(r#"{"isError":true,"code":1,"id":1,"result":{"code":2,"id":3,"result":4,"error":5}}"#, false, "1");
    result(r#"{"x":{"result":{"isError":true}},"id":1,"result":{"method":"m"}}"#, false, "1");
    result(r#"{"x":"\",\"error\":{","id":1,"result":{"\\":"\\\""}}"#, false, "1");
    error(r#"{"id":1,"error":{"isError":true,"data":[{"code":5}],"code":4}}"#, Some(4), "1");
    other(r#"{"isError":true,"code":1,"Result":{},"result ":{},"":{}}"#, "");
}

#[test]
fn a_name_spelled_with_escapes_is_that_name() {
    result(r#"{"\u0069\u0064":1,"resul\u0074":{"\u0069sError":true}}"#, true, "1");
    result(
        r#"{"id":1,"\u0072\u0065\u0073\u0075\u006C\u0074":{"\u0069\u0073\u0045\u0072\u0072\u006f\u0072":true}}"#,
        true,
        "1",
    );
    error(r#"{"\u0065rror":{"c\u006fde":-1}}"#, Some(-1), "");
    other(r#"{"\u0072esult\u0000":{},"\ud800result":{},"\\u0072esult":{}}"#, "");
}

#[test]
fn what_stands_twice_is_no_message_where_the_envelope_refuses_it() {
    for body in [
        r#"{"id":1,"result":{},"id":1}"#,
        r#"{"id":1,"result":{"isError":true},"result":{}}"#,
        r#"{"id":1,"result":{},"\u0072esult":{}}"#,
        r#"{"id":1,"error":{},"error":{}}"#,
        r#"{"id":1,"method":"a","method":"b"}"#,
    ] {
        other(body, "1");
        let message = format!(r#"{{"jsonrpc":"2.0",{}"#, &body[1..]);
        assert!(crate::Message::parse(message.into()).is_err(), "{body}");
    }
    result(r#"{"id":1,"result":{"isError":true,"isError":false}}"#, false, "1");
    result(r#"{"id":1,"result":{"isError":false,"\u0069sError":true}}"#, true, "1");
    result(r#"{"id":1,"result":{"isError":true,"isError":{}}}"#, false, "1");
    error(r#"{"id":1,"error":{"code":1,"code":2}}"#, Some(2), "1");
    error(r#"{"id":1,"error":{"code":1,"code":"2"}}"#, None, "1");
}

#[test]
fn what_is_not_one_whole_value_is_nothing() {
    for body in [
        "",
        " ",
        "[]",
        r#"[{"id":1,"result":{}}]"#,
        r#"{"id":1,"result":{}"#,
        r#"{"id":1,"result":{}}{}"#,
        r#"{"id":1,"result":{}} x"#,
        r#"{"id":1,"result":{}}}"#,
        r#"{"id":1,"result":{}]"#,
        r#"{"id":1 "result":{}}"#,
        r#"{"id" 1}"#,
        r#"{"id":}"#,
        r"{id:1}",
        "<html></html>",
        "no such thing",
        "tru",
        "-",
        "1 2",
        r#""a"#,
        r#""a\"#,
        "\u{feff}{}",
    ] {
        check(body, None);
    }
}

#[test]
fn an_answer_that_is_cut_off_is_nothing() {
    let body = r#"{"jsonrpc":"2.0","id":"\u00e9","result":{"content":[{"type":"text","text":"a\\\"b"}],"isError":true}}"#;
    for cut in 0..body.len() {
        check(&body[..cut], None);
    }
    result(body, true, r#""\u00e9""#);
}

#[test]
fn ids_are_kept_as_they_are_written_and_not_without_end() {
    for id in ["0", "-1.50e+3", "null", r#""""#, r#""\u0061\/""#, &format!(r#""{}""#, "x".repeat(254))] {
        result(&format!(r#"{{"result":{{}},"id":{id}}}"#), false, id);
    }
    for id in ["{}", "[1]", r#"{"id":1}"#, &format!(r#""{}""#, "x".repeat(255)), &"9".repeat(257)] {
        result(&format!(r#"{{"id":{id},"result":{{}}}}"#), false, "");
    }
    let mut glance = Glance::new();
    glance.feed(br#"{"result":{"isError":true},"id":""#);
    for _ in 0..1000 {
        glance.feed(&[b'x'; 1000]);
        assert!(glance.kept.as_ref().is_none_or(|kept| kept.capacity() <= 2 * KEPT));
    }
    glance.feed(br#"","a":1}"#);
    assert_eq!(glance.finish(), Some(answer(Seen::Result { is_error: true }, "")));
}

#[test]
fn depth_costs_nothing() {
    for (open, close) in [("[", "]"), (r#"{"result":"#, "}"), (r#"[{"isError":"#, "}]")] {
        let deep = format!("{}true{}", open.repeat(10_000), close.repeat(10_000));
        let body = format!(r#"{{"id":1,"result":{{"a":{deep},"isError":true}}}}"#);
        let expected = Some(answer(Seen::Result { is_error: true }, "1"));
        assert_eq!(glance([body.as_bytes()]), expected);
        assert_eq!(glance(body.as_bytes().chunks(7)), expected);
        assert_eq!(glance([&body.as_bytes()[..body.len() - 1]]), None);
    }
}

#[track_caller]
fn check_events(stream: &str, expected: &[Answer]) {
    let bytes = stream.as_bytes();
    assert_eq!(events([bytes]), expected, "{stream:?}");
    assert_eq!(events(bytes.chunks(1)), expected, "{stream:?}, byte by byte");
    for cut in 0..bytes.len() {
        assert_eq!(events([&bytes[..cut], &bytes[cut..]]), expected, "{stream:?}, cut at {cut}");
    }
}

#[test]
fn events_end_at_empty_lines_however_lines_end() {
    let done = || answer(Seen::Result { is_error: true }, "1");
    let body = r#"{"id":1,"result":{"isError":true}}"#;
    for end in ["\n", "\r", "\r\n"] {
        check_events(&format!("data: {body}{end}{end}"), &[done()]);
        check_events(&format!("\u{feff}data:{body}{end}{end}data:{body}{end}{end}"), &[done(), done()]);
        check_events(
            &format!(": hi{end}{end}event: message{end}id: 5{end}data: {body}{end}{end}"),
            &[done()],
        );
        check_events(
            &format!(
                "data: {{\"id\":{end}data: 1,{end}data{end}:{end}data:\"result\":{{\"isError\":true}}}}{end}{end}"
            ),
            &[done()],
        );
        check_events(&format!("data: {body}{end}"), &[]);
        check_events(&format!("data: {body}"), &[]);
    }
}

#[test]
fn events_without_a_message_have_none() {
    check_events("id: 1\nretry: 10\ndata:\n\n", &[]);
    check_events("data\n\ndata: \n\n:\n\n\n", &[]);
    check_events("data\ndata\n\n", &[NOTHING]);
    check_events("event: endpoint\ndata: /messages\n\n", &[NOTHING]);
    check_events("data: [{}]\n\ndata: {\n\n", &[NOTHING, NOTHING]);
    let body = r#"{"id":1,"result":{}}"#;
    check_events(
        &format!("dat: {body}\ndatax: {body}\n data: {body}\ndata : {body}\n:data: {body}\n\n"),
        &[],
    );
    check_events(&format!("\n\u{feff}data: {body}\n\n"), &[]);
    for torn in [
        &b"\xefdata: 1\n\n"[..],
        b"\xef\xbbdata: 1\n\n",
        b"data: 1\n\xef\n",
        b"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\n",
    ] {
        assert_eq!(events([torn]), [], "{torn:?}");
        assert_eq!(events(torn.chunks(1)), [], "{torn:?}");
    }
    check_events(
        &format!("data: {{\n\ndata: {body}\n\n"),
        &[NOTHING, answer(Seen::Result { is_error: false }, "1")],
    );
}

/// The members of an object in their order, those that stand twice as well.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// The same from the whole body, by `serde_json`.
fn slowly(body: &str) -> Option<Answer> {
    let value: Value = serde_json::from_str(body).ok()?;
    if value.is_array() {
        return None;
    }
    let Ok(Members(members)) = serde_json::from_str(body) else { return Some(NOTHING) };
    let all = |name: &str| {
        members.iter().filter(|(key, _)| key == name).map(|(_, raw)| raw.get()).collect::<Vec<_>>()
    };
    let id = all("id").last().filter(|raw| !raw.starts_with(['{', '[']) && raw.len() <= 256).copied();
    let whole = |value: &Value| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
        value.as_i64().or(float.map(|float| format!("{float:.0}").parse().unwrap()))
    };
    let seen = match [all("result").len(), all("error").len(), all("method").len(), all("id").len()] {
        [1, 0, 0, 0 | 1] => Seen::Result { is_error: value["result"]["isError"] == true },
        [0, 1, 0, 0 | 1] => Seen::Error { code: whole(&value["error"]["code"]) },
        _ => Seen::Other,
    };
    Some(answer(seen, id.unwrap_or_default()))
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..12)
}

fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\n", "\r\n\t "])
}

/// A string, with any of its ASCII letters escaped.
fn spelled(text: &str, escapes: u64) -> String {
    let letter = |(at, letter): (usize, char)| {
        if letter.is_ascii_alphabetic() && escapes >> (at % 64) & 1 == 1 {
            format!("\\u{:04x}", u32::from(letter))
        } else {
            serde_json::to_string(&letter).unwrap().trim_matches('"').replace('\\', "\\u005c")
        }
    };
    format!("\"{}\"", text.chars().enumerate().map(letter).collect::<String>())
}

fn name() -> impl Strategy<Value = String> {
    let names =
        ["id", "result", "error", "method", "isError", "code", "content", "results", "", "é\u{1f600}"];
    (prop::sample::select(names.to_vec()), any::<u64>(), any::<u64>(), any::<u64>())
        .prop_map(|(name, a, b, c)| spelled(name, a & b & c))
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "true",
            "false",
            "null",
            "-0",
            "0.0",
            "1E5",
            "-3.2601e+4",
            "2.5",
            "-32601",
            "1e-3"
        ])
        .prop_map(str::to_owned),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        "[\"\\\\{}\\[\\]:,a]{0,20}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        name(),
    ]
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (name(), space(), value, space())
        .prop_map(|(name, a, value, b)| format!("{a}{name}{b}:{a}{value}{b}"));
    (prop::collection::vec(member, 0..5), space())
        .prop_map(|(members, a)| format!("{{{a}{}{a}}}", members.join(",")))
}

fn json() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 40, 5, |inner| {
        let list = (prop::collection::vec(inner.clone(), 0..4), space())
            .prop_map(|(elements, a)| format!("[{a}{}{a}]", elements.join(&format!("{a},"))));
        prop_oneof![1 => list, 3 => object(inner)]
    })
}

/// Mostly an object, since the rest is soon told.
fn body() -> impl Strategy<Value = String> {
    (space(), prop_oneof![1 => json(), 9 => object(json())], space())
        .prop_map(|(a, json, b)| format!("{a}{json}{b}"))
}

fn line() -> impl Strategy<Value = String> {
    let fields = [
        "",
        "",
        "",
        ":",
        ": hi",
        "data",
        "data:",
        "data: ",
        "data:  1",
        "dat",
        "datas: 1",
        "data : 1",
        "id: 7",
        "id",
        "retry: 1",
        "event: message",
        "\u{feff}data: 1",
        "\u{feff}",
    ];
    prop_oneof![
        3 => prop::sample::select(fields.to_vec()).prop_map(str::to_owned),
        2 => body().prop_map(|body| {
            body.lines().map(|line| ["data: ", line, "\n"].concat()).collect::<String>() + "\n"
        }),
        1 => (body(), cuts()).prop_map(|(body, cuts)| {
            let line = |piece: &&[u8]| ["data:", &String::from_utf8_lossy(piece), "\n"].concat();
            pieces(body.as_bytes(), &cuts).iter().map(line).collect()
        }),
    ]
}

/// The same from whole events.
fn events_slowly(stream: &[u8]) -> Vec<Answer> {
    let mut decoder = Decoder::new(1 << 24);
    decoder.push(stream.strip_prefix(MARK).unwrap_or(stream)).unwrap();
    decoder.push(b":").unwrap(); // Shows that no line feed follows a carriage return at the end.
    std::iter::from_fn(|| decoder.event())
        .filter(|event| !event.data.is_empty())
        .map(|event| glance([&event.data[..]]).unwrap_or(NOTHING))
        .collect()
}

/// What a body or an event can be pieced together from, now and then.
const WORDS: [&str; 15] = [
    r#"{"id":"#,
    r#""result":"#,
    r#""isError":"#,
    "true",
    "1",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "\\",
    "data:",
    "\n",
    "\r",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_body_in_pieces_is_read_as_serde_json_reads_it_whole(body in body(), cuts in cuts()) {
        prop_assert_eq!(glance(pieces(body.as_bytes(), &cuts)), slowly(&body));
    }

    #[test]
    fn a_string_ends_where_it_ends_byte_by_byte(
        mut bytes in prop::collection::vec(prop::sample::select(br#"\\\"aaaaa"#.to_vec()), 0..100),
        plain in (0..60_usize, any::<prop::sample::Index>()),
        begins_escaped: bool,
    ) {
        let at = plain.1.index(bytes.len() + 1);
        bytes.splice(at..at, std::iter::repeat_n(b'x', plain.0));
        let (mut expected, mut is_escaped) = (None, begins_escaped);
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b'"' && !is_escaped {
                expected = Some(at + 1);
                break;
            }
            is_escaped = *byte == b'\\' && !is_escaped;
        }
        let mut escaped = begins_escaped;
        prop_assert_eq!(past_quote(&bytes, &mut escaped), expected);
        prop_assert_eq!(escaped, is_escaped);
    }

    #[test]
    fn no_beginning_of_a_body_is_taken_for_it(body in object(json()), cut: prop::sample::Index) {
        prop_assert_eq!(glance([&body.as_bytes()[..cut.index(body.len())]]), None);
    }

    #[test]
    fn a_stream_in_pieces_is_read_as_its_events_are(
        lines in prop::collection::vec((line(), prop::sample::select(vec!["\n", "\r", "\r\n"])), 0..12),
        has_mark: bool,
        cuts in cuts(),
    ) {
        let lines = lines.into_iter().map(|(line, end)| line.replace('\n', end) + end);
        let stream = if has_mark { "\u{feff}" } else { "" }.to_owned() + &lines.collect::<String>();
        prop_assert_eq!(events(pieces(stream.as_bytes(), &cuts)), events_slowly(stream.as_bytes()));
    }

    #[test]
    fn any_bytes_are_read_alike_however_they_are_cut(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            prop::collection::vec(prop::sample::select(b"{{}}[]\"\"\\::,, 0et-.\nidrx\xff".to_vec()), 0..60),
            prop::collection::vec(prop::sample::select(b"data::  {}\"1\n\n\r\r\xef\xbb\xbf".to_vec()), 0..60),
            prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..20)
                .prop_map(|words| words.concat().into_bytes()),
        ],
        cuts in cuts(),
    ) {
        prop_assert_eq!(glance(pieces(&bytes, &cuts)), glance([&bytes[..]]));
        prop_assert_eq!(events(pieces(&bytes, &cuts)), events_slowly(&bytes));
        // What is JSON is read rightly, whatever it was made of.
        if let Some(expected) = std::str::from_utf8(&bytes).ok().and_then(slowly) {
            prop_assert_eq!(glance([&bytes[..]]), Some(expected));
        }
    }
}
