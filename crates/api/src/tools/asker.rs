//! Who speaks: the principal and the settings that came with a request, and what is known of who asked.
//!
//! Only the daemon's socket leads here, and whoever can open that is trusted to say who it is:
//!
//! ```text
//! Callsign-Principal: NAME                               absent: `local`
//! Callsign-Settings: base64(JSON object of variables)    absent: none
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use model::Principal;
use rmcp::model::{Implementation, RequestMetaObject};
use serde_json::{Map, Value, json};

use super::refusal::Refusal;

const PRINCIPAL: HeaderName = HeaderName::from_static("callsign-principal");
const SETTINGS: HeaderName = HeaderName::from_static("callsign-settings");
const IDENTITY: &str = "dev.callsign/identity";
/// A proof for the moment, of no use later.
const ASSERTION: &str = "dev.callsign/assertion";

/// How much of what a client says of itself is kept.
const MOST_SAID: usize = 16 << 10;

type Variables = BTreeMap<String, String>;

/// Its `Debug` shows no setting: requests are logged whole.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) principal: Principal,
    /// Wrong ones matter only to whoever needs them.
    variables: Arc<Result<Variables, &'static str>>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asker").field(&self.principal).finish()
    }
}

impl Asker {
    /// The headers are gone afterwards, so that nothing behind this logs them.
    pub(super) fn take(headers: &mut HeaderMap) -> Result<Self, &'static str> {
        let settings = take(headers, &SETTINGS);
        let principal = match take(headers, &PRINCIPAL) {
            Taken::None => Principal::local(),
            Taken::One(name) => String::from_utf8(name)
                .ok()
                .and_then(|name| Principal::new(name).ok())
                .ok_or("Callsign-Principal is not the name of a principal")?,
            Taken::Many => return Err("Callsign-Principal is there more than once"),
        };
        let variables = match settings {
            Taken::None => Ok(Variables::new()),
            Taken::One(settings) => variables(&settings),
            Taken::Many => Err("Callsign-Settings is there more than once"),
        };
        Ok(Self { principal, variables: Arc::new(variables) })
    }

    pub(super) fn variables(&self) -> Result<Variables, Refusal> {
        match self.variables.as_ref() {
            Ok(variables) => Ok(variables.clone()),
            Err(problem) => Err(Refusal::new("bad_settings", (*problem).to_owned())),
        }
    }
}

enum Taken {
    None,
    One(Vec<u8>),
    Many,
}

fn take(headers: &mut HeaderMap, name: &HeaderName) -> Taken {
    let many = headers.get_all(name).iter().count() > 1;
    match headers.remove(name) {
        None => Taken::None,
        Some(_) if many => Taken::Many,
        Some(value) => Taken::One(value.as_bytes().to_vec()),
    }
}

fn variables(header: &[u8]) -> Result<Variables, &'static str> {
    let text = STANDARD.decode(header).map_err(|_| "Callsign-Settings is not base64")?;
    serde_json::from_slice(&text).map_err(|_| "Callsign-Settings is not a JSON object of strings")
}

/// What a client of the old era said when it opened its session.
#[derive(Debug)]
pub(super) struct Opening {
    client: Implementation,
    meta: Value,
}

impl Opening {
    pub(super) fn new(client: &Implementation, meta: &RequestMetaObject) -> Self {
        let mut meta = meta.0.0.clone();
        meta.remove(ASSERTION);
        Self { client: client.clone(), meta: Value::Object(meta) }
    }
}

/// Who asked, as JSON, to be kept and shown. Nothing is decided by it.
pub(super) fn asked_by(meta: &RequestMetaObject, opening: Option<&Opening>) -> Option<String> {
    let mut said = Map::new();
    if let Some(identity) = meta.0.0.get(IDENTITY).filter(|identity| identity.is_object()) {
        said.insert("identity".to_owned(), capped(identity));
    }
    // Asked of the request first: without a session the library makes up a client.
    let client = meta.client_info().or_else(|| opening.map(|opening| opening.client.clone()));
    if let Some(client) = client {
        let client = json!({ "name": client.name, "version": client.version });
        said.insert("client".to_owned(), capped(&client));
    }
    if let Some(opening) = opening.filter(|opening| opening.meta != json!({})) {
        said.insert("initialize".to_owned(), capped(&opening.meta));
    }
    (!said.is_empty()).then(|| Value::Object(said).to_string())
}

