//! Lists that may be long: how many there are, and the first of them.

use carry::{LeftOut, Listed};
use serde_json::{Value, json};

/// Entries that are spelled out.
const SPELLED: usize = 50;

pub(super) fn listed<T>(list: &Listed<T>, show: impl Fn(&T) -> Value) -> Value {
    json!({ "count": list.count, "first": list.first.iter().take(SPELLED).map(show).collect::<Vec<_>>() })
}

pub(super) fn left_out(list: &Listed<LeftOut>) -> Value {
    listed(list, |one| json!({ "path": one.path, "why": one.why.to_string() }))
}
