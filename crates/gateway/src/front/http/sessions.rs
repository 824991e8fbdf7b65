//! Legacy HTTP sessions: who opened them, for which server, and where their messages go.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use model::{Id, Principal};
use tokio_util::sync::CancellationToken;

use super::stream::Resumable;
use super::{Front, Inbound};
use crate::caller;
use crate::connection::{Connection, Outlet};
use crate::ending::Ending;
use crate::outbox::Outbox;
use crate::recorded::{self, Record};
use crate::respond::CallError;
use crate::server::link::Link;
use crate::server::{Backend, Entrant, Server};

/// A session nobody has used for this long is over; its client is told 404 and starts anew.
const IDLE: Duration = Duration::from_mins(30);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// Sessions at once. Beyond, the one unused for longest makes room, of those of whoever opens another, if there is one.
const MOST: usize = 10_000;
/// Those of one principal, outside of its boxes.
const MOST_OF_A_PRINCIPAL: usize = MOST / 2;
/// Those of one box.
const MOST_OF_A_BOX: usize = 64;
/// Requests of one session whose answers hooks are for.
const MOST_AFTERS: usize = 256;
/// Bytes of those requests and their answers.
const MOST_HELD: usize = 16 * 1024 * 1024;
/// An answer longer than this is not kept: hooks see it again.
const LONGEST_KEPT: usize = 16 * 1024;
/// Streams of one session that can be resumed.
const MOST_STREAMS: usize = 16;

#[derive(Debug, Default)]
pub struct Sessions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<Box<str>, Arc<Session>>,
    /// Their ids, by who opened them. Nobody is in it without one.
    by_entrant: HashMap<Entrant, HashSet<Box<str>>>,
}

/// What an id is to whoever names it.
#[derive(Debug)]
pub(super) enum Found {
    Own(Arc<Session>),
    /// Another principal's, or another box's.
    Others,
    /// Nobody's, or one at another server.
    Nothing,
}

impl Table {
    /// Returns the one that made room.
    fn insert(&mut self, id: Box<str>, session: &Arc<Session>) -> Option<Arc<Session>> {
        let entrant = session.entrant();
        let most = if entrant.1.is_some() { MOST_OF_A_BOX } else { MOST_OF_A_PRINCIPAL };
        let full = self.by_id.len() >= MOST;
        let going = match self.by_entrant.get(&entrant) {
            Some(own) if full || own.len() >= most => {
                oldest(own.iter().filter_map(|id| self.by_id.get_key_value(id)))
            }
            None if full => oldest(self.by_id.iter()),
            Some(_) | None => None,
        };
        let evicted = going.and_then(|going| self.remove(&going));
        self.by_entrant.entry(entrant).or_default().insert(id.clone());
        self.by_id.insert(id, Arc::clone(session));
        evicted
    }

    fn remove(&mut self, id: &str) -> Option<Arc<Session>> {
        let session = self.by_id.remove(id)?;
        let entrant = session.entrant();
        if let Some(own) = self.by_entrant.get_mut(&entrant) {
            own.remove(id);
            if own.is_empty() {
                self.by_entrant.remove(&entrant);
            }
        }
        Some(session)
    }
}

fn oldest<'a>(among: impl Iterator<Item = (&'a Box<str>, &'a Arc<Session>)>) -> Option<Box<str>> {
    among.min_by_key(|(_, session)| session.lock().last_used).map(|(id, _)| id.clone())
}

/// One client of the old era.
#[derive(Debug)]
pub struct Session {
    pub id: HeaderValue,
    pub principal: Principal,
    pub server: Arc<Server>,
    pub connection: Arc<Connection>,
    /// The stream of what answers no request.
    pub standing: Arc<Outbox>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last_used: Instant,
    /// The id of the same session at a server reached by HTTP.
    upstream: Option<HeaderValue>,
    /// The pipe to a server that speaks HTTP+SSE.
    link: Option<Arc<Link>>,
    streams: BTreeMap<u64, Arc<Resumable>>,
    next_stream: u64,
    /// Pages of a list in a row, for servers whose lists we only pass on.
    pages: usize,
    /// By the id of their request: hooks for its answer, on whichever stream and however often it comes.
    afters: VecDeque<(Bytes, Kept)>,
    /// By the id of their request: calls whose answers pass by.
    records: VecDeque<(Bytes, Arc<Record>)>,
}

/// What is done with the answer to one request, and what came of it.
#[derive(Debug, Clone)]
pub struct Kept {
    pub ending: Ending,
    /// None: it has not come, or is too long to be kept.
    pub answer: Option<Bytes>,
    answered: bool,
}

