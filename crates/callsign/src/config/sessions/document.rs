//! What is kept with a session of the variables that came with it.
//!
//! Kept is what they say, not what came out: a file that is put right holds for sessions that were there before, and
//! what its owner forbids later is forbidden to all. What a session may reach is kept as well, so that nothing it was
//! not made for is opened to it later.

use std::collections::BTreeMap;

use model::settings::{Egress, Provider, Secret, SessionSettings};
use serde::{Deserialize, Serialize};

use super::variables::{PROVIDER, SECRETS, Variables};

/// Variables that were found to be right, without the key. To be kept as JSON; the key goes elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    variables: BTreeMap<String, String>,
    /// The variable whose value is kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// None: made before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reach: Option<Reach>,
}

/// What a session was made to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reach {
    egress: Written,
    mcp_servers: Vec<String>,
}

/// As a configuration writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Written {
    None,
    Hosts(Vec<String>),
    Open,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadDocument {
    #[error("the settings kept with the session make no sense")]
    Garbled(#[source] serde_json::Error),
    #[error("the settings kept with the session hold {0}, which is kept apart")]
    KeyInside(&'static str),
    #[error("the settings kept with the session name {0} for its key, which is none")]
    NoKey(String),
    #[error("the key of the session, {0}, is not there any more")]
    KeyGone(&'static str),
    #[error("there is a key for a session that has none")]
    KeyLeft,
}

impl Document {
    pub(super) fn new(variables: BTreeMap<&'static str, String>, key: Option<&'static str>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { variables, key: key.map(str::to_owned), reach: None }
    }

    /// With what a session of these settings may reach.
    #[must_use]
    pub fn reaching(self, settings: &SessionSettings) -> Self {
        let egress = match &settings.egress {
            Egress::None => Written::None,
            Egress::Hosts(hosts) => Written::Hosts(hosts.clone()),
            Egress::Open => Written::Open,
        };
        let mcp_servers = settings.mcp_servers.iter().map(ToString::to_string).collect();
        Self { reach: Some(Reach { egress, mcp_servers }), ..self }
    }

    /// Settings of now, without what the session was not made to reach.
    #[must_use]
    pub fn within_reach(&self, mut settings: SessionSettings) -> SessionSettings {
        let Some(Reach { egress, mcp_servers }) = &self.reach else { return settings };
        let egress = match egress {
            Written::None => Egress::None,
            Written::Hosts(hosts) => Egress::Hosts(hosts.clone()),
            Written::Open => Egress::Open,
        };
        settings.egress = settings.egress.and(&egress);
        settings.mcp_servers.retain(|name| mcp_servers.iter().any(|kept| kept == name.as_str()));
        settings
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    pub fn from_json(text: &str) -> Result<Self, BadDocument> {
        serde_json::from_str(text).map_err(BadDocument::Garbled)
    }

    /// The provider that is named; None: the configuration's.
    pub fn provider(&self) -> Option<Provider> {
        self.variables.get(PROVIDER).and_then(|name| Provider::parse(name))
    }

    /// Whether a key is kept apart.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The variables again. They are checked when they are resolved, as they were the first time.
    pub fn variables(&self, key: Option<&Secret>) -> Result<Variables, BadDocument> {
        let inside = SECRETS.into_iter().find(|name| self.variables.contains_key(*name));
        if let Some(name) = inside {
            return Err(BadDocument::KeyInside(name));
        }
        let named = match &self.key {
            None => None,
            Some(name) => {
                let known = SECRETS.into_iter().find(|secret| secret == name);
                Some(known.ok_or_else(|| BadDocument::NoKey(name.escape_debug().to_string()))?)
            }
        };
        let apart = match (named, key) {
            (None, None) => None,
            (Some(name), Some(key)) => Some((name.to_owned(), key.expose().to_owned())),
            (Some(name), None) => return Err(BadDocument::KeyGone(name)),
            (None, Some(_)) => return Err(BadDocument::KeyLeft),
        };
        Ok(Variables::new(self.variables.clone().into_iter().chain(apart)))
    }
}

#[cfg(test)]
mod tests {
    use model::ServerName;

    use super::*;

    #[test]
    fn nothing_is_reached_that_a_session_was_not_made_for() {
        let hosts = |hosts: &[&str]| Egress::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        let settings = |egress: &Egress, servers: &[&str]| SessionSettings {
            egress: egress.clone(),
            mcp_servers: servers.iter().map(|name| ServerName::new(*name).unwrap()).collect(),
            ..SessionSettings::default()
        };
        let (ab, bc) = (hosts(&["a", "b"]), hosts(&["b", "c"]));
        for (made, now, expected) in [
            (&Egress::None, &Egress::Open, &Egress::None),
            (&Egress::Open, &Egress::None, &Egress::None),
            (&Egress::Open, &ab, &ab),
            (&ab, &Egress::Open, &ab),
            (&ab, &bc, &hosts(&["b"])),
            (&ab, &hosts(&["c"]), &Egress::None),
        ] {
            let kept = Document::default().reaching(&settings(made, &["x", "y"])).to_json().unwrap();
            let kept = Document::from_json(&kept).unwrap();
            assert_eq!(kept.within_reach(settings(now, &["y", "z"])), settings(expected, &["y"]));
        }
        let old = Document::from_json(r#"{"variables":{}}"#).unwrap();
        assert_eq!(old.within_reach(settings(&bc, &["z"])), settings(&bc, &["z"]));
    }
}
