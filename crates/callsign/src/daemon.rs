//! The daemon: configuration in, servers up, requests served, everything down again.
//!
//! ```text
//! HTTP ──▶ front, one thread a core ─┬─▶ servers of the file
//!                                    └─▶ `sessions`, through a door ─▶ daemon.sock ─┐
//! mcp ────────────────────────────────────────────────────────────▶ daemon.sock ─┴▶ thread `sessions`: sessions.rs
//! ```

pub mod sessions;
pub mod socket;
pub mod start;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gateway::caller::Identification;
use gateway::environment::HostEnvironment;
use gateway::front::http::{Access, Front, GatewayAuth, Servers};
use gateway::recorded::Sinks;
use gateway::server::Server;
use gateway::server::pool::Surroundings;
use gateway::server::remote::door::Door;
use gateway::worker;
use identity::workspace::Roots;
use model::settings::SessionSettings;
use model::{ServerName, ServerSpec};
use supervise::Spawner;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{Global, ServeArgs};
use crate::commands::token::now;
use crate::config::sessions::{Variables, resolve};
use crate::config::{self, Auth, Config, ConfigErrors, Environment, Purpose, Sources};
use crate::exit::{Code, Failure};
use crate::hooking::{Broken, Hooking, LOOK, stamp};
use crate::identification::{self, Parts};
use crate::recording;
use crate::sessions::quay::{Arrival, Visit};
use crate::state::{DaemonInfo, StateDir};
use crate::tokens::Tokens;
use sessions::Sessions;
use socket::{OwnDoor, Socket};

/// Connections of boxes that nobody has begun to serve.
const MOST_ARRIVING: usize = 64;
/// How long processes may take to end.
const ENDING: Duration = Duration::from_secs(6);
/// How long calls of boxes may take to end.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// What is to run.
#[derive(Debug)]
pub struct Plan {
    pub config: Config,
    hooking: Hooking,
    /// Servers beside those of the file.
    pub always: Vec<ServerSpec>,
    state: StateDir,
    named: Option<PathBuf>,
    listen: Option<SocketAddr>,
    mode: Mode,
    current_dir: PathBuf,
}

/// Where a daemon can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On its socket and by HTTP.
    Http,
    /// On its socket; by HTTP only where an address was chosen. For a daemon that nobody asked for.
    SocketOnly,
}

/// What runs.
#[derive(Debug)]
pub struct Running {
    /// None: it is not reached by HTTP.
    pub url: Option<String>,
    pub socket: PathBuf,
    pub token_file: Option<PathBuf>,
    pub servers: Vec<String>,
}

impl Plan {
    pub fn load(global: &Global, arguments: &ServeArgs, mode: Mode) -> anyhow::Result<Self> {
        let current_dir = std::env::current_dir().context("could not find the current directory")?;
        let environment = Environment::of_process();
        let mut config = load(arguments.config.as_deref(), mode, &current_dir)?;
        let hooking = Hooking::load(&config.hooks)?;
        if let Some(listen) = arguments.listen {
            config.serve = config.serve.listening_on(listen)?;
        }
        let state =
            StateDir::open(StateDir::locate(global.state_dir.as_deref(), environment, &current_dir)?)?;
        let (named, listen) = (arguments.config.clone(), arguments.listen);
        let always = vec![config::own_server()?];
        Ok(Self { config, hooking, always, state, named, listen, mode, current_dir })
    }

    /// None: it is not to be reached by HTTP.
    fn bind(&self) -> anyhow::Result<Option<std::net::TcpListener>> {
        let serve = &self.config.serve;
        let listens = serve.is_chosen || self.mode == Mode::Http;
        listens.then(|| bind(serve.listen)).transpose()
    }
}

/// The configuration, with our own variables over its `[sessions]`.
fn load(named: Option<&Path>, mode: Mode, current_dir: &Path) -> Result<Config, ConfigErrors> {
    let environment = Environment::of_process();
    let purpose = match mode {
        Mode::Http => Purpose::Serve,
        Mode::SocketOnly => Purpose::Background,
    };
    let mut config = config::load(&Sources { named, current_dir, environment, purpose })?;
    let resolved = resolve(&config.sessions, &Variables::of(environment))?;
    config.sessions = resolved.settings;
    config.warnings.extend(resolved.warnings);
    Ok(config)
}

/// To be called first of all, while there is one thread and little memory: every supervisor is a copy of this.
pub fn start_spawner() -> anyhow::Result<Arc<Spawner>> {
    let spawner = Spawner::start().context("could not start the supervisor of processes")?;
    raise_descriptor_limit();
    Ok(Arc::new(spawner))
}

