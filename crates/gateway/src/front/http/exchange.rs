//! Requests for servers that are processes of ours.

use std::future::Future as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use mcp::{Kind, Message, headers, meta};
use serde::Deserialize;

use super::body::Body;
use super::sessions::Session;
use super::stream::{self, parse_event_id};
use super::{
    Front, Inbound, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, accepted, failed, json, not_allowed,
};
use crate::call::{self, Sent};
use crate::caller::Call;
use crate::outbox::{Outbox, Outgoing};
use crate::respond::CallError;
use crate::server::link::Link;
use crate::server::{Backend, Pipes};

/// An answer within this time is one JSON body; a slower one becomes a stream the client can come back to.
const PROMPT: Duration = Duration::from_secs(1);

pub(super) async fn post(
    front: &Arc<Front>,
    inbound: &Inbound,
    pipes: &Pipes,
    message: Message,
) -> Response<Body> {
    let id = message.id();
    let outcome = if is_modern(inbound, &message) {
        modern(inbound, pipes, message).await
    } else {
        legacy(front, inbound, pipes, message).await
    };
    outcome.unwrap_or_else(|error| failed(&error, id.as_deref()))
}

/// A request says so itself; a notification has only its header to say it with.
fn is_modern(inbound: &Inbound, message: &Message) -> bool {
    let header = inbound.parts.headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    message.head().version.is_some() || header.is_some_and(meta::is_modern)
}

/// The era without sessions: the request is the whole conversation, and leaving it is cancelling it.
async fn modern(inbound: &Inbound, pipes: &Pipes, message: Message) -> Result<Response<Body>, CallError> {
    check_mirrors(inbound, &message)?;
    pipes.catalogue.check_parameters(&inbound.parts.headers, &message)?;
    let connection = pipes.stateless(&inbound.principal, &inbound.channel);
    match message.kind() {
        Kind::Notification => {
            let message = inbound.server.identification.cleaned(message)?;
            call::notification(pipes, &connection, &message);
            return Ok(accepted());
        }
        Kind::Response => {
            return Err(CallError::BadHeaders("a response cannot be posted in this revision".to_owned()));
        }
        Kind::Request => {}
    }
    let call = inbound.identify(&connection, message)?;
    let outbox = Arc::new(Outbox::new());
    let guard = Leaving(call::request(pipes, &connection, call, Arc::clone(&outbox)).await);
    match outbox.pop().await {
        Some(answer) if answer.last => {
            let status = status_of(&answer.bytes);
            Ok(json(status, answer.bytes))
        }
        Some(first) => Ok(event_stream(Body::stream(stream::once(first, outbox, guard)))),
        None => Ok(accepted()),
    }
}

/// Cancels the call when its caller leaves. After the answer there is nothing to cancel.
struct Leaving(Sent);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Sent::To(child, key) = &self.0 {
            child.link.cancel(*key, None);
        }
    }
}

async fn legacy(
    front: &Arc<Front>,
    inbound: &Inbound,
    pipes: &Pipes,
    message: Message,
) -> Result<Response<Body>, CallError> {
    check_version(inbound)?;
    // Whoever wants no answer wants no session.
    let opens = message.method() == "initialize" && message.kind() == Kind::Request;
    let session = match inbound.session_id() {
        Some(id) => front.session(id, inbound).ok_or(CallError::NoSuchSession)?,
        None if opens => front.sessions.open(inbound).ok_or(CallError::ShuttingDown)?,
        None => {
            return Err(CallError::BadHeaders(
                "the Mcp-Session-Id header is missing; initialize first".to_owned(),
            ));
        }
    };
    let response = match message.kind() {
        Kind::Notification => {
            let message = inbound.server.identification.cleaned(message)?;
            call::notification(pipes, &session.connection, &message);
            accepted()
        }
        Kind::Response => {
            call::response(&session.connection, &inbound.server.identification.cleaned(message)?);
            accepted()
        }
        Kind::Request => {
            let id = message.id();
            match inbound.identify(&session.connection, message) {
                Ok(call) => answer(front, inbound, &session, call).await,
                Err(error) => json(error.status(), error.to_message(id.as_deref())),
            }
        }
    };
    Ok(if opens { with_session(response, &session) } else { response })
}

