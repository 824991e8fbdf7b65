//! A host on a pipe in front of a server reached by HTTP.
//!
//! Every message becomes a POST. Order matters where the protocol says so: `initialize`, notifications and
//! answers are sent one after the other, in the host's order; requests run side by side.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use mcp::splice::Edit;
use mcp::{Kind, Message, headers};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::call;
use crate::caller::{Call, Caller};
use crate::connection::{Connection, MAX_PAGES};
use crate::ending::Answered;
use crate::front::http::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::outbox::{Outbox, Taken};
use crate::recorded::Record;
use crate::respond::CallError;
use crate::server::link::Link;
use crate::server::old_sse::{self, Events, is_stream};
use crate::server::remote::{Outgoing, Remote, post_headers};

/// How long a notification may take to be accepted; the host's later messages wait for it.
const ACCEPTED: Duration = Duration::from_secs(30);
/// How long `initialize` may take.
const OPENING: Duration = Duration::from_mins(1);
/// How soon a stream that broke is asked for again, unless the server says.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest and the longest a server may ask us to wait for that.
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How much of an error's body is shown.
const SHOWN: usize = 500;
/// Attempts to get back a stream that holds an answer.
const RESUMES: usize = 60;

#[derive(Clone)]
pub(super) struct Bridge {
    remote: Arc<Remote>,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    state: Arc<Mutex<State>>,
    /// One `initialize` at a time, also when many calls find the session lost at once.
    opening: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    session: Option<HeaderValue>,
    /// Counts sessions, so that a call can tell whether a lost one has been replaced already.
    generation: u64,
    /// The revision the server chose.
    version: Option<HeaderValue>,
    /// Set once the server turns out to speak HTTP+SSE.
    link: Option<Arc<Link>>,
    under_way: HashMap<Bytes, UnderWay>,
    standing: Option<CancellationToken>,
    pages: usize,
}

#[derive(Clone)]
struct UnderWay {
    stop: CancellationToken,
    record: Option<Arc<Record>>,
}

impl UnderWay {
    /// Before anything else is done about it: whatever comes of it now was not waited for.
    fn cancel(&self) {
        if let Some(record) = &self.record {
            record.canceled();
        }
        self.stop.cancel();
    }
}

impl Bridge {
    pub(super) fn new(remote: &Arc<Remote>, connection: &Arc<Connection>, outbox: &Arc<Outbox>) -> Self {
        Self {
            remote: Arc::clone(remote),
            connection: Arc::clone(connection),
            outbox: Arc::clone(outbox),
            state: Arc::default(),
            opening: Arc::default(),
        }
    }

    pub(super) async fn carry(&self, call: Call) {
        let link = self.lock().link.clone();
        let message = &call.message;
        if let Some(link) = link.filter(|_| message.method() != "initialize") {
            match message.kind() {
                Kind::Request => self.over_link(link, call),
                Kind::Notification => call::notify(&[link], &self.connection, message),
                Kind::Response => call::response(&self.connection, message),
            }
            return;
        }
        match message.kind() {
            Kind::Request if message.method() == "initialize" => self.initialize(call).await,
            Kind::Request => self.start(call),
            Kind::Notification if message.method() == "notifications/cancelled" => {
                self.cancel(message).await;
            }
            Kind::Notification | Kind::Response => self.tell(message).await,
        }
    }

    /// A request of a server that speaks HTTP+SSE.
    fn over_link(&self, link: Arc<Link>, call: Call) {
        let id = call.message.id().unwrap_or_default();
        // Before hooks: a cancel and the host's end find it then.
        if let Err(error) = self.connection.begin(&id) {
            call.failed(&error);
            self.outbox.finish(error.to_message(Some(&id)));
            return;
        }
        if self.remote.options.hooks.of(&call.message).is_none() && call.begin_at_once() {
            return call::over_link(&link, &self.connection, &call, &self.outbox);
        }
        let bridge = self.clone();
        self.remote.tasks.spawn(async move {
            match bridge.remote.ready(call).await {
                Ok(call) => call::over_link(&link, &bridge.connection, &call, &bridge.outbox),
                Err(error) => {
                    bridge.outbox.finish(error.to_message(Some(&id)));
                    bridge.connection.end(&id);
                }
            }
        });
    }

