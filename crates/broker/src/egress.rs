//! One session's way to hosts that it may reach: an HTTP proxy that looks at where, and not at what.
//!
//! ```text
//! CONNECT host:port ─┬─▶ rules ─▶ connect ─▶ 200 ─▶ the connection itself, both ways
//! GET http://host/…  ┘                     └▶ one request, one answer, for http alone
//! ```

mod rules;

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use rules::{Allow, BadAllow};

use crate::body::{Body, closing, drain};
use crate::broker::{server, too_many};
use crate::connect::{Connector, Reach, Tracked, cause, connect};
use crate::meter::Outcome;
use crate::returned::{Returned, Tally};
use crate::sent::{Moved, Sent};
use crate::strict::{Busy, Strict, Watch};
use crate::tunnel::{Carried, carry};
use rules::Rules;

/// How long what is under way may take once we are asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// How long a host may say nothing.
const SILENCE: Duration = Duration::from_mins(5);
/// Connections of the box at once.
const CONNECTIONS: usize = 64;

/// Of one connection alone, so they are not passed on; besides those that `Connection` names.
const HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
];

/// What was decided of one request, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// As the box wrote it, cut.
    pub host: String,
    pub port: u16,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// With what the box was told.
    Refused(String),
    /// Allowed, and not reached.
    Failed(String),
    /// Allowed and connected; [`Verdict::Closed`] follows.
    Opened,
    /// In bytes, as they went over it: of a tunnel everything, of a request the bodies.
    Closed { sent: u64, received: u64 },
}

/// Where decisions are noted.
pub trait Notes: fmt::Debug + Send + Sync {
    /// Must not block.
    fn decided(&self, decided: Decided);
}

#[derive(Debug)]
pub struct EgressOptions {
    pub allow: Allow,
    pub notes: Arc<dyn Notes>,
    /// Where connections for requests that are no tunnels run.
    pub tasks: TaskTracker,
}

/// The way of one session to the hosts it may reach.
#[derive(Debug)]
pub struct Egress {
    rules: Arc<Rules>,
    notes: Arc<dyn Notes>,
    client: Client<Connector, Sent>,
    connections: Semaphore,
}

/// A connection that stops being HTTP.
#[derive(Debug)]
struct Tunnel {
    inside: OnUpgrade,
    outside: TcpStream,
    noted: Noted,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
}

impl Egress {
    pub fn new(options: EgressOptions) -> Result<Arc<Self>, BadAllow> {
        let EgressOptions { allow, notes, tasks } = options;
        let rules = Arc::new(Rules::new(&allow)?);
        let reach: Arc<dyn Reach> = Arc::<Rules>::clone(&rules);
        // None is kept: what a box asks for once, it need not ask for again.
        let client = Client::builder(Tracked(tasks)).pool_max_idle_per_host(0).build(Connector(reach));
        Ok(Arc::new(Self { rules, notes, client, connections: Semaphore::new(CONNECTIONS) }))
    }

    /// Serves one connection of the box until it ends; a tunnel ends with `stop`, requests have a moment more.
    pub async fn serve<S>(self: Arc<Self>, stream: S, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(_place) = self.connections.try_acquire() else {
            return too_many(stream).await;
        };
        let tunnel = Mutex::new(None);
        self.serve_http(stream, &tunnel, &stop).await;
        let tunnel = tunnel.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(Tunnel { inside, outside, mut noted }) = tunnel else { return };
        if let Ok(inside) = inside.await {
            let Carried { sent, received } = carry(TokioIo::new(inside), outside, &stop).await;
            noted.close(sent, received);
        }
    }

    async fn serve_http<S>(&self, stream: S, tunnel: &Mutex<Option<Tunnel>>, stop: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let watch = Arc::new(Watch::default());
        let io = TokioIo::new(Strict::new(stream, Arc::clone(&watch)));
        let service = service_fn(|request| {
            let watch = &watch;
            async move { Ok::<_, Infallible>(self.answer(request, watch, tunnel).await) }
        });
        let mut connection = pin!(server().serve_connection(io, service).with_upgrades());
        tokio::select! {
            _ended = connection.as_mut() => return,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ended = tokio::time::timeout(DRAIN, connection).await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        watch: &Arc<Watch>,
        tunnel: &Mutex<Option<Tunnel>>,
    ) -> Response<Body> {
        let busy = Busy::new(watch);
        if let Some(wrong) = watch.wrong() {
            drain(request.into_body()).await;
            return closing(text(StatusCode::BAD_REQUEST, wrong.text()));
        }
        if request.method() == Method::CONNECT {
            return self.open(request, watch, tunnel).await;
        }
        let response = self.pass_on(request, busy).await;
        if watch.is_last() { closing(response) } else { response }
    }

    async fn open(
        &self,
        mut request: Request<Incoming>,
        watch: &Watch,
        tunnel: &Mutex<Option<Tunnel>>,
    ) -> Response<Body> {
        let target = match tunnel_target(request.uri()) {
            Ok(target) => target,
            Err(problem) => return closing(text(StatusCode::BAD_REQUEST, problem)),
        };
        if let Err(reason) = self.rules.check(&target.host, target.port) {
            return closing(self.refused(&target, reason));
        }
        let outside = match connect(self.rules.as_ref(), &target.host, target.port).await {
            Ok(outside) => outside,
            Err(error) => return closing(self.failed(&target, &error)),
        };
        let noted = Noted::opened(&self.notes, target);
        watch.becomes_a_tunnel();
        let inside = hyper::upgrade::on(&mut request);
        *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Tunnel { inside, outside, noted });
        Response::new(Either::Left(Full::default()))
    }

