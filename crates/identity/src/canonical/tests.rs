use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[track_caller]
fn check(raw: &str, canonical: &str, fidelity: Fidelity) {
    let form = canonical_form(raw.as_bytes()).unwrap();
    let text = String::from_utf8_lossy(&form.text).into_owned();
    assert_eq!((text.as_str(), form.fidelity), (canonical, fidelity), "{raw}");
}

#[track_caller]
fn exact(raw: &str, canonical: &str) {
    check(raw, canonical, Fidelity::Exact);
    let digest = ArgumentsDigest::Canonical(sha256(canonical.as_bytes()));
    assert_eq!(digest_arguments(Some(raw.as_bytes())), Ok(digest), "{raw}");
}

#[track_caller]
fn lossy(raw: &str) {
    let digest = ArgumentsDigest::AsSent(sha256(raw.trim().as_bytes()));
    assert_eq!(digest_arguments(Some(raw.as_bytes())), Ok(digest), "{raw}");
}

#[track_caller]
fn refused(raw: &str, error: BadArguments) {
    assert_eq!(digest_arguments(Some(raw.as_bytes())), Err(error), "{raw}");
}

#[test]
fn absent_arguments_are_an_empty_object() {
    assert_eq!(digest_arguments(None), digest_arguments(Some(b" { } ")));
    assert_eq!(sha256(b"{}"), OF_NOTHING);
}

#[test]
fn the_example_of_the_rfc_comes_out_as_printed_there() {
    let raw = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let canonical = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    // One of its numbers has a digit that no double holds.
    check(raw, canonical, Fidelity::Lossy);
    exact(&raw.replace("333333333.33333329", "333333333.3333333"), canonical);
}

#[test]
fn the_sorting_example_of_the_rfc_comes_out_as_printed_there() {
    let raw = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
        "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let form = canonical_form(raw.as_bytes()).unwrap();
    let text = String::from_utf8(form.text).unwrap();
    let places: Vec<usize> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
        .iter()
        .map(|name| text.find(name).unwrap())
        .collect();
    assert!(places.is_sorted(), "{text}");
    assert_eq!(form.fidelity, Fidelity::Exact);
}

/// Appendix B: the double's bits and how it is printed.
#[test]
fn the_numbers_of_the_rfc_are_printed_as_there() {
    let rows: [(u64, &str); 23] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, printed) in rows {
        let value = f64::from_bits(bits);
        // With more digits than a double has, so that its own shortest form is found again.
        let form = canonical_form(format!("{value:.20e}").as_bytes()).unwrap();
        assert_eq!(String::from_utf8(form.text).unwrap(), printed);
        if !printed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            exact(printed, printed);
        }
    }
}

