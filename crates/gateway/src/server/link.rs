//! One pipe to one server, shared by the calls of one or many clients.
//!
//! Every id that crosses is ours on the server's side and the caller's own on the caller's: request ids,
//! progress tokens, the `requestId` of a cancel, subscription ids, and the ids of what the server asks.
//! An answer goes to the one who holds its id; an id nobody holds is dropped and counted.
//!
//! # Synchronization
//! One mutex over the tables, never held across an await. Queues are [`Outbox`]es with locks of their own,
//! taken after this one and never the other way round.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp::splice::{Edit, on_one_line, splice};
use mcp::{Kind, Message};
use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionId, Outlet, ServerRequest};
use crate::outbox::{Outbox, Taken};
use crate::respond::CallError;
use crate::server::answer;
use crate::server::catalogue::Catalogue;

/// How long a server has to act on a cancel before its process is ended, if nobody else uses it.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What every link to one server shares.
#[derive(Debug)]
pub struct LinkOptions {
    pub server: String,
    pub timeout: Option<Duration>,
    pub max_message: usize,
    pub catalogue: Arc<Catalogue>,
    pub counters: Arc<Counters>,
}

/// What was dropped, and why.
#[derive(Debug, Default)]
pub struct Counters {
    /// Lines that were no message.
    pub noise: AtomicU64,
    /// Answers to nothing we asked.
    pub stray: AtomicU64,
    /// Notifications for a reader that was too slow, or for nobody.
    pub dropped: AtomicU64,
    /// Lines over the limit.
    pub too_long: AtomicU64,
}

#[derive(Debug)]
pub struct Link {
    options: Arc<LinkOptions>,
    role: Role,
    /// Towards the server; every message ends with a line break.
    pub outbox: Outbox,
    state: Mutex<State>,
}

/// What the server at the other end is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its lists stand in for it once it has stopped.
    Lobby,
    Serving,
}

#[derive(Debug)]
struct State {
    next_id: u64,
    pending: HashMap<u64, Pending>,
    attached: Vec<Weak<Connection>>,
    subscriptions: HashSet<(Bytes, ConnectionId)>,
    /// A task may be asked for until then.
    held_until: Option<Instant>,
    last_used: Instant,
    answered: bool,
    ended: Option<CallError>,
}

#[derive(Debug)]
struct Pending {
    connection: Arc<Connection>,
    reply: Reply,
    id: Bytes,
    token: Option<Bytes>,
    method: Box<str>,
    /// The uri of a subscription, the cursor of a list.
    about: Option<Bytes>,
    /// What its answer will stand for, if it may stand in.
    question: Option<Bytes>,
    deadline: Option<Instant>,
    /// The caller has been told; what the server still says goes nowhere.
    given_up: Option<(Instant, GivenUp)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenUp {
    Deadline,
    Caller,
}

/// Who waits for the answer.
#[derive(Debug)]
pub enum Reply {
    Stream(Arc<Outbox>),
    /// A request of our own.
    Internal(oneshot::Sender<Message>),
}

/// What the owner of a link must do after looking at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    Keep,
    /// A call was cancelled at its deadline, the server ignored that, and nobody else is served.
    Stuck,
}

impl Link {
    pub fn new(options: Arc<LinkOptions>, role: Role) -> Self {
        let state = State {
            next_id: 1,
            pending: HashMap::new(),
            attached: Vec::new(),
            subscriptions: HashSet::new(),
            held_until: None,
            last_used: Instant::now(),
            answered: false,
            ended: None,
        };
        Self { options, role, outbox: Outbox::new(), state: Mutex::new(state) }
    }

    pub fn server(&self) -> &str {
        &self.options.server
    }

    /// Sends a request. Returns its id on the server's side.
    pub fn call(&self, connection: &Arc<Connection>, message: &Message, reply: Reply) -> Result<u64, CallError> {
        let now = Instant::now();
        let head = message.head();
        let mut state = self.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let key = state.next_id;
        state.next_id += 1;
        state.last_used = now;
        state.attach(connection);
        let about = head.name.as_ref().or(head.cursor.as_ref()).map(|span| message.slice(span));
        let pending = Pending {
            connection: Arc::clone(connection),
            reply,
            id: message.id().unwrap_or_default(),
            token: head.progress_token.as_ref().map(|span| message.slice(span)),
            method: message.method().into(),
            about,
            question: if self.role == Role::Lobby { crate::call::stand_in_question(message) } else { None },
            deadline: self.options.timeout.map(|timeout| now + timeout),
            given_up: None,
        };
        state.pending.insert(key, pending);
        let mut written = String::new();
        write!(written, "{key}").unwrap_or_default();
        let mut edits = Vec::with_capacity(2);
        for span in [&head.id, &head.progress_token].into_iter().flatten() {
            edits.push(Edit { span: span.clone(), with: written.as_bytes() });
        }
        // Under the lock, so that a notification sent later is not written earlier.
        self.outbox.push(as_line(splice(message.bytes(), &mut edits)));
        Ok(key)
    }

