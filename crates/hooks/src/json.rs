//! Names that stand twice in one object.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A name that is there twice in some object of this JSON.
pub(crate) fn repeated(json: &[u8]) -> Option<String> {
    let mut found = None;
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // Whether it is JSON is not the question here.
    let _read = Search(&mut found).deserialize(&mut deserializer);
    found
}

struct Search<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // Few members are compared faster than hashed.
        let mut few: Vec<Cow<'de, str>> = Vec::new();
        let mut many: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(Name(name)) = map.next_key()? {
            if few.contains(&name) || many.contains(&name) {
                self.0.get_or_insert_with(|| name.to_string());
            } else if few.len() < 16 {
                few.push(name);
            } else {
                many.insert(name);
            }
            map.next_value_seed(Search(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Search(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_twice_is_found_at_any_depth_and_in_any_spelling() {
        assert_eq!(repeated(br#"{"a":{"b":[{"c":1,"\u0063":2}]},"d":null,"e":1e400}"#).as_deref(), Some("c"));
        assert_eq!(repeated(br#"{"a":{"a":[1.5,-2,true,"a"]},"b":{"a":1}}"#), None);
        let many: Vec<String> = (0..100).map(|number| format!("\"m{number}\":0")).collect();
        assert_eq!(repeated(format!("{{{}}}", many.join(",")).as_bytes()), None);
        assert_eq!(repeated(format!("{{{},\"m77\":1}}", many.join(",")).as_bytes()).as_deref(), Some("m77"));
    }
}
