//! Streamable HTTP by hand, over hyper's pooled client.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Era, Events, Failure, Shared, lock};

const SESSION: &str = "mcp-session-id";

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON: of an event stream, the last event's data.
    pub fn json(&self) -> Value {
        let text = self.text();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data:")).unwrap_or(&text);
        serde_json::from_str(last.trim()).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// One endpoint, with a token and, once it is known, a legacy session id that go with every request.
#[derive(Debug)]
pub struct Http {
    pool: Pool<HttpConnector, Full<Bytes>>,
    url: String,
    token: Option<String>,
    /// Sent with every request.
    headers: Vec<(String, String)>,
    session: Mutex<Option<String>>,
}

impl Http {
    pub fn new(url: &str, token: Option<&str>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new()).build(connector);
        let token = token.map(str::to_owned);
        Self { pool, url: url.to_owned(), token, headers: Vec::new(), session: Mutex::default() }
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn session(&self) -> Option<String> {
        lock(&self.session).clone()
    }

    pub fn set_session(&self, id: Option<&str>) {
        *lock(&self.session) = id.map(str::to_owned);
    }

    /// Sends a request with exactly these headers on top of the usual ones; the same name replaces, an
    /// empty value removes.
    pub async fn send(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<http::Response<Incoming>, Failure> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.parse().expect("a test's URL");
        let map = request.headers_mut();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(token) = &self.token {
            map.insert(AUTHORIZATION, format!("Bearer {token}").parse().expect("a test's token"));
        }
        if let Some(session) = self.session() {
            map.insert(SESSION, session.parse().expect("a session id"));
        }
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut replaced: Vec<HeaderName> = Vec::new();
        for (name, value) in own.chain(headers.iter().copied()) {
            let name: HeaderName = name.parse().expect("a test's header");
            if !replaced.contains(&name) {
                map.remove(&name);
                replaced.push(name.clone());
            }
            if !value.is_empty() {
                map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a test's header"));
            }
        }
        self.pool.request(request).await.map_err(|_| Failure::Closed)
    }

    /// A whole exchange; the body is read to its end. Status 0: the connection was closed instead.
    pub async fn exchange_raw(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response {
        let closed = Response { status: 0, headers: HeaderMap::new(), body: Bytes::new() };
        let Ok(response) = self.send(method, headers, body).await else { return closed };
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Response { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub async fn post(&self, body: impl Into<Bytes>, headers: &[(&str, &str)]) -> Response {
        self.exchange_raw(Method::POST, headers, body).await
    }

    pub async fn get(&self, headers: &[(&str, &str)]) -> Response {
        self.exchange_raw(Method::GET, headers, Bytes::new()).await
    }

    pub async fn delete(&self, headers: &[(&str, &str)]) -> Response {
        self.exchange_raw(Method::DELETE, headers, Bytes::new()).await
    }

    /// The status and the events of a POST whose answer is a stream.
    pub async fn post_stream(&self, body: impl Into<Bytes>, headers: &[(&str, &str)]) -> (u16, Events) {
        self.stream(Method::POST, headers, body.into()).await
    }

    /// The legacy GET stream; give `Last-Event-ID` in the headers to go on with a broken one.
    pub async fn get_stream(&self, headers: &[(&str, &str)]) -> (u16, Events) {
        let mut all = vec![("accept", "text/event-stream")];
        all.extend_from_slice(headers);
        self.stream(Method::GET, &all, Bytes::new()).await
    }

    async fn stream(&self, method: Method, headers: &[(&str, &str)], body: Bytes) -> (u16, Events) {
        let response = self.send(method, headers, body).await.expect("an answer");
        (response.status().as_u16(), Events::new(response.into_body()))
    }

    /// Sends one message and deals with all that comes back on its answer.
    pub(super) async fn exchange(&self, shared: &Shared, message: &Value, id: Option<&Value>) {
        let headers = standard_headers(shared.era, message);
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let response = match self.send(Method::POST, &headers, message.to_string()).await {
            Ok(response) => response,
            Err(failure) => return id.map_or((), |id| shared.fail(id, failure)),
        };
        if message["method"] == "initialize"
            && let Some(session) = response.headers().get(SESSION).and_then(|id| id.to_str().ok())
        {
            self.set_session(Some(session));
        }
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        if kind.starts_with("text/event-stream") {
            return self.drain(shared, Events::new(response.into_body()), id).await;
        }
        let Ok(body) = response.into_body().collect().await else {
            return id.map_or((), |id| shared.fail(id, Failure::Closed));
        };
        let body = body.to_bytes();
        let Some(id) = id else { return };
        match serde_json::from_slice::<Value>(&body) {
            Ok(answer) if answer.get("id") == Some(id) => drop(shared.take(answer)),
            // An error that names no request belongs to the one that was sent here.
            Ok(answer) if answer["id"].is_null() && answer.get("error").is_some() => {
                shared.fail(id, Failure::Rpc(answer["error"].clone()));
            }
            _ => shared.fail(id, Failure::Status(status, String::from_utf8_lossy(&body).into_owned())),
        }
    }

    /// Reads a stream to its end. A server request is answered with a POST of its own.
    pub(super) async fn drain(&self, shared: &Shared, mut events: Events, id: Option<&Value>) {
        while let Some(event) = events.next().await {
            let Ok(message) = serde_json::from_str::<Value>(&event.data) else { continue };
            if let Some(answer) = shared.take(message) {
                let version = [("mcp-protocol-version", shared.era.version())];
                drop(self.post(answer.to_string(), &version).await);
            }
        }
        if let Some(id) = id {
            shared.fail(id, Failure::Closed);
        }
    }
}

/// The headers that the era wants beside a message.
pub(super) fn standard_headers(era: Era, message: &Value) -> Vec<(&'static str, String)> {
    let method = message["method"].as_str().unwrap_or_default();
    let mut headers = Vec::new();
    if method != "initialize" {
        headers.push(("mcp-protocol-version", era.version().to_owned()));
    }
    if era == Era::Modern && !method.is_empty() {
        headers.push(("mcp-method", method.to_owned()));
        let name = match method {
            "tools/call" | "prompts/get" => message["params"]["name"].as_str(),
            "resources/read" => message["params"]["uri"].as_str(),
            _ => None,
        };
        headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
    }
    headers
}

/// Writes bytes to a socket and reads until the other side closes or the deadline passes.
/// Gives what came, and whether the connection was closed.
pub async fn raw_http(address: &str, bytes: &[u8], deadline: Duration) -> (String, bool) {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the gateway listens");
    // The other side may close before it has read everything; its answer still counts.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(deadline, stream.read_to_end(&mut answer)).await.is_ok();
    (String::from_utf8_lossy(&answer).into_owned(), closed)
}