/// A message of a session whose server speaks HTTP+SSE.
pub(super) async fn over_link(
    front: &Arc<Front>,
    inbound: &Inbound,
    session: &Arc<Session>,
    link: &Arc<Link>,
    call: Call,
) -> Response<Body> {
    match call.message.kind() {
        Kind::Notification => call::notify(std::slice::from_ref(link), &session.connection, &call.message),
        Kind::Response => call::response(&session.connection, &call.message),
        Kind::Request => {
            let opens = call.message.method() == "initialize";
            let response = answer(front, inbound, session, call).await;
            return if opens { with_session(response, session) } else { response };
        }
    }
    accepted()
}

/// Answers with one JSON body if the server is prompt and says nothing else first, with a stream otherwise.
async fn answer(front: &Arc<Front>, inbound: &Inbound, session: &Arc<Session>, call: Call) -> Response<Body> {
    let outbox = Arc::new(Outbox::new());
    let is_initialize = call.message.method() == "initialize";
    // On its own where it takes time: a client of the old era that goes away does not cancel what it asked for.
    let mut carried = Box::pin(carry(Arc::clone(session), call, Arc::clone(&outbox)));
    let done = std::future::poll_fn(|context| Poll::Ready(carried.as_mut().poll(context).is_ready())).await;
    if !done {
        front.tasks.spawn(carried);
    }
    let first = outbox.pop();
    let first = if is_initialize { Ok(first.await) } else { tokio::time::timeout(PROMPT, first).await };
    match first {
        Ok(Some(answer)) if answer.last => json(StatusCode::OK, answer.bytes),
        Ok(Some(first)) => stream_from(inbound, session, &outbox, Some(first)),
        // Cancelled: the protocol wants no answer, the client's request wants an end.
        Ok(None) => accepted(),
        Err(_slow) => stream_from(inbound, session, &outbox, None),
    }
}

async fn carry(session: Arc<Session>, call: Call, reply: Arc<Outbox>) {
    match (&session.server.backend, session.link()) {
        (Backend::Pipes(pipes), _) => drop(call::request(pipes, &session.connection, call, reply).await),
        (Backend::Remote(remote), Some(link)) => {
            let id = call.message.id().unwrap_or_default();
            if let Err(error) = session.connection.begin(&id) {
                call.failed(&error);
                reply.finish(error.to_message(Some(&id)));
                return;
            }
            match remote.ready(call).await {
                Ok(call) => call::over_link(&link, &session.connection, &call, &reply),
                Err(error) => {
                    reply.finish(error.to_message(Some(&id)));
                    session.connection.end(&id);
                }
            }
        }
        (Backend::Remote(_), None) => reply.close(),
    }
}

/// The rest of a call as a stream the client can come back to.
fn stream_from(
    inbound: &Inbound,
    session: &Arc<Session>,
    outbox: &Arc<Outbox>,
    first: Option<Outgoing>,
) -> Response<Body> {
    let resumable = session.resumable(Arc::clone(outbox));
    let begin = match first {
        Some(first) => {
            let number = resumable.keep(&first);
            resumable.encode(number, &first)
        }
        // Older clients take an event without data for a broken message.
        None if speaks_of_priming(inbound) => resumable.prime(),
        None => Bytes::from_static(b": \n\n"),
    };
    let Some(rest) = resumable.read_after(None) else { return failed(&CallError::NoSuchStream, None) };
    let begin = futures_util::stream::once(std::future::ready(begin));
    event_stream(Body::stream(begin.chain(rest)))
}