    /// Sends a notification or a response as it is.
    pub fn send(&self, bytes: &[u8]) {
        self.outbox.push(as_line(bytes.to_vec()));
    }

    /// Sends `message` with one of its fields replaced.
    pub fn send_with(&self, message: &Message, span: mcp::Span, with: &[u8]) {
        self.outbox.push(as_line(splice(message.bytes(), &mut [Edit { span, with }])));
    }

    /// The caller cancels. `notice` is its own notification, if it sent one.
    pub fn cancel(&self, key: u64, notice: Option<&Message>) {
        let mut state = self.lock();
        let Some(pending) = state.pending.get_mut(&key) else { return };
        if pending.given_up.is_some() {
            return;
        }
        pending.given_up = Some((Instant::now(), GivenUp::Caller));
        drop(state);
        let written = key.to_string();
        match notice.and_then(|notice| Some((notice, notice.head().request_id.clone()?))) {
            Some((notice, span)) => self.send_with(notice, span, written.as_bytes()),
            None => self.send(&cancelled(&written, "the caller is gone")),
        }
    }

    /// The client is gone: nothing of it is waited for any more.
    pub fn detach(&self, connection: &Connection) {
        let mut state = self.lock();
        state.attached.retain(|other| !std::ptr::eq(other.as_ptr(), connection));
        state.subscriptions.retain(|(_, subscriber)| *subscriber != connection.id);
        let keys: Vec<u64> = state.pending_of(connection).map(|(key, _)| *key).collect();
        drop(state);
        for key in keys {
            self.cancel(key, None);
        }
    }

    /// Takes a message from the server. Returns a queue that is full: read on when it has room.
    pub fn receive(self: &Arc<Self>, message: Message) -> Option<Arc<Outbox>> {
        match message.kind() {
            Kind::Response => self.receive_response(&message),
            Kind::Request => self.receive_request(&message),
            Kind::Notification => self.receive_notification(&message),
        }
    }

    fn receive_response(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        let head = message.head();
        let id = head.id.clone()?;
        let key = std::str::from_utf8(&message.bytes()[id.clone()]).ok().and_then(|text| text.parse().ok());
        let mut state = self.lock();
        let Some(pending) = key.and_then(|key: u64| state.pending.remove(&key)) else {
            drop(state);
            self.options.counters.stray.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(server = self.server(), "an answer to nothing that was asked was dropped");
            return None;
        };
        state.last_used = Instant::now();
        state.answered = true;
        state.note_answer(message, &pending);
        drop(state);
        if pending.given_up.is_some() {
            pending.release();
            return None;
        }
        match pending.reply {
            Reply::Internal(sender) => {
                let _gone = sender.send(message.clone());
                None
            }
            Reply::Stream(ref outbox) => {
                let answer = self.inspect(message, &pending);
                let bytes = match answer {
                    Ok(None) => message.with(&mut [Edit { span: id, with: &pending.id }]),
                    Ok(Some(changed)) => changed,
                    Err(error) => error.to_message(Some(&pending.id)),
                };
                self.remember(&pending, &bytes);
                pending.connection.end(&pending.id);
                outbox.finish(bytes);
                (!outbox.has_room()).then(|| Arc::clone(outbox))
            }
        }
    }

