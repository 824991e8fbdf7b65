//! A client of ours: a host on a pipe, a legacy HTTP session, or (in the new era over HTTP) nobody that lasts.
//!
//! It remembers what a new child must be told (`initialize` and what followed), which of its requests are under
//! way where, and whose server request an answer belongs to. It notes who has called on it, and decides nothing by
//! that: each request carries its own identity.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use identity::{Channel, Standing};
use mcp::{Message, meta};
use model::Principal;
use tokio::sync::Notify;

use crate::caller::Caller;
use crate::outbox::Outbox;
use crate::respond::CallError;
use crate::server::child::Child;
use crate::server::link::Link;
use crate::server::pool::CallerKey;

/// Pages one client may walk through of one list before it counts as endless.
pub const MAX_PAGES: usize = 100;
/// Requests noted for one client.
const MAX_IN_FLIGHT: usize = 4096;
/// Children noted for one client.
const MAX_CHILDREN: usize = 256;
/// Cursors and server requests kept for a client that never comes back for them.
const MAX_HANDLES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

impl ConnectionId {
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Where messages go that answer no request.
#[derive(Debug, Clone)]
pub enum Outlet {
    /// A host on a pipe: everything goes there.
    Stdio(Arc<Outbox>),
    /// A legacy HTTP session: the stream the client may open with GET.
    Session(Arc<Outbox>),
    /// Requests that stand alone.
    Stateless,
}

#[derive(Debug)]
pub struct Connection {
    pub id: ConnectionId,
    pub principal: Principal,
    pub outlet: Outlet,
    /// How its requests come in.
    pub channel: Channel,
    state: Mutex<State>,
    quiet: Notify,
}

#[derive(Debug, Default)]
struct State {
    recorded: Recorded,
    in_flight: HashMap<Bytes, Flight>,
    /// Those of them that are meant to stay open: nobody waits for their answer.
    lasting: HashSet<Bytes>,
    server_requests: HashMap<u64, ServerRequest>,
    next_server_request: u64,
    /// Which child gave out a cursor, and how many pages led to it.
    cursors: HashMap<Bytes, (Weak<Link>, usize)>,
    /// Which child gave out a task or listed a resource.
    handles: HashMap<Bytes, Weak<Link>>,
    /// The child of each caller, so that its next call need not look for it.
    children: HashMap<CallerKey, Arc<Child>>,
    /// What is known of the client as a whole.
    standing: Option<Arc<Standing>>,
    callers: Callers,
    /// Whose process answered last that its lists have changed, and which list the client has been told of.
    lister: Option<Weak<Link>>,
    told_of: HashSet<String>,
    closed: bool,
}

/// Who has called on a connection.
#[derive(Debug, Default, Clone)]
pub enum Callers {
    #[default]
    Nobody,
    One(Arc<Caller>),
    Several,
}

/// What a new child is told before its first call.
#[derive(Debug, Default, Clone)]
pub struct Recorded {
    pub initialize: Option<Message>,
    pub initialized: Option<Message>,
    /// The last `logging/setLevel`.
    pub level: Option<Message>,
}

/// A request of this client that has no answer yet.
#[derive(Debug)]
struct Flight {
    /// None while a child is being started for it.
    sent: Option<(Weak<Link>, u64)>,
    cancelled: bool,
}

/// A request a server made of this client.
#[derive(Debug, Clone)]
pub struct ServerRequest {
    pub link: Weak<Link>,
    /// As the server wrote them.
    pub id: Bytes,
    pub token: Option<Bytes>,
}

impl Connection {
    pub fn new(principal: Principal, outlet: Outlet, channel: Channel) -> Self {
        let (id, state, quiet) = (ConnectionId::next(), Mutex::default(), Notify::new());
        Self { id, principal, outlet, channel, state, quiet }
    }

    /// What is known of the client as a whole; before `initialize`, how it came in.
    pub fn standing(&self) -> Arc<Standing> {
        let mut state = self.lock();
        Arc::clone(state.standing.get_or_insert_with(|| Arc::new(Standing::new(self.channel.clone()))))
    }

    pub fn set_standing(&self, standing: Standing) {
        self.adopt_standing(Arc::new(standing));
    }

    pub fn adopt_standing(&self, standing: Arc<Standing>) {
        self.lock().standing = Some(standing);
    }

    /// Notes who called. Lists are asked for by everybody and by nobody in particular.
    pub fn note_caller(&self, caller: &Arc<Caller>, method: &str) {
        if meta::is_discovery(method) {
            return;
        }
        let Some(known) = caller.known() else { return };
        let mut state = self.lock();
        match &state.callers {
            Callers::Nobody => state.callers = Callers::One(Arc::clone(caller)),
            Callers::One(one) if one.known().as_ref() == Some(&known) => {}
            Callers::One(_) => state.callers = Callers::Several,
            Callers::Several => {}
        }
    }

