//! One pipe to one server, shared by the calls of one or many clients.
//!
//! Every id that crosses is ours on the server's side and the caller's own on the caller's: request ids,
//! progress tokens, the `requestId` of a cancel, subscription ids, and the ids of what the server asks.
//! An answer goes to the one who holds its id; an id nobody holds is dropped and counted.
//!
//! # Synchronization
//! One mutex over the tables, never held across an await. Queues are [`Outbox`]es with locks of their own,
//! taken after this one and never the other way round.

mod receive;
mod state;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp::Message;
use mcp::splice::{Edit, on_one_line, splice};
use tokio::sync::oneshot;

use crate::caller::{Call, Identification, Stamp};
use crate::connection::Connection;
use crate::ending::Ending;
use crate::hooked::Slot;
use crate::outbox::Outbox;
use crate::recorded::{Recorder, Target};
use crate::respond::CallError;
use crate::server::catalogue::Catalogue;
use state::{GivenUp, Pending, State};

/// How long a server has to act on a cancel before its process is ended, if nobody else uses it.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What every link to one server shares.
#[derive(Debug)]
pub struct LinkOptions {
    pub server: String,
    pub hooks: Arc<Slot>,
    pub timeout: Option<Duration>,
    pub max_message: usize,
    pub catalogue: Arc<Catalogue>,
    pub counters: Arc<Counters>,
    pub identification: Arc<Identification>,
    pub recorder: Arc<Recorder>,
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
    /// The process, or the address, at the other end.
    pub target: Arc<Target>,
    /// Towards the server; every message ends with a line break.
    pub outbox: Outbox,
    next_id: AtomicU64,
    gone: AtomicBool,
    state: Mutex<State>,
}

/// What the server at the other end is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its lists stand in for it once it has stopped.
    Lobby,
    Serving,
    /// Serving, reached by POST: each message has headers of its own.
    Posting,
}

/// A request on its way to a server.
#[derive(Debug)]
pub struct Asked<'a> {
    pub message: &'a Message,
    pub stamp: &'a Arc<Stamp>,
    /// What the answer will stand for, if it may stand in.
    pub question: Option<Bytes>,
}

