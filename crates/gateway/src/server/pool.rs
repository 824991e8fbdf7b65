//! The children of one server, by key.
//!
//! The key says who shares a process; where it comes from is not the pool's business. It starts a child when a key is
//! first asked for, stops those nobody uses, and never has more than it may.

mod key;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hooks::Chain;
use identity::adapters::Adapter;
use identity::projection;
use mcp::Message;
use model::{Directory, EnvSource, Isolation, Placeholder, StdioSpec};
use supervise::Spawner;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::caller::{Call, Caller, Identification, Stamp};
use crate::connection::Connection;
use crate::environment::{self, HostEnvironment, PROBE};
use crate::hooked;
use crate::recorded::{Sinks, noted};
use crate::respond::CallError;
use crate::server::breaker::{Attempt, Attempts, FAILED_START, Verdict};
use crate::server::child::{Child, Ended, ONLY_ONE};
use crate::server::link::{Link, LinkOptions, Sweep};
use crate::server::remote::door::Door;

pub use key::{CallerKey, ChildKey};

/// A lobby that nobody has asked anything for this long is stopped.
const LOBBY_IDLE: Duration = Duration::from_secs(30);
/// How often deadlines and idleness are looked at.
const SWEEP: Duration = Duration::from_millis(500);
/// How long it holds that a server does not start for somebody unknown.
const NEEDS_IDENTITY: Duration = Duration::from_secs(10);
/// How long a call without a deadline of its own waits for a free place.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct Pool {
    spec: StdioSpec,
    options: Arc<LinkOptions>,
    spawner: Arc<Spawner>,
    host: Arc<HostEnvironment>,
    identification: Arc<Identification>,
    tasks: TaskTracker,
    state: Mutex<State>,
    /// A child ended, or became idle enough to make room.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    children: HashMap<ChildKey, Arc<Child>>,
    /// Children that were told to stop and still run: they hold a place until they are gone.
    leaving: Vec<Arc<Child>>,
    attempts: Attempts,
    withheld_said: bool,
    /// Some process of this server has answered something.
    served: bool,
    /// It has ended at its start for want of an identity. Those who have one are none the worse for it.
    needs_identity_until: Option<Instant>,
    closed: bool,
}

impl State {
    /// Whether there may be one more of those. If not, one that does nothing makes room: rather one of `first`, and
    /// the one unused for longest.
    fn has_room(
        &self,
        most: usize,
        now: Instant,
        among: impl Fn(&ChildKey) -> bool,
        first: impl Fn(&ChildKey) -> bool,
    ) -> bool {
        let here = || self.children.values().filter(|child| among(&child.key));
        let leaving = self.leaving.iter().filter(|child| among(&child.key)).count();
        if here().count() + leaving < most {
            return true;
        }
        let staying = || here().filter(|child| child.is_alive());
        if staying().count() >= most {
            let idle = staying()
                .filter_map(|child| Some((child.link.idle_since(now)?, child)))
                .min_by_key(|(since, child)| (!first(&child.key), *since));
            if let Some((since, child)) = idle {
                child.stop_if_idle_since(since);
            }
        }
        false
    }
}

/// A pool in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    pub children: usize,
    /// Messages that wait to be read.
    pub queued: usize,
}

/// What a server needs from its surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub spawner: Arc<Spawner>,
    pub host: Arc<HostEnvironment>,
    pub identification: Arc<Identification>,
    pub tasks: TaskTracker,
    pub sinks: Arc<Sinks>,
    /// Through which a server is reached that has no address.
    pub door: Option<Arc<dyn Door>>,
}

/// For whom a child is started.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    /// A caller, who may be nobody in particular.
    /// With variables that hooks add.
    Caller(&'a Arc<Caller>, &'a [(String, String)]),
    /// Whoever asks what the server is, and which host that probably is.
    Asking(Option<&'static Adapter>),
    Everybody,
}

impl Pool {
    pub fn new(spec: StdioSpec, options: Arc<LinkOptions>, around: Surroundings) -> Arc<Self> {
        let Surroundings { spawner, host, identification, tasks, .. } = around;
        let pool = Arc::new(Self {
            spec,
            options,
            spawner,
            host,
            identification,
            tasks,
            state: Mutex::default(),
            freed: Notify::new(),
        });
        pool.tasks.spawn(sweep(Arc::downgrade(&pool)));
        pool
    }

