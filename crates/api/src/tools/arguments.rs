//! Arguments as a model wrote them. What is wrong is said so that the next try is right.

use std::ops::RangeInclusive;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::refusal::Refusal;

/// The candidate that `word` was probably meant to be.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    candidates
        .map(|candidate| {
            // `sessionId`, `session` and `id` are what models write for `session_id`.
            let plain = candidate.replace('_', "");
            let near = strsim::osa_distance(&word, candidate).min(strsim::osa_distance(&word, &plain));
            let part = word.len() > 1 && candidate.split('_').any(|part| part == word);
            (if part { near.min(1) } else { near }, candidate)
        })
        .filter(|(distance, _)| *distance <= (word.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// None of them has a name that the tool does not know. One that is `null` counts as left out.
#[derive(Debug)]
pub(super) struct Arguments(JsonObject);

impl Arguments {
    pub(super) fn new(schema: &JsonObject, given: Option<JsonObject>) -> Result<Self, Refusal> {
        let mut given = given.unwrap_or_default();
        let known = schema.get("properties").and_then(Value::as_object);
        let known = || known.into_iter().flat_map(|known| known.keys()).map(String::as_str);
        for name in given.keys() {
            if known().any(|known| known == name) {
                continue;
            }
            let names = known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let advice = nearest(name, known().filter(|known| !given.contains_key(*known))).map_or_else(
                || format!("this tool takes {names}"),
                |near| format!("did you mean `{near}`? This tool takes {names}"),
            );
            return Err(Refusal::argument(name, format_args!("is no argument of this tool; {advice}")));
        }
        given.retain(|_, value| !value.is_null());
        Ok(Self(given))
    }

    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, Refusal> {
        self.optional_text(name)?.ok_or_else(|| Refusal::argument(name, "is missing; it must be a string"))
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", other)),
        }
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Refusal> {
        match self.0.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(wrong(name, "true or false", other)),
        }
    }

    /// What is above the range counts as its end.
    pub(super) fn number(
        &self,
        name: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, Refusal> {
        let expected = format!("an integer of {} or more", range.start());
        match self.0.get(name) {
            None => Ok(default),
            Some(given) => whole(given)
                .filter(|number| number >= range.start())
                .map(|number| number.min(*range.end()))
                .ok_or_else(|| wrong(name, &expected, given)),
        }
    }
}

/// `200.0` is what some write for 200.
fn whole(given: &Value) -> Option<u64> {
    given.as_u64().or_else(|| {
        let text = given.is_number().then(|| given.to_string())?;
        text.strip_suffix(".0")?.parse().ok()
    })
}

fn wrong(name: &str, expected: &str, given: &Value) -> Refusal {
    let given = match given {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    Refusal::argument(name, format_args!("must be {expected}, not {given}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(given: Value) -> Result<Arguments, Refusal> {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let schema = json!({ "properties": { "session_id": {}, "run_id": {}, "wait_seconds": {} } });
        Arguments::new(&object(schema), Some(object(given)))
    }

    #[track_caller]
    fn refused(given: Value, part: &str) {
        let refusal = arguments(given).unwrap_err();
        assert_eq!(refusal.code, "bad_argument");
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        refused(json!({ "sesion_id": "s" }), "did you mean `session_id`?");
        refused(json!({ "sessionId": "s" }), "did you mean `session_id`?");
        refused(json!({ "run-id": "s" }), "did you mean `run_id`?");
        refused(json!({ "wait": 3 }), "did you mean `wait_seconds`?");
        refused(json!({ "colour": "red" }), "this tool takes `run_id`, `session_id`, `wait_seconds`");
        // What is there already was not meant.
        let refusal = arguments(json!({ "session": "s", "session_id": "s" })).unwrap_err();
        assert!(!refusal.message.contains("did you mean"), "{}", refusal.message);
    }

    #[test]
    fn null_is_left_out() {
        let arguments = arguments(json!({ "session_id": "s", "run_id": null })).unwrap();
        assert_eq!(arguments.text("session_id").unwrap(), "s");
        assert_eq!(arguments.optional_text("run_id").unwrap(), None);
        assert!(arguments.text("run_id").unwrap_err().message.contains("is missing"));
    }

    #[test]
    fn wrong_types_say_what_is_expected() {
        let arguments = arguments(json!({ "session_id": 7, "run_id": "x", "wait_seconds": 2.5 })).unwrap();
        let said = |refusal: Refusal| refusal.message;
        assert_eq!(said(arguments.text("session_id").unwrap_err()), "`session_id` must be a string, not 7");
        let flag = said(arguments.flag("run_id", true).unwrap_err());
        assert_eq!(flag, "`run_id` must be true or false, not a string");
        let number = said(arguments.number("wait_seconds", 0, 0..=600).unwrap_err());
        assert_eq!(number, "`wait_seconds` must be an integer of 0 or more, not 2.5");
    }

    #[test]
    fn numbers_are_cut_at_the_end_of_their_range() {
        for (given, expected) in [
            (json!(0), None),
            (json!(-1), None),
            (json!(3), Some(3)),
            (json!(3.0), Some(3)),
            (json!(99), Some(9)),
        ] {
            let arguments = arguments(json!({ "wait_seconds": given })).unwrap();
            assert_eq!(arguments.number("wait_seconds", 5, 1..=9).ok(), expected, "{given}");
        }
        assert_eq!(arguments(json!({})).unwrap().number("wait_seconds", 5, 1..=9).unwrap(), 5);
    }
}
