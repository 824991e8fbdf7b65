//! Evidence → claim → identity, for one request. Read this first.
//!
//! The strongest evidence that names somebody is taken whole; nothing is pieced together from several, but for the
//! host's own id of the call. What is said of a connection as a whole holds only as long as no call contradicts it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use model::host::HostSpec;
use model::identity::{Id, Identity, Source, Trust};

use crate::adapters::{self, Adapter, Chosen};
use crate::announce::Announcements;
use crate::evidence::{Channel, Claim, Evidence, Keys};
use crate::seal::Seals;

/// What is needed to find out who calls, whatever the request.
#[derive(Debug, Default)]
pub struct Resolver {
    /// Hosts the configuration describes.
    pub configured: Vec<HostSpec>,
    /// `--host`: the parser, whatever a client calls itself.
    pub forced: Option<String>,
    /// Opens the seals of our OpenCode plugin.
    pub seals: Option<Seals>,
    pub announcements: Option<Announcements>,
}

/// What is known of a client as long as it is connected.
#[derive(Debug)]
pub struct Standing {
    pub channel: Channel,
    client: Option<Box<str>>,
    /// Said once, for all that follows.
    claim: Option<(Claim, Source)>,
    host: Option<Box<str>>,
    workspace: Option<Box<str>>,
    /// A call has named somebody else than `claim` does.
    shared: AtomicBool,
}

/// Who calls, and what came of the evidence.
#[derive(Debug, Default)]
pub struct Resolved {
    pub identity: Identity,
    /// The workspace that the request, the connection or the host names, as it was said.
    pub workspace: Option<Box<str>>,
    /// What was forged or could not be verified.
    pub spoof: Vec<Cow<'static, str>>,
}

impl Standing {
    pub fn new(channel: Channel) -> Self {
        Self {
            channel,
            client: None,
            claim: None,
            host: None,
            workspace: None,
            shared: AtomicBool::new(false),
        }
    }
}

impl Resolver {
    /// What `initialize` and the environment we were started in say of all that follows.
    ///
    /// `inherited` answers variables of our own environment: on a pipe only, since only there the host started us.
    pub fn standing(
        &self,
        channel: Channel,
        client: Option<&str>,
        meta: Option<&[u8]>,
        inherited: &dyn Fn(&str) -> Option<String>,
    ) -> Standing {
        let evidence = Evidence { meta, ..Evidence::default() };
        let keys = Keys::read(meta);
        let chosen = self.choose(client, &keys, &evidence);
        let said = chosen.map(|chosen| chosen.meta(&keys, &evidence)).filter(Claim::names_somebody);
        let on_pipe = channel == Channel::Pipe;
        let from_environment = || {
            let name = chosen?.known()?.inherited.filter(|_| on_pipe)?;
            let session = Id::new(inherited(name)?).ok()?;
            Some((Claim { session: Some(session), ..Claim::default() }, Source::Environment))
        };
        Standing {
            channel,
            client: client.map(Into::into),
            claim: said.map(|claim| (claim, Source::Initialize)).or_else(from_environment),
            host: chosen.map(|chosen| chosen.name().into()),
            workspace: keys.workspace(),
            shared: AtomicBool::new(false),
        }
    }

    /// Who makes this call.
    pub fn resolve(&self, standing: &Standing, evidence: &Evidence<'_>) -> Resolved {
        let keys = Keys::read(evidence.meta);
        let mut spoof = Vec::new();
        if let Channel::Bound(bound) = &standing.channel {
            let identity = bound.identity(&keys, evidence, &mut spoof);
            return Resolved { identity, workspace: Some(bound.workspace.clone()), spoof };
        }
        let found = self.find(standing, &keys, evidence, &mut spoof);
        let (identity, hinted) = found.unwrap_or_default();
        let workspace = keys.workspace().or_else(|| standing.workspace.clone()).or(hinted);
        Resolved { identity, workspace, spoof }
    }

