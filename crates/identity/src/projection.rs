//! How a server is told who calls: `_meta`, headers, environment.

use std::borrow::Cow;

use model::identity::{Identity, Trust};
use model::{Id, Placeholder};

use crate::adapters::{self, Adapter, PROBE};
use crate::names;

/// One call, as its server is told of it.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    pub identity: &'a Identity,
    /// The host's own id of the call, or ours.
    pub call: &'a Id,
    /// Resolved and allowed.
    pub workspace: Option<&'a str>,
    pub server: &'a str,
    /// The tool's or prompt's name, or the uri.
    pub tool: Option<&'a str>,
}

impl<'a> Told<'a> {
    /// Writes `"dev.callsign/identity":{…}`.
    pub fn write_meta(&self, out: &mut Vec<u8>) {
        let identity = self.identity;
        let fields: [(&str, Option<&str>); 13] = [
            ("host", as_text(identity.host.as_ref())),
            ("session", as_text(identity.session.as_ref())),
            ("thread", as_text(identity.thread.as_ref())),
            ("parent", as_text(identity.parent.as_ref())),
            ("run", as_text(identity.run.as_ref())),
            ("turn", as_text(identity.turn.as_ref())),
            ("call", Some(self.call.as_str())),
            ("title", identity.title.as_deref()),
            ("workspace", self.workspace),
            ("server", Some(self.server)),
            ("tool", self.tool),
            ("trust", Some(identity.trust.as_str())),
            ("source", Some(identity.source.as_str())),
        ];
        out.extend_from_slice(b"\"");
        out.extend_from_slice(names::META_IDENTITY.as_bytes());
        out.extend_from_slice(b"\":{");
        let mut first = true;
        for (name, value) in fields {
            let Some(value) = value else { continue };
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            write_string(out, value);
        }
        out.push(b'}');
    }

    /// The headers of a request, without the assertion.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        let identity = self.identity;
        let somebody = identity.trust > Trust::None;
        [
            (names::HEADER_HOST, as_text(identity.host.as_ref())),
            (names::HEADER_SESSION, as_text(identity.session.as_ref())),
            (names::HEADER_THREAD, as_text(identity.thread.as_ref())),
            (names::HEADER_PARENT, as_text(identity.parent.as_ref())),
            (names::HEADER_CALL, Some(self.call.as_str())),
            (names::HEADER_WORKSPACE, self.workspace),
        ]
        .into_iter()
        .filter(move |(name, _)| somebody || *name == names::HEADER_CALL || *name == names::HEADER_WORKSPACE)
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

/// Writes a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    let plain = text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Into memory, and a string always serializes.
        let _infallible = serde_json::to_writer(out, text);
    }
}

fn as_text(id: Option<&Id>) -> Option<&str> {
    id.map(Id::as_str)
}

/// What a placeholder stands for, as far as the caller decides it.
pub fn value<'a>(
    identity: &'a Identity,
    workspace: Option<&'a str>,
    placeholder: Placeholder,
) -> Option<&'a str> {
    match placeholder {
        Placeholder::SessionId => as_text(identity.session.as_ref()),
        Placeholder::SessionTitle => identity.title.as_deref(),
        Placeholder::ThreadId => as_text(identity.thread.as_ref()),
        Placeholder::ParentId => as_text(identity.parent.as_ref()),
        Placeholder::TurnId => as_text(identity.turn.as_ref()),
        Placeholder::CallId => as_text(identity.call.as_ref()),
        Placeholder::Host => as_text(identity.host.as_ref()),
        Placeholder::RunId => as_text(identity.run.as_ref()),
        Placeholder::Workspace => workspace,
        Placeholder::Server | Placeholder::Tool | Placeholder::User => None,
    }
}

/// The variables every server gets, with what each stands for.
pub const VARIABLES: [(&str, Placeholder); 6] = [
    ("CALLSIGN_HOST", Placeholder::Host),
    ("CALLSIGN_SESSION_ID", Placeholder::SessionId),
    ("CALLSIGN_THREAD_ID", Placeholder::ThreadId),
    ("CALLSIGN_PARENT_ID", Placeholder::ParentId),
    ("CALLSIGN_SESSION_TITLE", Placeholder::SessionTitle),
    ("CALLSIGN_WORKSPACE", Placeholder::Workspace),
];

/// The environment of a process that serves this caller alone: absent when unknown, never empty.
pub fn variables<'a>(
    identity: &'a Identity,
    workspace: Option<&'a str>,
) -> Vec<(&'static str, Cow<'a, str>)> {
    let adapter = identity.host.as_ref().and_then(|host| adapters::by_name(host.as_str()));
    all_variables(adapter)
        .filter_map(|(name, placeholder)| {
            Some((name, Cow::Borrowed(value(identity, workspace, placeholder)?)))
        })
        .collect()
}

/// The same names for a process that answers discovery only, with values that are nobody's.
pub fn probe_variables(adapter: Option<&'static Adapter>) -> Vec<(&'static str, &'static str)> {
    let own = adapter.map_or(PROBE, |adapter| adapter.probe);
    let ours = VARIABLES.iter().map(|(name, _)| (*name, PROBE));
    let hosts = adapter.into_iter().flat_map(|adapter| adapter.variables).map(|(name, _)| (*name, own));
    ours.chain(hosts).collect()
}

fn all_variables(adapter: Option<&'static Adapter>) -> impl Iterator<Item = (&'static str, Placeholder)> {
    VARIABLES.into_iter().chain(adapter.into_iter().flat_map(|adapter| adapter.variables.iter().copied()))
}

/// What a variable of this name holds while it is not known who calls.
pub fn probe_value(name: &str) -> &'static str {
    if name.starts_with("CODEX_") {
        adapters::by_name("codex").map_or(PROBE, |codex| codex.probe)
    } else {
        PROBE
    }
}
