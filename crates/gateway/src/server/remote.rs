//! A server reached by HTTP: one request out, one response back, and nothing followed that it points to.

pub mod door;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hooks::{Chain, Pairs};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mcp::Message;
use model::{HttpSpec, Principal};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::address;
use crate::caller::{Call, Caller, Stamp};
use crate::hooked;
use crate::recorded::{Target, noted};
use crate::respond::CallError;
use crate::server::link::LinkOptions;
use crate::server::minted::Minted;
use crate::server::pool::Surroundings;
use crate::worker;
use door::{Door, Stream};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may take to hear that a session is over.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long an unused connection is kept.
const KEEP: Duration = Duration::from_mins(1);
/// How much of an error's body is shown.
const SHOWN: usize = 500;
/// How much of an error's body is read at all.
const READ_OF_ERRORS: usize = 64 * 1024;

type HttpClient = Client<HttpsConnector<Guarded>, Full<Bytes>>;

#[derive(Debug)]
pub struct Remote {
    spec: HttpSpec,
    uri: Uri,
    pub options: Arc<LinkOptions>,
    /// One a worker: a connection is served best by the thread that asks.
    clients: Vec<HttpClient>,
    /// Headers that a program prints.
    minted: Option<Minted>,
    pub tasks: TaskTracker,
    /// Our own name for it: no password, no query.
    pub target: Arc<Target>,
    /// None: it has an address.
    door: Option<Arc<dyn Door>>,
}

impl Remote {
    pub fn new(spec: HttpSpec, options: Arc<LinkOptions>, around: Surroundings) -> Self {
        // Checked when the configuration was loaded.
        let uri: Uri = spec.url.parse().unwrap_or_default();
        let door = around.door.clone();
        let guarded = Guarded { allow_private: spec.allow_private, door: door.clone() };
        let connector = HttpsConnector::from((guarded, tls(uri.scheme_str() == Some("https"))));
        // Who is behind a door may have been killed meanwhile, and comes back only when it is opened anew.
        let kept = if door.is_some() { 0 } else { usize::MAX };
        let client = || {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(KEEP)
                .pool_max_idle_per_host(kept)
                .pool_timer(TokioTimer::new())
                .build(connector.clone())
        };
        let clients = (0..worker::count()).map(|_| client()).collect();
        let minted =
            spec.headers_command.clone().map(|command| Minted::new(command, &options.server, &around));
        let target = Arc::new(Target::from(shown(&uri)));
        Self { spec, uri, options, clients, minted, tasks: around.tasks, target, door }
    }

    pub fn name(&self) -> &str {
        &self.options.server
    }

    pub fn is_behind_a_door(&self) -> bool {
        self.door.is_some()
    }

    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    pub fn stamp(
        &self,
        caller: &Arc<Caller>,
        message: &Message,
        configured: Option<Arc<Pairs>>,
    ) -> Result<Arc<Stamp>, CallError> {
        self.options.identification.stamp(caller, &self.options.server, message, configured)
    }

    /// The call as it goes out: as hooks leave it, and noted.
    pub async fn ready(&self, call: Call) -> Result<Call, CallError> {
        let record = call.record.clone();
        let ready = match self.options.hooks.of(&call.message) {
            // Apart, so that calls without hooks are not carried in a box that has room for them.
            Some(chain) => Box::pin(self.run_before(chain, call)).await,
            None => Ok(call),
        };
        if let (Some(record), Ok(_)) = (&record, &ready) {
            record.sent_to(&self.target);
        }
        noted(record, ready).await
    }

    async fn run_before(&self, chain: Arc<Chain>, call: Call) -> Result<Call, CallError> {
        let tool = mcp::headers::mirrored_name(&call.message);
        let configured = self.configured(Some(&call.caller), tool.as_deref()).await?;
        hooked::before(chain, &self.options, configured, &self.tasks, call).await
    }

