//! Requests for servers reached by HTTP: one request in, one request out, the response as it comes.
//!
//! A legacy session here is one there, so ids, progress tokens and event ids need no re-keying. The session's id
//! is ours: it belongs to the principal who opened it, and the server's own never leaves.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use mcp::{Kind, Message, headers, meta};

use super::body::Body;
use super::exchange::{self, check_mirrors};
use super::inspected::Inspection;
use super::observed::Observed;
use super::returned::{Watching, passed_back, told_back};
use super::sessions::Session;
use super::{Front, Inbound, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, accepted, failed, json};
use crate::caller::{Call, Caller};
use crate::connection::{Connection, MAX_PAGES, Outlet};
use crate::ending::{Answered, Ending};
use crate::recorded::Record;
use crate::respond::CallError;
use crate::server::old_sse::{self, is_stream};
use crate::server::remote::{Outgoing, Remote};

/// What a client says that a server may want to know. Everything else stays here, credentials first of all.
const PASSED_ON: [HeaderName; 10] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::USER_AGENT,
    header::ACCEPT_LANGUAGE,
    PROTOCOL_VERSION,
    LAST_EVENT_ID,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
    HeaderName::from_static("x-request-id"),
];

pub(super) async fn post(
    front: &Arc<Front>,
    inbound: &Inbound,
    remote: &Arc<Remote>,
    message: Message,
) -> Response<Body> {
    let id = message.id();
    relay(front, inbound, remote, message).await.unwrap_or_else(|error| failed(&error, id.as_deref()))
}

async fn relay(
    front: &Arc<Front>,
    inbound: &Inbound,
    remote: &Arc<Remote>,
    message: Message,
) -> Result<Response<Body>, CallError> {
    let modern = message.head().version.is_some();
    // The new era has no sessions; an id left over from the old one means nothing there.
    let session = if modern { None } else { session_of(front, inbound)? };
    if modern {
        check_mirrors(inbound, &message)?;
    }
    let stands_alone =
        || Arc::new(Connection::new(inbound.principal.clone(), Outlet::Stateless, inbound.channel.clone()));
    let connection = session.as_ref().map_or_else(stands_alone, |session| Arc::clone(&session.connection));
    let call = identified(inbound, &connection, message)?;
    let record = call.record.clone();
    let relayed = carry(front, inbound, remote, Sending { call, session, connection, under_way: None }).await;
    if let (Err(error), Some(record)) = (&relayed, record) {
        record.failed(error);
    }
    relayed
}

async fn carry(
    front: &Arc<Front>,
    inbound: &Inbound,
    remote: &Arc<Remote>,
    sending: Sending,
) -> Result<Response<Body>, CallError> {
    let Sending { call, session, connection, .. } = sending;
    if let Some(session) = &session
        && let Some(link) = session.link()
    {
        return Ok(exchange::over_link(front, inbound, session, &link, call).await);
    }
    if call.message.method() == "notifications/cancelled"
        && !concerns_something(session.as_deref(), &call.message)
    {
        return Ok(accepted());
    }
    if call.message.method() == "tools/call" {
        remote.options.catalogue.check_call(&call.message.name().unwrap_or_default())?;
    }
    let under_way = UnderWay::begin(session.as_ref(), &call.message);
    let call = remote.ready(call).await?;
    let (ending, id) = (call.ending(), call.message.id());
    let waiting = match (&session, &id) {
        (Some(session), Some(id)) => {
            if is_looked_at(&ending) {
                session.keep_ending(id, &ending)?;
            } else {
                session.forget_answered(id);
                if let Some(record) = &ending.record {
                    session.keep_record(id, Arc::clone(record));
                }
            }
            let record = ending.record.clone();
            Some(Waiting { session: Arc::clone(session), id: id.clone(), record, goes_on: false })
        }
        _ => None,
    };
    // Hooks and the ledger take time, and who has cancelled meanwhile wants no answer.
    if let (Some(session), Some(id)) = (&session, &id)
        && session.connection.is_cancelled(id)
    {
        return Ok(accepted());
    }
    let sent = send(front, inbound, remote, Sending { call, session, connection, under_way }).await;
    match sent {
        Err(error) if !ending.is_quick() => {
            let answer = Box::pin(ending.answer(id.as_deref(), Answered::Failed(&error))).await;
            drop(waiting);
            Ok(json(error.status(), answer))
        }
        sent => {
            if let (Err(error), Some(record)) = (&sent, &ending.record) {
                record.failed(error);
            }
            // Its answer is on its way, on this stream or another.
            if let (Ok(_), Some(mut waiting)) = (&sent, waiting) {
                waiting.goes_on = true;
            }
            sent
        }
    }
}