    pub fn callers(&self) -> Callers {
        self.lock().callers.clone()
    }

    /// A child says that a list has changed. Whether the client is to be told: once until it asks again.
    pub fn list_changed(&self, link: &Arc<Link>, notification: &str) -> bool {
        let mut state = self.lock();
        state.lister = Some(Arc::downgrade(link));
        state.told_of.insert(notification.to_owned())
    }

    /// The client could not be told.
    pub fn not_told(&self, notification: &str) {
        self.lock().told_of.remove(notification);
    }

    /// The client asks for a list. Returns the child that said it has changed.
    pub fn asks_for_list(&self, method: &str) -> Option<Arc<Link>> {
        let mut state = self.lock();
        let notification = format!("notifications/{}_changed", method.replace("templates/", ""));
        state.told_of.remove(&notification);
        state.lister.as_ref().and_then(Weak::upgrade)
    }

    pub fn recorded(&self) -> Recorded {
        self.lock().recorded.clone()
    }

    /// Notes `initialize`. Returns whether the client had initialized before: it starts over.
    pub fn record_initialize(&self, message: &Message) -> bool {
        let mut state = self.lock();
        let again = state.recorded.initialize.is_some();
        state.children.clear();
        (state.callers, state.lister) = (Callers::Nobody, None);
        state.recorded = Recorded { initialize: Some(message.clone()), ..Recorded::default() };
        again
    }

    pub fn record_initialized(&self, message: &Message) {
        self.lock().recorded.initialized = Some(message.clone());
    }

    pub fn record_level(&self, message: &Message) {
        self.lock().recorded.level = Some(message.clone());
    }

    /// Notes that a request is under way. Requests that stand alone share no ids and are not noted.
    pub fn begin(&self, id: &Bytes) -> Result<(), CallError> {
        if matches!(self.outlet, Outlet::Stateless) {
            return Ok(());
        }
        let mut state = self.lock();
        if state.closed {
            return Err(CallError::NoSuchSession);
        }
        if state.in_flight.contains_key(id) {
            return Err(CallError::DuplicateId(String::from_utf8_lossy(id).into_owned()));
        }
        if state.in_flight.len() >= MAX_IN_FLIGHT {
            // Left over from streams the client broke off; it has forgotten them too.
            state.in_flight.retain(|_, flight| flight.sent.is_some());
        }
        state.in_flight.insert(id.clone(), Flight { sent: None, cancelled: false });
        Ok(())
    }

    /// Notes that this caller's child is this one.
    pub fn remember_child(&self, caller: CallerKey, child: &Arc<Child>) {
        let mut state = self.lock();
        if state.children.len() >= MAX_CHILDREN {
            state.children.retain(|_, child| child.is_alive());
        }
        if state.children.len() < MAX_CHILDREN {
            state.children.insert(caller, Arc::clone(child));
        }
    }

    /// Notes a request that can go out at once, to the child of the caller's last one. None if it cannot.
    pub fn begin_at_once(&self, caller: &CallerKey, id: &Bytes) -> Option<(Arc<Child>, u64)> {
        let mut state = self.lock();
        let child = state.children.get(caller)?;
        if !child.is_alive() || !child.link.outbox.has_room() {
            state.children.remove(caller);
            return None;
        }
        let child = Arc::clone(child);
        if state.closed || state.in_flight.contains_key(id) || state.in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let key = child.link.reserve();
        if !matches!(self.outlet, Outlet::Stateless) {
            let sent = Some((Arc::downgrade(&child.link), key));
            state.in_flight.insert(id.clone(), Flight { sent, cancelled: false });
        }
        Some((child, key))
    }