    /// The headers of the configuration and of the `headers_command`. What comes later replaces what came before.
    async fn configured(&self, caller: Option<&Caller>, tool: Option<&str>) -> Result<Pairs, CallError> {
        let value = super::values(&self.options.server, tool, caller);
        let mut headers: Pairs = Vec::with_capacity(self.spec.headers.len());
        for (name, template) in &self.spec.headers {
            if let Some(text) = template.render(&value) {
                headers.push((name.clone(), text.into_owned()));
            }
        }
        if let Some(minted) = &self.minted {
            for (name, text) in minted.headers(caller).await?.iter() {
                headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
                headers.push((name.clone(), text.clone()));
            }
        }
        Ok(headers)
    }

    /// The headers of a request on top of those the protocol needs: the configured ones, those of the
    /// `headers_command`, and ours, which nothing can replace.
    async fn add_headers(
        &self,
        stamp: Option<&Stamp>,
        principal: Option<&Principal>,
        headers: &mut HeaderMap,
    ) -> Result<(), CallError> {
        let caller = stamp.map(|stamp| &*stamp.caller);
        let tool = stamp.and_then(|stamp| stamp.tool.as_deref());
        // Before those of the configuration, which win: they are the operator's, and these a client's.
        for (name, text) in stamp.into_iter().flat_map(Stamp::traced) {
            insert(headers, name, text);
        }
        if let Some(configured) = stamp.and_then(|stamp| stamp.configured.as_deref()) {
            for (name, text) in configured {
                insert(headers, name, text);
            }
        } else {
            let value = super::values(&self.options.server, tool, caller);
            for (name, template) in &self.spec.headers {
                if let Some(text) = template.render(&value) {
                    insert(headers, name, &text);
                }
            }
            if let Some(minted) = &self.minted {
                for (name, text) in minted.headers(caller).await?.iter() {
                    insert(headers, name, text);
                }
            }
        }
        if let Some(stamp) = stamp {
            for (name, text) in stamp.headers(&self.options.server) {
                insert(headers, name, text);
            }
        }
        if let Some(door) = &self.door {
            if let Some(principal) = principal {
                insert(headers, door::PRINCIPAL, principal.as_str());
            }
            for (name, text) in door.headers() {
                insert(headers, name, text);
            }
        }
        Ok(())
    }

    /// Sends one request and waits for the head of its response, whatever its status.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Result<Response<Incoming>, CallError> {
        let Outgoing { method, uri, mut headers, body, stamp, principal, wait } = outgoing;
        if self.door.is_some() && principal.is_none() {
            // Nobody would be taken for the person at this machine.
            let (server, reason) = (self.name().to_owned(), "nobody is named".to_owned());
            return Err(CallError::Unreachable { server, reason });
        }
        if let Some(door) = &self.door
            && method != Method::POST
            && !door.knock().await
        {
            return Err(CallError::Unreachable {
                server: self.name().to_owned(),
                reason: "nobody is there".to_owned(),
            });
        }
        self.add_headers(stamp, principal, &mut headers).await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.unwrap_or(&self.uri).clone();
        *request.headers_mut() = headers;
        let sent = self.clients[worker::index() % self.clients.len()].request(request);
        let answered = match wait {
            Some(wait) => match tokio::time::timeout(wait, sent).await {
                Ok(answered) => answered,
                Err(_late) => {
                    return Err(CallError::Timeout {
                        server: self.name().to_owned(),
                        seconds: wait.as_secs(),
                    });
                }
            },
            None => sent.await,
        };
        answered.map_err(|error| CallError::Unreachable {
            server: self.name().to_owned(),
            reason: causes(&error),
        })
    }

    /// Tells the server that a session is over. It may not care.
    pub async fn end_session(&self, session: HeaderValue, principal: &Principal) {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("mcp-session-id"), session);
        let (method, body) = (Method::DELETE, Bytes::new());
        let (stamp, principal, wait) = (None, Some(principal), Some(GOODBYE));
        let _heard = self.send(Outgoing { method, uri: None, headers, body, stamp, principal, wait }).await;
    }

    /// What a response that is no answer means. Nothing it points to is opened.
    pub async fn refusal(&self, response: Response<Incoming>) -> CallError {
        let (server, status) = (self.name().to_owned(), response.status());
        if status == StatusCode::UNAUTHORIZED {
            return CallError::UpstreamUnauthorized { server };
        }
        let limited = http_body_util::Limited::new(response.into_body(), READ_OF_ERRORS);
        let read = tokio::time::timeout(CONNECT, limited.collect()).await;
        let body = match read {
            Ok(Ok(collected)) => String::from_utf8_lossy(&collected.to_bytes()).into_owned(),
            _ => String::new(),
        };
        let visible = |character: &char| !character.is_control();
        let body = self.options.recorder.sinks.redactor.redact(&body);
        let mut body: String = body.chars().filter(visible).take(SHOWN).collect();
        if status.is_redirection() {
            "it redirects, which is not followed; use the address it redirects to".clone_into(&mut body);
        }
        CallError::UpstreamStatus { server, status: status.as_u16(), body }
    }
}

