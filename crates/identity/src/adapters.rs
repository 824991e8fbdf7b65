//! The hosts we know: which client is which, and how each says who calls. One file a host.
//!
//! `clientInfo` chooses a parser and proves nothing. A client that names none of them is looked at for the keys
//! that only one host uses.

mod chatgpt;
mod claude_code;
mod codex;
mod configured;
mod goose;
mod librechat;
mod opencode;
mod openhands;
mod openwebui;
mod vscode;

use model::Placeholder;
use model::host::HostSpec;

use crate::evidence::{Claim, Evidence, Headers, Keys};

/// How one host says who calls.
#[derive(Debug)]
pub struct Adapter {
    /// What `host` says.
    pub name: &'static str,
    /// Whether a client of this name is this host.
    client: fn(&str) -> bool,
    /// What a call's own `_meta` says.
    meta: fn(&Keys<'_>) -> Claim,
    /// What headers say.
    headers: fn(&dyn Headers) -> Claim,
    /// The variable in which the host names its session when it starts us, for all that follows.
    pub inherited: Option<&'static str>,
    /// The host's own names in a server's environment.
    pub variables: &'static [(&'static str, Placeholder)],
    /// What such a variable holds while it is not known who calls.
    pub probe: &'static str,
}

/// What a variable holds in a process that answers discovery only.
pub const PROBE: &str = "callsign-probe";

/// A box of ours: OpenCode in it, known by the socket it calls through.
pub const BOX: &str = "callsign";

static ADAPTERS: [&Adapter; 9] = [
    &opencode::ADAPTER,
    &codex::ADAPTER,
    &claude_code::ADAPTER,
    &goose::ADAPTER,
    &vscode::ADAPTER,
    &chatgpt::ADAPTER,
    &openwebui::ADAPTER,
    &openhands::ADAPTER,
    &librechat::ADAPTER,
];

/// The names of the hosts we know.
pub fn names() -> impl Iterator<Item = &'static str> {
    ADAPTERS.iter().map(|adapter| adapter.name).chain([BOX])
}

pub fn by_name(name: &str) -> Option<&'static Adapter> {
    let name = if name == BOX { opencode::ADAPTER.name } else { name };
    ADAPTERS.into_iter().find(|adapter| adapter.name == name)
}

/// A parser, chosen for a client.
#[derive(Debug, Clone, Copy)]
pub enum Chosen<'a> {
    Known(&'static Adapter),
    Configured(&'a HostSpec),
}

/// The parser for a client that says its name. A description in the configuration comes first: it was written for
/// this machine.
pub fn by_client<'a>(client: &str, configured: &'a [HostSpec]) -> Option<Chosen<'a>> {
    let described = configured.iter().find(|host| host.client.as_deref() == Some(client));
    let known = || ADAPTERS.into_iter().find(|adapter| (adapter.client)(client));
    described.map(Chosen::Configured).or_else(|| known().map(Chosen::Known))
}

/// The parser whose own keys are there.
pub fn by_keys<'a>(
    keys: &Keys<'_>,
    evidence: &Evidence<'_>,
    configured: &'a [HostSpec],
) -> Option<Chosen<'a>> {
    let says_something = |adapter: &&Adapter| {
        let claim = (adapter.meta)(keys);
        let by_header =
            || evidence.headers.is_some_and(|headers| (adapter.headers)(headers).names_somebody());
        claim.names_somebody() || claim.call.is_some() || by_header()
    };
    let described = configured
        .iter()
        .filter(|host| host.client.is_none())
        .find(|host| configured::names_somebody(host, evidence));
    let known = || ADAPTERS.into_iter().find(says_something);
    described.map(Chosen::Configured).or_else(|| known().map(Chosen::Known))
}

impl Chosen<'_> {
    pub fn name(&self) -> &str {
        match self {
            Self::Known(adapter) => adapter.name,
            Self::Configured(host) => host.name.as_str(),
        }
    }

    pub fn meta(&self, keys: &Keys<'_>, evidence: &Evidence<'_>) -> Claim {
        match self {
            Self::Known(adapter) => (adapter.meta)(keys),
            Self::Configured(host) => configured::meta(host, evidence),
        }
    }

    pub fn headers(&self, evidence: &Evidence<'_>) -> Claim {
        match (self, evidence.headers) {
            (_, None) => Claim::default(),
            (Self::Known(adapter), Some(headers)) => (adapter.headers)(headers),
            (Self::Configured(host), Some(headers)) => configured::headers(host, headers),
        }
    }

    pub fn known(&self) -> Option<&'static Adapter> {
        match self {
            Self::Known(adapter) => Some(adapter),
            Self::Configured(_) => None,
        }
    }
}

fn no_client(_: &str) -> bool {
    false
}

fn no_meta(_: &Keys<'_>) -> Claim {
    Claim::default()
}

fn no_headers(_: &dyn Headers) -> Claim {
    Claim::default()
}

/// The id in a header, if it is one.
fn id_header(headers: &dyn Headers, name: &str) -> Option<model::Id> {
    headers.header(name).and_then(|value| model::Id::new(value.into_owned()).ok())
}
