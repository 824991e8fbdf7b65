//! What a process of ours needs to find out who calls, from its configuration and its state directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gateway::caller::{Identification, Workspaces};
use gateway::environment::HostEnvironment;
use identity::Resolver;
use identity::announce::Announcements;
use identity::assertion::Signer;
use identity::keys::Keyring;
use identity::seal::Seals;
use identity::workspace::Roots;
use model::HostSpec;

use crate::state::StateDir;

/// What there is to begin with.
#[derive(Debug)]
pub struct Parts<'a> {
    /// None: it cannot be used, and nothing is signed or announced.
    pub state: Option<&'a StateDir>,
    pub hosts: Vec<HostSpec>,
    pub roots: Vec<PathBuf>,
    pub host: Arc<HostEnvironment>,
    /// `--host`.
    pub forced: Option<String>,
    pub seals: Option<Seals>,
    /// Whether spans are sent to somebody.
    pub exports_spans: bool,
}

pub fn assemble(parts: Parts<'_>) -> anyhow::Result<Arc<Identification>> {
    let Parts { state, hosts, roots, host, forced, seals, exports_spans } = parts;
    let keyring = state.and_then(keyring);
    let announcements = state.map(|state| Announcements::new(state.path()));
    let mut random = [0_u8; 9];
    getrandom::fill(&mut random)
        .map_err(|error| anyhow::anyhow!("no random bytes from the system: {error}"))?;
    Ok(Arc::new(Identification {
        resolver: Resolver { configured: hosts, forced, seals, announcements },
        workspaces: Workspaces::new(Roots::new(roots)),
        jwks_file: keyring.as_ref().map(|keyring| keyring.jwks_file()),
        signer: keyring.map(Signer::new).transpose()?,
        host,
        clock: now_ms,
        exports_spans,
        call_prefix: format!(
            "cs-{}-",
            base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, random)
        ),
    }))
}

/// Without keys a call is carried all the same, unsigned: a server that wants a signature refuses it.
fn keyring(state: &StateDir) -> Option<Arc<Keyring>> {
    match Keyring::open(state.path(), now_ms() / 1000) {
        Ok(keyring) => Some(Arc::new(keyring)),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "calls are not signed");
            None
        }
    }
}

/// The state directory for a process that can do without.
pub fn state_if_usable(path: &Path) -> Option<StateDir> {
    match StateDir::open(path) {
        Ok(state) => Some(state),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "calls are neither signed nor joined with what a host's hooks announce");
            None
        }
    }
}

/// Unix milliseconds.
pub fn now_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is where the time comes from")]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