    fn find(
        &self,
        standing: &Standing,
        keys: &Keys<'_>,
        evidence: &Evidence<'_>,
        spoof: &mut Vec<Cow<'static, str>>,
    ) -> Option<(Identity, Option<Box<str>>)> {
        if let Some(seal) = evidence.seal {
            match self.open_seal(seal, evidence) {
                Ok(claim) => return Some(standing.take(claim, "opencode", Trust::Host, Source::Seal)),
                Err(why) => spoof.push(why),
            }
        }
        let client = keys.client();
        let chosen = self.choose(standing.client.as_deref().or(client.as_deref()), keys, evidence)?;
        let host = chosen.name();
        let mut claim = chosen.meta(keys, evidence);
        let call = claim.call.clone();
        if claim.names_somebody() {
            // What only describes may be said elsewhere in the same request.
            let beside = chosen.headers(evidence);
            claim.workspace = claim.workspace.or(beside.workspace);
            claim.title = claim.title.or(beside.title);
            return Some(standing.take(claim, host, standing.channel.trust_in_metadata(), Source::Meta));
        }
        if let Some(announced) = self.announced(standing, &chosen, call.as_ref(), evidence) {
            return Some(standing.take(announced, host, Trust::Host, Source::Hook));
        }
        claim = chosen.headers(evidence);
        if claim.names_somebody() {
            return Some(standing.take(claim, host, Trust::Declared, Source::Header));
        }
        let said = standing.claim.as_ref().filter(|_| !standing.shared.load(Ordering::Relaxed));
        let Some((claim, source)) = said else {
            // Nobody is named, and yet the call has its name.
            return Some((Identity { call, ..Identity::default() }, None));
        };
        let claim = Claim { call, ..claim.clone() };
        let workspace = claim.workspace.clone();
        Some((claim.into_identity(host, Trust::Declared, *source), workspace))
    }

    fn open_seal(&self, seal: &str, evidence: &Evidence<'_>) -> Result<Claim, Cow<'static, str>> {
        let seals = self.seals.as_ref().ok_or(Cow::Borrowed("seal: there is no key to open it with"))?;
        seals
            .claim(seal, evidence.tool.unwrap_or_default(), evidence.now_ms)
            .map_err(|why| Cow::Owned(format!("seal: {why}")))
    }

    fn announced(
        &self,
        standing: &Standing,
        chosen: &Chosen<'_>,
        call: Option<&Id>,
        evidence: &Evidence<'_>,
    ) -> Option<Claim> {
        let announcements = self.announcements.as_ref()?;
        // An announcement is this user's; another principal's token does not open it.
        if chosen.name() != "claude-code" || !standing.channel.is_local() {
            return None;
        }
        announcements.take(call?, evidence.tool?, evidence.now_ms)
    }

    fn choose(&self, client: Option<&str>, keys: &Keys<'_>, evidence: &Evidence<'_>) -> Option<Chosen<'_>> {
        if let Some(forced) = &self.forced {
            let described = self.configured.iter().find(|host| host.name.as_str() == forced);
            return described
                .map(Chosen::Configured)
                .or_else(|| adapters::by_name(forced).map(Chosen::Known));
        }
        client
            .and_then(|client| adapters::by_client(client, &self.configured))
            .or_else(|| adapters::by_keys(keys, evidence, &self.configured))
    }

    /// The host a client is taken for, before it has made a call.
    pub fn host_of(&self, standing: &Standing) -> Option<&'static Adapter> {
        let forced = self.forced.as_deref();
        forced.or(standing.host.as_deref()).and_then(adapters::by_name)
    }
}

impl Standing {
    /// Takes a call's own claim, and notes where it contradicts what was said of the connection.
    fn take(&self, claim: Claim, host: &str, trust: Trust, source: Source) -> (Identity, Option<Box<str>>) {
        let workspace = claim.workspace.clone();
        let identity = claim.into_identity(host, trust, source);
        if self.claim.as_ref().is_some_and(|(said, _)| !said.agrees_with(&identity)) {
            self.shared.store(true, Ordering::Relaxed);
        }
        (identity, workspace)
    }
}

#[cfg(test)]
mod tests;