impl Session {
    /// Keeps what is to be done with the answer to `id`.
    pub fn keep_ending(&self, id: &Bytes, ending: &Ending) -> Result<(), CallError> {
        let mut state = self.lock();
        let same = same_id(id);
        if state.afters.iter().any(|(other, kept)| *other == same && !kept.answered) {
            // Whose hooks would see which answer?
            return Err(CallError::DuplicateId(String::from_utf8_lossy(id).into_owned()));
        }
        state.afters.retain(|(other, _)| *other != same);
        let size = |kept: &Kept| kept.ending.size() + kept.answer.as_ref().map_or(0, Bytes::len);
        let mut held: usize = state.afters.iter().map(|(_, kept)| size(kept)).sum();
        while state.afters.len() >= MOST_AFTERS || held + ending.size() > MOST_HELD {
            // One that was answered may be asked for again; one that was not will be.
            let Some(at) = state.afters.iter().position(|(_, kept)| kept.answered) else {
                return Err(CallError::TooManyUnanswered { limit: MOST_AFTERS });
            };
            held -= state.afters.remove(at).map_or(0, |(_, kept)| size(&kept));
        }
        state.afters.push_back((same, Kept { ending: ending.clone(), answer: None, answered: false }));
        Ok(())
    }

    /// Nobody waits for the answer to `id` any more. Should it come all the same, hooks see it.
    pub fn let_go_of_after(&self, id: &Bytes) {
        let same = same_id(id);
        if let Some((_, kept)) = self.lock().afters.iter_mut().find(|(other, _)| *other == same) {
            kept.answered = true;
            kept.ending.canceled();
        }
    }

    /// The id is used again, by a request that no hook is for.
    pub fn forget_answered(&self, id: &Bytes) {
        let same = same_id(id);
        self.lock().afters.retain(|(other, kept)| *other != same || !kept.answered);
    }

    /// The hooks for the answer to `id`.
    pub fn after_of(&self, id: &Bytes) -> Option<Kept> {
        let id = same_id(id);
        self.lock().afters.iter().find(|(other, _)| *other == id).map(|(_, kept)| kept.clone())
    }

    /// Notes what hooks made of an answer.
    pub fn keep_answer(&self, id: &Bytes, answer: &Bytes) {
        let id = same_id(id);
        if let Some((_, kept)) = self.lock().afters.iter_mut().find(|(other, _)| *other == id) {
            kept.answered = true;
            kept.answer = Some(answer).filter(|answer| answer.len() <= LONGEST_KEPT).cloned();
        }
    }

    /// Keeps the record of a call until its answer has come, on whichever stream.
    pub fn keep_record(&self, id: &[u8], record: Arc<Record>) {
        let mut state = self.lock();
        let id = same_id(id);
        state.records.retain(|(other, _)| *other != id);
        if state.records.len() >= MOST_AFTERS {
            state.records.pop_front();
        }
        state.records.push_back((id, record));
    }

    /// Lets go of the record of a call that has ended, unless its id stands for another by now.
    pub fn forget_record(&self, id: &[u8], record: &Arc<Record>) {
        let id = same_id(id);
        self.lock().records.retain(|(other, kept)| *other != id || !Arc::ptr_eq(kept, record));
    }

    pub fn take_record(&self, id: &[u8]) -> Option<Arc<Record>> {
        let id = same_id(id);
        let mut state = self.lock();
        let at = state.records.iter().position(|(other, _)| *other == id)?;
        state.records.remove(at).map(|(_, record)| record)
    }

    pub fn has_afters(&self) -> bool {
        !self.lock().afters.is_empty()
    }
}

/// An id in one spelling: to some client `"\u0031"`, `"1"`, `1` and `1.0` are the same.
pub(super) fn same_id(id: &[u8]) -> Bytes {
    if let Some(text) = mcp::envelope::decode_string(id) {
        return Bytes::from(text.into_owned());
    }
    let number = std::str::from_utf8(id).ok().and_then(|text| text.trim().parse::<f64>().ok());
    number.map_or_else(|| Bytes::copy_from_slice(id), |number| Bytes::from(number.to_string()))
}

impl Sessions {
    /// Opens a session under an id nobody can guess.
    pub(super) fn open(&self, inbound: &Inbound) -> Option<Arc<Session>> {
        let Inbound { principal, channel, server, parts: _ } = inbound;
        let mut random = [0_u8; 24];
        getrandom::fill(&mut random).ok()?;
        let mut id = String::with_capacity(48);
        for byte in random {
            write!(id, "{byte:02x}").ok()?;
        }
        let standing = Arc::new(Outbox::new());
        let outlet = Outlet::Session(Arc::clone(&standing));
        let state = State {
            last_used: Instant::now(),
            upstream: None,
            link: None,
            streams: BTreeMap::new(),
            next_stream: 0,
            pages: 0,
            afters: VecDeque::new(),
            records: VecDeque::new(),
        };
        let session = Arc::new(Session {
            id: HeaderValue::from_str(&id).ok()?,
            principal: principal.clone(),
            server: Arc::clone(server),
            connection: Arc::new(Connection::new(principal.clone(), outlet, channel.clone())),
            standing,
            state: Mutex::new(state),
        });
        let evicted = self.lock().insert(id.into(), &session);
        if let Some(evicted) = evicted {
            evicted.end();
        }
        Some(session)
    }

