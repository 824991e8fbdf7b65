//! One session's way to its model: one request in, one request out, and the key in between.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::settings::Secret;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{Body, closing, drain};
use crate::connect::{Cause, Connector, Reach, Tracked, cause};
use crate::meter::{Came, Cut, Meter, Open, Outcome};
use crate::problem::Problem;
use crate::returned::{Returned, Tally};
use crate::route::{Endpoint, Route, route};
use crate::scrub::Scrub;
use crate::sent::{Fate, Moved, Sent};
use crate::strict::{Busy, Strict, Watch};
use crate::upstream::Upstream;
use crate::usage::UsageFinder;

/// How long what is under way may take once we are asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// How long an unused connection to the provider is kept.
const KEEP: Duration = Duration::from_secs(50);
/// How much of a provider's own error is passed on, and how long it may take to come.
const ERROR: usize = 256 * 1024;
const ERROR_WAIT: Duration = Duration::from_secs(20);
/// How much is read of an answer that the box did not wait for, and for how long: its usage comes last.
const REST: usize = 256 * 1024;
const REST_WAIT: Duration = Duration::from_secs(5);
/// What one connection of the box may hold in memory.
pub(crate) const BUFFER: usize = 128 * 1024;
const HEADERS: usize = 100;

/// What a box may say of its request. Its `x-session-*` name sessions to somebody who has no use for them.
const PASSED_ON: [HeaderName; 3] = [header::CONTENT_TYPE, header::ACCEPT, header::USER_AGENT];

/// What a provider says that the box may want to know.
const PASSED_BACK: [HeaderName; 10] = [
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("openai-processing-ms"),
    HeaderName::from_static("openai-version"),
    HeaderName::from_static("x-accel-buffering"),
];
/// … and how much it has left.
const RATES: &str = "x-ratelimit-";

/// What a box may do, and how long a provider may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one request.
    pub request: u64,
    /// How long a provider may say nothing, before its answer and within it.
    pub silence: Duration,
    /// Connections of the box at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: 64 * 1024 * 1024, silence: Duration::from_mins(5), connections: 64 }
    }
}

/// What one session's broker needs.
#[derive(Debug)]
pub struct BrokerOptions {
    pub upstream: Upstream,
    /// None: the provider wants none.
    pub key: Option<Secret>,
    /// What the box shows as its bearer. Worth nothing anywhere else.
    pub token: Secret,
    pub limits: Limits,
    pub meter: Arc<dyn Meter>,
    /// The certificates that are trusted; without protocols of its own.
    pub tls: Arc<rustls::ClientConfig>,
    /// Where connections to the provider run, and where answers are read on that a box did not wait for.
    pub tasks: TaskTracker,
}

/// The way of one session to its provider.
pub struct Broker {
    upstream: Upstream,
    key: Option<Secret>,
    /// With the key.
    authorization: Option<HeaderValue>,
    token: Secret,
    limits: Limits,
    meter: Arc<dyn Meter>,
    client: Client<HttpsConnector<Connector>, Sent>,
    connections: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// One connection of the box, as its requests need it.
#[derive(Debug)]
struct Line {
    watch: Arc<Watch>,
    cut: Cut,
    place: Arc<OwnedSemaphorePermit>,
    stop: CancellationToken,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("upstream", &self.upstream)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A key that no header can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the provider's key has characters that no header can hold")]
pub struct BadKey;

/// The provider is configured by whoever runs the daemon, who may mean any address but those that no one means.
#[derive(Debug)]
struct ToProvider(address::Written);

impl Reach for ToProvider {
    fn permits(&self, address: SocketAddr) -> Result<(), String> {
        address::check_ip(address.ip(), self.0, true).map_err(|refused| refused.to_string())
    }
}

impl Broker {
    pub fn new(options: BrokerOptions) -> Result<Arc<Self>, BadKey> {
        let BrokerOptions { upstream, key, token, limits, meter, tls, tasks } = options;
        let authorization = match &key {
            None => None,
            Some(key) => {
                let mut value =
                    HeaderValue::try_from(format!("Bearer {}", key.expose())).map_err(|_| BadKey)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let connector = Connector(Arc::new(ToProvider(upstream.kind().written())));
        let client = Client::builder(Tracked(tasks.clone()))
            .pool_idle_timeout(KEEP)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(HttpsConnector::from((connector, tls)));
        let connections = Arc::new(Semaphore::new(limits.connections));
        Ok(Arc::new(Self { upstream, key, authorization, token, limits, meter, client, connections, tasks }))
    }

    /// Serves one connection of the box until it ends, or until what is under way has had its time after `stop`.
    pub async fn serve<S>(self: Arc<Self>, stream: S, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
            return too_many(stream).await;
        };
        let (watch, cut) = (Arc::default(), Cut::default());
        let line = Line { watch, cut, place: Arc::new(place), stop: stop.clone() };
        let io = TokioIo::new(Strict::new(stream, Arc::clone(&line.watch)));
        let service = service_fn(|request| {
            let (broker, line) = (&self, &line);
            async move { Ok::<_, Infallible>(broker.answer(request, line).await) }
        });
        let mut connection = pin!(server().serve_connection(io, service));
        tokio::select! {
            _ended = connection.as_mut() => return,
            () = line.cut.off() => return,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ended = tokio::time::timeout(DRAIN, connection) => {}
            () = line.cut.off() => {}
        }
    }

    async fn answer(&self, request: Request<Incoming>, line: &Line) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let busy = Busy::new(&line.watch);
        let response = match self.check(&parts, &body, &line.watch) {
            Ok(route) => match self.ask(&parts, route, body, &line.cut).await {
                Ok((response, open)) => self.pass_back(response, open, busy, line).await,
                Err(problem) => closing(problem.response().map(Either::Left)),
            },
            Err(problem) => {
                drain(body).await;
                closing(problem.response().map(Either::Left))
            }
        };
        if line.watch.is_last() { closing(response) } else { response }
    }

