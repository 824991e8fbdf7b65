//! What a link keeps track of: who waits for what, who is attached, and what holds the process.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use mcp::Message;

use super::Reply;
use crate::connection::{Connection, ConnectionId, Outlet};
use crate::ending::{Answered, Asker};
use crate::outbox::Outbox;
use crate::respond::CallError;
use crate::server::answer;

#[derive(Debug)]
pub(super) struct State {
    pub(super) pending: HashMap<u64, Pending, BuildHasherDefault<OwnKey>>,
    pub(super) attached: Vec<Weak<Connection>>,
    /// More than one client has been served here, so nothing is anybody's without saying so.
    pub(super) many: bool,
    pub(super) subscriptions: HashSet<(Bytes, ConnectionId)>,
    /// A task may be asked for until then.
    pub(super) held_until: Option<Instant>,
    pub(super) last_used: Instant,
    pub(super) answered: bool,
    pub(super) ended: Option<CallError>,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) connection: Arc<Connection>,
    pub(super) reply: Reply,
    pub(super) id: Bytes,
    pub(super) token: Option<Bytes>,
    pub(super) method: Cow<'static, str>,
    /// The uri of a subscription, the cursor of a list.
    pub(super) about: Option<Bytes>,
    /// What its answer will stand for, if it may stand in.
    pub(super) question: Option<Bytes>,
    pub(super) deadline: Option<Instant>,
    /// The caller has been told; what the server still says goes nowhere.
    pub(super) given_up: Option<(Instant, GivenUp)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenUp {
    Deadline,
    Caller,
}

impl State {
    pub(super) fn attach(&mut self, connection: &Arc<Connection>) {
        if self.attached.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(connection))) {
            return;
        }
        self.many |= !self.attached.is_empty();
        self.attached.retain(|other| other.strong_count() > 0);
        self.attached.push(Arc::downgrade(connection));
    }

    pub(super) fn everyone(&self) -> Vec<Arc<Connection>> {
        self.attached.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn pending_of(&self, connection: &Connection) -> impl Iterator<Item = (&u64, &Pending)> {
        let id = connection.id;
        self.pending.iter().filter(move |(_, pending)| pending.connection.id == id)
    }

    /// Whom a message is for that names nobody: the only client there ever was, or the only one with calls here,
    /// those it has given up included: the server may still be busy with them.
    pub(super) fn recipient(&self) -> Option<(Arc<Connection>, Option<Arc<Outbox>>)> {
        let connection = if self.many {
            let mut calling = self.pending.values();
            let first = calling.next()?;
            let same = calling.all(|other| other.connection.id == first.connection.id);
            same.then(|| Arc::clone(&first.connection))?
        } else {
            self.everyone().pop()?
        };
        // Requests that stand alone have nothing in common: with several, nobody knows whose it is.
        if matches!(connection.outlet, Outlet::Stateless) && self.pending.len() != 1 {
            return None;
        }
        // The newest stream: most likely the call that made the server speak.
        let newest = (self.pending_of(&connection))
            .filter(|(_, pending)| pending.given_up.is_none())
            .filter_map(|(key, pending)| match &pending.reply {
                Reply::Stream(outbox, _) if !outbox.is_closed() => Some((*key, outbox)),
                Reply::Stream(..) | Reply::Internal(_) => None,
            })
            .max_by_key(|(key, _)| *key)
            .map(|(_, outbox)| Arc::clone(outbox));
        Some((connection, newest))
    }

    pub(super) fn subscribers(&self, message: &Message) -> Vec<Arc<Connection>> {
        let uri = answer::updated_uri(message);
        let everyone = self.everyone();
        if !self.many {
            return everyone;
        }
        let subscribed = |connection: &Arc<Connection>| {
            (self.subscriptions.iter()).any(|(of, by)| Some(of) == uri.as_ref() && *by == connection.id)
        };
        everyone.into_iter().filter(subscribed).collect()
    }

    /// Returns the task that this answer gives out, if it does.
    pub(super) fn note_answer(&mut self, message: &Message, pending: &Pending) -> Option<Bytes> {
        let result = message.head().result.clone()?;
        match (&*pending.method, &pending.about) {
            ("resources/subscribe", Some(uri)) => {
                self.subscriptions.insert((uri.clone(), pending.connection.id));
            }
            ("resources/unsubscribe", Some(uri)) => {
                self.subscriptions.remove(&(uri.clone(), pending.connection.id));
            }
            ("tools/call", _) => {
                let (task, keep) = answer::task(&message.bytes()[result])?;
                let until = Instant::now() + keep;
                self.held_until = Some(self.held_until.map_or(until, |held| held.max(until)));
                return task;
            }
            _ => {}
        }
        None
    }
}

impl Pending {
    pub(super) fn asker(&self, outbox: &Arc<Outbox>) -> Asker {
        Asker { outbox: Arc::clone(outbox), connection: Arc::clone(&self.connection), id: self.id.clone() }
    }

    /// Answers the caller; the entry may stay.
    pub(super) fn tell(&self, error: &CallError) {
        if let Reply::Stream(outbox, ending) = &self.reply {
            ending.finish_later(Answered::Failed(error), self.asker(outbox));
        }
    }

    pub(super) fn fail(self, error: &CallError) {
        if self.given_up.is_some() {
            self.release();
        } else {
            self.tell(error);
        }
    }

    /// Nothing will come any more. A stream of its own ends; a host's pipe goes on.
    pub(super) fn release(&self) {
        // At its deadline it has been answered, perhaps by hooks that are still at it.
        let told = matches!(self.given_up, Some((_, GivenUp::Deadline)));
        if told && matches!(&self.reply, Reply::Stream(_, ending) if !ending.is_quick()) {
            return;
        }
        self.connection.end(&self.id);
        if let Reply::Stream(outbox, _) = &self.reply {
            outbox.close_unless_shared(&self.connection);
        }
    }
}

/// Our own ids count up; nobody chooses them, so they need no protection against collisions.
#[derive(Debug, Default)]
pub(super) struct OwnKey(u64);

impl Hasher for OwnKey {
    fn finish(&self) -> u64 {
        // The table takes its tag from the upper bits, which a small number does not have.
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
