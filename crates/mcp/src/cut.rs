//! Takes members out of JSON, however deep they lie, and leaves every other byte as it is.

use crate::Span;
use crate::scan::{Bad, Scanner};

/// A member that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Decoded.
    pub name: String,
    /// How many objects and lists it lies in; 0 for a member of the value itself.
    pub depth: usize,
    /// Its value as it is written, within the bytes that were searched.
    pub value: Span,
}

/// What was found, and the ranges to cut so that what remains is JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    pub found: Vec<Found>,
    pub ranges: Vec<Span>,
}

/// Finds the members of `json` whose names `goes` picks. `goes` also gets the names on the way down.
pub fn find(json: &[u8], goes: &dyn Fn(&[String], &str) -> bool) -> Result<Cuts, Bad> {
    let mut search = Search { goes, path: Vec::new(), depth: 0, cuts: Cuts::default() };
    let mut scanner = Scanner::new(json);
    search.value(&mut scanner)?;
    search.cuts.ranges.sort_by_key(|range| range.start);
    Ok(search.cuts)
}

struct Search<'a> {
    goes: &'a dyn Fn(&[String], &str) -> bool,
    path: Vec<String>,
    depth: usize,
    cuts: Cuts,
}

/// One member of an object: where its name begins, where its value ends, whether it goes.
type Member = (usize, usize, bool);

impl Search<'_> {
    fn value(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Bad> {
        match scanner.peek() {
            Some(b'{') => self.object(scanner),
            Some(b'[') => {
                self.depth += 1;
                let walked = scanner.elements(|scanner| self.value(scanner));
                self.depth -= 1;
                walked
            }
            _ => scanner.value().map(drop),
        }
    }

    fn object(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Bad> {
        let mut members: Vec<Member> = Vec::new();
        scanner.members(|scanner, name| {
            let start = scanner.key_at();
            let goes = (self.goes)(&self.path, name);
            if goes {
                let value = scanner.value()?;
                self.cuts.found.push(Found { name: name.to_owned(), depth: self.depth, value });
            } else {
                self.path.push(name.to_owned());
                self.depth += 1;
                self.value(scanner)?;
                self.depth -= 1;
                self.path.pop();
            }
            members.push((start, scanner.position(), goes));
            Ok(())
        })?;
        self.cuts.ranges.extend(ranges(&members));
        Ok(())
    }
}

/// Each run of members that go, with exactly the commas that would be left over.
fn ranges(members: &[Member]) -> Vec<Span> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < members.len() {
        if !members[at].2 {
            at += 1;
            continue;
        }
        let first = at;
        while at < members.len() && members[at].2 {
            at += 1;
        }
        let range = match (members.get(at), first.checked_sub(1)) {
            (Some(next), _) => members[first].0..next.0,
            (None, Some(before)) => members[before].1..members[at - 1].1,
            (None, None) => members[first].0..members[at - 1].1,
        };
        ranges.push(range);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splice::{Edit, splice};
    use proptest::prelude::*;
    use serde_json::Value;

    fn cut(json: &str) -> String {
        let cuts = find(json.as_bytes(), &|_, name| name == "x").unwrap();
        let mut edits: Vec<Edit<'_>> =
            cuts.ranges.iter().map(|span| Edit { span: span.clone(), with: b"" }).collect();
        String::from_utf8(splice(json.as_bytes(), &mut edits)).unwrap()
    }

    #[test]
    fn what_remains_is_json_and_otherwise_the_same_bytes() {
        for (json, expected) in [
            (r#"{"x":1}"#, "{}"),
            (r#"{"x":1,"x":2}"#, "{}"),
            (r#"{ "x":1 , "a":2}"#, r#"{ "a":2}"#),
            (r#"{"a":2 , "x":1 }"#, r#"{"a":2 }"#),
            (
                r#"{"a":1,"x":[{"x":1}],"b":{"x":2,"c":[{"x":3},{"\u0078":4,"d":5}]}}"#,
                r#"{"a":1,"b":{"c":[{},{"d":5}]}}"#,
            ),
            (r#"[{"x":1}]"#, "[{}]"),
            ("7", "7"),
        ] {
            assert_eq!(cut(json), expected, "{json}");
        }
    }

    fn without(value: Value) -> Value {
        match value {
            Value::Object(members) => Value::Object(
                members
                    .into_iter()
                    .filter(|(name, _)| name != "x")
                    .map(|(name, value)| (name, without(value)))
                    .collect(),
            ),
            Value::Array(items) => Value::Array(items.into_iter().map(without).collect()),
            leaf @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => leaf,
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            ".{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let name = prop_oneof![Just("x".to_owned()), "[a-c]"];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(name, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_else_goes(value in values(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let left: Value = serde_json::from_str(&cut(&text)).unwrap();
            prop_assert_eq!(left, without(value));
        }
    }
}
