//! What differs from run to run in a server's answers, and what stands in its place when they are compared.
//! All that is masked is in these tables.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// In any string: `d` is a digit, `h` a hexadecimal one, `A` is A or P, anything else itself. Longest first.
const PATTERNS: [(&str, &str); 5] = [
    ("hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh", "<uuid>"),
    ("hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh", "<task>"),
    ("dddd-dd-ddTdd:dd:dd.dddZ", "<time>"),
    ("dd:dd:dd AM", "<time>"),
    ("d:dd:dd AM", "<time>"),
];

/// Base64 that holds text with a time in it.
const ENCODED: [&str; 1] = ["blob"];

/// In the text of `get-env`, which is JSON: what Callsign itself adds to a child's environment.
const ADDED_ENVIRONMENT: &str = "CALLSIGN_";

pub(super) fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_text(text),
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if ENCODED.contains(&name.as_str()) {
                    decode(value);
                }
                mask(value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The answer of `get-env` as an object, without what we added.
pub(super) fn environment(result: &mut Value) {
    let Some(text) = result.pointer_mut("/content/0/text") else { return };
    let Some(Ok(Value::Object(mut variables))) = text.as_str().map(serde_json::from_str) else { return };
    variables.retain(|name, _| !name.starts_with(ADDED_ENVIRONMENT));
    *text = Value::Object(variables);
}

fn decode(value: &mut Value) {
    let Some(bytes) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) else { return };
    if let Ok(text) = String::from_utf8(bytes) {
        *value = Value::String(format!("<base64> {text}"));
    }
}

fn mask_text(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = PATTERNS.iter().find(|(pattern, _)| matches_at(rest, pattern));
        if let Some((pattern, name)) = found {
            masked.push_str(name);
            rest = &rest[pattern.len()..];
        } else {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    masked
}

fn matches_at(text: &str, pattern: &str) -> bool {
    text.len() >= pattern.len()
        && text.bytes().zip(pattern.bytes()).all(|(byte, class)| match class {
            b'd' => byte.is_ascii_digit(),
            b'h' => byte.is_ascii_hexdigit(),
            b'A' => byte == b'A' || byte == b'P',
            literal => byte == literal,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{environment, mask};

    #[track_caller]
    fn check(mut value: Value, expected: &Value) {
        mask(&mut value);
        assert_eq!(&value, expected);
    }

    #[test]
    fn times_and_ids_are_masked_and_nothing_else() {
        check(json!("created at 8:47:14 PM."), &json!("created at <time>."));
        check(json!("created at 10:47:14 AM"), &json!("created at <time>"));
        check(json!({"createdAt": "2026-11-15T20:47:14.123Z"}), &json!({"createdAt": "<time>"}));
        check(json!("id 01234567-89ab-cdef-0123-456789abcdef é"), &json!("id <uuid> é"));
        check(json!(["2026-11-15", 17, "Resource 1"]), &json!(["2026-11-15", 17, "Resource 1"]));
    }

    #[test]
    fn a_blob_is_compared_by_what_it_holds() {
        check(json!({"blob": "YXQgODo0NzoxNCBQTQ=="}), &json!({"blob": "<base64> at <time>"}));
        check(json!({"blob": "H4sIAAAA/w=="}), &json!({"blob": "H4sIAAAA/w=="}));
    }

    #[test]
    fn what_we_add_to_the_environment_is_left_out() {
        let mut result = json!({"content": [{"text": "{\"A\":\"1\",\"CALLSIGN_HOST\":\"x\"}"}]});
        environment(&mut result);
        assert_eq!(result, json!({"content": [{"text": {"A": "1"}}]}));
    }
}