    /// Whoever asks cannot tell others' from nothing.
    pub(super) fn find(&self, id: &str, inbound: &Inbound) -> Found {
        let Some(session) = self.lock().by_id.get(id).cloned() else { return Found::Nothing };
        let own = session.principal == inbound.principal
            && session.connection.channel.bound_to() == inbound.channel.bound_to();
        if !own {
            return Found::Others;
        }
        if !Arc::ptr_eq(&session.server, &inbound.server) {
            return Found::Nothing;
        }
        session.touch();
        Found::Own(session)
    }

    pub fn close(&self, session: &Session) {
        let removed = session.id.to_str().ok().and_then(|id| self.lock().remove(id));
        if let Some(session) = removed {
            session.end();
        }
    }

    pub fn end_all_of(&self, server: &Arc<Server>) {
        self.end_where(|session| Arc::ptr_eq(&session.server, server));
    }

    /// The box of a session is gone.
    pub fn end_all_of_box(&self, session: &str) {
        let of_it = |id: &Id| id.as_str() == session;
        self.end_where(|session| session.connection.channel.bound_to().is_some_and(of_it));
    }

    pub fn end_all(&self) {
        self.end_where(|_| true);
    }

    /// Ends the streams that would otherwise never end by themselves.
    pub fn close_standing_streams(&self) {
        for session in self.lock().by_id.values() {
            session.standing.close();
        }
    }

    pub fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn end_where(&self, over: impl Fn(&Session) -> bool) {
        let ended: Vec<Arc<Session>> = {
            let mut table = self.lock();
            let going = table.by_id.iter().filter(|(_, session)| over(session));
            let going: Vec<Box<str>> = going.map(|(id, _)| id.clone()).collect();
            going.iter().filter_map(|id| table.remove(id)).collect()
        };
        for session in ended {
            session.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn entrant(&self) -> Entrant {
        (self.principal.clone(), self.connection.channel.bound_to().cloned())
    }

    pub fn touch(&self) {
        self.lock().last_used = Instant::now();
    }

    pub fn upstream(&self) -> Option<HeaderValue> {
        self.lock().upstream.clone()
    }

    pub fn set_upstream(&self, id: Option<HeaderValue>) {
        self.lock().upstream = id;
    }

    pub fn link(&self) -> Option<Arc<Link>> {
        self.lock().link.clone()
    }

    pub fn set_link(&self, link: Arc<Link>) {
        self.lock().link = Some(link);
    }

    /// Counts pages: a list asked for from its beginning is a new one.
    pub fn count_page(&self, continues: bool) -> usize {
        let mut state = self.lock();
        state.pages = if continues { state.pages + 1 } else { 1 };
        state.pages
    }

    /// A stream of this session that a client can come back to.
    pub fn resumable(&self, outbox: Arc<Outbox>) -> Arc<Resumable> {
        let mut state = self.lock();
        let number = state.next_stream;
        state.next_stream += 1;
        let stream = Arc::new(Resumable::new(number, outbox));
        state.streams.insert(number, Arc::clone(&stream));
        while state.streams.len() > MOST_STREAMS {
            state.streams.pop_first();
        }
        stream
    }

    pub fn stream(&self, number: u64) -> Option<Arc<Resumable>> {
        self.lock().streams.get(&number).cloned()
    }

    /// A client that listens or waits for an answer is there, however silent.
    fn is_over(&self, now: Instant) -> bool {
        let state = self.lock();
        let recently = |at: Instant| now.saturating_duration_since(at) < IDLE;
        let used =
            recently(state.last_used) || state.streams.values().any(|stream| recently(stream.last_read()));
        !used && !self.connection.awaits_answers()
    }

    fn end(&self) {
        self.connection.close();
        let (records, afters) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.records), std::mem::take(&mut state.afters))
        };
        for (_, record) in records {
            record.canceled();
        }
        for (_, kept) in afters {
            kept.ending.canceled();
        }
        if let Some(link) = self.link() {
            link.detach(&self.connection);
            let server = link.server().to_owned();
            link.end(&CallError::Exited {
                server,
                how: "the session is over".to_owned(),
                stderr: String::new(),
            });
        }
        match &self.server.backend {
            Backend::Pipes(pipes) => pipes.pool.connection_closed(&self.connection),
            Backend::Remote(remote) => {
                let session = self.lock().upstream.take();
                if let Some(session) = session {
                    let (there, principal) = (Arc::clone(remote), self.connection.principal.clone());
                    remote.tasks.spawn(async move { there.end_session(session, &principal).await });
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends sessions nobody uses, and says what was only counted meanwhile.
pub async fn expire(front: Weak<Front>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => break,
        }
        let Some(front) = front.upgrade() else { return };
        let now = Instant::now();
        front.sessions.end_where(|session| session.is_over(now));
        caller::FORGED.tell_over(now);
        recorded::UNSUCCESSFUL.tell_over(now);
        front.note_left_out(now);
    }
    if let Some(front) = front.upgrade() {
        front.expiring.store(false, Ordering::Release);
    }
}