    /// The host is gone; the server's session is over.
    pub(super) async fn end(&self) {
        let (session, link) = {
            let mut state = self.lock();
            // What is still open now was meant to stay open.
            for (_, under_way) in state.under_way.drain() {
                under_way.cancel();
            }
            (state.session.take(), state.link.take())
        };
        if let Some(link) = link {
            link.detach(&self.connection);
            let (server, how) = (link.server().to_owned(), "the host is gone".to_owned());
            link.end(&CallError::Exited { server, how, stderr: String::new() });
        }
        if let Some(session) = session {
            self.remote.end_session(session, &self.connection.principal).await;
        }
    }

    /// Answers the host's own `initialize`, after which the server's other messages can come.
    async fn initialize(&self, call: Call) {
        let message = &call.message;
        self.connection.record_initialize(message);
        let id = message.id().unwrap_or_default();
        // The host's next messages wait for this one, its last word included.
        let late =
            |_| CallError::Timeout { server: self.remote.name().to_owned(), seconds: OPENING.as_secs() };
        let opened = tokio::time::timeout(OPENING, self.open(&call)).await.map_err(late).flatten();
        match opened {
            Ok(Opened::Streamable(answer)) => drop(self.outbox.finish(answer)),
            Ok(Opened::OldSse(link)) => {
                self.lock().link = Some(Arc::clone(&link));
                self.over_link(link, call);
            }
            Err(error) => drop(self.outbox.finish(error.to_message(Some(&id)))),
        }
    }

    /// Sends `initialize` and notes what the server says of the session.
    async fn open(&self, call: &Call) -> Result<Opened, CallError> {
        let message = &call.message;
        {
            let mut state = self.lock();
            (state.session, state.version, state.link) = (None, None, None);
            if let Some(standing) = state.standing.take() {
                standing.cancel();
            }
        }
        let response = self.post(message, Some(call)).await?;
        if response.status().is_client_error() && response.status() != StatusCode::UNAUTHORIZED {
            // Old servers refuse the POST; whether this is one shows when it is asked the old way.
            return match old_sse::connect(&self.remote).await {
                Ok(link) => Ok(Opened::OldSse(link)),
                Err(_) => Err(self.remote.refusal(response).await),
            };
        }
        let session = response.headers().get(SESSION_ID).cloned();
        let answer = self.answer_of(response, message).await?;
        let mut state = self.lock();
        state.session = session;
        state.version = chosen_version(&answer);
        state.generation += 1;
        Ok(Opened::Streamable(answer.into_bytes()))
    }

    fn start(&self, call: Call) {
        let id = call.message.id().unwrap_or_default();
        let cancelled = CancellationToken::new();
        let bridge = self.clone();
        {
            let mut state = self.lock();
            if state.under_way.contains_key(&id) {
                let error = CallError::DuplicateId(String::from_utf8_lossy(&id).into_owned());
                call.failed(&error);
                self.outbox.finish(error.to_message(Some(&id)));
                return;
            }
            let under_way = UnderWay { stop: cancelled.clone(), record: call.record.clone() };
            state.under_way.insert(id.clone(), under_way);
        }
        let _began = self.connection.begin(&id);
        if call.message.method() == "subscriptions/listen" {
            self.connection.will_last(&id);
        }
        self.remote.tasks.spawn(async move {
            let answer = tokio::select! {
                biased; // What was given up is not sent a moment later.
                () = cancelled.cancelled() => None,
                answer = bridge.request(call) => Some(answer),
            };
            bridge.lock().under_way.remove(&id);
            bridge.connection.end(&id);
            match answer {
                Some(Ok(answer)) => drop(bridge.outbox.finish(answer)),
                Some(Err(error)) => drop(bridge.outbox.finish(error.to_message(Some(&id)))),
                None => {}
            }
        });
    }