    /// Everything that can be said before the body comes.
    fn check<'p>(&self, parts: &'p Parts, body: &Incoming, watch: &Watch) -> Result<Route<'p>, Problem> {
        if let Some(wrong) = watch.wrong() {
            return Err(Problem::Head(wrong));
        }
        if !self.is_from_the_box(&parts.headers) {
            return Err(Problem::Token);
        }
        if parts.headers.contains_key(header::UPGRADE) {
            return Err(Problem::Malformed("this connection stays what it is"));
        }
        let route = route(&parts.method, &parts.uri)?;
        match route.endpoint {
            Endpoint::Models if http_body::Body::is_end_stream(body) => return Ok(route),
            Endpoint::Models => return Err(Problem::Malformed("this request has no body")),
            Endpoint::ChatCompletions => {}
        }
        if parts.headers.contains_key(header::CONTENT_ENCODING) {
            return Err(Problem::Encoded);
        }
        if !is_json(&parts.headers) {
            return Err(Problem::NotJson);
        }
        if http_body::Body::size_hint(body).lower() > self.limits.request {
            return Err(Problem::TooLarge);
        }
        Ok(route)
    }

    fn is_from_the_box(&self, headers: &HeaderMap) -> bool {
        let mut shown = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (shown.next(), shown.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked(7) else { return false };
        scheme.eq_ignore_ascii_case(b"bearer ") && is_same(token, self.token.expose().as_bytes())
    }

    /// Returns what the provider answers, with the ticket that is to end with it.
    async fn ask(
        &self,
        parts: &Parts,
        route: Route<'_>,
        body: Incoming,
        cut: &Cut,
    ) -> Result<(Response<Incoming>, Open), Problem> {
        let endpoint = route.endpoint;
        let uri = self.upstream.uri(route.rest).ok_or(Problem::UnknownPath)?;
        let ticket = match self.meter.begin(endpoint) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                drain(body).await;
                return Err(Problem::Refused(refusal));
            }
        };
        let moved = Arc::new(Moved::new());
        let mut open = Open::new(ticket, endpoint, Arc::clone(&moved), cut);
        let sent = match endpoint {
            Endpoint::Models => Sent::nothing(&moved),
            Endpoint::ChatCompletions => Sent::new(body, self.limits.request, &moved).asking_for_usage(),
        };
        let mut request = Request::new(sent);
        *request.method_mut() = endpoint.method();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers_on(&parts.headers);
        let answered = tokio::select! {
            answered = self.client.request(request) => answered.map_err(|error| self.failed(&error, &moved)),
            () = moved.rests(self.limits.silence) => Err(Problem::Silent { host: self.host() }),
        };
        match answered {
            Ok(response) => {
                open.head_came();
                Ok((response, open))
            }
            Err(problem) => {
                tracing::debug!(
                    host = self.upstream.host(),
                    code = problem.code(),
                    "a request to the provider failed"
                );
                open.end(Outcome::NoAnswer, Came::default());
                Err(problem)
            }
        }
    }

    fn headers_on(&self, from_box: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        for name in &PASSED_ON {
            if let Some(value) = from_box.get(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
        // What is packed can be neither metered nor looked through.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        headers
    }

    fn failed(&self, error: &hyper_util::client::legacy::Error, moved: &Moved) -> Problem {
        match moved.fate() {
            Some(Fate::TooLarge) => return Problem::TooLarge,
            Some(Fate::Stalled | Fate::Broken) => return Problem::Stalled,
            Some(Fate::NoObject) => return Problem::Malformed("the body is a JSON object"),
            Some(Fate::UnclearStream) => {
                return Problem::Malformed("`stream` is true or false, and is said once");
            }
            None => {}
        }
        let host = self.host();
        // Around it stands only that a request failed.
        let Cause { text: cause, lasts } = cause(error.source().unwrap_or(error));
        if lasts { Problem::Unusable { host, cause } } else { Problem::Unreachable { host, cause } }
    }

    fn host(&self) -> String {
        self.upstream.host().to_owned()
    }

    async fn pass_back(
        &self,
        response: Response<Incoming>,
        mut open: Open,
        busy: Busy,
        line: &Line,
    ) -> Response<Body> {
        let (parts, body) = response.into_parts();
        let (status, scrub) = (parts.status, Scrub::new(self.key.as_ref()));
        let problem = if status.is_redirection() {
            Some(Problem::Redirects { host: self.host() })
        } else if is_packed(&parts.headers) || status.is_informational() {
            Some(Problem::OddAnswer { host: self.host() })
        } else {
            None
        };
        if let Some(problem) = problem {
            open.end(Outcome::Rejected(status), Came::default());
            return closing(problem.response().map(Either::Left));
        }
        let headers = headers_back(&parts.headers, scrub.as_ref());
        let mut back = if status.is_success() {
            let content_type = parts.headers.get(header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
            let metered = Metered {
                open,
                received: 0,
                finder: UsageFinder::of(content_type),
                tasks: self.tasks.clone(),
                stop: line.stop.clone(),
                _place: Arc::clone(&line.place),
            };
            let returned = Returned::new(body, Box::new(metered), self.limits.silence, busy);
            Response::new(Either::Right(returned.without(scrub)))
        } else {
            let body = error_body(body, scrub).await;
            let came = Came { received: body.len() as u64, ..Came::default() };
            open.end(Outcome::Rejected(status), came);
            Response::new(Either::Left(Full::new(body)))
        };
        *back.status_mut() = status;
        *back.headers_mut() = headers;
        back
    }
}

/// Where the box is told what.
pub(crate) fn server() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Deadlines for heads are those of `Strict`.
    builder.max_buf_size(BUFFER).max_headers(HEADERS).header_read_timeout(None);
    builder
}

pub(crate) async fn too_many<S: AsyncWrite + Unpin>(mut stream: S) {
    const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
        Content-Length: 0\r\n\r\n";
    let told = async {
        stream.write_all(BUSY).await?;
        stream.shutdown().await
    };
    let _told = tokio::time::timeout(Duration::from_secs(1), told).await;
}

/// An answer that is metered as it passes by.
#[derive(Debug)]
struct Metered {
    open: Open,
    received: u64,
    finder: Option<UsageFinder>,
    /// Where the rest is read.
    tasks: TaskTracker,
    stop: CancellationToken,
    /// What is still read is a connection of the box, as far as their number goes.
    _place: Arc<OwnedSemaphorePermit>,
}

impl Metered {
    fn end(&mut self, outcome: Outcome) {
        let usage = self.finder.as_ref().and_then(UsageFinder::usage);
        let events = self.finder.as_ref().map_or(0, UsageFinder::events);
        self.open.end(outcome, Came { received: self.received, events, usage });
    }

    async fn read_on(mut self, mut rest: Incoming) {
        let (stop, over, mut left) = (self.stop.clone(), self.open.over(), REST);
        let reading = async {
            while let Some(Ok(frame)) = rest.frame().await {
                let data = frame.into_data().unwrap_or_default();
                self.data(&data);
                left = left.saturating_sub(data.len());
                if left == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            _enough = tokio::time::timeout(REST_WAIT, reading) => {}
            () = stop.cancelled() => {}
            () = over.cancelled() => {}
        }
        self.end(Outcome::Gone);
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.end(Outcome::Gone);
    }
}

impl Tally for Metered {
    fn data(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        if let Some(finder) = &mut self.finder {
            finder.feed(bytes);
        }
    }

    fn ended(mut self: Box<Self>, outcome: Outcome) {
        self.end(outcome);
    }

    fn left(self: Box<Self>, rest: Incoming) {
        // Where nothing runs any more, or nothing can be found, it ends here.
        if self.finder.is_some()
            && let Ok(runtime) = Handle::try_current()
        {
            self.tasks.clone().spawn_on(self.read_on(rest), &runtime);
        }
    }
}

/// A provider's own words, as far as they are read.
async fn error_body(mut body: Incoming, scrub: Option<Scrub>) -> Bytes {
    let mut read = BytesMut::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap_or_default();
            let room = ERROR - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if read.len() == ERROR {
                return;
            }
        }
    };
    let _whole = tokio::time::timeout(ERROR_WAIT, reading).await;
    let Some(mut scrub) = scrub else { return read.freeze() };
    let clean = scrub.pass(read.freeze());
    Bytes::from([clean, scrub.finish()].concat())
}

fn headers_back(from_provider: &HeaderMap, scrub: Option<&Scrub>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    for (name, value) in from_provider {
        let named = PASSED_BACK.contains(name) || name.as_str().starts_with(RATES);
        if named && !scrub.is_some_and(|scrub| scrub.is_in(value.as_bytes())) {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers
}

fn is_packed(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    encodings.any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
    })
}

/// Takes as long for any token of the right length.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let differ = shown.iter().zip(token).fold(0, |differ, (one, other)| differ | (one ^ other));
    shown.len() == token.len() && !token.is_empty() && std::hint::black_box(differ) == 0
}
