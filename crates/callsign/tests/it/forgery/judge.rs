//! Reads a server's own log and looks for our names in it. It shares no code with what removes them.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::cases::{EVIL, SEALED, THREADS, Who};

/// JSON in which nothing that stands there twice is lost.
#[derive(Debug)]
enum Json {
    Object(Vec<(String, Self)>),
    List(Vec<Self>),
    Other,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Json::Object(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Json::List(items))
            }

            fn visit_str<E>(self, _: &str) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
                Ok(Json::Other)
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Other)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl Json {
    fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        let members = match self {
            Self::Object(members) => members.as_slice(),
            Self::List(_) | Self::Other => &[],
        };
        members.iter().filter(move |(other, _)| other == name).map(|(_, value)| value)
    }

    /// Where members under names of ours lie, as `params/_meta/…`.
    fn ours(&self, path: &str, found: &mut Vec<String>) {
        match self {
            Self::Object(members) => {
                for (name, value) in members {
                    let path = format!("{path}/{name}");
                    if is_ours(name, path.starts_with("/params/_meta/")) {
                        found.push(path.clone());
                    }
                    value.ours(&path, found);
                }
            }
            Self::List(items) => items.iter().for_each(|item| item.ours(path, found)),
            Self::Other => {}
        }
    }
}

/// What a careless reader takes a name for.
fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace('\u{17f}', "s").replace('_', "-")
}

fn is_ours(name: &str, in_meta: bool) -> bool {
    let name = plain(name);
    let rest = name.strip_prefix("dev.callsign");
    let key = rest.is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_alphanumeric()));
    key || name == "--callsign" || in_meta && name.starts_with("callsign-")
}

/// What one lane's server saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How often each case arrived.
    pub(super) arrived: HashMap<usize, usize>,
    pub(super) wrong: Vec<String>,
}

/// Judges every record of a log. `server`: what we call the one whose log it is.
pub(super) fn judge(records: &[Value], server: &str, expected: &HashMap<usize, Who>) -> Seen {
    let mut seen = Seen::default();
    for record in records {
        let text = record.to_string();
        if text.contains(EVIL) {
            seen.wrong.push(format!("a forged value arrived: {text}"));
        }
        let Some(raw) = record["raw"].as_str().filter(|raw| !raw.is_empty()) else { continue };
        match message(record, raw, server, expected) {
            Ok(Some(case)) => *seen.arrived.entry(case).or_default() += 1,
            Ok(None) => {}
            Err(why) => seen.wrong.push(format!("{why}: {text}")),
        }
    }
    seen
}

/// The number of its case, if it is one.
fn message(
    record: &Value,
    raw: &str,
    server: &str,
    expected: &HashMap<usize, Who>,
) -> Result<Option<usize>, String> {
    let json: Json = serde_json::from_str(raw).map_err(|error| format!("not JSON ({error})"))?;
    let value: Value = serde_json::from_str(raw).map_err(|error| format!("not JSON ({error})"))?;
    let is_request = value.get("id").is_some() && value.get("method").is_some();
    let mut found = Vec::new();
    json.ours("", &mut found);
    found.sort();
    let told = &value["params"]["_meta"]["dev.callsign/identity"];
    let is_somebody = told["trust"] != "none";
    let mut allowed: Vec<&str> = Vec::new();
    if is_request && is_somebody {
        allowed.push("/params/_meta/dev.callsign/assertion");
    }
    if is_request {
        allowed.push("/params/_meta/dev.callsign/identity");
    }
    if found != allowed {
        return Err(format!("under our names stand {found:?}"));
    }
    if json.members("params").count() > 1 {
        return Err("two sets of parameters".to_owned());
    }
    headers(record, told, is_request)?;
    if is_request && told["server"] != server {
        return Err(format!("told of the server {}", told["server"]));
    }
    let case = value["params"]["case"].as_u64().and_then(|case| usize::try_from(case).ok());
    let Some((case, who)) = case.and_then(|case| Some((case, *expected.get(&case)?))) else {
        return Ok(None);
    };
    let is_nobody = !is_somebody && told.get("session").is_none() && told.get("thread").is_none();
    let is_one_of_ours = || THREADS.iter().chain([&SEALED]).any(|thread| told["thread"] == *thread);
    let right = match who {
        Who::Thread(host, thread) => {
            told["thread"] == thread
                && told["session"] == thread
                && told["host"] == host
                && told["trust"] == "host"
        }
        Who::Nobody => is_nobody,
        Who::Anybody => is_nobody || is_one_of_ours(),
        Who::NotAsked => !is_request,
    };
    if right { Ok(Some(case)) } else { Err(format!("it was {who:?}, told was {told}")) }
}

/// Over HTTP each header of ours is there once, and says what `_meta` says.
fn headers(record: &Value, told: &Value, is_request: bool) -> Result<(), String> {
    if record["event"] != "request" {
        return Ok(());
    }
    let pairs = record["headers"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found: Vec<(String, String)> = pairs
        .iter()
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .filter(|(name, _)| plain(name).starts_with("callsign"))
        .collect();
    found.sort();
    let is_somebody = told["trust"] != "none";
    let meta = &record["raw"].as_str().map(|raw| serde_json::from_str::<Value>(raw).unwrap_or_default());
    let assertion = meta.as_ref().map(|message| text(&message["params"]["_meta"]["dev.callsign/assertion"]));
    let mut expected: Vec<(String, String)> = Vec::new();
    if is_request {
        expected.push(("callsign-call".to_owned(), text(&told["call"])));
    }
    if is_request && is_somebody {
        expected.push(("callsign-assertion".to_owned(), assertion.unwrap_or_default()));
        for field in ["host", "session", "thread"] {
            expected.push((format!("callsign-{field}"), text(&told[field])));
        }
    }
    expected.sort();
    if found == expected { Ok(()) } else { Err(format!("headers {found:?}, expected {expected:?}")) }
}