    async fn request(&self, call: Call) -> Result<Bytes, CallError> {
        if call.message.method() == "tools/call" {
            let name = call.message.name().unwrap_or_default();
            self.remote.options.catalogue.check_call(&name).inspect_err(|error| call.failed(error))?;
        }
        let call = self.remote.ready(call).await?;
        let (answered, id) = (self.ask(&call).await, call.message.id());
        let answered = match &answered {
            Ok((answer, bytes)) => Answered::By(answer, bytes.clone()),
            Err(error) => Answered::Failed(error),
        };
        Ok(call.ending().answer(id.as_deref(), answered).await)
    }

    /// The server's answer, and the same as the host gets it.
    async fn ask(&self, call: &Call) -> Result<(Message, Bytes), CallError> {
        let message = &call.message;
        if mcp::meta::is_list(message.method()) {
            self.count_page(message)?;
        }
        let generation = self.lock().generation;
        let mut response = self.post(message, Some(call)).await?;
        if response.status() == StatusCode::NOT_FOUND && self.lock().session.is_some() && !message.is_modern()
        {
            self.reopen(generation).await?;
            response = self.post(message, Some(call)).await?;
        }
        let answer = self.answer_of(response, message).await?;
        let (Some(result), "tools/list") = (answer.head().result.clone(), message.method()) else {
            let bytes = answer.bytes().clone();
            return Ok((answer, bytes));
        };
        let changed = self.remote.options.catalogue.inspect(&answer.bytes()[result.clone()])?;
        let bytes = match changed {
            Some(changed) => answer.with(&mut [Edit { span: result, with: &changed }]),
            None => answer.bytes().clone(),
        };
        Ok((answer, bytes))
    }

    /// The server has lost the session. A host on a pipe cannot start over, so we do, with its own words.
    async fn reopen(&self, lost: u64) -> Result<(), CallError> {
        let _one_at_a_time = self.opening.lock().await;
        if self.lock().generation != lost {
            return Ok(());
        }
        let recorded = self.connection.recorded();
        let Some(initialize) = recorded.initialize else { return Err(CallError::NoSuchSession) };
        tracing::info!(server = self.remote.name(), "the server lost the session; initializing again");
        let late =
            |_| CallError::Timeout { server: self.remote.name().to_owned(), seconds: OPENING.as_secs() };
        let caller = Arc::new(Caller::nobody(self.connection.principal.clone()));
        let again = Call::new(initialize, caller);
        tokio::time::timeout(OPENING, self.open(&again)).await.map_err(late).flatten()?;
        if let Some(initialized) = recorded.initialized {
            self.post_quietly(&initialized).await;
            self.listen();
        }
        if let Some(level) = recorded.level {
            self.post_quietly(&level).await;
        }
        Ok(())
    }

    async fn tell(&self, message: &Message) {
        self.post_quietly(message).await;
        if message.method() == "notifications/initialized" {
            self.connection.record_initialized(message);
            self.listen();
        }
    }

    async fn post_quietly(&self, message: &Message) {
        match tokio::time::timeout(ACCEPTED, self.post(message, None)).await {
            Ok(Ok(response)) if response.status().is_success() => {}
            Ok(Ok(response)) => {
                tracing::debug!(server = self.remote.name(), status = %response.status(), "a message was not accepted");
            }
            Ok(Err(error)) => tracing::debug!(%error, "a message was not sent"),
            Err(_late) => tracing::debug!(server = self.remote.name(), "a message was not accepted in time"),
        }
    }

    /// In the new era closing the request's stream is the cancel; in the old one the server is told.
    async fn cancel(&self, message: &Message) {
        let id = message.head().request_id.as_ref().map(|span| message.slice(span));
        let under_way = id.and_then(|id| self.lock().under_way.get(&id).cloned());
        let Some(under_way) = under_way else { return };
        under_way.cancel();
        if self.lock().version.is_some() {
            self.post_quietly(message).await;
        }
    }

