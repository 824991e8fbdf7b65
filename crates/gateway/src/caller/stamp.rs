//! What a server is told of one request, ready to be put where it belongs.

use std::sync::Arc;

use identity::Told;
use identity::assertion::{About, SignError, Signer};
use identity::names::META_ASSERTION;
use identity::projection::write_string;
use mcp::splice::Edit;
use mcp::{Message, headers};
use model::{Id, Trust};

use super::{Caller, Identification};
use crate::respond::CallError;
use crate::traced::Traced;

pub struct Stamp {
    pub caller: Arc<Caller>,
    /// The tool's or prompt's name, or the uri.
    pub tool: Option<Box<str>>,
    pub assertion: Option<String>,
    /// Members of `_meta`, as JSON without the braces.
    pub members: Vec<u8>,
    /// The configured headers as hooks left them. None: they are as they are configured.
    pub configured: Option<Arc<hooks::Pairs>>,
}

/// Headers hold secrets.
impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stamp")
            .field("caller", &self.caller)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

impl Identification {
    /// Signs and writes down who makes the request `message`, which must be as it will be sent.
    pub fn stamp(
        &self,
        caller: &Arc<Caller>,
        server: &str,
        message: &Message,
        configured: Option<Arc<hooks::Pairs>>,
    ) -> Result<Arc<Stamp>, CallError> {
        let name = headers::mirrored_name(message);
        let told = Told {
            identity: &caller.identity,
            call: call_of(caller),
            workspace: caller.workspace.as_deref(),
            server,
            tool: name.as_deref(),
        };
        let mut members = Vec::with_capacity(1024);
        told.write_meta(&mut members);
        let assertion = self.assertion(caller, server, message, name.as_deref())?;
        if let Some(assertion) = &assertion {
            members.extend_from_slice(b",\"");
            members.extend_from_slice(META_ASSERTION.as_bytes());
            members.extend_from_slice(b"\":\"");
            members.extend_from_slice(assertion.as_bytes());
            members.push(b'"');
        }
        if let Some(trace) = &caller.trace {
            trace.write_meta(message, &mut members);
        }
        if message.method() == "initialize"
            && let Some(workspace) = &caller.workspace
            && !message.meta().is_some_and(announces_a_workspace)
        {
            members.extend_from_slice(br#","orbit":{"workspace":"#);
            write_string(&mut members, workspace);
            members.push(b'}');
        }
        let tool = name.as_deref().map(Into::into);
        Ok(Arc::new(Stamp { caller: Arc::clone(caller), tool, assertion, members, configured }))
    }

    fn assertion(
        &self,
        caller: &Caller,
        server: &str,
        message: &Message,
        name: Option<&str>,
    ) -> Result<Option<String>, CallError> {
        let Some(signer) = self.signer.as_ref().filter(|_| caller.identity.trust > Trust::None) else {
            return Ok(None);
        };
        let arguments = message.head().arguments.clone().map(|span| &message.bytes()[span]);
        let call = call_of(caller).as_str();
        let about = About { server, method: message.method(), name, call, arguments };
        let now = (self.clock)();
        look_for_new_keys(signer, now);
        match signer.sign(&caller.identity, &about, now) {
            Ok(token) => Ok(Some(token)),
            Err(SignError::Arguments(why)) => Err(CallError::Unsignable(why.to_string())),
            Err(error @ (SignError::Nobody | SignError::TooLong | SignError::Random(_))) => {
                Err(CallError::Unsignable(error.to_string()))
            }
        }
    }
}

/// Takes notice of a rotation.
pub(super) fn look_for_new_keys(signer: &Signer, now_ms: u64) {
    if let Err(error) = signer.keys().refresh_if_changed(now_ms / 1000) {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "the keys that were read before are used on");
    }
}

impl Stamp {
    /// The message as the server gets it.
    pub fn put_into(&self, message: &Message) -> bytes::Bytes {
        match self.edit(message) {
            Some((span, with)) => message.with(&mut [Edit { span, with: &with }]),
            None => message.bytes().clone(),
        }
    }

    /// The one change that puts it there.
    pub fn edit(&self, message: &Message) -> Option<(mcp::Span, Vec<u8>)> {
        let place = message.place_in_meta()?;
        let mut with = Vec::with_capacity(self.members.len() + 32);
        with.extend_from_slice(place.before.as_bytes());
        with.extend_from_slice(&self.members);
        with.extend_from_slice(place.after.as_bytes());
        Some((place.at, with))
    }

    /// Where it stands in a trace, in headers.
    pub fn traced(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.caller.trace.iter().flat_map(Traced::headers)
    }

    /// The same in headers.
    pub fn headers<'a>(&'a self, server: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        let told = Told {
            identity: &self.caller.identity,
            call: call_of(&self.caller),
            workspace: self.caller.workspace.as_deref(),
            server,
            tool: self.tool.as_deref(),
        };
        told.headers()
            .chain(self.assertion.as_deref().map(|token| (identity::names::HEADER_ASSERTION, token)))
    }
}

/// It is there for every caller that was found out.
fn call_of(caller: &Caller) -> &Id {
    static NOBODY: std::sync::LazyLock<Id> = std::sync::LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "a literal that is an id")]
        Id::new("callsign").expect("a literal that is an id")
    });
    caller.identity.call.as_ref().unwrap_or(&NOBODY)
}

fn announces_a_workspace(meta: &[u8]) -> bool {
    identity::evidence::Keys::read(Some(meta)).workspace().is_some()
        || memchr::memmem::find(meta, br#""orbit""#).is_some()
}
