//! Where a box is moored: the sockets of its session, and what answers on each.
//!
//! ```text
//! control.sock ─▶ Hub ◀── OpenCode (agent): the box's own API
//! model.sock   ─▶ Broker ─▶ the provider, with the key          metered to the run at work
//! mcp.sock     ─▶ Guest ─▶ the gateway's front                  bound to this session and its run
//! egress.sock  ─▶ Egress ─▶ hosts that the session may reach
//! ```
//!
//! A quay lasts as long as its box, or this daemon. The next daemon makes the sockets anew, in the same directory.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent::{Opening, Since, Way};
use broker::{
    Allow, Broker, BrokerOptions, Cap, Decided, Egress, EgressOptions, Endpoint, Limits, Meter, Notes,
    Refusal, Spent, Ticket, Upstream, Verdict,
};
use gateway::front::http::Guest;
use gateway::server::remote;
use identity::seal::{SealKey, Seals};
use identity::{Bound, Tenant};
use model::Id;
use model::session::{Session, SessionId};
use model::settings::{Budget, Egress as Reach, Secret, SessionSettings};
use sessions::{Access, Asking, Live, SessionDirs, Unasked};
use tether::{Hub, Sockets};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::threads::Threads;

/// How long a box may take to answer that it connects.
const OPEN: Duration = Duration::from_secs(10);
/// After a failure to accept: out of descriptors, most likely.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections of one box to one of its sockets.
const CONNECTIONS: usize = 128;

/// What the thread that serves the gateway is told of boxes.
#[derive(Debug)]
pub enum Visit {
    Arrived(Arrival),
    /// The box has ended. Nobody comes back to what it had open.
    Gone(SessionId),
}

/// A connection of a box to the gateway, on its way to a thread that serves it.
#[derive(Debug)]
pub struct Arrival {
    pub stream: std::os::unix::net::UnixStream,
    pub guest: Arc<Guest>,
    /// It ends with its quay.
    pub end: CancellationToken,
    /// To be dropped when it has been served: one box has only so many.
    pub served: oneshot::Sender<()>,
}

/// All that are there.
pub struct Quays {
    pub live: Arc<Live>,
    /// To the threads that serve the gateway.
    pub gateway: mpsc::Sender<Visit>,
    pub threads: Arc<Threads>,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
    moored: Mutex<HashMap<SessionId, Moored>>,
}

struct Moored {
    hub: Arc<Hub>,
    /// With which it was made. Another box has another token, and other settings want other ways out.
    token: String,
    settings: SessionSettings,
    key: Option<Secret>,
    /// Dropped with it, and with it everything that is served.
    _end: DropGuard,
}

impl fmt::Debug for Quays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quays").field("moored", &self.lock().len()).finish_non_exhaustive()
    }
}

/// What a quay is made from.
#[derive(Debug)]
pub struct Plan<'a> {
    pub session: &'a Session,
    pub settings: &'a SessionSettings,
    pub access: &'a Access,
    pub directories: &'a SessionDirs,
    pub key: Option<Secret>,
}

impl Quays {
    pub fn new(
        live: Arc<Live>,
        gateway: mpsc::Sender<Visit>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { live, gateway, threads: Arc::default(), tasks, stop, moored: Mutex::default() }
    }

    /// Idempotent for one box. Within a runtime.
    pub fn moor(&self, plan: &Plan<'_>) -> Result<(), String> {
        let id = &plan.session.id;
        let same = |moored: &Moored| {
            moored.token == plan.access.token && moored.settings == *plan.settings && moored.key == plan.key
        };
        if self.lock().get(id).is_some_and(same) {
            return Ok(());
        }
        let moored = self.make(plan)?;
        self.lock().insert(id.clone(), moored);
        Ok(())
    }

    pub fn unmoor(&self, session: &SessionId) {
        let moored = self.lock().remove(session);
        // Where too many arrive already, what it had open there ends when it is old.
        if moored.is_some() && self.gateway.try_send(Visit::Gone(session.clone())).is_err() {
            tracing::debug!(%session, "what a box had open at the gateway stays for a while");
        }
    }

    /// The session is over.
    pub fn forget(&self, session: &SessionId) {
        self.unmoor(session);
        self.threads.forget(session);
    }

    pub fn way(&self, session: &SessionId) -> Option<Arc<dyn Way>> {
        let hub = Arc::clone(&self.lock().get(session)?.hub);
        Some(Arc::new(ThroughHub(hub)))
    }

