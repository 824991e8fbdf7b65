//! One pass over JSON that comes in pieces, for a few members near its top. Nothing is kept but what is asked for.
//!
//! ```text
//!  Begin ─▶ Name ─▶ InName ─▶ Colon ─▶ Value ─┬─▶ Text, Scalar ─┬─▶ After ─▶ Name … ─▶ Done
//!            ▲                                └─▶ Deep ─────────┘       │
//!            └──────────────────────────────────────────────────────────┘  anything that cannot follow ─▶ Broken
//! ```
//!
//! What lies deeper is skipped with a counter: it need not be JSON to the last byte, and may be as deep as it likes.

/// What is kept of one value, at most.
const KEPT: usize = 8 * 1024;
/// A name that is longer is none of those looked for, however it is escaped.
const LONGEST_NAME: usize = 96;

/// What to do with the value behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Skip,
    Keep,
}

pub(crate) trait Visit {
    /// Of the outermost object.
    fn member(&mut self, name: &str) -> Interest;

    /// A value that was to be kept, as it is written. One that is too long is not told.
    fn kept(&mut self, raw: &[u8]);

    /// The brace that ends the outermost object is the `at`th byte of this piece.
    fn closed(&mut self, at: usize);
}

#[derive(Debug, Default)]
pub(crate) struct Walk {
    step: Step,
    deep: u32,
    /// Whether a backslash escapes the next byte.
    escaped: bool,
    interest: Option<Interest>,
    /// A name, or a value that is kept. None: it became too long.
    held: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Begin,
    Name,
    InName,
    Colon,
    Value,
    Text,
    Scalar,
    Deep,
    DeepText,
    After,
    Done,
    Broken,
}

impl Walk {
    pub(crate) fn feed(&mut self, bytes: &[u8], visit: &mut impl Visit) {
        let mut at = 0;
        while at < bytes.len() {
            at += match self.step {
                Step::InName | Step::Text | Step::DeepText => self.text(&bytes[at..], visit),
                Step::Scalar => self.scalar(&bytes[at..], visit),
                Step::Deep => self.deep(&bytes[at..], visit),
                Step::Done | Step::Broken => return,
                Step::Begin | Step::Name | Step::Colon | Step::Value | Step::After => {
                    self.between(bytes[at], at, visit)
                }
            };
        }
    }

    /// One byte outside of values and names. Returns how much was used, as all the steps do.
    fn between(&mut self, byte: u8, at: usize, visit: &mut impl Visit) -> usize {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return 1;
        }
        self.step = match (self.step, byte) {
            (Step::Begin, b'{') => Step::Name,
            (Step::Name, b'"') => {
                self.hold_anew();
                Step::InName
            }
            (Step::Name | Step::After, b'}') => {
                visit.closed(at);
                Step::Done
            }
            (Step::After, b',') => Step::Name,
            (Step::Colon, b':') => Step::Value,
            (Step::Value, _) => return self.value(byte),
            _ => Step::Broken,
        };
        1
    }

    fn value(&mut self, first: u8) -> usize {
        if self.interest == Some(Interest::Keep) {
            self.hold_anew();
        }
        let (step, used) = match first {
            b'{' | b'[' => {
                self.deep = 0;
                (Step::Deep, 0)
            }
            b'"' => {
                self.hold(b"\"");
                (Step::Text, 1)
            }
            b',' | b'}' | b']' | b':' => (Step::Broken, 1),
            _ => (Step::Scalar, 0),
        };
        self.step = step;
        used
    }

    fn text(&mut self, bytes: &[u8], visit: &mut impl Visit) -> usize {
        let end = past_quote(bytes, &mut self.escaped);
        let used = end.unwrap_or(bytes.len());
        self.hold(&bytes[..used]);
        if end.is_some() {
            if self.step == Step::InName {
                self.interest = Some(self.named(visit));
                self.held = None;
                self.step = Step::Colon;
            } else if self.step == Step::DeepText {
                self.step = Step::Deep;
            } else {
                self.end_of_value(visit);
            }
        }
        used
    }

    fn named(&mut self, visit: &mut impl Visit) -> Interest {
        // The closing quote is there, the opening one is not.
        let Some(held) = self.held.as_mut().filter(|held| held.len() <= LONGEST_NAME) else {
            return Interest::Skip;
        };
        if held.contains(&b'\\') {
            held.insert(0, b'"');
            let name = serde_json::from_slice::<String>(held).unwrap_or_default();
            return visit.member(&name);
        }
        held.pop();
        visit.member(std::str::from_utf8(held).unwrap_or_default())
    }

    fn scalar(&mut self, bytes: &[u8], visit: &mut impl Visit) -> usize {
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        let end = bytes.iter().position(is_end);
        let used = end.unwrap_or(bytes.len());
        self.hold(&bytes[..used]);
        if end.is_some() {
            self.end_of_value(visit);
        }
        used
    }

    fn deep(&mut self, bytes: &[u8], visit: &mut impl Visit) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => self.step = Step::DeepText,
                b'{' | b'[' => match self.deep.checked_add(1) {
                    Some(deep) => self.deep = deep,
                    None => self.step = Step::Broken,
                },
                b'}' | b']' => {
                    self.deep -= 1;
                    if self.deep > 0 {
                        continue;
                    }
                }
                _ => continue,
            }
            if self.step != Step::Deep || self.deep == 0 {
                self.hold(&bytes[..=at]);
                if self.deep == 0 && self.step == Step::Deep {
                    self.end_of_value(visit);
                }
                return at + 1;
            }
        }
        self.hold(bytes);
        bytes.len()
    }

    fn end_of_value(&mut self, visit: &mut impl Visit) {
        self.step = Step::After;
        if self.interest.take() == Some(Interest::Keep)
            && let Some(raw) = self.held.take()
        {
            visit.kept(&raw);
        }
        self.held = None;
    }

    fn hold_anew(&mut self) {
        self.held = Some(Vec::new());
    }

    fn hold(&mut self, bytes: &[u8]) {
        if let Some(held) = &mut self.held {
            if held.len() + bytes.len() > KEPT {
                self.held = None;
            } else {
                held.extend_from_slice(bytes);
            }
        }
    }
}