/// Who waits for the answer.
#[derive(Debug)]
pub enum Reply {
    /// Its caller, after what is done with an answer first.
    Stream(Arc<Outbox>, Ending),
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
            pending: HashMap::default(),
            attached: Vec::new(),
            many: false,
            subscriptions: HashSet::new(),
            held_until: None,
            last_used: Instant::now(),
            answered: false,
            ended: None,
        };
        Self {
            options,
            role,
            target: Arc::default(),
            outbox: Outbox::new(),
            next_id: AtomicU64::new(1),
            gone: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub fn server(&self) -> &str {
        &self.options.server
    }

    /// What the server is told of a request that is sent here.
    pub fn stamp(&self, call: &Call) -> Result<Arc<Stamp>, CallError> {
        let Call { message, caller, .. } = call;
        self.options.identification.stamp(caller, &self.options.server, message, call.headers())
    }

    /// An id on the server's side, for a request to come.
    pub fn reserve(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. Returns its id on the server's side.
    pub fn call(
        &self,
        connection: &Arc<Connection>,
        asked: Asked<'_>,
        reply: Reply,
    ) -> Result<u64, CallError> {
        let key = self.reserve();
        self.call_as(key, connection, asked, reply)?;
        Ok(key)
    }

    /// Sends a request under an id that was reserved for it.
    pub fn call_as(
        &self,
        key: u64,
        connection: &Arc<Connection>,
        asked: Asked<'_>,
        reply: Reply,
    ) -> Result<(), CallError> {
        let Asked { message, stamp, question } = asked;
        if let Reply::Stream(_, Ending { record: Some(record), .. }) = &reply {
            record.sent_to(&self.target);
        }
        let head = message.head();
        let about = head.name.as_ref().or(head.cursor.as_ref()).map(|span| message.slice(span));
        let pending = Pending {
            connection: Arc::clone(connection),
            reply,
            id: message.id().unwrap_or_default(),
            token: head.progress_token.as_ref().map(|span| message.slice(span)),
            method: match message.method() {
                "tools/call" => Cow::Borrowed("tools/call"),
                other => Cow::Owned(other.to_owned()),
            },
            about,
            question: question.filter(|_| self.role == Role::Lobby),
            // A subscription is meant to last.
            deadline: (self.options.timeout)
                .filter(|_| message.method() != "subscriptions/listen")
                .map(|timeout| Instant::now() + timeout),
            given_up: None,
        };
        let mut written = [0; 20];
        let written = decimal(key, &mut written);
        let nothing = || Edit { span: 0..0, with: b"" };
        let mut edits: [Edit<'_>; 3] = [nothing(), nothing(), nothing()];
        for (edit, span) in edits.iter_mut().zip([&head.id, &head.progress_token]) {
            if let Some(span) = span {
                *edit = Edit { span: span.clone(), with: written };
            }
        }
        let told = stamp.edit(message);
        if let Some((span, with)) = &told {
            edits[2] = Edit { span: span.clone(), with };
        }
        let line = as_line(splice(message.bytes(), &mut edits));
        let mut state = self.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        state.attach(connection);
        state.pending.insert(key, pending);
        // Under the lock, so that a notification sent later is not written earlier.
        match self.role {
            Role::Posting => self.outbox.push_stamped(line, Arc::clone(stamp)),
            Role::Lobby | Role::Serving => self.outbox.push(line),
        };
        Ok(())
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
        if let Reply::Stream(_, ending) = &pending.reply {
            ending.canceled();
        }
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

    /// Whether this client has called here.
    pub fn serves(&self, connection: &Connection) -> bool {
        self.lock().attached.iter().any(|other| std::ptr::eq(other.as_ptr(), connection))
    }

    /// Forgets a subscription that others have too, so that the server must not hear of its end.
    pub fn leave_subscription(&self, uri: &Bytes, connection: &Connection) -> bool {
        let mut state = self.lock();
        let shared = state.subscriptions.iter().any(|(of, by)| of == uri && *by != connection.id);
        shared && state.subscriptions.remove(&(uri.clone(), connection.id))
    }

    /// A line was dropped for its size. Where it does not show whose answer it was, none waits on.
    pub fn lost_an_answer(&self, id: Option<&[u8]>) {
        self.options.counters.too_long.fetch_add(1, Ordering::Relaxed);
        let limit = self.options.max_message;
        let error = CallError::AnswerTooLarge { server: self.server().to_owned(), limit };
        let key = id.and_then(|id| std::str::from_utf8(id).ok()?.parse::<u64>().ok());
        let mut state = self.lock();
        let lost: Vec<Pending> = match key.and_then(|key| state.pending.remove(&key)) {
            Some(pending) => vec![pending],
            None => state.pending.drain().map(|(_, pending)| pending).collect(),
        };
        drop(state);
        for pending in lost {
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

    /// Takes no more calls, if none is under way and none has been since `since`. A call that comes later is told
    /// to look for another child.
    pub fn retire_if_idle_since(&self, since: Instant) -> bool {
        let mut state = self.lock();
        let idle = state.pending.is_empty() && state.subscriptions.is_empty() && state.last_used <= since;
        if idle && state.ended.is_none() {
            state.ended = Some(CallError::Restarting { server: self.server().to_owned() });
        }
        idle
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
        self.gone.store(true, Ordering::Release);
        let pending: Vec<Pending> = state.pending.drain().map(|(_, pending)| pending).collect();
        drop(state);
        self.outbox.close();
        for pending in pending {
            pending.fail(error);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub fn ended(&self) -> Option<CallError> {
        self.lock().ended.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a number without a detour over a string.
fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
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