    fn make(&self, plan: &Plan<'_>) -> Result<Moored, String> {
        let Plan { session, settings, access, directories, key } = plan;
        let broker = self.broker(plan)?;
        let guest = Arc::new(self.guest(session, settings, access, directories)?);
        let proxy = self.egress(session, settings)?;
        // Last, and all at once: those of a quay before are gone with it.
        let asked = [tether::CONTROL, tether::MODEL, tether::MCP, tether::EGRESS];
        let unmade = |error: std::io::Error| format!("the sockets of the box cannot be made: {error}");
        let mut sockets = Sockets::make(&directories.sockets(), &asked).map_err(unmade)?;
        let mut take = |name: &str| sockets.take(name).ok_or_else(|| format!("there is no socket {name}"));
        let (control, model) = (take(tether::CONTROL)?, take(tether::MODEL)?);
        let (mcp, egress) = (take(tether::MCP)?, take(tether::EGRESS)?);
        let hub = Arc::new(Hub::new(control).map_err(unmade)?);
        // Whatever fails from here on ends what has begun.
        let end = self.stop.child_token();
        let begun = end.clone().drop_guard();
        let (serving, until) = (Arc::clone(&hub), end.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = serving.serve() => {}
                () = until.cancelled() => {}
            }
        });
        accept(&self.tasks, model, &end, move |stream, stop| Arc::clone(&broker).serve(stream, stop))?;
        let gateway = self.gateway.clone();
        accept(&self.tasks, mcp, &end, move |stream, end| {
            let (guest, gateway) = (Arc::clone(&guest), gateway.clone());
            async move {
                // It moves to another thread, and counts here until it has been served there.
                let (served, done) = oneshot::channel();
                let gone = end.clone();
                if let Ok(stream) = stream.into_std()
                    && gateway.send(Visit::Arrived(Arrival { stream, guest, end, served })).await.is_ok()
                {
                    // At the end nobody is waited for: that thread may wait for this one.
                    tokio::select! {
                        _dropped = done => {}
                        () = gone.cancelled() => {}
                    }
                }
            }
        })?;
        accept(&self.tasks, egress, &end, move |stream, stop| Arc::clone(&proxy).serve(stream, stop))?;
        let (settings, key) = ((*settings).clone(), key.clone());
        Ok(Moored { hub, token: access.token.clone(), settings, key, _end: begun })
    }

    fn egress(&self, session: &Session, settings: &SessionSettings) -> Result<Arc<Egress>, String> {
        let allow = match &settings.egress {
            // One who has the network itself has no use for this.
            Reach::None | Reach::Open => Allow::Hosts(Vec::new()),
            Reach::Hosts(hosts) => Allow::Hosts(hosts.clone()),
        };
        let notes = Arc::new(Log { session: session.id.clone(), told: Mutex::default() });
        let options = EgressOptions { allow, notes, tasks: self.tasks.clone() };
        Egress::new(options).map_err(|error| error.to_string())
    }

    fn broker(&self, plan: &Plan<'_>) -> Result<Arc<Broker>, String> {
        let Plan { session, settings, access, directories: _, key } = plan;
        let upstream = Upstream::parse(&settings.base_url).map_err(|error| format!("`base_url`: {error}"))?;
        let tls = remote::tls(upstream.is_https());
        let meter = Arc::new(Metering {
            session: session.id.clone(),
            budget: settings.budget,
            live: Arc::clone(&self.live),
        });
        let options = BrokerOptions {
            upstream,
            key: key.clone(),
            token: Secret::new(access.token.clone()),
            limits: Limits { silence: settings.request_timeout, ..Limits::default() },
            meter,
            tls,
            tasks: self.tasks.clone(),
        };
        Broker::new(options).map_err(|error| error.to_string())
    }

    fn guest(
        &self,
        session: &Session,
        settings: &SessionSettings,
        access: &Access,
        directories: &SessionDirs,
    ) -> Result<Guest, String> {
        let workspace = directories.workspace();
        let workspace = workspace.to_str().ok_or("the workspace's path is not UTF-8")?;
        let id = Id::new(session.id.as_str()).map_err(|error| error.to_string())?;
        if let Some(known) = &session.agent_session {
            self.threads.assign(known, &session.id);
        }
        let bound = |server: &str| -> Result<Arc<Bound>, String> {
            let key = SealKey::parse(&access.seal).map_err(|error| error.to_string())?;
            let tenant = Box::new(Lodger {
                session: session.id.clone(),
                live: Arc::clone(&self.live),
                threads: Arc::clone(&self.threads),
            });
            let seals = Some(Seals::new(key, server));
            Ok(Arc::new(Bound { session: id.clone(), workspace: workspace.into(), seals, tenant }))
        };
        let servers = settings.mcp_servers.iter().map(|name| {
            let name = name.to_string();
            let bound = bound(&name)?;
            Ok((name, bound))
        });
        Ok(Guest {
            principal: session.principal.clone(),
            session: id.clone(),
            token: access.token.clone(),
            servers: servers.collect::<Result<_, String>>()?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Moored>> {
        self.moored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts until the quay is gone.
pub(super) fn accept<F>(
    tasks: &TaskTracker,
    listener: StdListener,
    end: &CancellationToken,
    serve: impl Fn(UnixStream, CancellationToken) -> F + Send + 'static,
) -> Result<(), String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = UnixListener::from_std(listener)
        .map_err(|error| format!("a socket of the box cannot be listened on: {error}"))?;
    let (end, connections) = (end.clone(), tasks.clone());
    tasks.spawn(async move {
        let own = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = end.cancelled() => return,
            };
            match accepted {
                // Those who are too many are let go at once.
                Ok((stream, _)) if own.len() < CONNECTIONS => {
                    let served = own.track_future(serve(stream, end.clone()));
                    connections.spawn(served);
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    Ok(())
}

/// A session, for those who want to know who calls.
#[derive(Debug)]
struct Lodger {
    session: SessionId,
    live: Arc<Live>,
    threads: Arc<Threads>,
}

impl Tenant for Lodger {
    fn run(&self) -> Option<Id> {
        Id::new(self.live.at_work(&self.session)?.as_str()).ok()
    }

    fn owns(&self, thread: &Id) -> bool {
        // A session that has no conversation yet is called by its own name.
        match SessionId::parse(thread.as_str()) {
            Ok(session) => session == self.session,
            Err(_) => self.threads.claim(thread.as_str(), &self.session),
        }
    }
}

#[derive(Debug)]
struct ThroughHub(Arc<Hub>);

impl Way for ThroughHub {
    fn open(&self) -> Opening {
        let hub = Arc::clone(&self.0);
        Box::pin(async move { hub.open(OPEN).await })
    }

    fn events(&self, path: &str, since: Since) -> Opening {
        let (hub, path) = (Arc::clone(&self.0), path.to_owned());
        Box::pin(async move {
            match since {
                Since::Taken => hub.events(&path, OPEN).await,
                Since::Now => hub.fresh_events(&path, OPEN).await,
            }
        })
    }
}

/// Whoever asks the provider asks for the run at work.
#[derive(Debug)]
struct Metering {
    session: SessionId,
    budget: Budget,
    live: Arc<Live>,
}

impl Meter for Metering {
    fn begin(&self, _: Endpoint) -> Result<Box<dyn Ticket>, Refusal> {
        let asking = self.live.ask(&self.session, self.budget).map_err(|unasked| match unasked {
            Unasked::NoRun => Refusal::NoRun,
            Unasked::Requests => Refusal::Cap(Cap::Requests),
            Unasked::Tokens => Refusal::Cap(Cap::Tokens),
        })?;
        Ok(Box::new(Asked { asking, live: Arc::clone(&self.live) }))
    }
}

#[derive(Debug)]
struct Asked {
    asking: Asking,
    live: Arc<Live>,
}

impl Ticket for Asked {
    fn end(self: Box<Self>, spent: Spent) {
        self.live.used(&self.asking.run, spent.tokens(), spent.usage);
    }

    fn over(&self) -> CancellationToken {
        self.asking.over.clone()
    }
}

/// What a box wanted to reach. It asks as fast as it likes, and nobody reads that much.
#[derive(Debug)]
struct Log {
    session: SessionId,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    since: Option<Instant>,
    lines: u32,
    untold: u32,
}

/// Lines in a minute.
const MOST_LINES: u32 = 20;

impl Told {
    /// Whether another line may be written; and how many were not, where that is to be told with it.
    fn may(&mut self, now: Instant) -> Option<u32> {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_mins(1)) {
            let untold = self.untold;
            *self = Self { since: Some(now), lines: 1, untold: 0 };
            return Some(untold);
        }
        self.lines += 1;
        if self.lines > MOST_LINES {
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        Some(0)
    }
}

impl Notes for Log {
    fn decided(&self, decided: Decided) {
        let Decided { host, port, verdict } = decided;
        let session = &self.session;
        let may = || self.told.lock().unwrap_or_else(PoisonError::into_inner).may(Instant::now());
        match verdict {
            Verdict::Refused(why) => {
                if let Some(untold) = may() {
                    tracing::info!(%session, host, port, untold, "not reached: {why}");
                }
            }
            Verdict::Failed(why) => {
                if let Some(untold) = may() {
                    tracing::info!(%session, host, port, untold, "could not be reached: {why}");
                }
            }
            Verdict::Opened => tracing::debug!(%session, host, port, "reached"),
            Verdict::Closed { sent, received } => {
                tracing::debug!(%session, host, port, sent, received, "left");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_fills_no_log() {
        let (mut told, begin) = (Told::default(), Instant::now());
        let lines = (0..1000).filter(|_| told.may(begin).is_some()).count();
        assert_eq!(lines, usize::try_from(MOST_LINES).unwrap());
        assert_eq!(told.may(begin + Duration::from_mins(1)), Some(1000 - MOST_LINES));
        assert_eq!(told.may(begin + Duration::from_mins(1)), Some(0));
    }
}
