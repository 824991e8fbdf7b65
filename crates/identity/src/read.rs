//! What a server behind Callsign is told of a call, read from its `params._meta`.
//!
//! Whoever can speak to the server could write the same: [`crate::assertion::Verifier`] tells whether it was us.

use model::identity::{Id, Identity, Source, Trust, check_title};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Every word a source is called by.
const SOURCES: [Source; 8] = [
    Source::None,
    Source::Environment,
    Source::Initialize,
    Source::Header,
    Source::Meta,
    Source::Hook,
    Source::Seal,
    Source::Channel,
];

/// Who makes the call. `meta`: the JSON of `params._meta`. None where nothing is said, or nothing that makes sense.
pub fn identity_of_meta(meta: &[u8]) -> Option<Identity> {
    told(meta)?.into_identity()
}

/// The assertion of the call, not verified.
pub fn assertion_of_meta(meta: &[u8]) -> Option<String> {
    let keys: Keys<'_> = serde_json::from_slice(meta).ok()?;
    serde_json::from_str(keys.assertion?.get()).ok()
}

/// The workspace of the call's session: what [`crate::workspace::resolve`] takes as ambient.
pub fn workspace_of_meta(meta: &[u8]) -> Option<String> {
    let told = told(meta)?;
    told.workspace.map(|workspace| workspace.trim().to_owned()).filter(|workspace| !workspace.is_empty())
}

/// None for a word that names no source.
pub(crate) fn source(text: &str) -> Option<Source> {
    SOURCES.into_iter().find(|source| source.as_str() == text)
}

#[derive(Deserialize)]
struct Keys<'a> {
    #[serde(borrow, default, rename = "dev.callsign/identity")]
    identity: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.callsign/assertion")]
    assertion: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Told {
    host: Option<String>,
    session: Option<String>,
    thread: Option<String>,
    parent: Option<String>,
    run: Option<String>,
    turn: Option<String>,
    call: Option<String>,
    title: Option<String>,
    workspace: Option<String>,
    trust: String,
    source: String,
}

fn told(meta: &[u8]) -> Option<Told> {
    let keys: Keys<'_> = serde_json::from_slice(meta).ok()?;
    serde_json::from_str(keys.identity?.get()).ok()
}

impl Told {
    fn into_identity(self) -> Option<Identity> {
        // All or nothing: half of what was said could be somebody else.
        let id = |text: Option<String>| text.map(Id::new).transpose().ok();
        Some(Identity {
            host: id(self.host)?,
            session: id(self.session)?,
            thread: id(self.thread)?,
            parent: id(self.parent)?,
            run: id(self.run)?,
            turn: id(self.turn)?,
            call: id(self.call)?,
            title: self.title.as_deref().and_then(check_title).map(Into::into),
            trust: Trust::parse(&self.trust)?,
            source: source(&self.source)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::{META_ASSERTION, META_IDENTITY};

    fn told() -> Value {
        json!({
            "host": "codex", "session": "s", "thread": "t", "parent": "s", "run": "r", "turn": "u", "call": "c",
            "title": "A title", "workspace": " /w ", "server": "x", "tool": "y", "trust": "host", "source": "meta",
        })
    }

    fn read(told: &Value) -> Option<Identity> {
        identity_of_meta(json!({ META_IDENTITY: told, "other": 1 }).to_string().as_bytes())
    }

    #[test]
    fn an_identity_is_read_whole() {
        let id = |text: &str| Some(Id::new(text).unwrap());
        let expected = Identity {
            host: id("codex"),
            session: id("s"),
            thread: id("t"),
            parent: id("s"),
            run: id("r"),
            turn: id("u"),
            call: id("c"),
            title: Some("A title".into()),
            trust: Trust::Host,
            source: Source::Meta,
        };
        assert_eq!(read(&told()), Some(expected));
        let nobody = Identity { call: id("c"), ..Identity::default() };
        assert_eq!(read(&json!({ "call": "c", "trust": "none", "source": "none" })), Some(nobody));
    }

    #[test]
    fn nonsense_is_nobody() {
        for (key, value) in
            [("session", json!("a b")), ("trust", json!("most")), ("source", json!("")), ("host", json!(1))]
        {
            let mut told = told();
            told[key] = value;
            assert_eq!(read(&told), None, "{key}");
        }
        let twice =
            r#"{"dev.callsign/identity":{"trust":"none","source":"none"},"dev.callsign/identity":{}}"#;
        for meta in ["", "null", "[]", "{}", "{\"dev.callsign/identity\":null}", twice] {
            assert_eq!(identity_of_meta(meta.as_bytes()), None, "{meta}");
        }
    }

    #[test]
    fn the_rest_is_read_as_well() {
        let meta = json!({ META_IDENTITY: told(), META_ASSERTION: "a.b.c" }).to_string();
        assert_eq!(assertion_of_meta(meta.as_bytes()).as_deref(), Some("a.b.c"));
        assert_eq!(workspace_of_meta(meta.as_bytes()).as_deref(), Some("/w"));
        assert_eq!(assertion_of_meta(b"{}"), None);
        assert_eq!(workspace_of_meta(b"{}"), None);
    }

    #[test]
    fn every_source_has_its_word() {
        for known in SOURCES {
            assert_eq!(source(known.as_str()), Some(known));
        }
        assert_eq!(source("Meta"), None);
    }
}