/// A child costs four descriptors, a client one. Children keep the limit we were given.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _as_it_was = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Runs until a signal. `ready` is called when clients can come.
pub fn run(
    plan: Plan,
    spawner: Arc<Spawner>,
    ready: impl FnOnce(&Running) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let lock = plan.state.lock_daemon()?;
    // Goes before the lock does.
    let socket = Socket::bind(&plan.state, &lock)?;
    let listener = plan.bind()?;
    let workers = if listener.is_some() { worker::use_every_core() } else { 1 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
    let served = runtime.block_on(async {
        let listen = listener.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let up = Up::start(plan, spawner, listen, &socket).await?;
        let signals = stop_on_signals(stop.clone())?;
        let mut threads = Vec::new();
        for (index, listener) in (1..workers).filter_map(|index| Some((index, listener.as_ref()?))) {
            let (front, listener) = (Arc::clone(&up.front), listener.try_clone()?);
            let (stop, ended) = (stop.clone(), ended.clone());
            let serve = move || serve_beside(index, &front, listener, stop, &ended);
            threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(serve)?);
        }
        let running = up.running(&socket, listen);
        lock.publish(&DaemonInfo {
            pid: std::process::id(),
            url: running.url.clone(),
            socket: Some(running.socket.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            token_file: up.token_file.clone(),
        })?;
        ready(&running)?;
        let sinks = up.serve(listener, &socket, stop.clone()).await?;
        signals.abort();
        anyhow::Ok((threads, sinks))
    });
    // Also where something failed: a worker that has been started must not be left waiting.
    stop.cancel();
    ended.cancel();
    let (threads, sinks) = served?;
    for thread in threads {
        let _panicked = thread.join();
    }
    // With it go calls that nobody ended.
    drop(runtime);
    recording::close(&sinks);
    Ok(())
}

/// A daemon whose servers are there, before anybody can come.
struct Up {
    house: House,
    front: Arc<Front>,
    sessions: sessions::Surroundings,
    /// What boxes ask of the gateway.
    boxes: mpsc::Receiver<Visit>,
    token_file: PathBuf,
    tasks: TaskTracker,
    sinks: Arc<Sinks>,
    sending: CancellationToken,
    exporting: TaskTracker,
}

impl Up {
    async fn start(
        plan: Plan,
        spawner: Arc<Spawner>,
        listen: Option<SocketAddr>,
        socket: &Socket,
    ) -> anyhow::Result<Self> {
        let tasks = TaskTracker::new();
        let tokens = Arc::new(Tokens::open(&plan.state)?);
        let token_file = tokens.ensure_local(now())?;
        let host = Arc::new(HostEnvironment(std::env::vars_os().collect()));
        let identification = identification_for(&plan.state, &plan.config, &host)?;
        let (sending, exporting) = (CancellationToken::new(), TaskTracker::new());
        let sinks = recording::assemble(recording::Parts {
            config: &plan.config,
            state: Some(&plan.state),
            host: &host,
            kind: "serve",
            tasks: &exporting,
            stop: sending.clone(),
        })?;
        recording::settle(&sinks).await;
        let (settings, heard) = watch::channel(Arc::new(plan.config.sessions.clone()));
        let (roots, allowed) = watch::channel(Roots::new(plan.config.roots.clone()));
        let (gateway, boxes) = mpsc::channel(MOST_ARRIVING);
        let sessions = sessions::Surroundings {
            state: plan.state.clone(),
            settings: heard,
            roots: allowed,
            redactor: Arc::clone(&sinks.redactor),
            gateway,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let around = Surroundings {
            spawner,
            host,
            identification: Arc::clone(&identification),
            tasks: tasks.clone(),
            sinks: Arc::clone(&sinks),
            door: None,
        };
        let door = Arc::new(OwnDoor(socket.path().to_owned()));
        let house = House { plan, around, door, settings, roots };
        let servers = house.servers(&house.plan.config, None);
        house.plan.hooking.give_to_all(&servers);
        // Without a listener nobody is let in anywhere.
        let access = house.access(listen.unwrap_or(house.plan.config.serve.listen), tokens);
        let front = Front::new(servers, access, identification, Arc::clone(&sinks), tasks.clone());
        let front = Arc::new(front);
        Ok(Self { house, front, sessions, boxes, token_file, tasks, sinks, sending, exporting })
    }

    fn running(&self, socket: &Socket, listen: Option<SocketAddr>) -> Running {
        let config = &self.house.plan.config;
        Running {
            url: listen.map(|listen| format!("http://{listen}")),
            socket: socket.path().to_owned(),
            token_file: (config.serve.auth == Auth::Token).then(|| self.token_file.clone()),
            servers: self.house.specs(config).map(|spec| spec.name.to_string()).collect(),
        }
    }

    /// Until `stop`, and then to the end of everything but what is still to be written down.
    async fn serve(
        self,
        listener: Option<std::net::TcpListener>,
        socket: &Socket,
        stop: CancellationToken,
    ) -> anyhow::Result<Arc<Sinks>> {
        let Self { house, front, sessions, boxes, token_file: _, tasks, sinks, sending, exporting } = self;
        // Only now: whoever gets an answer finds us in `daemon.json`.
        let sessions = Sessions::start(socket.listener()?, sessions, stop.clone())?;
        let reloading = tasks.spawn(house.reload(Arc::clone(&front), stop.clone()));
        tasks.spawn(receive(boxes, Arc::clone(&front), stop.clone()));
        match listener {
            Some(listener) => front.serve(TcpListener::from_std(listener)?, stop).await,
            None => stop.cancelled().await,
        }
        front.close();
        reloading.abort();
        tasks.close();
        if tokio::time::timeout(ENDING, tasks.wait()).await.is_err() {
            tracing::warn!("some processes did not end in time; their supervisors go on ending them");
        }
        // After the last who could ask anything of them.
        drop(sessions);
        sending.cancel();
        exporting.close();
        exporting.wait().await;
        Ok(sinks)
    }
}

/// Serves what boxes ask of the gateway, on the thread that has started its servers.
async fn receive(mut boxes: mpsc::Receiver<Visit>, front: Arc<Front>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let visit = tokio::select! {
            visit = boxes.recv() => visit,
            () = stop.cancelled() => None,
        };
        let Arrival { stream, guest, end, served } = match visit {
            None => break,
            Some(Visit::Arrived(arrival)) => arrival,
            Some(Visit::Gone(session)) => {
                front.end_bound(session.as_str());
                continue;
            }
        };
        let (front, stop) = (Arc::clone(&front), stop.clone());
        connections.spawn(async move {
            // Held until the connection has ended, however it does.
            let _served = served;
            let Ok(stream) = tokio::net::UnixStream::from_std(stream) else { return };
            let late = stop.clone();
            tokio::select! {
                () = front.serve_box(stream, guest, stop) => {}
                () = end.cancelled() => {}
                // What is under way may end; a stream that stands open does not.
                () = async { late.cancelled().await; tokio::time::sleep(LAST_CALLS).await } => {}
            }
        });
    }
    connections.close();
    connections.wait().await;
}

/// One more thread that serves. Its runtime goes on for the children it has started until all has ended.
fn serve_beside(
    index: usize,
    front: &Arc<Front>,
    listener: std::net::TcpListener,
    stop: CancellationToken,
    ended: &CancellationToken,
) {
    worker::become_worker(index);
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = built.and_then(|runtime| {
        runtime.block_on(async {
            front.serve(TcpListener::from_std(listener)?, stop).await;
            ended.cancelled().await;
            Ok(())
        })
    });
    if let Err(error) = served {
        tracing::error!(%error, "a worker could not be started; the others serve");
    }
}

fn bind(listen: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let bound = std::net::TcpListener::bind(listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let hint = "use another address with --listen, or port 0 for a free one";
        Failure::new(Code::Listen, format!("could not listen on {listen}: {error}")).with_hint(hint).into()
    })
}