/// An address without what may be secret in it.
fn shown(uri: &Uri) -> Box<str> {
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", uri.path()).into()
}

/// A request on its way to a server.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub method: Method,
    /// None: the server's own.
    pub uri: Option<&'a Uri>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Who is behind it.
    pub stamp: Option<&'a Stamp>,
    /// Whose it is, also where nobody is behind it. None only to servers that have an address.
    pub principal: Option<&'a Principal>,
    /// How long the head of the response may take.
    pub wait: Option<Duration>,
}

/// A value that no header can hold is encoded as the protocol does it.
fn insert(headers: &mut HeaderMap, name: &str, text: &str) {
    let encoded = mcp::headers::encode_value(text);
    let pair = (HeaderName::try_from(name), HeaderValue::try_from(encoded.as_ref()));
    if let (Ok(name), Ok(mut value)) = pair {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// The headers every POST of a message has.
pub fn post_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers
}

/// Connects to the address that was checked, and to no other; or through the door.
#[derive(Debug, Clone)]
struct Guarded {
    allow_private: bool,
    door: Option<Arc<dyn Door>>,
}

impl Service<Uri> for Guarded {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if let Some(door) = &self.door {
            let opening = door.open();
            return Box::pin(async move { Ok(TokioIo::new(Stream::Unix(opening.await?))) });
        }
        let allow_private = self.allow_private;
        Box::pin(async move {
            match tokio::time::timeout(CONNECT, connect(&uri, allow_private)).await {
                Ok(connected) => connected.map(|stream| TokioIo::new(Stream::Tcp(stream))),
                Err(_late) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s")),
            }
        })
    }
}

async fn connect(uri: &Uri, allow_private: bool) -> io::Result<TcpStream> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let refused =
        |reason: address::Refused| io::Error::new(io::ErrorKind::PermissionDenied, reason.to_string());
    let written = address::check_host(host, allow_private).map_err(refused)?.written();
    let addresses: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => tokio::net::lookup_host((bare, port)).await?.collect(),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        if let Err(reason) = address::check_ip(address.ip(), written, allow_private) {
            last = refused(reason);
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The system's trust store, read once and only if somebody needs it.
pub fn tls(needed: bool) -> Arc<rustls::ClientConfig> {
    static WITH_ROOTS: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    let build = |roots: rustls::RootCertStore| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        // The provider supports the default versions; without them there is nothing to speak.
        match builder.with_safe_default_protocol_versions() {
            Ok(builder) => Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())),
            Err(_) => None,
        }
    };
    let empty = || build(rustls::RootCertStore::empty());
    let loaded = || {
        let mut roots = rustls::RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        build(roots)
    };
    let config = if needed {
        match WITH_ROOTS.get() {
            Some(config) => Some(Arc::clone(config)),
            None => loaded().inspect(|config| drop(WITH_ROOTS.set(Arc::clone(config)))),
        }
    } else {
        empty()
    };
    #[expect(clippy::expect_used, reason = "ring supports TLS 1.2 and 1.3; there is no other outcome")]
    config.expect("ring has the default TLS versions")
}

/// An error with what lies beneath it, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
