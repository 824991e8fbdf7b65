//! Streamable HTTP, both eras on one endpoint.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::session::lock;
use super::{Options, Outlet, Reply, Session, Slow};
use crate::jsonrpc::{self, Envelope, Meta, Params};
use crate::sse::{Answer, Gone, event};

const SESSION: &str = "mcp-session-id";

struct Server {
    options: Options,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// What modern callers share: the era has no sessions.
    stateless: Arc<Session>,
    random: RandomState,
}

/// Serves until the process ends.
pub fn run(address: &str, options: Options) -> std::io::Result<()> {
    let stateless = Session::new(options.clone());
    let random = RandomState::new();
    let server = Arc::new(Server { options, sessions: Mutex::default(), stateless, random });
    crate::listen::serve(address, move |request| {
        let server = server.clone();
        async move { handle(&server, request).await }
    })
}

async fn handle(server: &Arc<Server>, request: Request<Incoming>) -> Response<Answer> {
    let (parts, body) = request.into_parts();
    if parts.uri.path() != "/mcp" {
        return empty(404);
    }
    if parts.method != Method::POST
        && let Some(record) = &server.options.record
    {
        record.request(parts.method.as_str(), parts.uri.path(), &parts.headers, b"");
    }
    let named = parts.headers.get(SESSION).and_then(|id| id.to_str().ok());
    match parts.method {
        Method::POST => {
            let Ok(body) = body.collect().await else { return empty(400) };
            let body = body.to_bytes();
            if let Some(record) = &server.options.record {
                record.request(parts.method.as_str(), parts.uri.path(), &parts.headers, &body);
            }
            post(server, &parts.headers, &body).await
        }
        Method::GET if server.options.stream => {
            let Some(session) = named.and_then(|id| lock(&server.sessions).get(id).cloned()) else {
                return empty(404);
            };
            let (sender, pieces) = mpsc::channel(1024);
            // An event at once, so that the client sees that the stream is open.
            drop(sender.try_send(Bytes::from_static(b": open\n\n")));
            session.set_stream(Arc::new(Stream(sender)));
            with(200, "text/event-stream", Answer::Pieces(pieces, Gone::nothing()))
        }
        Method::DELETE => {
            let known = named.is_some_and(|id| lock(&server.sessions).remove(id).is_some());
            empty(if known { 200 } else { 404 })
        }
        _ => empty(405),
    }
}

async fn post(server: &Arc<Server>, headers: &HeaderMap, body: &Bytes) -> Response<Answer> {
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(body) else {
        return json(400, jsonrpc::error("null", -32700, "not a JSON-RPC message"));
    };
    let params = Params::of(envelope.params);
    let meta = Meta::of(params.meta);
    let method = envelope.method.as_deref();
    let seen: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    if meta.version.is_some() {
        if let Err(complaint) = mirrored(headers, &envelope, &params, &meta) {
            let id = envelope.id.map_or("null", |id| id.get());
            return json(400, jsonrpc::error(id, -32020, complaint));
        }
        return answer(&server.stateless, body, &seen, Leaving::Cancels).await;
    }
    if method == Some("initialize") {
        let id = server.fresh_id();
        let session = Session::new(server.options.clone());
        let mut response = answer(&session, body, &seen, Leaving::IsNothing).await;
        drop(lock(&server.sessions).insert(id.clone(), session));
        if let Ok(value) = id.parse() {
            response.headers_mut().insert(SESSION, value);
        }
        return response;
    }
    if method == Some("server/discover") {
        return answer(&server.stateless, body, &seen, Leaving::IsNothing).await;
    }
    let Some(id) = headers.get(SESSION).and_then(|id| id.to_str().ok()) else {
        return json(400, jsonrpc::error("null", -32600, "no Mcp-Session-Id"));
    };
    let session = lock(&server.sessions).get(id).cloned();
    match session {
        Some(session) => answer(&session, body, &seen, Leaving::IsNothing).await,
        None => json(404, jsonrpc::error("null", -32001, "no such session")),
    }
}

