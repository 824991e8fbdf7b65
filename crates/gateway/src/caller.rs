//! Who makes a request: found out once, before anything is routed, and never changed.
//!
//! ```text
//! Message ─ strip ─ Resolver ─ workspace ─ require ─→ Call { message, caller } ─ stamp ─→ what the server is told
//! ```

mod stamp;
mod workspaces;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::HeaderMap;
use identity::{Channel, Evidence, Headers, Resolver, Standing};
use mcp::{Kind, Message, meta};
use model::{Id, Identity, Placeholder, Principal, Trust};
use serde::Deserialize;

use crate::connection::Connection;
use crate::ending::Ending;
use crate::environment::HostEnvironment;
use crate::hooked::Hooked;
use crate::rate::Rate;
use crate::recorded::{MOST_FORGED, Record, is_noted};
use crate::respond::CallError;
use crate::strip::strip;
use crate::traced::{self, Traced};

pub use stamp::Stamp;
pub use workspaces::Workspaces;

/// Lines about what was forged: who forges can do so all day. All is in the ledger.
pub(crate) static FORGED: Rate = Rate::new("requests with something under our names");

/// What is needed to find out who calls, and to say so. One for all servers.
pub struct Identification {
    pub resolver: Resolver,
    pub workspaces: Workspaces,
    /// None: the state directory cannot be used, so nothing is signed.
    pub signer: Option<identity::assertion::Signer>,
    /// Where servers find the public keys.
    pub jwks_file: Option<PathBuf>,
    pub host: Arc<HostEnvironment>,
    /// Unix milliseconds.
    pub clock: fn() -> u64,
    /// What our own ids of calls begin with, different in every process.
    pub call_prefix: String,
    /// Calls get spans of their own.
    pub exports_spans: bool,
}

/// Who makes a request.
#[derive(Debug)]
pub struct Caller {
    /// Its `call` is always there: the host's own id of the call, or ours.
    pub identity: Identity,
    pub principal: Principal,
    /// Resolved, and beneath an allowed root.
    pub workspace: Option<Box<str>>,
    /// Why the workspace that was named is not used.
    pub workspace_refused: Option<String>,
    /// What was forged, and removed.
    pub spoof: Vec<Cow<'static, str>>,
    /// Where the call stands in a trace.
    pub trace: Option<Traced>,
}

/// A request, and who makes it.
#[derive(Debug, Clone)]
pub struct Call {
    pub message: Message,
    pub caller: Arc<Caller>,
    /// None: no hook has seen it.
    pub hooked: Option<Arc<Hooked>>,
    /// None: it is not noted.
    pub record: Option<Arc<Record>>,
}

impl Call {
    pub fn new(message: Message, caller: Arc<Caller>) -> Self {
        Self { message, caller, hooked: None, record: None }
    }

    /// The configured headers as hooks left them.
    pub fn headers(&self) -> Option<Arc<hooks::Pairs>> {
        self.hooked.as_ref().and_then(|hooked| hooked.headers.clone())
    }

    /// What hooks want of the environment of a process that is started for it.
    pub fn env(&self) -> &[(String, String)] {
        self.hooked.as_ref().map_or(&[], |hooked| &hooked.env)
    }

    /// What an answer would stand for: what the client asked, whatever hooks made of it.
    pub fn question(&self) -> Option<bytes::Bytes> {
        match &self.hooked {
            Some(hooked) => hooked.question.clone(),
            None => crate::call::stand_in_question(&self.message),
        }
    }

    /// What is done once it has its answer.
    pub fn ending(&self) -> Ending {
        let after = self.hooked.as_ref().and_then(|hooked| hooked.after.clone());
        Ending { record: self.record.clone(), after }
    }

    /// Notes that it goes out now. False: that must be waited for.
    pub fn begin_at_once(&self) -> bool {
        self.record.as_ref().is_none_or(|record| record.begin_at_once(self))
    }

    /// Notes that it came to nothing.
    pub fn failed(&self, error: &CallError) {
        if let Some(record) = &self.record {
            record.failed(error);
        }
    }
}

/// A caller who is known, as far as it decides which process serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Known {
    principal: Principal,
    host: Option<Id>,
    session: Option<Id>,
    thread: Option<Id>,
    trust: Trust,
    /// It is in the process's environment, so another one needs another process.
    workspace: Option<Box<str>>,
}

impl Known {
    /// The session whose channel the call came on, and nobody else's.
    pub fn bound_to(&self) -> Option<&Id> {
        self.session.as_ref().filter(|_| self.trust == Trust::Bound)
    }
}

impl Caller {
    /// Nobody in particular: for what we ask ourselves.
    pub fn nobody(principal: Principal) -> Self {
        Self {
            identity: Identity::default(),
            principal,
            workspace: None,
            workspace_refused: None,
            spoof: Vec::new(),
            trace: None,
        }
    }

    pub fn known(&self) -> Option<Known> {
        let identity = &self.identity;
        (identity.trust > Trust::None).then(|| Known {
            principal: self.principal.clone(),
            host: identity.host.clone(),
            session: identity.session.clone(),
            thread: identity.thread.clone(),
            trust: identity.trust,
            workspace: self.workspace.clone(),
        })
    }

    /// What a placeholder stands for.
    pub fn value(&self, placeholder: Placeholder) -> Option<&str> {
        if placeholder == Placeholder::User {
            return Some(self.principal.as_str());
        }
        identity::projection::value(&self.identity, self.workspace.as_deref(), placeholder)
    }
}