    /// Looks into the few answers that concern us. Some: what to send instead.
    fn inspect(self: &Arc<Self>, message: &Message, pending: &Pending) -> Result<Option<Bytes>, CallError> {
        let Some(result) = message.head().result.clone() else { return Ok(None) };
        let mut edits: Vec<(mcp::Span, Bytes)> = Vec::new();
        if mcp::meta::is_list(&pending.method) {
            if let Some(next) = answer::next_cursor(&message.bytes()[result.clone()]) {
                pending.connection.record_cursor(self, pending.about.as_ref(), next)?;
            }
            if &*pending.method == "tools/list" {
                let changed = self.options.catalogue.inspect(&message.bytes()[result.clone()])?;
                edits.extend(changed.map(|changed| (result.clone(), changed)));
            }
        }
        if &*pending.method == "subscriptions/listen" {
            let own = answer::subscription_id(message, &result);
            edits.extend(own.map(|span| (span, pending.id.clone())));
        }
        if edits.is_empty() {
            return Ok(None);
        }
        edits.extend(message.head().id.clone().map(|span| (span, pending.id.clone())));
        let mut edits: Vec<Edit<'_>> =
            edits.iter().map(|(span, with)| Edit { span: span.clone(), with }).collect();
        Ok(Some(message.with(&mut edits)))
    }

    fn remember(&self, pending: &Pending, answer: &Bytes) {
        let Some(question) = &pending.question else { return };
        match Message::parse(answer.clone()) {
            Ok(answer) if answer.head().result.is_some() => self.options.catalogue.remember(question.clone(), answer),
            _ => {}
        }
    }

    /// The server asks its client something.
    fn receive_request(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        let head = message.head();
        let (Some(id_span), Some(id)) = (head.id.clone(), message.id()) else { return None };
        let Some((connection, stream)) = self.lock().recipient() else {
            self.send(&CallError::NoSingleCaller.to_message(Some(&id)));
            return None;
        };
        let token = head.progress_token.as_ref().map(|span| message.slice(span));
        let key = connection.register_server_request(ServerRequest { link: Arc::downgrade(self), id, token });
        let written = key.to_string();
        let mut edits = vec![Edit { span: id_span, with: written.as_bytes() }];
        edits.extend(head.progress_token.clone().map(|span| Edit { span, with: written.as_bytes() }));
        let outbox = place(&connection, stream)?;
        outbox.push(message.with(&mut edits));
        (!outbox.has_room()).then_some(outbox)
    }

    fn receive_notification(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        let head = message.head();
        match message.method() {
            "notifications/progress" => self.forward_progress(message),
            "notifications/cancelled" => {
                self.forward_withdrawal(message);
                None
            }
            _ if head.subscription_id.is_some() => self.forward_event(message),
            "notifications/resources/updated" => {
                for connection in self.lock().subscribers(message) {
                    self.offer(&connection, None, message.bytes().clone());
                }
                None
            }
            method if method.ends_with("/list_changed") => {
                self.options.catalogue.forget();
                for connection in self.lock().everyone() {
                    self.offer(&connection, None, message.bytes().clone());
                }
                None
            }
            _ => {
                let recipient = self.lock().recipient();
                match recipient {
                    Some((connection, stream)) => self.offer(&connection, stream, message.bytes().clone()),
                    None => self.count_dropped(),
                }
                None
            }
        }
    }

    fn forward_progress(&self, message: &Message) -> Option<Arc<Outbox>> {
        let span = message.head().progress_token.clone()?;
        let key = std::str::from_utf8(&message.bytes()[span.clone()]).ok()?.parse::<u64>().ok();
        let mut state = self.lock();
        let timeout = self.options.timeout;
        let pending = key.and_then(|key| state.pending.get_mut(&key));
        let Some(pending) = pending.filter(|pending| pending.given_up.is_none()) else {
            drop(state);
            self.count_dropped();
            return None;
        };
        pending.deadline = timeout.map(|timeout| Instant::now() + timeout);
        let (Reply::Stream(outbox), Some(token)) = (&pending.reply, &pending.token) else { return None };
        let taken = outbox.offer(message.with(&mut [Edit { span, with: token }]));
        drop(state);
        if taken == Taken::Dropped {
            self.count_dropped();
        }
        None
    }