/// The modern era's mirrored headers have to say what the body says.
fn mirrored(
    headers: &HeaderMap,
    envelope: &Envelope<'_>,
    params: &Params<'_>,
    meta: &Meta<'_>,
) -> Result<(), &'static str> {
    let says = |name: &str, value: Option<&str>| {
        let mut given = headers.get_all(name).iter();
        let first = given.next().map(http::HeaderValue::as_bytes);
        given.next().is_none() && (value.is_none() || first == value.map(str::as_bytes))
    };
    if !says("mcp-protocol-version", meta.version.as_deref()) {
        return Err("MCP-Protocol-Version and the body differ");
    }
    if envelope.id.is_some() && !says("mcp-method", envelope.method.as_deref()) {
        return Err("Mcp-Method and the body differ");
    }
    let name = match envelope.method.as_deref() {
        Some("tools/call" | "prompts/get") => params.name.as_deref(),
        Some("resources/read") => params.uri.as_deref(),
        _ => None,
    };
    // Names outside of visible ASCII are encoded in the header; the test tools have none.
    if name.is_some_and(str::is_ascii) && !says("mcp-name", name) {
        return Err("Mcp-Name and the body differ");
    }
    Ok(())
}

/// Whether a caller who goes away cancels: so it is in the modern era, and only there.
#[derive(Clone, Copy, PartialEq)]
enum Leaving {
    Cancels,
    IsNothing,
}

async fn answer(
    session: &Arc<Session>,
    body: &Bytes,
    headers: &[(String, String)],
    leaving: Leaving,
) -> Response<Answer> {
    match session.handle(body, headers) {
        Reply::Nothing => empty(202),
        Reply::Now(line) => json(200, line),
        Reply::Status(status, line) => json(status, line),
        Reply::Later(slow) => {
            let gone = gone(session, &slow, leaving);
            let nowhere: Arc<dyn Outlet> = Arc::new(Nowhere);
            let line = tokio::task::spawn_blocking(move || (slow.job)(&nowhere)).await;
            gone.disarm();
            // A cancelled legacy request gets no answer; the POST has to end all the same.
            line.ok().flatten().map_or_else(|| empty(202), |line| json(200, line))
        }
        Reply::Stream(slow) => {
            let (sender, pieces) = mpsc::channel(1024);
            let gone = gone(session, &slow, leaving);
            drop(tokio::task::spawn_blocking(move || {
                let outlet: Arc<dyn Outlet> = Arc::new(Stream(sender));
                if let Some(line) = (slow.job)(&outlet) {
                    outlet.send(line);
                }
            }));
            with(200, "text/event-stream", Answer::Pieces(pieces, gone))
        }
    }
}

fn gone(session: &Arc<Session>, slow: &Slow, leaving: Leaving) -> Gone {
    match &slow.running {
        Some(running) if leaving == Leaving::Cancels => {
            let (session, running) = (session.clone(), running.clone());
            Gone::new(move || session.gone(&running))
        }
        _ => Gone::nothing(),
    }
}

#[derive(Debug)]
struct Stream(mpsc::Sender<Bytes>);

impl Outlet for Stream {
    fn send(&self, message: Vec<u8>) -> bool {
        // Only tools send, and they run on blocking threads.
        self.0.blocking_send(event(&message)).is_ok()
    }
}

#[derive(Debug)]
struct Nowhere;

impl Outlet for Nowhere {
    fn send(&self, _: Vec<u8>) -> bool {
        true
    }
}

impl Server {
    fn fresh_id(&self) -> String {
        let count = lock(&self.sessions).len();
        let now = std::time::Instant::now();
        format!("{:016x}{:016x}", self.random.hash_one((count, now)), RandomState::new().hash_one(now))
    }
}

fn empty(status: u16) -> Response<Answer> {
    with(status, "text/plain", Answer::whole(""))
}

fn json(status: u16, line: Vec<u8>) -> Response<Answer> {
    with(status, "application/json", Answer::whole(line))
}

fn with(status: u16, kind: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