    /// Opens the stream of what answers no request, if the server has one.
    fn listen(&self) {
        let stop = CancellationToken::new();
        let before = self.lock().standing.replace(stop.clone());
        if let Some(before) = before {
            before.cancel();
        }
        let bridge = self.clone();
        self.remote.tasks.spawn(async move {
            tokio::select! {
                () = bridge.listening() => {}
                () = stop.cancelled() => {}
                () = bridge.outbox.closed() => {}
            }
        });
    }

    async fn listening(&self) {
        let mut last: Option<String> = None;
        loop {
            let mut wait = RETRY;
            match self.get(last.as_deref()).await {
                Ok(response) if response.status().is_success() && is_stream(&response) => {
                    let mut events = Events::new(response.into_body(), self.remote.options.max_message);
                    while let Some(event) = events.next().await {
                        wait = event.retry.map_or(wait, |ms| {
                            Duration::from_millis(ms).clamp(SHORTEST_RETRY, LONGEST_RETRY)
                        });
                        last = event.id.or(last);
                        self.pass_on(event.data);
                    }
                }
                Ok(_refused) => return,
                Err(error) => tracing::debug!(%error, "the server's own stream could not be opened"),
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A message that is no answer of ours.
    fn pass_on(&self, data: Bytes) {
        let message = match Message::parse(data) {
            Ok(message) => message,
            Err(refused) => {
                tracing::debug!(%refused, "an event was skipped");
                return;
            }
        };
        let _taken_or_not = match message.kind() {
            Kind::Notification => self.outbox.offer(message.into_bytes()),
            Kind::Request => self.outbox.push(message.into_bytes()),
            Kind::Response => Taken::Dropped, // An answer on the wrong stream belongs to nobody here.
        };
    }

    /// Reads a response to the answer of `message`, passing on what comes before it.
    async fn answer_of(&self, response: Response<Incoming>, message: &Message) -> Result<Message, CallError> {
        let server = || self.remote.name().to_owned();
        let limit = self.remote.options.max_message;
        if is_stream(&response) && response.status().is_success() {
            return self.answer_in_stream(response, message).await;
        }
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
        let status = response.status();
        if !is_json || status == StatusCode::UNAUTHORIZED || status.is_redirection() {
            return Err(self.remote.refusal(response).await);
        }
        let collected = Limited::new(response.into_body(), limit).collect();
        let collected = match self.remote.options.timeout {
            Some(timeout) => tokio::time::timeout(timeout, collected)
                .await
                .map_err(|_| CallError::Timeout { server: server(), seconds: timeout.as_secs() })?,
            None => collected.await,
        };
        let body = collected.map_err(|_| CallError::AnswerTooLarge { server: server(), limit })?.to_bytes();
        match Message::parse(body.clone()) {
            Ok(answer) if answer.kind() == Kind::Response && answer.id() == message.id() => Ok(answer),
            // A status tells more than a body that is not for us.
            _ if !status.is_success() => Err(CallError::UpstreamStatus {
                server: server(),
                status: status.as_u16(),
                body: self.shown(&body),
            }),
            Ok(_) => Err(CallError::AnswerInvalid {
                server: server(),
                reason: "it answers another request".to_owned(),
            }),
            Err(refused) => Err(CallError::AnswerInvalid { server: server(), reason: refused.to_string() }),
        }
    }

    /// The beginning of a body, for a person.
    fn shown(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
        self.remote.options.recorder.sinks.redactor.redact(&text).into_owned()
    }

    async fn answer_in_stream(
        &self,
        response: Response<Incoming>,
        message: &Message,
    ) -> Result<Message, CallError> {
        let mut last: Option<String> = None;
        let mut wait = RETRY;
        let mut response = Some(response);
        for _ in 0..RESUMES {
            let opened = if let Some(response) = response.take() {
                Ok(response)
            } else {
                tokio::time::sleep(wait).await;
                self.get(last.as_deref()).await
            };
            if let Ok(opened) = opened
                && is_stream(&opened)
            {
                let mut events = Events::new(opened.into_body(), self.remote.options.max_message);
                while let Some(event) = self.within_deadline(events.next()).await? {
                    wait = event
                        .retry
                        .map_or(wait, |ms| Duration::from_millis(ms).clamp(SHORTEST_RETRY, LONGEST_RETRY));
                    last = event.id.or(last);
                    match Message::parse(event.data.clone()) {
                        Ok(answer) if answer.kind() == Kind::Response && answer.id() == message.id() => {
                            return Ok(answer);
                        }
                        _ => self.pass_on(event.data),
                    }
                }
            }
            // Only the old era can come back, and only to a stream that has given out an id.
            if last.is_none() || message.is_modern() {
                break;
            }
        }
        let reason = "its stream ended before the answer".to_owned();
        Err(CallError::Unreachable { server: self.remote.name().to_owned(), reason })
    }

    async fn within_deadline<T>(&self, next: impl Future<Output = T>) -> Result<T, CallError> {
        let Some(timeout) = self.remote.options.timeout else { return Ok(next.await) };
        let late =
            |_| CallError::Timeout { server: self.remote.name().to_owned(), seconds: timeout.as_secs() };
        tokio::time::timeout(timeout, next).await.map_err(late)
    }

    async fn post(&self, message: &Message, call: Option<&Call>) -> Result<Response<Incoming>, CallError> {
        let mut headers = post_headers();
        if message.head().version.is_some() {
            self.mirror(message, &mut headers);
        } else {
            self.add_session(&mut headers);
        }
        if message.method() == "logging/setLevel" {
            self.connection.record_level(message);
        }
        let stamp = call.map(|call| self.remote.stamp(&call.caller, message, call.headers())).transpose()?;
        let outgoing = Outgoing {
            method: Method::POST,
            uri: None,
            headers,
            body: stamp.as_ref().map_or_else(|| message.bytes().clone(), |stamp| stamp.put_into(message)),
            stamp: stamp.as_deref(),
            principal: Some(&self.connection.principal),
            wait: self.remote.options.timeout,
        };
        self.remote.send(outgoing).await
    }

    async fn get(&self, last: Option<&str>) -> Result<Response<Incoming>, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.add_session(&mut headers);
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert(LAST_EVENT_ID, last);
        }
        let (method, body) = (Method::GET, Bytes::new());
        let (stamp, principal, wait) = (None, Some(&self.connection.principal), Some(ACCEPTED));
        self.remote.send(Outgoing { method, uri: None, headers, body, stamp, principal, wait }).await
    }

    fn add_session(&self, headers: &mut HeaderMap) {
        let state = self.lock();
        if let Some(session) = &state.session {
            headers.insert(SESSION_ID, session.clone());
        }
        if let Some(version) = &state.version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
    }

    /// The headers of the new era, from the body.
    fn mirror(&self, message: &Message, headers: &mut HeaderMap) {
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(&headers::encode_value(text)) {
                headers.insert(name, value);
            }
        };
        set(PROTOCOL_VERSION, message.head().version.as_deref().unwrap_or_default());
        set(HeaderName::from_static("mcp-method"), message.method());
        if let Some(name) = headers::mirrored_name(message) {
            set(HeaderName::from_static("mcp-name"), &name);
        }
        for (name, value) in self.remote.options.catalogue.parameters(message) {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                set(name, &value);
            }
        }
    }

    fn count_page(&self, message: &Message) -> Result<(), CallError> {
        let mut state = self.lock();
        state.pages = if message.head().cursor.is_some() { state.pages + 1 } else { 1 };
        if state.pages > MAX_PAGES {
            let server = self.remote.name().to_owned();
            return Err(CallError::ListTooLong { server, what: "pages", limit: MAX_PAGES });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Opened {
    Streamable(Bytes),
    OldSse(Arc<Link>),
}

fn chosen_version(answer: &Message) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Result<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        version: std::borrow::Cow<'a, str>,
    }
    let result = answer.head().result.clone()?;
    let result: Result<'_> = serde_json::from_slice(&answer.bytes()[result]).ok()?;
    HeaderValue::from_str(&result.version).ok()
}
