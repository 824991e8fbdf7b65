//! Streamable HTTP towards clients, both eras, at `/mcp/NAME`.
//!
//! ```text
//! accept → Strict (raw head, deadlines) → hyper → guard (Host, Origin, token) → body → Message
//!   → exchange.rs   a server that is our processes
//!   → relay.rs      a server reached by HTTP
//! ```

pub mod body;
mod boxed;
mod exchange;
mod guard;
mod inspected;
mod observed;
mod relay;
mod returned;
pub mod sessions;
mod stream;
mod strict;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use identity::Channel;
use mcp::Message;
use model::Principal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caller::{Call, Identification};
use crate::connection::Connection;
use crate::meters;
use crate::rate::Rate;
use crate::recorded::Sinks;
use crate::respond::CallError;
use crate::server::{Backend, Server};
use body::Body;
use boxed::Turned;
use sessions::{Found, Session, Sessions};
use strict::{Strict, Watch};

pub use boxed::Guest;
pub use guard::{Access, Auth as GatewayAuth};

/// The largest message a client may send.
pub const MAX_INBOUND: usize = 4 * 1024 * 1024;
/// How long a body may take.
const BODY: Duration = Duration::from_secs(30);
/// How much of a refused body is read away, and for how long.
const DRAINED: usize = 128 * 1024 * 1024;
const DRAINING: Duration = Duration::from_secs(5);
/// A client that sends nothing for this long waits for its answer.
const PAUSE: Duration = Duration::from_millis(200);
/// How long requests under way may take once we are asked to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Connections at once.
const MAX_CONNECTIONS: usize = 16 * 1024;

pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Everything a request needs.
#[derive(Debug)]
pub struct Front {
    servers: RwLock<Arc<Servers>>,
    pub access: Access,
    identification: Arc<Identification>,
    sinks: Arc<Sinks>,
    pub sessions: Sessions,
    /// Of all workers: whoever stops first waits for the others' clients too.
    connections: TaskTracker,
    pub tasks: TaskTracker,
    /// Somebody looks for sessions that nobody uses.
    expiring: AtomicBool,
    /// What boxes are turned away with.
    turned: Rate,
}

pub type Servers = HashMap<String, Arc<Server>>;

