//! The daemon: configuration in, servers up, requests served, everything down again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gateway::caller::Identification;
use gateway::environment::HostEnvironment;
use gateway::front::http::{Access, Front, GatewayAuth, Servers};
use gateway::server::Server;
use gateway::server::pool::Surroundings;
use gateway::worker;
use model::{ServerName, ServerSpec};
use supervise::Spawner;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{Global, ServeArgs};
use crate::commands::token::now;
use crate::config::{self, Auth, Config, Environment, Purpose, Sources};
use crate::exit::{Code, Failure};
use crate::hooking::{Broken, Hooking, LOOK, stamp};
use crate::identification::{self, Parts};
use crate::recording;
use crate::state::{DaemonInfo, StateDir};
use crate::tokens::Tokens;

/// How long processes may take to end.
const ENDING: Duration = Duration::from_secs(6);

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
    current_dir: PathBuf,
}

/// What runs.
#[derive(Debug)]
pub struct Running {
    pub url: String,
    pub token_file: Option<PathBuf>,
    pub servers: Vec<String>,
}

impl Plan {
    pub fn load(global: &Global, arguments: &ServeArgs) -> anyhow::Result<Self> {
        let current_dir = std::env::current_dir().context("could not find the current directory")?;
        let environment = Environment::of_process();
        let mut config = load(arguments.config.as_deref(), &current_dir)?;
        let hooking = Hooking::load(&config.hooks)?;
        if let Some(listen) = arguments.listen {
            config.serve = config.serve.listening_on(listen)?;
        }
        let state =
            StateDir::open(StateDir::locate(global.state_dir.as_deref(), environment, &current_dir)?)?;
        let (named, listen) = (arguments.config.clone(), arguments.listen);
        Ok(Self { config, hooking, always: Vec::new(), state, named, listen, current_dir })
    }
}

fn load(named: Option<&Path>, current_dir: &Path) -> Result<Config, config::ConfigErrors> {
    let environment = Environment::of_process();
    config::load(&Sources { named, current_dir, environment, purpose: Purpose::Serve })
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
    let workers = worker::use_every_core();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = bind(plan.config.serve.listen)?;
    let listen = listener.local_addr()?;
    let url = format!("http://{listen}");
    let tokens = Arc::new(Tokens::open(&plan.state)?);
    let token_file = tokens.ensure_local(now())?;
    let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
    let served = runtime.block_on(async {
        let tasks = TaskTracker::new();
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
        let around = Surroundings {
            spawner,
            host,
            identification: Arc::clone(&identification),
            tasks: tasks.clone(),
            sinks: Arc::clone(&sinks),
        };
        let house = House { plan, around };
        let servers = house.servers(&house.plan.config, None);
        house.plan.hooking.give_to_all(&servers);
        let names: Vec<String> = house.specs(&house.plan.config).map(|spec| spec.name.to_string()).collect();
        let access = house.access(listen, tokens);
        let front = Arc::new(Front::new(servers, access, identification, Arc::clone(&sinks), tasks.clone()));
        let signals = stop_on_signals(stop.clone())?;
        let mut threads = Vec::new();
        for index in 1..workers {
            let (front, listener) = (Arc::clone(&front), listener.try_clone()?);
            let (stop, ended) = (stop.clone(), ended.clone());
            let serve = move || serve_beside(index, &front, listener, stop, &ended);
            threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(serve)?);
        }
        lock.publish(&DaemonInfo {
            pid: std::process::id(),
            url: Some(url.clone()),
            socket: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            token_file: token_file.clone(),
        })?;
        let token_file = (house.plan.config.serve.auth == Auth::Token).then_some(token_file);
        ready(&Running { url, token_file, servers: names })?;
        let reloading = tasks.spawn(house.reload(Arc::clone(&front), stop.clone()));
        front.serve(TcpListener::from_std(listener)?, stop.clone()).await;
        front.close();
        reloading.abort();
        signals.abort();
        tasks.close();
        if tokio::time::timeout(ENDING, tasks.wait()).await.is_err() {
            tracing::warn!("some processes did not end in time; their supervisors go on ending them");
        }
        sending.cancel();
        exporting.close();
        exporting.wait().await;
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
            Arc::new(Server::new(spec.clone(), self.around.clone(), Some(file)))
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
            let loaded = load(self.plan.named.as_deref(), &self.plan.current_dir);
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