fn speaks_of_priming(inbound: &Inbound) -> bool {
    let version = inbound.parts.headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    version.is_some_and(|version| version >= "2025-11-25")
}

pub(super) fn get(front: &Arc<Front>, inbound: &Inbound) -> Response<Body> {
    let Some(id) = inbound.session_id() else { return not_allowed() };
    let Some(session) = front.session(id, inbound) else {
        return failed(&CallError::NoSuchSession, None);
    };
    let last = inbound.parts.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let stream = match last {
        None => session.resumable(Arc::clone(&session.standing)).read_after(None),
        Some(last) => {
            parse_event_id(last).and_then(|(number, event)| session.stream(number)?.read_after(Some(event)))
        }
    };
    match stream {
        Some(stream) => event_stream(Body::stream(stream)),
        None => failed(&CallError::NoSuchStream, None),
    }
}

pub(super) fn delete(front: &Arc<Front>, inbound: &Inbound) -> Response<Body> {
    let Some(id) = inbound.session_id() else { return not_allowed() };
    match front.session(id, inbound) {
        Some(session) => {
            front.sessions.close(&session);
            json(StatusCode::OK, Bytes::from_static(b"{}"))
        }
        None => failed(&CallError::NoSuchSession, None),
    }
}

fn with_session(mut response: Response<Body>, session: &Session) -> Response<Body> {
    response.headers_mut().insert(SESSION_ID, session.id.clone());
    response
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A revision that never was is refused, as the protocol wants it.
fn check_version(inbound: &Inbound) -> Result<(), CallError> {
    let Some(version) = inbound.parts.headers.get(PROTOCOL_VERSION) else { return Ok(()) };
    let known = version.to_str().is_ok_and(|version| version.len() == 10 && version >= meta::FIRST);
    if known {
        Ok(())
    } else {
        Err(CallError::BadHeaders(
            "the MCP-Protocol-Version header names no revision of the protocol".to_owned(),
        ))
    }
}

/// What the headers say must be what the body says.
pub(super) fn check_mirrors(inbound: &Inbound, message: &Message) -> Result<(), CallError> {
    let header =
        |name: &str| inbound.parts.headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    for name in ["mcp-protocol-version", "mcp-method", "mcp-name"] {
        if inbound.parts.headers.get_all(name).iter().nth(1).is_some() {
            return Err(CallError::BadHeaders(format!("the {name} header stands there more than once")));
        }
    }
    let wrong =
        |name: &str| CallError::BadHeaders(format!("the {name} header is missing or differs from the body"));
    let version = message.head().version.as_deref();
    if message.kind() == Kind::Request {
        if version.is_none() {
            let field = meta::PROTOCOL_VERSION;
            return Err(CallError::MissingMeta(format!("params._meta[\"{field}\"] is missing")));
        }
        if header("mcp-protocol-version") != version {
            return Err(wrong("MCP-Protocol-Version"));
        }
        if !message.head().declares_capabilities {
            let field = meta::CLIENT_CAPABILITIES;
            return Err(CallError::MissingMeta(format!("params._meta[\"{field}\"] is missing")));
        }
    }
    if header("mcp-method") != Some(message.method()) {
        return Err(wrong("Mcp-Method"));
    }
    if let Some(name) = headers::mirrored_name(message) {
        let mirrored = header("mcp-name").and_then(headers::decode_value);
        if mirrored.as_deref() != Some(&*name) {
            return Err(wrong("Mcp-Name"));
        }
    }
    Ok(())
}

/// The status that belongs to an answer of the new era.
fn status_of(answer: &[u8]) -> StatusCode {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Failure>,
    }
    #[derive(Deserialize)]
    struct Failure {
        code: i64,
    }
    let failure = serde_json::from_slice::<Answer>(answer).ok().and_then(|answer| answer.error);
    match failure.map(|failure| failure.code) {
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32600 | -32602 | -32700 | -32022..=-32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}