/// Where the string ends that the bytes begin in. None: not in these bytes.
fn past_quote(bytes: &[u8], escaped: &mut bool) -> Option<usize> {
    let mut at = usize::from(std::mem::take(escaped) && !bytes.is_empty());
    loop {
        at += memchr::memchr2(b'"', b'\\', &bytes[at..])? + 1;
        if bytes[at - 1] == b'"' {
            return Some(at);
        }
        if at == bytes.len() {
            *escaped = true;
            return None;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        kept: Vec<String>,
        closed: Option<usize>,
        before: usize,
    }

    impl Visit for Seen {
        fn member(&mut self, name: &str) -> Interest {
            if name == "a" { Interest::Keep } else { Interest::Skip }
        }

        fn kept(&mut self, raw: &[u8]) {
            self.kept.push(String::from_utf8_lossy(raw).into_owned());
        }

        fn closed(&mut self, at: usize) {
            self.closed = Some(self.before + at);
        }
    }

    fn walk(pieces: &[&[u8]]) -> Seen {
        let (mut walk, mut seen) = (Walk::default(), Seen::default());
        for piece in pieces {
            walk.feed(piece, &mut seen);
            seen.before += piece.len();
        }
        seen.before = 0;
        seen
    }

    #[track_caller]
    fn check(text: &str, kept: &[&str], closed: Option<usize>) {
        let expected = Seen { kept: kept.iter().map(ToString::to_string).collect(), closed, before: 0 };
        assert_eq!(walk(&[text.as_bytes()]), expected, "{text}");
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(walk(&bytes), expected, "{text}, byte by byte");
    }

    #[test]
    fn members_are_found_where_they_are_looked_for() {
        check(r#"{"a":1}"#, &["1"], Some(6));
        check(
            r#" { "a" : true , "b":{"a":2}, "in":{"b":[{"a":3}]},"a":"x\"}" } "#,
            &["true", r#""x\"}""#],
            Some(61),
        );
        check(r#"{"a":{"b":[1,{"c":"]}"}]},"a":null}"#, &[r#"{"b":[1,{"c":"]}"}]}"#, "null"], Some(34));
        check(r#"{"\u0061":1}"#, &["1"], Some(11));
        check(r#"{"b":[{"a":1}]}"#, &[], Some(14));
        check(r#"{"b":{}}"#, &[], Some(7));
        check("{}", &[], Some(1));
        check(r#"{"a":"\\"}"#, &[r#""\\""#], Some(9));
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in [
            "",
            "[]",
            r#"[{"a":1}]"#,
            "1",
            r#""a""#,
            "null",
            "{",
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a" 1}"#,
            "{a:1}",
        ] {
            check(text, &[], None);
        }
        check(r#"{"b":]}"#, &[], None);
        check(r#"{"a":1"#, &[], None);
    }

    #[test]
    fn what_is_too_long_is_not_kept() {
        let long = format!(r#"{{"a":"{}","a":2,"{}":1}}"#, "x".repeat(KEPT), "a".repeat(200_000));
        check(&long, &["2"], Some(long.len() - 1));
        let deep = format!(r#"{{"b":{}{},"a":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        check(&deep, &["1"], Some(deep.len() - 1));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in r#"[{}\[\]":,\\ain0-9 ]{0,60}"#, cut in 0..60_usize) {
            let (bytes, cut) = (text.as_bytes(), cut.min(text.len()));
            prop_assert_eq!(walk(&[&bytes[..cut], &bytes[cut..]]), walk(&[bytes]));
        }

        #[test]
        fn json_is_read_as_by_others(names in proptest::collection::vec("(a|b|\\PC{0,5})", 0..5), inner: i32) {
            let object: serde_json::Map<String, Value> =
                names.iter().map(|name| (name.clone(), serde_json::json!({ "a": inner, "c": name }))).collect();
            let text = serde_json::to_string(&object).unwrap();
            let mut expected: Vec<String> = Vec::new();
            for (name, value) in &object {
                if name == "a" {
                    expected.push(value.to_string());
                }
            }
            let seen = walk(&[text.as_bytes()]);
            prop_assert_eq!(seen.kept, expected);
            prop_assert_eq!(seen.closed, Some(text.len() - 1));
        }
    }
}