/// Whether an answer is read, and does not only pass by.
fn is_looked_at(ending: &Ending) -> bool {
    !ending.is_quick() || ending.record.as_ref().is_some_and(|record| record.captures_results())
}

/// A request that its session keeps in mind, until it is known that an answer comes.
struct Waiting {
    session: Arc<Session>,
    id: Bytes,
    record: Option<Arc<Record>>,
    goes_on: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.goes_on {
            self.session.let_go_of_after(&self.id);
        }
        if let Some(record) = self.record.take().filter(|record| !self.goes_on || record.is_over()) {
            self.session.forget_record(&self.id, &record);
        }
    }
}

/// A message that is ready to be sent, and what belongs to it.
struct Sending {
    call: Call,
    session: Option<Arc<Session>>,
    connection: Arc<Connection>,
    under_way: Option<UnderWay>,
}

async fn send(
    front: &Arc<Front>,
    inbound: &Inbound,
    remote: &Arc<Remote>,
    sending: Sending,
) -> Result<Response<Body>, CallError> {
    let Sending { call, session, connection, under_way } = sending;
    let message = &call.message;
    let modern = message.head().version.is_some();
    if let (Some(session), true) = (&session, meta::is_list(message.method()))
        && session.count_page(message.head().cursor.is_some()) > MAX_PAGES
    {
        let server = remote.name().to_owned();
        return Err(CallError::ListTooLong { server, what: "pages", limit: MAX_PAGES });
    }
    let mut outbound = passed_on(&inbound.parts.headers, session.as_deref());
    if modern {
        mirror(message, &mut outbound);
    }
    if call.hooked.as_ref().is_some_and(|hooked| hooked.arguments_changed) {
        mirror_arguments(remote, message, &mut outbound);
    }
    let stamp = match message.kind() {
        Kind::Request => Some(remote.stamp(&call.caller, message, call.headers())?),
        Kind::Notification | Kind::Response => None,
    };
    let outgoing = Outgoing {
        method: Method::POST,
        uri: None,
        headers: outbound,
        body: stamp.as_ref().map_or_else(|| message.bytes().clone(), |stamp| stamp.put_into(message)),
        stamp: stamp.as_deref(),
        principal: Some(&inbound.principal),
        wait: remote.options.timeout,
    };
    let response = remote.send(outgoing).await?;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED || status.is_redirection() {
        return Err(remote.refusal(response).await);
    }
    if message.method() == "initialize" && status.is_client_error() && status != StatusCode::FORBIDDEN {
        return fall_back(front, inbound, remote, response, call).await;
    }
    if status == StatusCode::NOT_FOUND
        && let Some(session) = &session
    {
        session.set_upstream(None); // It does not know it any more.
        // That is this call's answer, not its end.
        if let (Some(id), Some(record)) = (message.id(), &call.record) {
            session.forget_record(&id, record);
        }
        front.sessions.close(session);
    }
    let upstream = response.headers().get(SESSION_ID).cloned();
    let ending = call.ending();
    let is_list = message.method() == "tools/list" && status == StatusCode::OK;
    let mut response = if is_list || is_looked_at(&ending) {
        let (remote, request) = (Arc::clone(remote), Some(message.clone()));
        let inspection = Inspection { remote, request, ending, session: session.clone() };
        Box::pin(inspection.pass_back(response, under_way)).await?
    } else if !status.is_success() && !is_stream(&response) {
        Box::pin(told_back(remote, response, ending.record.as_deref())).await?
    } else {
        // A stream of events may be silent as long as nothing happens.
        let listens = message.method() == "subscriptions/listen";
        let observed = (ending.record)
            .map(|record| Observed::call(remote, &response, record, session.as_ref(), message.id()));
        let silence = remote.options.timeout.filter(|_| !listens);
        passed_back(remote, response, silence, Watching { under_way, observed })
    };
    if message.method() == "initialize" && status == StatusCode::OK && session.is_none() {
        let session = open(front, inbound)?;
        session.connection.adopt_standing(connection.standing());
        session.set_upstream(upstream);
        response.headers_mut().insert(SESSION_ID, session.id.clone());
    }
    Ok(response)
}

