//! Whose a session of the old era is. To everybody else it is as if it did not exist.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};
use model::Principal;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// No session is called this.
const NOBODYS: HeaderValue = HeaderValue::from_static("none");

/// Below this many it is not worth looking for sessions that are gone.
const FEW: usize = 64;

pub(super) struct Owners {
    sessions: Arc<LocalSessionManager>,
    known: Mutex<Known>,
}

struct Known {
    owners: HashMap<String, Principal>,
    /// At this many, those that are gone are looked for.
    full: usize,
}

impl Owners {
    pub(super) fn new(sessions: Arc<LocalSessionManager>) -> Self {
        Self { sessions, known: Mutex::new(Known { owners: HashMap::new(), full: FEW }) }
    }

    /// Puts a name that is nobody's in the place of another's: whatever is asked, the answer is that for an unknown one.
    pub(super) fn hide_others(&self, headers: &mut HeaderMap, principal: &Principal) {
        let Some(id) = headers.get(SESSION) else { return };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let own = id.to_str().is_ok_and(|id| known.owners.get(id) == Some(principal));
        if !own || headers.get_all(SESSION).iter().count() > 1 {
            headers.insert(SESSION, NOBODYS);
        }
    }

    /// Only the answer that opens a session has its name, and nobody knows it before that is sent.
    pub(super) fn note(&self, headers: &HeaderMap, principal: Principal) {
        let Some(id) = headers.get(SESSION).and_then(|id| id.to_str().ok()) else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Each is in the library's table before it is in ours, so what is missing there is gone.
        if known.owners.len() >= known.full
            && let Ok(sessions) = self.sessions.sessions.try_read()
        {
            known.owners.retain(|id, _| sessions.contains_key(id.as_str()));
            known.full = FEW.max(known.owners.len() * 2);
        }
        known.owners.insert(id.to_owned(), principal);
    }
}