    /// An event of a `subscriptions/listen` goes to that request's own stream.
    fn forward_event(&self, message: &Message) -> Option<Arc<Outbox>> {
        let span = message.head().subscription_id.clone()?;
        let raw = message.slice(&span);
        let raw = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\"")).unwrap_or(&raw);
        let key = std::str::from_utf8(raw).ok()?.parse::<u64>().ok();
        let state = self.lock();
        let Some(pending) = key.and_then(|key| state.pending.get(&key)) else {
            drop(state);
            self.count_dropped();
            return None;
        };
        let Reply::Stream(outbox) = &pending.reply else { return None };
        let taken = outbox.offer(message.with(&mut [Edit { span, with: &pending.id }]));
        let outbox = Arc::clone(outbox);
        drop(state);
        if taken == Taken::Dropped {
            self.count_dropped();
        }
        (!outbox.has_room()).then_some(outbox)
    }

    /// The server withdraws a request it made of a client.
    fn forward_withdrawal(&self, message: &Message) {
        let Some(span) = message.head().request_id.clone() else { return };
        let id = message.slice(&span);
        for connection in self.lock().everyone() {
            if let Some(key) = connection.withdraw_server_request(self, &id) {
                let written = key.to_string();
                let bytes = message.with(&mut [Edit { span, with: written.as_bytes() }]);
                self.offer(&connection, None, bytes);
                return;
            }
        }
    }

    fn offer(&self, connection: &Arc<Connection>, stream: Option<Arc<Outbox>>, bytes: Bytes) {
        match place(connection, stream).map(|outbox| outbox.offer(bytes)) {
            Some(Taken::Yes) => {}
            Some(Taken::Dropped | Taken::Closed) | None => self.count_dropped(),
        }
    }

    fn count_dropped(&self) {
        self.options.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// A line was dropped for its size. Any call may have lost its answer, so none waits on.
    pub fn lost_an_answer(&self) {
        self.options.counters.too_long.fetch_add(1, Ordering::Relaxed);
        let limit = self.options.max_message;
        let error = CallError::AnswerTooLarge { server: self.server().to_owned(), limit };
        let pending: Vec<Pending> = self.lock().pending.drain().map(|(_, pending)| pending).collect();
        for pending in pending {
            pending.fail(&error);
        }
    }

    /// Looks for calls that are over their deadline.
    pub fn sweep(&self, now: Instant) -> Sweep {
        let mut late = Vec::new();
        let mut released = Vec::new();
        let mut state = self.lock();
        let mut stuck = false;
        for (key, pending) in &mut state.pending {
            if pending.given_up.is_none() && pending.deadline.is_some_and(|deadline| now >= deadline) {
                pending.given_up = Some((now, GivenUp::Deadline));
                late.push(*key);
            }
        }
        let ignored: Vec<u64> = (state.pending.iter())
            .filter(|(_, pending)| pending.given_up.is_some_and(|(at, _)| now >= at + CANCEL_GRACE))
            .map(|(key, _)| *key)
            .collect();
        for key in ignored {
            let Some(pending) = state.pending.remove(&key) else { continue };
            stuck |= matches!(pending.given_up, Some((_, GivenUp::Deadline)));
            released.push(pending);
        }
        let stuck = stuck && state.pending.values().all(|pending| pending.given_up.is_some());
        let seconds = self.options.timeout.map_or(0, |timeout| timeout.as_secs());
        let error = CallError::Timeout { server: self.server().to_owned(), seconds };
        for key in &late {
            if let Some(pending) = state.pending.get(key) {
                pending.tell(&error);
            }
        }
        drop(state);
        for key in late {
            self.send(&cancelled(&key.to_string(), "the call is over its deadline"));
        }
        for pending in released {
            pending.release();
        }
        if stuck { Sweep::Stuck } else { Sweep::Keep }
    }

    /// Since when nothing has been under way here. None while something is.
    pub fn idle_since(&self, now: Instant) -> Option<Instant> {
        let state = self.lock();
        let busy = !state.pending.is_empty() || !state.subscriptions.is_empty();
        let held = state.held_until.is_some_and(|until| now < until);
        (!busy && !held).then_some(state.last_used)
    }

    /// Whether the server ever answered anything.
    pub fn has_answered(&self) -> bool {
        self.lock().answered
    }

    pub fn touch(&self) {
        self.lock().last_used = Instant::now();
    }

    /// The pipe is gone. Everybody who waits is told why.
    pub fn end(&self, error: &CallError) {
        let mut state = self.lock();
        if state.ended.is_none() {
            state.ended = Some(error.clone());
        }
        let pending: Vec<Pending> = state.pending.drain().map(|(_, pending)| pending).collect();
        drop(state);
        self.outbox.close();
        for pending in pending {
            pending.fail(error);
        }
    }

    pub fn ended(&self) -> Option<CallError> {
        self.lock().ended.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn attach(&mut self, connection: &Arc<Connection>) {
        if self.attached.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(connection))) {
            return;
        }
        self.attached.retain(|other| other.strong_count() > 0);
        self.attached.push(Arc::downgrade(connection));
    }

    fn everyone(&self) -> Vec<Arc<Connection>> {
        self.attached.iter().filter_map(Weak::upgrade).collect()
    }

    fn pending_of(&self, connection: &Connection) -> impl Iterator<Item = (&u64, &Pending)> {
        let id = connection.id;
        self.pending.iter().filter(move |(_, pending)| pending.connection.id == id)
    }

    /// Whom a message is for that names nobody: the only client, or the only one with a call under way.
    fn recipient(&self) -> Option<(Arc<Connection>, Option<Arc<Outbox>>)> {
        let everyone = self.everyone();
        let connection = if let [only] = everyone.as_slice() { Arc::clone(only) } else {
            let mut calling = self.pending.values().filter(|pending| pending.given_up.is_none());
            let first = calling.next()?;
            let same = calling.all(|other| other.connection.id == first.connection.id);
            same.then(|| Arc::clone(&first.connection))?
        };
        // The newest stream: most likely the call that made the server speak.
        let newest = (self.pending_of(&connection))
            .filter(|(_, pending)| pending.given_up.is_none())
            .filter_map(|(key, pending)| match &pending.reply {
                Reply::Stream(outbox) if !outbox.is_closed() => Some((*key, outbox)),
                Reply::Stream(_) | Reply::Internal(_) => None,
            })
            .max_by_key(|(key, _)| *key)
            .map(|(_, outbox)| Arc::clone(outbox));
        Some((connection, newest))
    }

    fn subscribers(&self, message: &Message) -> Vec<Arc<Connection>> {
        let uri = answer::updated_uri(message);
        let everyone = self.everyone();
        if everyone.len() <= 1 {
            return everyone;
        }
        let subscribed =
            |connection: &Arc<Connection>| (self.subscriptions.iter()).any(|(of, by)| Some(of) == uri.as_ref() && *by == connection.id);
        everyone.into_iter().filter(subscribed).collect()
    }

    fn note_answer(&mut self, message: &Message, pending: &Pending) {
        let Some(result) = message.head().result.clone() else { return };
        match (&*pending.method, &pending.about) {
            ("resources/subscribe", Some(uri)) => {
                self.subscriptions.insert((uri.clone(), pending.connection.id));
            }
            ("resources/unsubscribe", Some(uri)) => {
                self.subscriptions.remove(&(uri.clone(), pending.connection.id));
            }
            ("tools/call", _) => {
                if let Some(keep) = answer::task_lifetime(&message.bytes()[result]) {
                    let until = Instant::now() + keep;
                    self.held_until = Some(self.held_until.map_or(until, |held| held.max(until)));
                }
            }
            _ => {}
        }
    }
}