/// The directory that whoever calls works in: as it was found out, else as it was announced and could not be used, so
/// that the reason can be told.
pub(super) fn workspace(meta: &RequestMetaObject, opening: Option<&Opening>) -> Option<String> {
    let identity = meta.0.0.get(IDENTITY).and_then(|identity| identity.get("workspace")?.as_str());
    if let Some(found) = identity {
        return Some(found.to_owned());
    }
    let announced = |meta: &[u8]| identity::workspace::ambient_from_meta(meta);
    let request = serde_json::to_vec(&meta.0.0).ok();
    let opening = opening.and_then(|opening| serde_json::to_vec(&opening.meta).ok());
    request.and_then(|meta| announced(&meta)).or_else(|| opening.and_then(|meta| announced(&meta)))
}

fn capped(said: &Value) -> Value {
    if said.to_string().len() > MOST_SAID {
        return json!({ "left_out": "longer than 16 KiB" });
    }
    said.clone()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rmcp::model::MetaObject;

    use super::*;

    fn take(lines: &[(&'static str, &str)]) -> Result<Asker, &'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let asker = Asker::take(&mut headers);
        assert!(headers.is_empty(), "{headers:?}");
        asker
    }

    fn encoded(value: &Value) -> String {
        STANDARD.encode(value.to_string())
    }

    #[test]
    fn who_says_nothing_is_the_person_at_this_machine() {
        let asker = take(&[]).unwrap();
        assert_eq!(asker.principal, Principal::local());
        assert_eq!(asker.variables().unwrap(), Variables::new());
    }

    #[test]
    fn a_principal_is_one_name() {
        assert_eq!(take(&[("callsign-principal", "ann")]).unwrap().principal.as_str(), "ann");
        for wrong in ["", "../x", "a b", "a\u{fc}"] {
            let mut headers = HeaderMap::new();
            headers.append(PRINCIPAL, HeaderValue::from_bytes(wrong.as_bytes()).unwrap());
            assert!(Asker::take(&mut headers).is_err(), "{wrong:?}");
        }
        assert!(take(&[("callsign-principal", "ann"), ("callsign-principal", "bob")]).is_err());
    }

    #[test]
    fn settings_are_an_object_of_strings() {
        let settings = encoded(&json!({ "MCP_OPENCODE_API_KEY": "hush" }));
        let asker = take(&[("callsign-settings", &settings)]).unwrap();
        assert_eq!(asker.variables().unwrap()["MCP_OPENCODE_API_KEY"], "hush");
        assert!(!format!("{asker:?}").contains("hush"));
        for wrong in ["%%%", &STANDARD.encode("[]"), &encoded(&json!({ "A": 1 })), &STANDARD.encode("{")] {
            let refusal = take(&[("callsign-settings", wrong)]).unwrap().variables().unwrap_err();
            assert_eq!(refusal.code, "bad_settings");
            assert!(refusal.message.contains("Callsign-Settings"), "{}", refusal.message);
        }
        let twice = take(&[("callsign-settings", &settings), ("callsign-settings", &settings)]).unwrap();
        assert!(twice.variables().is_err());
    }

    #[test]
    fn what_a_client_says_of_itself_has_a_cap() {
        let meta = |value: Value| {
            let Value::Object(map) = value else { panic!("an object") };
            RequestMetaObject(MetaObject(map))
        };
        let identity = json!({ "host": "codex", "trust": "host", "source": "meta" });
        let said = asked_by(&meta(json!({ IDENTITY: identity, "other": 1 })), None).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!({ "identity": identity }));
        assert_eq!(asked_by(&meta(json!({ IDENTITY: "me" })), None), None);

        let client = Implementation::new("inspector", "2");
        let opening = Opening::new(&client, &meta(json!({ ASSERTION: "a.b.c", "x": "y" })));
        let said = asked_by(&meta(json!({})), Some(&opening)).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["initialize"], json!({ "x": "y" }));

        let opening = Opening::new(&client, &meta(json!({ "x": "y".repeat(20 << 10) })));
        let said = asked_by(&meta(json!({})), Some(&opening)).unwrap();
        let expected = json!({
            "client": { "name": "inspector", "version": "2" },
            "initialize": { "left_out": "longer than 16 KiB" },
        });
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), expected);
    }
}
