//! A host that the configuration describes.

use std::borrow::Cow;
use std::fmt;

use model::host::{HostSpec, Place};
use model::{Id, Placeholder};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::evidence::{Claim, Evidence, Headers, text, title};

pub(super) fn names_somebody(host: &HostSpec, evidence: &Evidence<'_>) -> bool {
    let by_header = || evidence.headers.is_some_and(|all| headers(host, all).names_somebody());
    meta(host, evidence).names_somebody() || by_header()
}

pub(super) fn meta(host: &HostSpec, evidence: &Evidence<'_>) -> Claim {
    let members: Members<'_> =
        evidence.meta.and_then(|meta| serde_json::from_slice(meta).ok()).unwrap_or_default();
    claim(host, &|place| match place {
        Place::Meta(key) => text(members.only(key)).map(Cow::into_owned),
        Place::Header(_) => None,
    })
}

pub(super) fn headers(host: &HostSpec, headers: &dyn Headers) -> Claim {
    claim(host, &|place| match place {
        Place::Header(name) => headers.header(name).map(Cow::into_owned),
        Place::Meta(_) => None,
    })
}

fn claim(host: &HostSpec, value: &dyn Fn(&Place) -> Option<String>) -> Claim {
    let mut claim = Claim::default();
    for (field, place) in &host.fields {
        let Some(said) = value(place) else { continue };
        let id = || Id::new(said.clone()).ok();
        match field {
            Placeholder::SessionId => claim.session = id(),
            Placeholder::ThreadId => claim.thread = id(),
            Placeholder::ParentId => claim.parent = id(),
            Placeholder::TurnId => claim.turn = id(),
            Placeholder::CallId => claim.call = id(),
            Placeholder::RunId => claim.run = id(),
            Placeholder::SessionTitle => claim.title = title(&said),
            Placeholder::Workspace => claim.workspace = Some(said.into()),
            Placeholder::Host | Placeholder::Server | Placeholder::Tool | Placeholder::User => {}
        }
    }
    claim
}

/// Every member of an object, those that stand there twice included.
#[derive(Default)]
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// None where it stands there twice: another reader may take the other one.
    fn only(&self, key: &str) -> Option<&'a RawValue> {
        let mut all = self.0.iter().filter(|(name, _)| name == key);
        let first = all.next()?;
        all.next().is_none().then_some(first.1)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