/// The configuration and what it needs to become servers.
struct House {
    plan: Plan,
    around: Surroundings,
    /// To our own server.
    door: Arc<dyn Door>,
    /// What sessions are told of a change.
    settings: watch::Sender<Arc<SessionSettings>>,
    roots: watch::Sender<Roots>,
}

fn identification_for(
    state: &StateDir,
    config: &Config,
    host: &Arc<HostEnvironment>,
) -> anyhow::Result<Arc<Identification>> {
    identification::assemble(Parts {
        state: Some(state),
        hosts: config.hosts.clone(),
        roots: config.roots.clone(),
        host: Arc::clone(host),
        forced: None,
        seals: None,
        exports_spans: config.telemetry.is_some(),
    })
}

impl House {
    fn identification(&self, config: &Config) -> anyhow::Result<Arc<Identification>> {
        identification_for(&self.plan.state, config, &self.around.host)
    }

    fn specs<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a ServerSpec> {
        config.servers.iter().chain(&self.plan.always)
    }

    /// Servers whose specification has not changed stay as they are, with all their sessions.
    fn servers(&self, config: &Config, before: Option<&Servers>) -> Servers {
        let same = |spec: &ServerSpec| {
            let old = before?.get(spec.name.as_str())?;
            (old.spec == *spec).then(|| Arc::clone(old))
        };
        let start = |spec: &ServerSpec| {
            let file = catalogue_file(self.plan.state.path(), &spec.name);
            let door = (spec.name.as_str() == config::OWN).then(|| Arc::clone(&self.door));
            let around = Surroundings { door, ..self.around.clone() };
            Arc::new(Server::new(spec.clone(), around, Some(file)))
        };
        let pair = |spec: &ServerSpec| (spec.name.to_string(), same(spec).unwrap_or_else(|| start(spec)));
        self.specs(config).map(pair).collect()
    }