    async fn pass_on(&self, request: Request<Incoming>, busy: Busy) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let target = match request_target(&parts.uri) {
            Ok(target) => target,
            Err(problem) => {
                drain(body).await;
                return closing(text(StatusCode::BAD_REQUEST, problem));
            }
        };
        if let Err(reason) = self.rules.check(&target.host, target.port) {
            drain(body).await;
            return closing(self.refused(&target, reason));
        }
        drop_hop_headers(&mut parts.headers);
        // Written anew from where it goes.
        parts.headers.remove(header::HOST);
        parts.headers.remove(header::CONTENT_LENGTH);
        let moved = Arc::new(Moved::new());
        let sent = if http_body::Body::is_end_stream(&body) {
            Sent::nothing(&moved)
        } else {
            Sent::new(body, u64::MAX, &moved)
        };
        let mut outgoing = Request::new(sent);
        *outgoing.method_mut() = parts.method;
        *outgoing.uri_mut() = parts.uri;
        *outgoing.headers_mut() = parts.headers;
        let answered = tokio::select! {
            answered = self.client.request(outgoing) => answered,
            () = moved.rests(SILENCE) => {
                let reason = format!("{} said nothing for too long", target.host);
                self.note(&target, Verdict::Failed(reason.clone()));
                return closing(text(StatusCode::GATEWAY_TIMEOUT, &reason));
            }
        };
        match answered {
            Ok(response) => {
                let noted = Noted::opened(&self.notes, target);
                let (mut parts, body) = response.into_parts();
                drop_hop_headers(&mut parts.headers);
                let counted = Counted { noted, moved, received: 0 };
                let returned = Returned::new(body, Box::new(counted), SILENCE, busy);
                let mut back = Response::new(Either::Right(returned));
                *back.status_mut() = parts.status;
                *back.headers_mut() = parts.headers;
                back
            }
            Err(error) => closing(self.failed(&target, error.source().unwrap_or(&error))),
        }
    }

    fn refused(&self, target: &Target, reason: String) -> Response<Body> {
        let response = text(StatusCode::FORBIDDEN, &reason);
        self.note(target, Verdict::Refused(reason));
        response
    }

    fn failed(&self, target: &Target, error: &(dyn std::error::Error + 'static)) -> Response<Body> {
        let cause = cause(error);
        let reason = format!("{} cannot be reached: {}", target.host, cause.text);
        if cause.lasts {
            return self.refused(target, reason);
        }
        let response = text(StatusCode::BAD_GATEWAY, &reason);
        self.note(target, Verdict::Failed(reason));
        response
    }

    fn note(&self, target: &Target, verdict: Verdict) {
        let Target { host, port } = target.clone();
        self.notes.decided(Decided { host, port, verdict });
    }
}

/// What is noted of a connection when it is over, whatever ends it.
#[derive(Debug)]
struct Noted {
    notes: Arc<dyn Notes>,
    target: Target,
    closed: bool,
}

impl Noted {
    fn opened(notes: &Arc<dyn Notes>, target: Target) -> Self {
        let Target { host, port } = target.clone();
        notes.decided(Decided { host, port, verdict: Verdict::Opened });
        Self { notes: Arc::clone(notes), target, closed: false }
    }

    fn close(&mut self, sent: u64, received: u64) {
        if !std::mem::replace(&mut self.closed, true) {
            let Target { host, port } = self.target.clone();
            self.notes.decided(Decided { host, port, verdict: Verdict::Closed { sent, received } });
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.close(0, 0);
    }
}

/// An answer whose bytes are counted as it passes by.
#[derive(Debug)]
struct Counted {
    noted: Noted,
    moved: Arc<Moved>,
    received: u64,
}

impl Tally for Counted {
    fn data(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
    }

    fn ended(mut self: Box<Self>, _outcome: Outcome) {
        self.noted.close(self.moved.bytes(), self.received);
    }

    fn left(self: Box<Self>, _rest: Incoming) {
        self.ended(Outcome::Gone);
    }
}

fn tunnel_target(uri: &Uri) -> Result<Target, &'static str> {
    const EXPECTED: &str = "CONNECT names a host and a port, and nothing else";
    // A url in full has an authority too.
    let authority = uri.authority().filter(|_| uri.scheme().is_none()).ok_or(EXPECTED)?;
    let port = authority.port_u16().filter(|port| *port > 0).ok_or(EXPECTED)?;
    target(authority.as_str(), authority.host(), port)
}

fn request_target(uri: &Uri) -> Result<Target, &'static str> {
    let Some(authority) = uri.authority() else {
        return Err("this is a proxy; ask with a url in full");
    };
    if uri.scheme_str() != Some("http") {
        return Err("this proxy passes on requests for http alone; use CONNECT for the rest");
    }
    let port = match authority.as_str().rsplit_once(':') {
        Some((_, "")) => return Err("a port is a number"),
        Some(_) | None => authority.port_u16().unwrap_or(80),
    };
    target(authority.as_str(), authority.host(), port)
}

fn target(authority: &str, host: &str, port: u16) -> Result<Target, &'static str> {
    if authority.contains('@') {
        return Err("a host is named without credentials");
    }
    if host.len() > 255 {
        return Err("no host has a name as long as this");
    }
    Ok(Target { host: host.to_owned(), port })
}

fn drop_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP.iter().chain(&named) {
        headers.remove(name);
    }
    headers.remove(header::TRANSFER_ENCODING);
}

fn text(status: StatusCode, reason: &str) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(format!("{reason}\n")))));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