    /// Notes where the request went. False if it was cancelled before it could go.
    pub fn sent(&self, id: &Bytes, link: &Arc<Link>, key: u64) -> bool {
        if matches!(self.outlet, Outlet::Stateless) {
            return true;
        }
        match self.lock().in_flight.get_mut(id) {
            Some(flight) if !flight.cancelled => {
                flight.sent = Some((Arc::downgrade(link), key));
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Notes that a request under way is meant to stay open.
    pub fn will_last(&self, id: &Bytes) {
        self.lock().lasting.insert(id.clone());
    }

    pub fn end(&self, id: &Bytes) {
        let mut state = self.lock();
        state.in_flight.remove(id);
        state.lasting.remove(id);
        if state.in_flight.len() <= state.lasting.len() {
            drop(state);
            self.quiet.notify_waiters();
        }
    }

    pub fn awaits_answers(&self) -> bool {
        !self.lock().in_flight.is_empty()
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until no request is under way but those that are meant to stay open.
    pub async fn all_answered(&self) {
        loop {
            let waiting = self.quiet.notified();
            {
                let state = self.lock();
                if state.in_flight.len() <= state.lasting.len() {
                    return;
                }
            }
            waiting.await;
        }
    }

    pub fn is_under_way(&self, id: &Bytes) -> bool {
        self.lock().in_flight.contains_key(id)
    }

    /// Whether a request that has not been sent yet was cancelled meanwhile.
    pub fn is_cancelled(&self, id: &Bytes) -> bool {
        self.lock().in_flight.get(id).is_some_and(|flight| flight.cancelled)
    }

    /// Notes a cancel. Returns where the request is, if it is anywhere: a late cancel finds nothing.
    pub fn cancel(&self, id: &Bytes) -> Option<(Arc<Link>, u64)> {
        let mut state = self.lock();
        let flight = state.in_flight.get_mut(id)?;
        flight.cancelled = true;
        let (link, key) = flight.sent.as_ref()?;
        Some((link.upgrade()?, *key))
    }

    /// Gives a server's request an id of this connection.
    pub fn register_server_request(&self, request: ServerRequest) -> u64 {
        let mut state = self.lock();
        if state.server_requests.len() >= MAX_HANDLES {
            state.server_requests.retain(|_, request| request.link.strong_count() > 0);
        }
        let key = state.next_server_request;
        state.next_server_request += 1;
        state.server_requests.insert(key, request);
        key
    }

    /// Whose request this answers. Answers once.
    pub fn take_server_request(&self, id: &[u8]) -> Option<ServerRequest> {
        let key = std::str::from_utf8(id).ok()?.parse().ok()?;
        self.lock().server_requests.remove(&key)
    }

    /// Whose request has this progress token.
    pub fn server_request_of_token(&self, token: &[u8]) -> Option<ServerRequest> {
        let key = std::str::from_utf8(token).ok()?.parse::<u64>().ok()?;
        self.lock().server_requests.get(&key).cloned()
    }

    /// The server withdrew a request. Returns our id of it.
    pub fn withdraw_server_request(&self, link: &Link, id: &[u8]) -> Option<u64> {
        let mut state = self.lock();
        let key = state.server_requests.iter().find_map(|(key, request)| {
            let same = std::ptr::eq(request.link.as_ptr(), link) && request.id == id;
            same.then_some(*key)
        })?;
        state.server_requests.remove(&key);
        Some(key)
    }

    /// Notes that `link` gave out `next`, on the page that followed `from`.
    pub fn record_cursor(
        &self,
        link: &Arc<Link>,
        from: Option<&Bytes>,
        next: Bytes,
    ) -> Result<(), CallError> {
        let mut state = self.lock();
        let pages = 1 + from.and_then(|from| state.cursors.remove(from)).map_or(0, |(_, pages)| pages);
        if pages >= MAX_PAGES {
            let server = link.server().to_owned();
            return Err(CallError::ListTooLong { server, what: "pages", limit: MAX_PAGES });
        }
        if state.cursors.len() >= MAX_HANDLES {
            state.cursors.clear();
        }
        state.cursors.insert(next, (Arc::downgrade(link), pages));
        Ok(())
    }

    /// The child a cursor came from.
    pub fn link_of_cursor(&self, cursor: &[u8]) -> Option<Arc<Link>> {
        self.lock().cursors.get(cursor).and_then(|(link, _)| link.upgrade())
    }

    /// Notes that `link` gave out a task or listed a resource, as it is written.
    pub fn record_handle(&self, link: &Arc<Link>, handle: Bytes) {
        let mut state = self.lock();
        if state.handles.len() >= MAX_HANDLES {
            state.handles.retain(|_, link| link.strong_count() > 0);
        }
        if state.handles.len() < MAX_HANDLES {
            state.handles.insert(handle, Arc::downgrade(link));
        }
    }

    /// The child a task or a listed resource came from.
    pub fn link_of_handle(&self, handle: &[u8]) -> Option<Arc<Link>> {
        self.lock().handles.get(handle).and_then(Weak::upgrade)
    }

    /// The client is gone. Nothing is accepted from now on.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.in_flight.clear();
        state.lasting.clear();
        state.server_requests.clear();
        state.children.clear();
        drop(state);
        match &self.outlet {
            Outlet::Stdio(outbox) | Outlet::Session(outbox) => outbox.close(),
            Outlet::Stateless => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
