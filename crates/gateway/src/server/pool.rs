//! The children of one server, by key.
//!
//! The key says who shares a process; the pool does not know what it means. It starts a child when a key is
//! first asked for, stops those nobody uses, and never has more than it may.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::{Isolation, StdioSpec};
use supervise::Spawner;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::connection::{Connection, ConnectionId};
use crate::environment::{self, HostEnvironment, PROBE};
use crate::respond::CallError;
use crate::server::breaker::{Breaker, FAILED_START, Verdict};
use crate::server::child::{Child, Ended};
use crate::server::link::{LinkOptions, Sweep};

/// A lobby that nobody has asked anything for this long is stopped.
const LOBBY_IDLE: Duration = Duration::from_secs(30);
/// How often deadlines and idleness are looked at.
const SWEEP: Duration = Duration::from_millis(500);
/// How long a call without a deadline of its own waits for a free place.
const PATIENCE: Duration = Duration::from_mins(1);

/// Who shares a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ChildKey {
    /// Answers what the server is, before it is known who calls.
    Lobby(ConnectionId),
    /// Serves one caller.
    Caller(CallerKey),
    /// Serves everybody.
    Shared,
}

/// A caller. For a client without identity it is the connection, for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerKey {
    Connection(ConnectionId),
}

#[derive(Debug)]
pub struct Pool {
    spec: StdioSpec,
    options: Arc<LinkOptions>,
    spawner: Arc<Spawner>,
    host: Arc<HostEnvironment>,
    tasks: TaskTracker,
    state: Mutex<State>,
    /// A child ended, or became idle enough to make room.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    children: HashMap<ChildKey, Arc<Child>>,
    /// Children that were told to stop and still run: they hold a place until they are gone.
    leaving: usize,
    breaker: Breaker,
    last_words: String,
    withheld_said: bool,
    closed: bool,
}

/// What a pool needs from its surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub spawner: Arc<Spawner>,
    pub host: Arc<HostEnvironment>,
    pub tasks: TaskTracker,
}

impl Pool {
    pub fn new(spec: StdioSpec, options: Arc<LinkOptions>, around: Surroundings) -> Arc<Self> {
        let Surroundings { spawner, host, tasks } = around;
        let pool = Arc::new(Self {
            spec,
            options,
            spawner,
            host,
            tasks,
            state: Mutex::default(),
            freed: Notify::new(),
        });
        pool.tasks.spawn(sweep(Arc::downgrade(&pool)));
        pool
    }

    pub fn isolation(&self) -> Isolation {
        self.spec.isolation
    }

    /// The living child of `key`, if there is one.
    pub fn find(&self, key: &ChildKey) -> Option<Arc<Child>> {
        self.lock().children.get(key).filter(|child| child.is_alive()).cloned()
    }

