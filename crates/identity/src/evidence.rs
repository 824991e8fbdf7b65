//! What arrived with a request, and what it says, before anybody believes it.

use std::borrow::Cow;
use std::sync::Arc;

use model::identity::{Id, Identity, Source, Trust, check_title};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bound::Bound;

/// How the request came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A pipe that the host made for us.
    Pipe,
    /// HTTP, from a caller who shows a token. `local`: the token of the user we run as.
    Token { local: bool },
    /// HTTP, from whoever reaches the socket.
    Open,
    /// A socket that is one session's alone.
    Bound(Arc<Bound>),
}

impl Channel {
    /// What the host's own words on this channel are worth.
    pub fn trust_in_metadata(&self) -> Trust {
        match self {
            Self::Pipe | Self::Token { .. } | Self::Bound(_) => Trust::Host,
            Self::Open => Trust::Declared,
        }
    }

    /// Whether the caller is a program of the user we run as.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Pipe | Self::Token { local: true })
    }

    /// Whether it is this very one, where it is one session's; else whether it is of this kind.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bound(one), Self::Bound(other)) => Arc::ptr_eq(one, other),
            (one, other) => one == other,
        }
    }

    /// The session whose channel it is. What one session was given on its channel is of no use on another's.
    pub fn bound_to(&self) -> Option<&Id> {
        match self {
            Self::Bound(bound) => Some(&bound.session),
            Self::Pipe | Self::Token { .. } | Self::Open => None,
        }
    }
}

/// Headers of a request. One that stands there twice with different values has no value.
pub trait Headers {
    fn header(&self, name: &str) -> Option<Cow<'_, str>>;
}

/// Everything one request says about its caller.
#[derive(Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// `params._meta` as it is written.
    pub meta: Option<&'a [u8]>,
    pub headers: Option<&'a dyn Headers>,
    /// The value of the reserved argument.
    pub seal: Option<&'a str>,
    /// The tool's name.
    pub tool: Option<&'a str>,
    pub now_ms: u64,
}

impl std::fmt::Debug for Evidence<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evidence")
            .field("tool", &self.tool)
            .field("sealed", &self.seal.is_some())
            .finish_non_exhaustive()
    }
}

/// What somebody says of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    pub session: Option<Id>,
    pub thread: Option<Id>,
    pub parent: Option<Id>,
    pub run: Option<Id>,
    pub turn: Option<Id>,
    pub call: Option<Id>,
    pub title: Option<Box<str>>,
    /// As it was said: a selector, not a path to trust.
    pub workspace: Option<Box<str>>,
}

impl Claim {
    pub fn names_somebody(&self) -> bool {
        self.session.is_some() || self.thread.is_some()
    }

    /// Whether two claims can be about the same caller.
    pub fn agrees_with(&self, identity: &Identity) -> bool {
        let same = |mine: &Option<Id>, other: &Option<Id>| mine.is_none() || other.is_none() || mine == other;
        same(&self.session, &identity.session) || same(&self.session, &identity.thread)
    }

    /// Session and thread stand in for one another.
    pub fn into_identity(self, host: &str, trust: Trust, source: Source) -> Identity {
        let Self { session, thread, parent, run, turn, call, title, workspace: _ } = self;
        let session = session.or_else(|| thread.clone());
        let thread = thread.or_else(|| session.clone());
        // Nobody is their own parent.
        let parent = parent.filter(|parent| Some(parent) != thread.as_ref());
        Identity { host: Id::new(host).ok(), session, thread, parent, run, turn, call, title, trust, source }
    }
}

/// The keys of `params._meta` that any host we know says something with. Read in one pass.
///
/// A key that stands there twice makes all of it worthless: another reader may take the other one.
#[derive(Debug, Default, Deserialize)]
pub struct Keys<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientInfo")]
    client: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "threadId")]
    pub(crate) codex_thread: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "sessionId")]
    pub(crate) codex_session: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "callId")]
    pub(crate) codex_call: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "x-codex-turn-metadata")]
    pub(crate) codex_turn: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "codex/sandbox-state")]
    pub(crate) codex_sandbox: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "codex/sandbox-state-meta")]
    pub(crate) codex_sandbox_meta: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "sessionID")]
    pub(crate) opencode_session: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "claudecode/toolUseId")]
    pub(crate) claude_tool_use: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "agent-session-id")]
    pub(crate) goose_session: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "agent-working-dir")]
    pub(crate) goose_directory: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "vscode.conversationId")]
    pub(crate) vscode_conversation: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "vscode.requestId")]
    pub(crate) vscode_request: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "openai/session")]
    pub(crate) chatgpt_session: Option<&'a RawValue>,
    #[serde(borrow, default)]
    orbit: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "orbit.workspace")]
    orbit_workspace: Option<&'a RawValue>,
}

impl<'a> Keys<'a> {
    pub fn read(meta: Option<&'a [u8]>) -> Self {
        meta.and_then(|meta| serde_json::from_slice(meta).ok()).unwrap_or_default()
    }

    /// The name of the client, where a request says it itself.
    pub fn client(&self) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Client<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
        }
        serde_json::from_str::<Client<'a>>(self.client?.get()).ok().map(|client| client.name)
    }

    /// The workspace the request announces, nested or flat.
    pub fn workspace(&self) -> Option<Box<str>> {
        #[derive(Deserialize)]
        struct Orbit<'a> {
            #[serde(borrow)]
            workspace: Option<Cow<'a, str>>,
        }
        let nested = || {
            let orbit: Orbit<'_> = serde_json::from_str(self.orbit?.get()).ok()?;
            orbit.workspace
        };
        let said = nested().or_else(|| text(self.orbit_workspace))?;
        let said = said.trim();
        (!said.is_empty()).then(|| said.into())
    }
}

/// A string.
pub(crate) fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw?.get()).ok().map(|text| text.0)
}

/// A string that is an id.
pub(crate) fn id(raw: Option<&RawValue>) -> Option<Id> {
    Id::new(text(raw)?.into_owned()).ok()
}

/// A string that is a title.
pub(crate) fn title(said: &str) -> Option<Box<str>> {
    check_title(said).map(Into::into)
}