impl Front {
    pub fn new(
        servers: Servers,
        access: Access,
        identification: Arc<Identification>,
        sinks: Arc<Sinks>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            servers: RwLock::new(Arc::new(servers)),
            access,
            identification,
            sinks,
            sessions: Sessions::default(),
            connections: TaskTracker::new(),
            tasks,
            expiring: AtomicBool::new(false),
            turned: Rate::new("requests that were turned away"),
        }
    }

    pub fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.servers.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Puts other servers in place. Sessions of those that are gone end; the others go on.
    pub fn replace(&self, servers: Servers) {
        let servers = Arc::new(servers);
        let before = {
            let mut current = self.servers.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::clone(&servers))
        };
        for (name, server) in before.iter() {
            if !servers.get(name).is_some_and(|same| Arc::ptr_eq(same, server)) {
                self.sessions.end_all_of(server);
                server.close();
            }
        }
    }

    /// Serves until `stop`, then lets what is under way finish. Workers call it side by side, each with a clone
    /// of the listener.
    pub async fn serve(self: &Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        self.keep_looking(&stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) if self.connections.len() < MAX_CONNECTIONS => {
                    self.connections.spawn(Arc::clone(self).connection(stream, peer, stop.clone()));
                }
                Ok(_) => tracing::warn!("a connection was refused: there are {MAX_CONNECTIONS} already"),
                Err(error) => {
                    // Out of descriptors, most likely: give those who hold them time to finish.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        self.sessions.close_standing_streams();
        self.connections.close();
        if tokio::time::timeout(DRAIN, self.connections.wait()).await.is_err() {
            tracing::warn!("{} connections did not finish in time", self.connections.len());
        }
    }

    /// Has sessions end that nobody uses, until `stop`.
    fn keep_looking(self: &Arc<Self>, stop: &CancellationToken) {
        if !self.expiring.swap(true, Ordering::AcqRel) {
            self.tasks.spawn(sessions::expire(Arc::downgrade(self), stop.clone()));
        }
    }

    /// The session that a request names, if it is its own to name.
    fn session(&self, id: &str, inbound: &Inbound) -> Option<Arc<Session>> {
        match self.sessions.find(id, inbound) {
            Found::Own(session) => Some(session),
            Found::Others => {
                if let Channel::Bound(bound) = &inbound.channel {
                    self.note_turned(&bound.session, bound.tenant.run(), &inbound.parts, Turned::Session);
                }
                None
            }
            Found::Nothing => None,
        }
    }

    /// Ends every session and every server.
    pub fn close(&self) {
        self.sessions.end_all();
        self.replace(Servers::new());
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, stop: CancellationToken) {
        if stream.set_nodelay(true).is_ok() {
            self.speak(stream, Entrance::Listener(peer), stop).await;
        }
    }

    async fn speak<S>(self: Arc<Self>, stream: S, entrance: Entrance, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let watch = Arc::<Watch>::default();
        let io = TokioIo::new(Strict::new(stream, Arc::clone(&watch)));
        let service = service_fn(|request| {
            let (front, watch, entrance) = (Arc::clone(&self), Arc::clone(&watch), &entrance);
            async move {
                watch.begin();
                let mut response = front.handle(request, entrance, &watch).await;
                if watch.is_last() {
                    response = closing(response);
                }
                Ok::<_, Infallible>(response.map(|body| body.watched(watch)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .serve_connection(io, service);
        tokio::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(DRAIN, connection).await {
                    Ok(served) => served,
                    Err(_late) => return,
                }
            }
        };
        if let Err(error) = served {
            tracing::debug!(%entrance, %error, "a connection ended early");
        }
    }

    async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        entrance: &Entrance,
        watch: &Watch,
    ) -> Response<Body> {
        let (parts, incoming) = request.into_parts();
        if let Some(wrong) = watch.wrong() {
            return closing(plain(StatusCode::BAD_REQUEST, wrong));
        }
        let admitted = match entrance {
            Entrance::Listener(_) => self.admit(parts),
            Entrance::Box(guest) => self.admit_guest(guest, parts),
        };
        let inbound = match admitted {
            Ok(inbound) => inbound,
            Err(response) => return response,
        };
        match inbound.parts.method {
            Method::POST => {
                let mut incoming = incoming;
                let body = match read(&inbound.parts, &mut incoming).await {
                    Ok(body) => body,
                    Err(response) => {
                        drain(incoming).await;
                        return closing(response);
                    }
                };
                self.post(inbound, body).await
            }
            Method::GET => self.get(inbound).await,
            Method::DELETE => self.delete(inbound).await,
            _ => closing(not_allowed()),
        }
    }

    /// Where a request goes that came in by the listener, or what it is answered at once.
    #[expect(clippy::result_large_err, reason = "the error is the response that is sent, and moved once")]
    fn admit(&self, parts: Parts) -> Result<Inbound, Response<Body>> {
        self.access.check_origin(&parts).map_err(closing)?;
        if parts.uri.path() == "/healthz" {
            return Err(plain(StatusCode::OK, "ok\n"));
        }
        if parts.uri.path() == "/.well-known/jwks.json" {
            return Err(json(StatusCode::OK, Bytes::from(self.identification.jwks())));
        }
        let principal = self.access.authenticate(&parts).map_err(closing)?;
        if parts.uri.path() == "/metrics" {
            return Err(self.metrics());
        }
        let Some(name) = parts.uri.path().strip_prefix("/mcp/") else {
            let text = "there is nothing here; servers are at /mcp/NAME\n";
            return Err(closing(plain(StatusCode::NOT_FOUND, text)));
        };
        let Some(server) = self.servers().get(name).cloned() else {
            return Err(closing(failed(&CallError::NoSuchServer(name.to_owned()), None)));
        };
        let channel = self.access.channel(&principal);
        Ok(Inbound { principal, channel, parts, server })
    }

    fn metrics(&self) -> Response<Body> {
        let text = meters::exposition(&self.servers(), &self.sinks, self.sessions.len());
        let mut response = Response::new(Body::full(Bytes::from(text)));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    async fn post(self: &Arc<Self>, inbound: Inbound, body: Bytes) -> Response<Body> {
        let message = match Message::parse(body) {
            Ok(message) => message,
            Err(refused) => return failed(&CallError::Refused(refused), None),
        };
        match &inbound.server.backend {
            Backend::Pipes(pipes) => exchange::post(self, &inbound, pipes, message).await,
            Backend::Remote(remote) => relay::post(self, &inbound, remote, message).await,
        }
    }

    async fn get(self: &Arc<Self>, inbound: Inbound) -> Response<Body> {
        match &inbound.server.backend {
            Backend::Pipes(_) => exchange::get(self, &inbound),
            Backend::Remote(remote) => relay::pass(self, &inbound, remote).await,
        }
    }

    async fn delete(self: &Arc<Self>, inbound: Inbound) -> Response<Body> {
        match &inbound.server.backend {
            Backend::Pipes(_) => exchange::delete(self, &inbound),
            Backend::Remote(remote) => relay::pass(self, &inbound, remote).await,
        }
    }
}

/// Where a connection came in.
#[derive(Debug)]
enum Entrance {
    Listener(SocketAddr),
    Box(Arc<Guest>),
}

impl fmt::Display for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(peer) => peer.fmt(f),
            Self::Box(_) => f.write_str("a box"),
        }
    }
}

/// A request that may come in.
#[derive(Debug)]
struct Inbound {
    principal: Principal,
    /// What its words are worth.
    channel: Channel,
    parts: Parts,
    server: Arc<Server>,
}

impl Inbound {
    fn identify(&self, connection: &Connection, message: Message) -> Result<Call, CallError> {
        self.server.identify(connection, Some(&self.parts.headers), message)
    }

    fn session_id(&self) -> Option<&str> {
        self.parts.headers.get(SESSION_ID).and_then(|value| value.to_str().ok())
    }
}

/// Reads a body of JSON within its limits.
async fn read(parts: &Parts, incoming: &mut Incoming) -> Result<Bytes, Response<Body>> {
    let declared =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let too_large = || failed(&CallError::TooLarge { limit: MAX_INBOUND }, None);
    if declared.is_some_and(|length: u64| length > MAX_INBOUND as u64) {
        return Err(too_large());
    }
    if parts.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body without Content-Encoding\n"));
    }
    let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    if !is_json {
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json\n"));
    }
    match tokio::time::timeout(BODY, Limited::new(incoming, MAX_INBOUND).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(plain(StatusCode::BAD_REQUEST, "the body broke off\n")),
        Err(_late) => Err(plain(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n")),
    }
}

/// Reads away what a client still sends: one that is cut off while it writes does not read our answer.
/// One that pauses waits for the answer.
async fn drain(mut incoming: Incoming) {
    let read_away = async {
        let mut left = DRAINED;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, incoming.frame()).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _enough = tokio::time::timeout(DRAINING, read_away).await;
}

/// An error as a response of its own.
fn failed(error: &CallError, id: Option<&[u8]>) -> Response<Body> {
    json(error.status(), error.to_message(id))
}

fn json(status: StatusCode, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn not_allowed() -> Response<Body> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this is answered to POST\n");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

/// The rest of the connection cannot be trusted, or was not read.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