impl Identification {
    /// What is known of a client from its `initialize`, or before it.
    pub fn standing(&self, channel: Channel, initialize: Option<&Message>) -> Standing {
        let client = initialize.and_then(client_name);
        let inherited = |name: &str| self.host.get(name);
        let meta = initialize.and_then(Message::meta);
        self.resolver.standing(channel, client.as_deref(), meta, &inherited)
    }

    /// Finds out who makes a request. Everything under our names is gone from it afterwards.
    pub fn identify(
        &self,
        connection: &Connection,
        headers: Option<&HeaderMap>,
        message: Message,
    ) -> Result<Call, CallError> {
        let (message, stripped) = strip(message)?;
        let spans = self.exports_spans && is_noted(message.method());
        let (message, trace) = traced::take(message, headers, spans);
        if message.method() == "initialize" {
            connection.set_standing(self.standing(connection.channel.clone(), Some(&message)));
        }
        let standing = connection.standing();
        let view = headers.map(View);
        let name = message.name();
        let resolved = self.resolver.resolve(
            &standing,
            &Evidence {
                meta: message.meta(),
                headers: view.as_ref().map(|view| view as &dyn Headers),
                seal: stripped.seal.as_deref(),
                tool: name.as_deref(),
                now_ms: (self.clock)(),
            },
        );
        let mut identity = resolved.identity;
        identity.call.get_or_insert_with(|| self.next_call());
        // What it claimed to be first: there may be any number of the others, and only so many are noted.
        let mut spoof = resolved.spoof;
        spoof.extend(stripped.spoof);
        spoof.extend(headers.into_iter().flat_map(HeaderMap::keys).filter_map(forged));
        spoof.truncate(MOST_FORGED);
        let entrant = connection.channel.bound_to().map_or(connection.principal.as_str(), Id::as_str);
        if !spoof.is_empty() && FORGED.allows(entrant, Instant::now()) {
            let session = identity.session.as_ref().map_or("unknown", Id::as_str);
            tracing::warn!(
                session,
                thread = identity.thread.as_ref().map(Id::as_str),
                call = identity.call.as_ref().map(Id::as_str),
                forged = spoof.join(", "),
                "removed from a request: it stood there under our names"
            );
        }
        let (workspace, workspace_refused) = match (resolved.workspace, &standing.channel) {
            (None, _) => (None, None),
            // Ours: it need not lie beneath a root that somebody allowed.
            (Some(own), Channel::Bound(_)) => (Some(own), None),
            (Some(said), Channel::Pipe | Channel::Token { .. } | Channel::Open) => {
                self.workspaces.resolve(&said)
            }
        };
        let principal = connection.principal.clone();
        let caller = Arc::new(Caller { identity, principal, workspace, workspace_refused, spoof, trace });
        drop(name);
        connection.note_caller(&caller, message.method());
        Ok(Call::new(message, caller))
    }

    /// The public keys, as a JWK set.
    pub fn jwks(&self) -> String {
        let Some(signer) = &self.signer else { return r#"{"keys":[]}"#.to_owned() };
        // Others sign with the same keys: who asks may hold a signature newer than our last look.
        stamp::look_for_new_keys(signer, (self.clock)());
        signer.keys().jwks()
    }

    /// A message that is no request: nobody is named by it.
    ///
    /// A call without an id would be carried out unseen: nobody has asked who makes it, and no hook was run.
    pub fn cleaned(&self, message: Message) -> Result<Message, CallError> {
        if message.kind() == Kind::Notification && !message.method().starts_with("notifications/") {
            return Err(CallError::NotANotification(shown(message.method())));
        }
        Ok(strip(message)?.0)
    }

    pub(crate) fn next_call(&self) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = Id::new(format!("{}{number}", self.call_prefix));
        #[expect(clippy::expect_used, reason = "a prefix of ours and a number are visible ASCII")]
        id.expect("an id of our own making")
    }
}

/// No header under our names is passed on, whoever sent it.
fn forged(name: &http::HeaderName) -> Option<Cow<'static, str>> {
    identity::names::is_our_header(name.as_str()).then(|| Cow::Owned(shown(name.as_str())))
}

/// A name as it may stand in a log.
pub(crate) fn shown(method: &str) -> String {
    method.chars().filter(|character| !character.is_control()).take(80).collect()
}

/// Refuses what a server does not want to be asked by a caller known this little. Discovery is for everybody.
pub fn permit(require: Trust, server: &str, call: &Call) -> Result<(), CallError> {
    let known = call.caller.identity.trust;
    if known >= require || meta::is_discovery(call.message.method()) {
        return Ok(());
    }
    Err(CallError::IdentityRequired { server: server.to_owned(), require, known })
}

/// `initialize.params.clientInfo.name`.
fn client_name(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "clientInfo")]
        client: Client,
    }
    #[derive(Deserialize)]
    struct Client {
        name: String,
    }
    let params = message.head().params.clone()?;
    serde_json::from_slice::<Params>(&message.bytes()[params]).ok().map(|params| params.client.name)
}

/// Headers as evidence: one that stands there more than once says nothing.
struct View<'a>(&'a HeaderMap);

impl Headers for View<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut values = self.0.get_all(name).iter();
        let first = values.next().filter(|_| values.next().is_none())?;
        mcp::headers::decode_value(first.to_str().ok()?)
    }
}

impl fmt::Debug for Identification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identification").field("signs", &self.signer.is_some()).finish_non_exhaustive()
    }
}