#[test]
fn a_number_survives_or_its_bytes_are_signed() {
    for (raw, canonical) in [
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e999999999999999999999", "0"),
        ("1.0", "1"),
        ("100e-2", "1"),
        ("1.50E+1", "15"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("123456789012345", "123456789012345"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740992", "-9007199254740992"),
        ("0.00000010", "1e-7"),
        ("5e-324", "5e-324"),
    ] {
        exact(raw, canonical);
    }
    for raw in [
        "9007199254740993",
        "-9007199254740993",
        "9007199254740994",
        "18446744073709551615",
        "1000000000000000000000",
        "0.1000000000000000055511151231257827",
        "1e400",
        "-1e400",
        "1e99999999999999999999",
        "1e-400",
        "1e-99999999999999999999",
        "3e-324",
        "9007199254740993.0",
        "9007199254740993e0",
        "3.14159265358979323846",
    ] {
        lossy(raw);
        lossy(&format!(" {{\"a\" : [ {raw} ]}}\n"));
    }
    lossy(&"9".repeat(400));
}

#[test]
fn half_a_surrogate_pair_is_signed_as_sent() {
    for raw in [r#""\ud800""#, r#"{"a\udc00":1}"#, r#""\ude00\ud83d""#, r#""\ud83d\u0041""#, r#""\ud83dx""#] {
        lossy(raw);
    }
    exact(r#""\ud83d\ude00\uD83D\uDE00""#, "\"😀😀\"");
    refused(r#"{"\ud800":1,"a":2,"\uD800":3}"#, BadArguments::DuplicateKey);
}

#[test]
fn a_key_twice_is_refused_however_it_is_written() {
    for raw in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"b":1,"a":2,"\u0061":3}"#,
        r#"{"x":[{"k":{"é":1,"\u00e9":2}}]}"#,
        r#"{"\n":1,"\u000a":2}"#,
        r#"{"\/":1,"/":2}"#,
        r#"{"😀":1,"\ud83d\ude00":2}"#,
        r#"{"":1,"":2}"#,
        r#"{"n":1e400,"a":1,"a":1}"#,
    ] {
        refused(raw, BadArguments::DuplicateKey);
    }
    exact(r#"{"b":{"a":1},"a":{"a":1}}"#, r#"{"a":{"a":1},"b":{"a":1}}"#);
}

#[test]
fn strings_have_one_spelling() {
    exact(
        r#""\u0000\u0008\t\u000b\f\u001F\u007f\/\u2028""#,
        "\"\\u0000\\b\\t\\u000b\\f\\u001f\u{7f}/\u{2028}\"",
    );
    let mut out = Vec::new();
    write_string(&mut out, "a\"\\\u{1}\n\u{7f}€");
    assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"\\\\\\u0001\\n\u{7f}€\"");
}

#[test]
fn what_is_no_json_is_refused() {
    for (raw, at) in [
        ("", 0),
        ("{", 1),
        ("{a:1}", 1),
        ("{\"a\"1}", 4),
        ("{\"a\":1,}", 7),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("01", 0),
        ("1.", 0),
        ("-", 0),
        ("+1", 0),
        (".5", 0),
        ("1e", 0),
        ("NaN", 0),
        ("nul", 0),
        ("\"a", 2),
        ("\"\n\"", 1),
        ("\"\\x\"", 1),
        ("\"\\u12g4\"", 1),
        ("\"\\u12", 1),
        ("{} {}", 3),
        ("\u{feff}{}", 0),
    ] {
        refused(raw, BadArguments::Malformed { at });
    }
    assert_eq!(digest_arguments(Some(b"\"\xff\"")), Err(BadArguments::Malformed { at: 1 }));
}

#[test]
fn depth_has_an_end() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    exact(&nested(MAX_DEPTH), &nested(MAX_DEPTH));
    refused(&nested(MAX_DEPTH + 1), BadArguments::TooDeep);
    refused(&"[{\"a\":".repeat(100_000), BadArguments::TooDeep);
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53)..=1 << 53).prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no such number", |number| number.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value in other clothes: `choices` decides on white space, escapes and the order of members.
fn disguise(value: &Value, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    let mut choose = |count: u8| choices.next().unwrap_or(0) % count;
    out.push_str(["", " ", "\n\t", "\r "][usize::from(choose(4))]);
    match value {
        Value::String(text) => disguise_string(text, choices, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                disguise(item, choices, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if !members.is_empty() {
                let turn = usize::from(choose(7)) % members.len();
                members.rotate_left(turn);
            }
            if choose(2) == 1 {
                members.reverse();
            }
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { " ,\t" } else { "" });
                disguise_string(key, choices, out);
                out.push_str(" :");
                disguise(value, choices, out);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn disguise_string(text: &str, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\' | ..'\x20') || choices.next().unwrap_or(0).is_multiple_of(3) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04X}").unwrap();
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

proptest! {
    #[test]
    fn the_form_does_not_depend_on_how_a_value_was_written(
        value in value(),
        choices in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let plain = canonical_form(value.to_string().as_bytes()).unwrap();
        let mut disguised = String::new();
        disguise(&value, &mut choices.into_iter(), &mut disguised);
        let form = canonical_form(disguised.as_bytes()).unwrap();
        prop_assert_eq!(String::from_utf8_lossy(&form.text), String::from_utf8_lossy(&plain.text));
        // It is its own canonical form, and says the same.
        let again = canonical_form(&form.text).unwrap();
        prop_assert_eq!(&again.text, &form.text);
        let parsed: Value = serde_json::from_slice(&form.text).unwrap();
        prop_assert!(same(&parsed, &value), "{parsed} is not {value}");
    }

    /// What a server does that has the arguments only as its library parsed them.
    #[test]
    fn a_digest_survives_parsing_and_printing(value in value()) {
        let sent = format!(" {value:#} ");
        let digest = digest_arguments(Some(sent.as_bytes()));
        let parsed: Value = serde_json::from_str(&sent).unwrap();
        let again = digest_arguments(Some(parsed.to_string().as_bytes()));
        if matches!(digest, Ok(ArgumentsDigest::Canonical(_))) {
            prop_assert_eq!(again, digest);
        }
    }

    #[test]
    fn keys_are_ordered_by_code_units(left in any::<String>(), right in any::<String>()) {
        let expected = left.encode_utf16().cmp(right.encode_utf16());
        prop_assert_eq!(key_order(left.as_bytes(), right.as_bytes()), expected);
    }

    #[test]
    fn keys_around_the_surrogates_are_ordered_by_code_units(
        left in "[\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}a]{0,4}",
        right in "[\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}a]{0,4}",
    ) {
        let expected = left.encode_utf16().cmp(right.encode_utf16());
        prop_assert_eq!(key_order(left.as_bytes(), right.as_bytes()), expected);
    }

    #[test]
    fn it_reads_what_the_library_reads(bytes in prop::collection::vec(
        prop::sample::select(b"{}[]\",:\\u0123456789abcdefE+-. \ntrulsn\xc3\xa9\xff".to_vec()), 0..24,
    )) {
        let library = serde_json::from_slice::<Value>(&bytes);
        match canonical_form(&bytes) {
            Ok(form) if form.fidelity == Fidelity::Exact => prop_assert!(library.is_ok(), "{:?}", bytes),
            // Numbers beyond doubles and halves of surrogate pairs are valid JSON which the library does not take.
            Ok(_) => {}
            Err(BadArguments::Malformed { .. }) => prop_assert!(library.is_err(), "{:?}", bytes),
            Err(BadArguments::DuplicateKey) => prop_assert!(library.is_ok(), "{:?}", bytes),
            Err(BadArguments::TooDeep) => prop_assert!(false, "24 bytes are not so deep"),
        }
    }
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        (left, right) => left == right,
    }
}

#[test]
fn ten_thousand_members_backwards_take_no_time_to_speak_of() {
    let members: Vec<String> = (0..10_000).rev().map(|index| format!("\"k{index:05}\":{index}")).collect();
    let raw = format!("{{{}}}", members.join(","));
    let sorted: Value = serde_json::from_str(&raw).unwrap();
    exact(&raw, &sorted.to_string());
}