    pub fn stamp(&self, call: &Call) -> Result<Arc<Stamp>, CallError> {
        self.identification.stamp(&call.caller, &self.options.server, &call.message, call.headers())
    }

    /// The call as it goes out: as hooks leave it, and noted.
    pub async fn ready(&self, hooks: Option<Arc<Chain>>, call: Call) -> Result<Call, CallError> {
        let record = call.record.clone();
        let ready = match hooks {
            // A process has no headers.
            Some(chain) => {
                Box::pin(hooked::before(chain, &self.options, Vec::new(), &self.tasks, call)).await
            }
            None => Ok(call),
        };
        noted(record, ready).await
    }

    /// The hooks this request is for.
    pub fn hooks_of(&self, message: &Message) -> Option<Arc<Chain>> {
        self.options.hooks.of(message)
    }

    /// Who asks what the server is, as far as it can be told before a call.
    pub fn asking(&self, connection: &Connection) -> Owner<'static> {
        Owner::Asking(self.identification.resolver.host_of(&connection.standing()))
    }

    /// The child at the other end of a pipe.
    pub fn child_of(&self, link: &Arc<Link>) -> Option<Arc<Child>> {
        self.lock().children.values().find(|child| Arc::ptr_eq(&child.link, link)).cloned()
    }

    /// How many there are, and what waits for them.
    pub fn census(&self) -> Census {
        let state = self.lock();
        let alive = || state.children.values().filter(|child| child.is_alive());
        Census { children: alive().count(), queued: alive().map(|child| child.link.outbox.len()).sum() }
    }

    pub fn isolation(&self) -> Isolation {
        self.spec.isolation
    }

    /// The living child of `key`, if there is one.
    pub fn find(&self, key: &ChildKey) -> Option<Arc<Child>> {
        self.lock().children.get(key).filter(|child| child.is_alive()).cloned()
    }

    /// The child of `key`, started if need be. Waits for a place, or for a server that failed before.
    pub async fn child(self: &Arc<Self>, key: &ChildKey, owner: Owner<'_>) -> Result<Arc<Child>, CallError> {
        let patience = Instant::now() + self.options.timeout.unwrap_or(PATIENCE).min(PATIENCE);
        loop {
            let freed = self.freed.notified();
            let (wait, refusal) = match self.admit(key, owner)? {
                Admission::Here(child) => return Ok(child),
                Admission::NotBefore(at, unavailable) => (at, unavailable),
                Admission::Full(busy) => (patience, busy),
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

    fn admit(self: &Arc<Self>, key: &ChildKey, owner: Owner<'_>) -> Result<Admission, CallError> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.closed {
            return Err(CallError::ShuttingDown);
        }
        if let Some(child) = state.children.get(key).filter(|child| child.is_alive()) {
            return Ok(Admission::Here(Arc::clone(child)));
        }
        if key.is_unknown() && state.needs_identity_until.is_some_and(|until| now < until) {
            let (server, stderr) = (self.options.server.clone(), state.attempts.everybody.last_words.clone());
            let others_run = state.children.values().any(|other| other.is_alive());
            let hint = if others_run { ONLY_ONE } else { "" };
            return Err(CallError::IdentityNeeded { server, hint, stderr });
        }
        // While a server fails, those that have not shown yet whether they serve count as if they would not.
        // What fails for a box, or does not answer there, is held against that box alone.
        let unproven = (state.children.values())
            .filter(|child| child.key.bound_to() == key.bound_to())
            .filter(|child| child.is_alive() && !child.link.has_answered())
            .count();
        if let Some(attempt) = state.attempts.of(key.bound_to()) {
            match attempt.breaker.ask(now, unproven) {
                Verdict::Start => {}
                Verdict::Wait { failures, until } => {
                    return Ok(Admission::NotBefore(until, self.unavailable(attempt, failures, until)));
                }
                Verdict::Refuse { failures, until } => return Err(self.unavailable(attempt, failures, until)),
            }
        }
        let own = |other: &ChildKey| key.bound_to().is_some() && other.bound_to() == key.bound_to();
        let (server, limit) = (|| self.options.server.clone(), key.most_of_a_box());
        if key.bound_to().is_some()
            && !state.has_room(limit, now, |other| key.is_like(other) && own(other), own)
        {
            return Ok(Admission::Full(CallError::BoxBusy { server: server(), limit }));
        }
        let limit = self.spec.max_children;
        if !state.has_room(limit, now, |other| key.is_like(other), own) {
            return Ok(Admission::Full(CallError::Busy { server: server(), limit }));
        }
        let child = self.start(key, owner, &mut state)?;
        Ok(Admission::Here(child))
    }

    fn unavailable(&self, attempt: &Attempt, failures: usize, until: Instant) -> CallError {
        CallError::Unavailable {
            server: self.options.server.clone(),
            failures,
            retry_after: until.saturating_duration_since(Instant::now()).as_secs() + 1,
            stderr: attempt.last_words.clone(),
        }
    }

    fn start(
        self: &Arc<Self>,
        key: &ChildKey,
        owner: Owner<'_>,
        state: &mut State,
    ) -> Result<Arc<Child>, CallError> {
        let command = self.command(owner, state);
        let process = self.spawner.spawn(command).map_err(|error| CallError::StartFailed {
            server: self.options.server.clone(),
            reason: error.to_string(),
        })?;
        let caller = match owner {
            Owner::Caller(caller, _) => Some(Arc::clone(caller)),
            Owner::Asking(_) | Owner::Everybody => None,
        };
        let child = Arc::new(Child::new(key.clone(), caller, Arc::clone(&self.options), self.tasks.clone()));
        if let Some(before) = state.children.insert(key.clone(), Arc::clone(&child)) {
            state.leaving.push(before); // It was told to stop and still runs.
        }
        let pool = Arc::clone(self);
        let driven = Arc::clone(&child);
        self.tasks.spawn(async move {
            let company = || pool.company_of(&driven);
            let ended = Arc::clone(&driven).drive(process, company).await;
            pool.gone(&driven, ended);
        });
        Ok(child)
    }

    fn command(&self, owner: Owner<'_>, state: &mut State) -> supervise::Command {
        let server = self.options.server.as_str();
        let mut built = match owner {
            Owner::Caller(caller, _) => {
                environment::build(&self.spec, &self.host, &super::values(server, None, Some(caller)))
            }
            Owner::Everybody => {
                environment::build(&self.spec, &self.host, &super::values(server, None, None))
            }
            Owner::Asking(_) => environment::build(&self.spec, &self.host, &probe_values(server)),
        };
        let mut set = |name: &str, value: &str| {
            built.variables.retain(|(other, _)| other != name);
            built.variables.push((OsString::from(name), OsString::from(value)));
        };
        match owner {
            Owner::Caller(caller, added) => {
                // Who calls is ours to say, so that comes last.
                for (name, value) in added {
                    set(name, value);
                }
                for (name, value) in projection::variables(&caller.identity, caller.workspace.as_deref()) {
                    set(name, &value);
                }
            }
            Owner::Asking(adapter) => {
                set(PROBE, "1");
                for (name, value) in projection::probe_variables(adapter) {
                    set(name, value);
                }
                // Those that are named in the configuration, whichever host asks.
                for wanted in &self.spec.env_vars {
                    if matches!(wanted.source, EnvSource::Caller(_)) {
                        set(&wanted.name, projection::probe_value(&wanted.name));
                    }
                }
            }
            Owner::Everybody => {}
        }
        if let Some(file) = self.identification.jwks_file.as_ref().and_then(|file| file.to_str()) {
            set("CALLSIGN_JWKS_FILE", file);
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
            cwd: self.directory(owner),
        }
    }

    fn directory(&self, owner: Owner<'_>) -> Option<PathBuf> {
        match self.spec.cwd.as_ref()? {
            Directory::Fixed(path) => Some(path.clone()),
            Directory::Template { path, otherwise } => {
                let caller = match owner {
                    Owner::Caller(caller, _) => Some(&**caller),
                    Owner::Asking(_) | Owner::Everybody => None,
                };
                let values = super::values(&self.options.server, None, caller);
                let rendered = path.render(&|placeholder| {
                    let value = values(placeholder)?;
                    // A workspace has been checked; an id is only a name, whatever a host wrote into it.
                    Some(if placeholder == Placeholder::Workspace {
                        value
                    } else {
                        as_file_name(&value).into()
                    })
                });
                rendered.map(|path| PathBuf::from(&*path)).or_else(|| otherwise.clone())
            }
        }
    }

    fn company_of(&self, child: &Arc<Child>) -> Company {
        let state = self.lock();
        let others = || state.children.values().filter(|other| !Arc::ptr_eq(other, child));
        Company {
            others_run: others().any(|other| other.is_alive()),
            others_served: state.served || others().any(|other| other.link.has_answered()),
        }
    }

    fn gone(&self, child: &Arc<Child>, ended: Ended) {
        let mut state = self.lock();
        let same = state.children.get(&child.key).is_some_and(|current| Arc::ptr_eq(current, child));
        if same {
            state.children.remove(&child.key);
        } else {
            state.leaving.retain(|other| !Arc::ptr_eq(other, child));
        }
        if ended == Ended::ByItself {
            let (last_words, now) = (child.stderr_tail(), Instant::now());
            let failed_start = child.started.elapsed() < FAILED_START && !child.link.has_answered();
            let serves_others =
                state.served || state.children.values().any(|other| other.link.has_answered());
            if failed_start && child.key.is_unknown() && serves_others {
                state.needs_identity_until = Some(now + NEEDS_IDENTITY);
            } else if failed_start {
                state.attempts.failed(child.key.bound_to(), now);
            }
            if let Some(attempt) = state.attempts.of(child.key.bound_to()) {
                attempt.last_words = last_words;
            }
        }
        if child.link.has_answered() {
            state.served = true;
            if let Some(attempt) = state.attempts.of(child.key.bound_to()) {
                attempt.breaker.served();
            }
        }
        drop(state);
        self.freed.notify_waiters();
    }

    /// The client is gone: what was its alone ends, what it shared goes on without it.
    pub fn connection_closed(&self, connection: &Connection) {
        let mut state = self.lock();
        let own: Vec<ChildKey> =
            state.children.keys().filter(|key| key.belongs_to(connection)).cloned().collect();
        for key in own {
            if let Some(child) = state.children.remove(&key) {
                child.stop();
                state.leaving.push(child);
            }
        }
        let others: Vec<Arc<Child>> = state.children.values().cloned().collect();
        drop(state);
        for child in others {
            child.link.detach(connection);
        }
    }

    /// The box of a session is gone, and what it made fail with it.
    pub fn forget_box(&self, session: &str) {
        self.lock().attempts.forget(session);
    }

    /// The children this client's own notifications concern.
    pub fn children_of(&self, connection: &Connection) -> Vec<Arc<Child>> {
        let state = self.lock();
        let concerns = |child: &Child| match &child.key {
            ChildKey::Caller(CallerKey::Known(_)) => child.link.serves(connection),
            ChildKey::Shared => true,
            key @ (ChildKey::Lobby(..) | ChildKey::Caller(CallerKey::Connection(..))) => {
                key.belongs_to(connection)
            }
        };
        state.children.values().filter(|child| concerns(child)).cloned().collect()
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        let state = self.lock();
        state.children.len() + state.leaving.len()
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
                ChildKey::Lobby(..) => LOBBY_IDLE,
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

/// A value as one component of a path, different values staying different.
fn as_file_name(value: &str) -> String {
    let mut name = String::with_capacity(value.len());
    for (at, byte) in value.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte == b'.' && at > 0;
        if plain {
            name.push(char::from(byte));
        } else {
            let _infallible = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// What templates stand for in a process that answers discovery only.
fn probe_values<'a>(server: &'a str) -> impl Fn(Placeholder) -> Option<std::borrow::Cow<'a, str>> {
    move |placeholder| {
        let known = super::values(server, None, None)(placeholder);
        known.or_else(|| Some(identity::adapters::PROBE.into()))
    }
}

/// What else there is and was of a server.
#[derive(Debug, Clone, Copy)]
pub struct Company {
    pub others_run: bool,
    pub others_served: bool,
}

enum Admission {
    Here(Arc<Child>),
    /// With what is said to a caller that does not wait so long.
    NotBefore(Instant, CallError),
    /// Likewise.
    Full(CallError),
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