/// A server that refuses `initialize` may speak the transport before this one.
async fn fall_back(
    front: &Arc<Front>,
    inbound: &Inbound,
    remote: &Arc<Remote>,
    response: Response<Incoming>,
    call: Call,
) -> Result<Response<Body>, CallError> {
    let Ok(link) = old_sse::connect(remote).await else {
        return Box::pin(told_back(remote, response, None)).await;
    };
    let session = open(front, inbound)?;
    let standing = remote.options.identification.standing(inbound.channel.clone(), Some(&call.message));
    session.connection.set_standing(standing);
    session.set_link(Arc::clone(&link));
    Ok(exchange::over_link(front, inbound, &session, &link, call).await)
}

fn open(front: &Front, inbound: &Inbound) -> Result<Arc<Session>, CallError> {
    let opened = front.sessions.open(inbound);
    opened.ok_or(CallError::ShuttingDown)
}

/// Who sends a message. Only requests name somebody.
fn identified(inbound: &Inbound, connection: &Connection, message: Message) -> Result<Call, CallError> {
    if message.kind() == Kind::Request {
        return inbound.identify(connection, message);
    }
    let message = inbound.server.identification.cleaned(message)?;
    Ok(Call::new(message, Arc::new(Caller::nobody(inbound.principal.clone()))))
}

/// GET and DELETE: nothing to read in them.
pub(super) async fn pass(front: &Arc<Front>, inbound: &Inbound, remote: &Arc<Remote>) -> Response<Body> {
    let passed = async {
        let session = session_of(front, inbound)?;
        if session.as_ref().is_some_and(|session| session.link().is_some()) {
            let is_get = inbound.parts.method == Method::GET;
            return Ok(if is_get { exchange::get(front, inbound) } else { exchange::delete(front, inbound) });
        }
        let ends = inbound.parts.method == Method::DELETE;
        let outgoing = Outgoing {
            method: inbound.parts.method.clone(),
            uri: None,
            headers: passed_on(&inbound.parts.headers, session.as_deref()),
            body: Bytes::new(),
            stamp: None,
            principal: Some(&inbound.principal),
            wait: remote.options.timeout,
        };
        let sent = remote.send(outgoing).await;
        if let (true, Some(session)) = (ends, &session) {
            session.set_upstream(None); // It has been told.
            front.sessions.close(session);
        }
        let response = sent?;
        if response.status() == StatusCode::UNAUTHORIZED || response.status().is_redirection() {
            return Err(remote.refusal(response).await);
        }
        let sees_answers = remote.options.hooks.sees_answers();
        if sees_answers || session.as_ref().is_some_and(|session| session.has_afters()) {
            let remote = Arc::clone(remote);
            let inspection = Inspection { remote, request: None, ending: Ending::default(), session };
            return Box::pin(inspection.pass_back(response, None)).await;
        }
        let observed = session.filter(|_| is_stream(&response)).map(Observed::stream);
        Ok(passed_back(remote, response, None, Watching { under_way: None, observed }))
    };
    passed.await.unwrap_or_else(|error| failed(&error, None))
}

