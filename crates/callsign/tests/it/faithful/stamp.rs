//! Who calls, as it was put into a message on the way, and what the message was before.

use std::ops::Range;

use serde_json::Value;

const IDENTITY: &str = r#""dev.callsign/identity":"#;

/// What stands before and after the members that were put in, for each place they can be put: in a `_meta` that is
/// there, in one that is made, in parameters that are made.
const SHAPES: [(&str, &str); 5] =
    [("", ","), ("", ""), (r#""_meta":{"#, "},"), (r#""_meta":{"#, "}"), (r#""params":{"_meta":{"#, "}},")];

/// The one stamp of a text.
#[derive(Debug)]
pub(super) struct Stamp {
    /// Of its members.
    pub(super) span: Range<usize>,
    pub(super) identity: Value,
}

/// None unless there is exactly one. Nobody is known in these tests, so none is signed.
pub(super) fn find(text: &str) -> Option<Stamp> {
    let mut places = text.match_indices(IDENTITY);
    let (start, _) = places.next()?;
    if places.next().is_some() || text.contains("dev.callsign/assertion") {
        return None;
    }
    let value = start + IDENTITY.len();
    let mut values = serde_json::Deserializer::from_str(&text[value..]).into_iter::<Value>();
    let identity = values.next()?.ok()?;
    Some(Stamp { span: start..value + values.byte_offset(), identity })
}

/// Everything that a text can have been before it was stamped.
pub(super) fn without(text: &str) -> Vec<String> {
    let Some(Stamp { span, identity }) = find(text) else { return Vec::new() };
    if identity["trust"] != "none" || identity["call"].as_str().is_none_or(str::is_empty) {
        return Vec::new();
    }
    let (head, tail) = (&text[..span.start], &text[span.end..]);
    let taken_out = |(before, after): &(&str, &str)| {
        let head = head.strip_suffix(before).filter(|head| head.ends_with('{'))?;
        Some(format!("{head}{}", tail.strip_prefix(after)?))
    };
    SHAPES.iter().filter_map(taken_out).collect()
}
