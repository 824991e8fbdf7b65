//! Requests from a box: they come in on a socket of that box alone, and the socket says who calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{Response, StatusCode, header};
use identity::adapters::BOX;
use identity::{Bound, Channel};
use ledger::{Begin, End, Outcome};
use model::{Id, Principal, Source, Trust};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::{CallError, Front, Inbound, closing, failed, plain};
use crate::caller::shown;
use crate::rate::Turn;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    Token,
    Server,
    /// It named a session of the protocol that is another's.
    Session,
}

impl Turned {
    /// As it is noted: what was shown, and why it was refused.
    fn said(self) -> (&'static str, &'static str) {
        match self {
            Self::Token => ("token: it is not this box's", "wrong_token"),
            Self::Server => ("server: it is not this box's to call", "no_such_server"),
            Self::Session => ("mcp-session-id: it is another's", "no_such_session"),
        }
    }
}

impl Guest {
    fn shows_its_token(&self, parts: &Parts) -> bool {
        let shown = parts.headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
        shown.is_some_and(|shown| is_same(shown, self.token.as_bytes()))
    }

    fn run(&self) -> Option<Id> {
        self.servers.values().next().and_then(|bound| bound.tenant.run())
    }
}

/// Takes the same time wherever they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The server that a request is for.
fn server_of(parts: &Parts) -> &str {
    parts.uri.path().strip_prefix("/mcp/").unwrap_or_default()
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
        self.note_more_turned(session, self.turned.forget(session));
    }

    /// Where a box's request goes and whose it is, or what it is answered at once.
    #[expect(clippy::result_large_err, reason = "the error is the response that is sent, and moved once")]
    pub(super) fn admit_guest(&self, guest: &Guest, parts: Parts) -> Result<Inbound, Response<Body>> {
        if !guest.shows_its_token(&parts) {
            self.note_turned(&guest.session, guest.run(), &parts, Turned::Token);
            return Err(closing(plain(StatusCode::UNAUTHORIZED, "this is not your box\n")));
        }
        let (name, servers) = (server_of(&parts), self.servers());
        let Some((bound, server)) = guest.servers.get(name).zip(servers.get(name)) else {
            self.note_turned(&guest.session, guest.run(), &parts, Turned::Server);
            return Err(closing(failed(&CallError::NoSuchServer(name.to_owned()), None)));
        };
        let (principal, channel) = (guest.principal.clone(), Channel::Bound(Arc::clone(bound)));
        Ok(Inbound { principal, channel, server: Arc::clone(server), parts })
    }

    /// Notes what a box was turned away with: in the ledger and the log, or, if it goes on and on, as a number.
    pub(super) fn note_turned(&self, session: &Id, run: Option<Id>, parts: &Parts, turned: Turned) {
        let (forged, reason) = turned.said();
        let (method, server) = (shown(parts.method.as_str()), shown(server_of(parts)));
        match self.turned.turn(session.as_str(), Instant::now()) {
            Turn::Say { unsaid } => {
                self.note_more_turned(session.as_str(), unsaid);
                tracing::warn!(session = session.as_str(), forged, server, "a box was turned away");
                self.enter(session.as_str(), run, forged, (method, server, reason));
            }
            Turn::Enough => {
                let session = session.as_str();
                tracing::warn!(session, "a box is turned away over and over; the rest is counted");
            }
            Turn::Count => {}
        }
    }

    /// Notes how often boxes were turned away in minutes that are over, beyond what was noted one by one.
    pub(super) fn note_left_out(&self, now: Instant) {
        for (session, unsaid) in self.turned.over(now) {
            self.note_more_turned(&session, unsaid);
        }
    }

    fn note_more_turned(&self, session: &str, unsaid: u64) {
        if unsaid > 0 {
            let forged = format!("{unsaid} more that were turned away");
            tracing::warn!(session, "{forged}");
            self.enter(session, None, &forged, (String::new(), String::new(), "turned_away"));
        }
    }

    /// Nobody waits for it: where the ledger has no room it is only counted there.
    fn enter(
        &self,
        session: &str,
        run: Option<Id>,
        forged: &str,
        (method, server, reason): (String, String, &str),
    ) {
        let Some(ledger) = &self.sinks.ledger else { return };
        let at = (self.sinks.clock)();
        let row = Begin {
            at,
            host: Some(BOX.into()),
            session: Some(session.into()),
            run: run.map(|run| run.as_str().into()),
            call: self.identification.next_call().as_str().into(),
            server: server.into(),
            method: method.into(),
            trust: Trust::Bound.as_str(),
            source: Some(Source::Channel.as_str()),
            spoof: Some(forged.into()),
            ..Begin::default()
        };
        if let Some(entry) = ledger.note(Box::new(row)) {
            let (outcome, reason) = (Outcome::Refused, Some(reason.into()));
            ledger.end(entry, End { at, outcome, reason, target: None, micros: 0, size: 0, result: None });
        }
    }
}