    /// The child of `key`, started if need be. Waits for a place, or for a server that failed before.
    pub async fn child(self: &Arc<Self>, key: &ChildKey) -> Result<Arc<Child>, CallError> {
        let patience = Instant::now() + self.options.timeout.unwrap_or(PATIENCE).min(PATIENCE);
        loop {
            let freed = self.freed.notified();
            let (wait, refusal) = match self.admit(key)? {
                Admission::Here(child) => return Ok(child),
                Admission::NotBefore(at, unavailable) => (at, unavailable),
                Admission::Full => (
                    patience,
                    CallError::Busy { server: self.options.server.clone(), limit: self.spec.max_children },
                ),
            };
            if Instant::now() >= patience {
                return Err(refusal);
            }
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep_until(wait.min(patience).into()) => {}
            }
        }
    }

    fn admit(self: &Arc<Self>, key: &ChildKey) -> Result<Admission, CallError> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.closed {
            return Err(CallError::ShuttingDown);
        }
        if let Some(child) = state.children.get(key).filter(|child| child.is_alive()) {
            return Ok(Admission::Here(Arc::clone(child)));
        }
        // While a server fails, those that have not shown yet whether they serve count as if they would not.
        let unproven =
            state.children.values().filter(|child| child.is_alive() && !child.link.has_answered()).count();
        match state.breaker.ask(now, unproven) {
            Verdict::Start => {}
            Verdict::Wait { failures, until } => {
                return Ok(Admission::NotBefore(until, self.unavailable(&state, failures, until)));
            }
            Verdict::Refuse { failures, until } => return Err(self.unavailable(&state, failures, until)),
        }
        let alike =
            |other: &ChildKey| matches!(other, ChildKey::Lobby(_)) == matches!(key, ChildKey::Lobby(_));
        let count = state.children.keys().filter(|other| alike(other)).count() + state.leaving;
        if count >= self.spec.max_children {
            // The least recently used of those that do nothing makes room.
            let going =
                state.children.values().filter(|child| alike(&child.key) && !child.is_alive()).count();
            if count - going - state.leaving < self.spec.max_children {
                return Ok(Admission::Full); // Room is being made already.
            }
            let idle = (state.children.values())
                .filter(|child| alike(&child.key) && child.is_alive())
                .filter_map(|child| Some((child.link.idle_since(now)?, child)))
                .min_by_key(|(since, _)| *since);
            if let Some((since, child)) = idle {
                child.stop_if_idle_since(since);
            }
            return Ok(Admission::Full);
        }
        let child = self.start(key, &mut state)?;
        Ok(Admission::Here(child))
    }

    fn unavailable(&self, state: &State, failures: usize, until: Instant) -> CallError {
        CallError::Unavailable {
            server: self.options.server.clone(),
            failures,
            retry_after: until.saturating_duration_since(Instant::now()).as_secs() + 1,
            stderr: state.last_words.clone(),
        }
    }

    fn start(self: &Arc<Self>, key: &ChildKey, state: &mut State) -> Result<Arc<Child>, CallError> {
        let command = self.command(key, state);
        let process = self.spawner.spawn(command).map_err(|error| CallError::StartFailed {
            server: self.options.server.clone(),
            reason: error.to_string(),
        })?;
        let child = Arc::new(Child::new(key.clone(), Arc::clone(&self.options), self.tasks.clone()));
        if state.children.insert(key.clone(), Arc::clone(&child)).is_some() {
            state.leaving += 1; // The one before was told to stop and still runs.
        }
        let pool = Arc::clone(self);
        let driven = Arc::clone(&child);
        self.tasks.spawn(async move {
            let has_company = || pool.has_other_than(&driven);
            let ended = Arc::clone(&driven).drive(process, has_company).await;
            pool.gone(&driven, ended);
        });
        Ok(child)
    }

    fn command(&self, key: &ChildKey, state: &mut State) -> supervise::Command {
        let value = super::values(&self.options.server, None);
        let mut built = environment::build(&self.spec, &self.host, &value);
        if matches!(key, ChildKey::Lobby(_)) {
            built.variables.push((OsString::from(PROBE), OsString::from("1")));
        }
        if !std::mem::replace(&mut state.withheld_said, true) && !built.withheld.is_empty() {
            let names = built.withheld.join(" ");
            tracing::info!(
                server = self.options.server,
                "not passed on to the server: {names}; name those it needs in --pass-env or env_vars, or set inherit_env"
            );
        }
        supervise::Command {
            program: OsString::from(&self.spec.command),
            args: self.spec.args.iter().map(OsString::from).collect(),
            env: built.variables,
            cwd: self.spec.cwd.clone(),
        }
    }

    fn has_other_than(&self, child: &Arc<Child>) -> bool {
        self.lock().children.values().any(|other| !Arc::ptr_eq(other, child) && other.is_alive())
    }

    fn gone(&self, child: &Arc<Child>, ended: Ended) {
        let mut state = self.lock();
        let same = state.children.get(&child.key).is_some_and(|current| Arc::ptr_eq(current, child));
        if same {
            state.children.remove(&child.key);
        } else {
            state.leaving = state.leaving.saturating_sub(1);
        }
        if ended == Ended::ByItself {
            state.last_words = child.stderr_tail();
            if child.started.elapsed() < FAILED_START && !child.link.has_answered() {
                state.breaker.failed(Instant::now());
            }
        }
        if child.link.has_answered() {
            state.breaker.served();
        }
        drop(state);
        self.freed.notify_waiters();
    }

    /// The client is gone: what was its alone ends, what it shared goes on without it.
    pub fn connection_closed(&self, connection: &Connection) {
        let mut state = self.lock();
        let own = [ChildKey::Lobby(connection.id), ChildKey::Caller(CallerKey::Connection(connection.id))];
        for key in own {
            if let Some(child) = state.children.remove(&key) {
                state.leaving += 1;
                child.stop();
            }
        }
        let others: Vec<Arc<Child>> = state.children.values().cloned().collect();
        drop(state);
        for child in others {
            child.link.detach(connection);
        }
    }

    /// The children this client's own notifications concern.
    pub fn children_of(&self, connection: &Connection) -> Vec<Arc<Child>> {
        let state = self.lock();
        let concerns = |key: &ChildKey| match key {
            ChildKey::Lobby(id) | ChildKey::Caller(CallerKey::Connection(id)) => *id == connection.id,
            ChildKey::Shared => true,
        };
        state.children.values().filter(|child| concerns(&child.key)).cloned().collect()
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        let state = self.lock();
        state.children.len() + state.leaving
    }

    /// Ends all, and starts none any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        for child in state.children.values() {
            child.stop();
        }
        drop(state);
        self.freed.notify_waiters();
    }

    fn look(&self, now: Instant) {
        let children: Vec<Arc<Child>> = self.lock().children.values().cloned().collect();
        for child in children {
            if child.link.sweep(now) == Sweep::Stuck {
                tracing::warn!(server = self.options.server, "killed: it ignored the cancel of a call");
                child.kill();
                continue;
            }
            let idle = match child.key {
                ChildKey::Lobby(_) => LOBBY_IDLE,
                ChildKey::Caller(_) | ChildKey::Shared => self.spec.idle,
            };
            if let Some(since) = child.link.idle_since(now).filter(|since| now >= *since + idle) {
                child.stop_if_idle_since(since);
            }
        }
        self.freed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Admission {
    Here(Arc<Child>),
    /// With what is said to a caller that does not wait so long.
    NotBefore(Instant, CallError),
    Full,
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.lock().closed {
            return;
        }
        pool.look(Instant::now());
    }
}