    fn access(&self, listen: SocketAddr, tokens: Arc<Tokens>) -> Access {
        let auth = match self.plan.config.serve.auth {
            Auth::None => GatewayAuth::None,
            Auth::Token => GatewayAuth::Tokens(Arc::new(move |bearer| tokens.authenticate(bearer))),
        };
        Access { listen, allowed_origins: self.plan.config.serve.allowed_origins.clone(), auth }
    }

    /// Reloads the configuration when its file changes. A broken edit changes nothing.
    async fn reload(mut self, front: Arc<Front>, stop: CancellationToken) {
        let Some(path) = self.plan.config.path.clone() else { return };
        let (mut seen, mut broken) = (stamp(&path), Broken::default());
        let mut serve = self.plan.config.serve.clone();
        let mut recording = (self.plan.config.ledger.clone(), self.plan.config.telemetry.clone());
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.cancelled() => return,
            }
            let stamp = stamp(&path);
            if stamp == seen && !broken.is_due() {
                if let Some(fresh) = self.plan.hooking.reloaded().await {
                    self.plan.hooking = fresh;
                    self.plan.hooking.give_to_all(&front.servers());
                }
                continue;
            }
            seen = stamp;
            let loaded = load(self.plan.named.as_deref(), self.plan.mode, &self.plan.current_dir);
            let loaded = match loaded {
                Ok(config) => Hooking::load_aside(&config.hooks, &self.plan.hooking)
                    .await
                    .map(|hooking| (hooking, config)),
                Err(errors) => Err(errors),
            };
            let (hooking, mut config) = match loaded {
                Ok(loaded) => loaded,
                Err(errors) => {
                    if broken.is_news(&errors) {
                        tracing::error!(
                            "the configuration has mistakes; the one before stays in force:\n{errors}"
                        );
                    }
                    continue;
                }
            };
            broken = Broken::default();
            if let Some(listen) = self.plan.listen {
                config.serve = config.serve.clone().listening_on(listen).unwrap_or(config.serve);
            }
            let restart =
                (&config.hosts, &config.roots) != (&self.plan.config.hosts, &self.plan.config.roots);
            if restart {
                match self.identification(&config) {
                    Ok(identification) => self.around.identification = identification,
                    Err(error) => {
                        tracing::error!("the configuration before stays in force: {error:#}");
                        continue;
                    }
                }
                (self.plan.config.hosts, self.plan.config.roots) =
                    (config.hosts.clone(), config.roots.clone());
                self.roots.send_replace(Roots::new(config.roots.clone()));
            }
            if config.serve != serve {
                tracing::warn!("[serve] has changed: that takes effect at the next start");
                serve = config.serve.clone();
            }
            if (&config.ledger, &config.telemetry) != (&recording.0, &recording.1) {
                tracing::warn!("[ledger] or [telemetry] has changed: that takes effect at the next start");
                recording = (config.ledger.clone(), config.telemetry.clone());
            }
            config.telemetry.clone_from(&self.plan.config.telemetry);
            self.settings.send_if_modified(|settings| {
                let changes = **settings != config.sessions;
                if changes {
                    *settings = Arc::new(config.sessions.clone());
                }
                changes
            });
            recording::learn(&self.around.sinks.redactor, config.servers.iter(), &self.around.host);
            // Who calls is found out in another way now; sessions that were opened under the old one end.
            let before = front.servers();
            let servers = self.servers(&config, (!restart).then_some(&*before));
            self.plan.hooking = hooking;
            self.plan.hooking.give_to_all(&servers);
            tracing::info!("the configuration was loaded again: {} servers", servers.len());
            front.replace(servers);
        }
    }
}

/// Where the fingerprints of a server's tools are kept.
pub fn catalogue_file(state: &Path, server: &ServerName) -> PathBuf {
    state.join("catalogue").join(format!("{server}.json"))
}

/// Cancels `stop` at SIGTERM, SIGINT and SIGHUP.
pub fn stop_on_signals(stop: CancellationToken) -> std::io::Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    #[expect(clippy::disallowed_methods, reason = "its handle is returned and ended by the caller")]
    let task = tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
        stop.cancel();
    });
    Ok(task)
}
