//! What hooks see of a call and what they make of it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Who calls what: the `input` of a hook. What is absent is not known.
#[derive(Debug, Clone, Default)]
pub struct Input<'a> {
    pub server: Cow<'a, str>,
    /// The tool's or prompt's name, or the uri; none for lists.
    pub tool: Option<Cow<'a, str>>,
    pub method: Cow<'a, str>,
    /// The conversation that makes the call: `sessionID` and `threadID`.
    pub thread: Option<Cow<'a, str>>,
    pub call: Option<Cow<'a, str>>,
    pub parent: Option<Cow<'a, str>>,
    pub host: Option<Cow<'a, str>>,
    pub workspace: Option<Cow<'a, str>>,
    pub trust: Cow<'a, str>,
    /// Whether the method has arguments.
    pub takes_arguments: bool,
}

impl Input<'_> {
    /// For a thread of its own.
    pub fn into_owned(self) -> Input<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Input {
            server: own(self.server),
            tool: self.tool.map(own),
            method: own(self.method),
            thread: self.thread.map(own),
            call: self.call.map(own),
            parent: self.parent.map(own),
            host: self.host.map(own),
            workspace: self.workspace.map(own),
            trust: own(self.trust),
            takes_arguments: self.takes_arguments,
        }
    }
}

/// Names and values.
pub type Pairs = Vec<(String, String)>;

/// A call before it goes out: what hooks may change of it.
#[derive(Clone, Default)]
pub struct Draft {
    pub headers: Pairs,
    /// For a process that this call starts.
    pub env: Pairs,
    /// `params._meta` as JSON; none: there is none.
    pub meta: Option<Bytes>,
    /// `params.arguments` as JSON.
    pub arguments: Option<Bytes>,
    pub meta_changed: bool,
    pub arguments_changed: bool,
}

/// Headers and variables hold secrets.
impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &Pairs| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        f.debug_struct("Draft")
            .field("headers", &names(&self.headers))
            .field("env", &names(&self.env))
            .field("meta_changed", &self.meta_changed)
            .field("arguments_changed", &self.arguments_changed)
            .finish_non_exhaustive()
    }
}

impl Draft {
    pub(crate) fn size(&self) -> usize {
        let of_pairs =
            |pairs: &Pairs| pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let of_json = |json: &Option<Bytes>| json.as_ref().map_or(0, Bytes::len);
        of_pairs(&self.headers) + of_json(&self.meta) + of_json(&self.arguments)
    }

    pub(crate) fn apply(&mut self, changes: BeforeChanges) -> Result<(), String> {
        if let Some(headers) = changes.headers {
            self.headers = headers;
        }
        if let Some(env) = changes.env {
            self.env = env;
        }
        if let Some(change) = changes.meta {
            self.meta = change.apply_to(self.meta.as_deref())?;
            self.meta_changed = true;
        }
        if let Some(change) = changes.arguments {
            self.arguments = change.apply_to(self.arguments.as_deref())?;
            self.arguments_changed = true;
        }
        Ok(())
    }
}

/// How a call ended, for `mcp.call.after`.
#[derive(Debug, Clone, Default)]
pub struct Ended {
    /// As JSON; none: the call failed.
    pub result: Option<Bytes>,
    pub ok: bool,
    pub duration_ms: f64,
    pub error: Option<String>,
    /// `params.arguments` as they were sent.
    pub arguments: Option<Bytes>,
    pub changed: bool,
}

impl Ended {
    pub(crate) fn size(&self) -> usize {
        self.result.as_ref().map_or(0, Bytes::len) + self.arguments.as_ref().map_or(0, Bytes::len)
    }

    pub(crate) fn apply(&mut self, change: Option<Change>) -> Result<(), String> {
        if let Some(change) = change {
            self.result = change.apply_to(self.result.as_deref())?;
            self.changed = true;
        }
        Ok(())
    }
}

/// What one run of a file changed before a call.
#[derive(Debug, Default)]
pub struct BeforeChanges {
    pub headers: Option<Pairs>,
    pub env: Option<Pairs>,
    pub meta: Option<Change>,
    pub arguments: Option<Change>,
}

/// A change of a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    Removed,
    /// New values as JSON; none: the member goes.
    Members(Vec<(String, Option<String>)>),
}

impl Change {
    /// Members that are not named keep their place and every byte of their value. None of an error: there is none
    /// any more.
    fn apply_to(self, original: Option<&[u8]>) -> Result<Option<Bytes>, String> {
        let Self::Members(changes) = self else { return Ok(None) };
        let order: Vec<String> = changes.iter().map(|(name, _)| name.clone()).collect();
        let mut changes: HashMap<String, Option<String>> = changes.into_iter().collect();
        let mut out = vec![b'{'];
        let mut write = |name: &str, value: &str| {
            if out.len() > 1 {
                out.push(b',');
            }
            // A string always serializes.
            out.extend_from_slice(serde_json::to_string(name).unwrap_or_default().as_bytes());
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        };
        let mut done: HashSet<String> = HashSet::new();
        for (name, raw) in original.map_or_else(|| Ok(Vec::new()), members)? {
            if let Some(value) = changes.remove(&*name) {
                if let Some(value) = value {
                    write(&name, &value);
                }
                done.insert(name.into_owned());
            } else if !done.contains(&*name) {
                write(&name, raw.get());
            }
        }
        for name in order {
            if let Some(Some(value)) = changes.remove(&name) {
                write(&name, &value);
            }
        }
        out.push(b'}');
        Ok(Some(Bytes::from(out)))
    }
}

/// The members of a JSON object in their order. What is no object has none.
fn members(json: &[u8]) -> Result<Vec<(Cow<'_, str>, &RawValue)>, String> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(Name(name)) = map.next_key()? {
                members.push((name, map.next_value()?));
            }
            Ok(members)
        }
    }
    if !json.trim_ascii_start().starts_with(b"{") {
        return Ok(Vec::new());
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.deserialize_map(Members).map_err(|_| {
        "what the call brought along cannot be changed: a name in it has half a character".to_owned()
    })
}

#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(original: Option<&str>, members: &[(&str, Option<&str>)]) -> String {
        let members =
            members.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
        let made = Change::Members(members).apply_to(original.map(str::as_bytes)).unwrap().unwrap();
        String::from_utf8(made.to_vec()).unwrap()
    }

    #[test]
    fn what_did_not_change_keeps_every_byte() {
        let original = r#"{ "big" : 12345678901234567890, "\u0061": 1e400 , "c":[1,  2] }"#;
        let made = changed(Some(original), &[("c", Some("3")), ("d", Some("null"))]);
        assert_eq!(made, r#"{"big":12345678901234567890,"a":1e400,"c":3,"d":null}"#);
        assert_eq!(changed(Some(original), &[("a", None), ("big", None), ("c", None)]), "{}");
    }

    #[test]
    fn what_was_there_twice_is_there_once_after_a_change() {
        assert_eq!(changed(Some(r#"{"a":1,"a":2,"b":3}"#), &[("a", Some("4"))]), r#"{"a":4,"b":3}"#);
        assert_eq!(changed(None, &[("a", Some("1"))]), r#"{"a":1}"#);
        assert_eq!(Change::Removed.apply_to(Some(b"{}")), Ok(None));
        let half = Change::Members(vec![("a".to_owned(), None)]);
        assert!(half.apply_to(Some(br#"{"\ud800":1,"a":2}"#)).is_err());
    }
}
