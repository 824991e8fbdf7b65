//! Requests from a box: they come in on a socket of that box alone, and the socket says who calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::header;
use http::request::Parts;
use identity::{Bound, Channel};
use model::{Id, Principal};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::{CallError, Front, Inbound, Servers};
use crate::server::Backend;

/// A box, and what it may call.
pub struct Guest {
    pub principal: Principal,
    /// The session whose box it is.
    pub session: Id,
    /// What its agent shows. It proves nothing to others: it keeps out those who came upon the box's port by chance,
    /// where the box shares a network with them.
    pub token: String,
    /// By the names of servers. None of the others is there for it.
    pub servers: HashMap<String, Arc<Bound>>,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.keys().collect();
        f.debug_struct("Guest")
            .field("session", &self.session)
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

/// Why a box's request goes nowhere.
#[derive(Debug)]
pub(super) enum Turned {
    NoToken,
    Nothing(CallError),
}

impl Guest {
    /// Where its request goes, and whose it is.
    pub(super) fn admit(&self, parts: Parts, servers: &Servers) -> Result<Inbound, Turned> {
        let shown = parts.headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
        if !shown.is_some_and(|shown| is_same(shown, self.token.as_bytes())) {
            return Err(Turned::NoToken);
        }
        let name = parts.uri.path().strip_prefix("/mcp/").unwrap_or_default();
        let found = self.servers.get(name).zip(servers.get(name));
        let Some((bound, server)) = found else {
            return Err(Turned::Nothing(CallError::NoSuchServer(name.to_owned())));
        };
        let (principal, channel) = (self.principal.clone(), Channel::Bound(Arc::clone(bound)));
        Ok(Inbound { principal, channel, server: Arc::clone(server), parts })
    }
}

/// Takes the same time wherever they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

impl Front {
    /// Serves one connection from a box until it ends, or `stop`.
    pub async fn serve_box(self: Arc<Self>, stream: UnixStream, guest: Arc<Guest>, stop: CancellationToken) {
        self.keep_looking(&stop);
        self.speak(stream, super::Entrance::Box(guest), stop).await;
    }

    /// The box of a session is gone: what it had open here ends, and what is held against it is forgotten. Processes
    /// that served it stay as long as they may be idle: the session's next box finds them as they are.
    pub fn end_bound(&self, session: &str) {
        self.sessions.end_all_of_box(session);
        for server in self.servers().values() {
            match &server.backend {
                Backend::Pipes(pipes) => pipes.forget_box(session),
                Backend::Remote(_) => {}
            }
        }
    }
}