/// Whether a cancel is for a request that has no answer yet. In the new era a cancel is a closed stream, and a
/// notification of one means nothing.
fn concerns_something(session: Option<&Session>, message: &Message) -> bool {
    let id = message.head().request_id.as_ref().map(|span| message.slice(span));
    let (Some(id), Some(session)) = (id, session) else { return false };
    let _relayed_not_linked = session.connection.cancel(&id);
    session.let_go_of_after(&id);
    if let Some(record) = session.take_record(&id) {
        record.canceled();
    }
    session.connection.is_under_way(&id)
}

/// A request of a legacy session, until the end of its answer has been passed back.
#[derive(Debug)]
pub(super) struct UnderWay {
    session: Arc<Session>,
    id: Bytes,
    /// False while an answer is being passed back: a client of the old era that goes away then has not cancelled,
    /// and may still do so.
    answered: bool,
}

impl UnderWay {
    fn begin(session: Option<&Arc<Session>>, message: &Message) -> Option<Self> {
        let (session, id) = (Arc::clone(session?), message.id()?);
        if message.kind() != Kind::Request {
            return None;
        }
        // The server itself judges an id that is used twice.
        let _judged_there = session.connection.begin(&id);
        Some(Self { session, id, answered: true })
    }
}

impl UnderWay {
    pub(super) fn unanswered(mut self) -> Self {
        self.answered = false;
        self
    }

    /// The last of its answer has been passed back.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.answered {
            self.session.connection.end(&self.id);
        }
    }
}

fn session_of(front: &Arc<Front>, inbound: &Inbound) -> Result<Option<Arc<Session>>, CallError> {
    let Some(id) = inbound.session_id() else { return Ok(None) };
    let session = front.session(id, inbound);
    session.map(Some).ok_or(CallError::NoSuchSession)
}

fn passed_on(inbound: &HeaderMap, session: Option<&Session>) -> HeaderMap {
    let mut outbound = HeaderMap::with_capacity(12);
    for name in &PASSED_ON {
        for value in inbound.get_all(name) {
            outbound.append(name.clone(), value.clone());
        }
    }
    for (name, value) in inbound {
        if name.as_str().starts_with("mcp-param-") {
            outbound.append(name.clone(), value.clone());
        }
    }
    if let Some(upstream) = session.and_then(Session::upstream) {
        outbound.insert(SESSION_ID, upstream);
    }
    outbound
}

/// The mirrored headers, from the body that is sent.
fn mirror(message: &Message, outbound: &mut HeaderMap) {
    let mut set = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(&headers::encode_value(text)) {
            outbound.insert(HeaderName::from_static(name), value);
        }
    };
    set("mcp-method", message.method());
    if let Some(name) = headers::mirrored_name(message) {
        set("mcp-name", &name);
    }
}

/// The mirrored arguments, once they are no longer what the client mirrored.
fn mirror_arguments(remote: &Remote, message: &Message, outbound: &mut HeaderMap) {
    let arguments = message.head().arguments.clone().map(|span| &message.bytes()[span]);
    let arguments: serde_json::Map<String, serde_json::Value> =
        arguments.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
    // Which argument a header is of only the tool's schema says. One whose value is no argument's any more is stale.
    let is_there = |value: &HeaderValue| {
        let said = value.to_str().ok().and_then(headers::decode_value);
        said.is_some_and(|said| {
            arguments.values().any(|value| match value.as_str() {
                Some(text) => text == said,
                None => value.to_string() == said,
            })
        })
    };
    let stale: Vec<HeaderName> = (outbound.iter())
        .filter(|(name, value)| name.as_str().starts_with("mcp-param-") && !is_there(value))
        .map(|(name, _)| name.clone())
        .collect();
    for name in stale {
        outbound.remove(name);
    }
    for (name, value) in remote.options.catalogue.parameters(message) {
        let value = HeaderValue::from_str(&headers::encode_value(&value));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            outbound.insert(name, value);
        }
    }
}