impl Pending {
    /// Answers the caller; the entry may stay.
    fn tell(&self, error: &CallError) {
        if let Reply::Stream(outbox) = &self.reply {
            self.connection.end(&self.id);
            outbox.finish(error.to_message(Some(&self.id)));
        }
    }

    fn fail(self, error: &CallError) {
        if self.given_up.is_some() {
            self.release();
        } else {
            self.tell(error);
        }
    }

    /// Nothing will come any more. A stream of its own ends; a host's pipe goes on.
    fn release(&self) {
        self.connection.end(&self.id);
        if let Reply::Stream(outbox) = &self.reply {
            outbox.close_unless_shared(&self.connection);
        }
    }
}

/// Where a message for this client goes, given the stream of its newest call.
fn place(connection: &Connection, stream: Option<Arc<Outbox>>) -> Option<Arc<Outbox>> {
    match &connection.outlet {
        Outlet::Stdio(outbox) => Some(Arc::clone(outbox)),
        Outlet::Session(standing) => stream.or_else(|| Some(Arc::clone(standing))),
        Outlet::Stateless => stream,
    }
}

fn as_line(mut bytes: Vec<u8>) -> Bytes {
    on_one_line(&mut bytes);
    bytes.push(b'\n');
    Bytes::from(bytes)
}

fn cancelled(id: &str, reason: &str) -> Vec<u8> {
    let head = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#;
    format!(r#"{head}{id},"reason":"{reason}"}}}}"#).into_bytes()
}
