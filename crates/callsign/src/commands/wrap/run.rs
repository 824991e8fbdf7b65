//! One host on stdio in front of one server: what `wrap` and `mcp` have in common.

use std::path::PathBuf;
use std::sync::Arc;

use gateway::environment::HostEnvironment;
use gateway::front::stdio;
use gateway::server::Server;
use gateway::server::pool::Surroundings;
use gateway::server::remote::door::Door;
use identity::seal::{SealKey, Seals};
use model::{HostSpec, ServerSpec};
use supervise::Spawner;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::SEAL_KEY;
use crate::config::Config;
use crate::daemon::stop_on_signals;
use crate::exit::{Code, Failure};
use crate::hooking::Hooking;
use crate::identification::{self, Parts};
use crate::recording;
use crate::state::StateDir;

/// What there is to carry, and between whom.
#[derive(Debug)]
pub(crate) struct Carried<'a> {
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) spec: ServerSpec,
    pub(crate) config: Config,
    /// None: it cannot be used.
    pub(crate) state: Option<StateDir>,
    pub(crate) host: Arc<HostEnvironment>,
    /// `--host`.
    pub(crate) named_host: &'a str,
    /// What seals are bound to.
    pub(crate) seals: Option<Seals>,
    pub(crate) current_dir: PathBuf,
    /// Where what the server lists is recorded.
    pub(crate) fingerprints: Option<PathBuf>,
    /// What is never written down.
    pub(crate) secrets: Vec<String>,
    /// The way to a server that has no address.
    pub(crate) door: Option<Arc<dyn Door>>,
    /// What writes into the ledger.
    pub(crate) kind: &'static str,
}

/// Serves the host until it goes away, or a signal.
pub(crate) fn carry(carried: Carried<'_>) -> anyhow::Result<()> {
    let Carried { spawner, spec, config, state, host, named_host, seals, .. } = carried;
    let Carried { current_dir, fingerprints, secrets, door, kind, .. } = carried;
    let hooking = Hooking::load(&config.hooks)?;
    let mut roots = config.roots.clone();
    roots.push(current_dir);
    let identification = identification::assemble(Parts {
        state: state.as_ref(),
        forced: forced_host(named_host, &config.hosts)?,
        hosts: config.hosts.clone(),
        roots,
        host: Arc::clone(&host),
        seals,
        exports_spans: config.telemetry.is_some(),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sinks = runtime.block_on(async {
        let tasks = TaskTracker::new();
        let sending = CancellationToken::new();
        let (exporting, tasks_of_ours) = (TaskTracker::new(), tasks.clone());
        let sinks = recording::assemble(recording::Parts {
            config: &config,
            state: state.as_ref(),
            host: &host,
            kind,
            tasks: &exporting,
            stop: sending.clone(),
        })?;
        recording::learn(&sinks.redactor, [&spec].into_iter(), &host);
        for secret in &secrets {
            sinks.redactor.learn_for_good(secret);
        }
        let (tasks_there, sinks_there) = (tasks_of_ours, Arc::clone(&sinks));
        let around =
            Surroundings { spawner, host, identification, tasks: tasks_there, sinks: sinks_there, door };
        let server = Arc::new(Server::new(spec, around, fingerprints));
        hooking.give_to(&server);
        let stop = CancellationToken::new();
        let signals = stop_on_signals(stop.clone())?;
        let (input, output) = (stdio::standard_input()?, stdio::standard_output()?);
        let serving = stdio::serve(Arc::clone(&server), input, output, tasks, stop);
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = hooking.follow(&server) => serving.await, // There is nothing to follow.
        }
        signals.abort();
        drop(server);
        sending.cancel();
        exporting.close();
        exporting.wait().await;
        anyhow::Ok(sinks)
    })?;
    // With it go calls that nobody ended.
    drop(runtime);
    recording::close(&sinks);
    Ok(())
}

/// `--host`, unless it is `auto`.
fn forced_host(host: &str, described: &[HostSpec]) -> anyhow::Result<Option<String>> {
    if host == "auto" {
        return Ok(None);
    }
    let known = identity::adapters::names().any(|name| name == host);
    // Hosts that say nothing are known by name all the same.
    let silent = ["cursor", "gemini"].contains(&host);
    if known || silent || described.iter().any(|described| described.name.as_str() == host) {
        return Ok(Some(host.to_owned()));
    }
    let names: Vec<&str> = identity::adapters::names().collect();
    let hint =
        format!("use auto, {}, or describe it as [hosts.{host}] in the configuration", names.join(", "));
    Err(Failure::new(Code::Usage, format!("--host {host}: this host is not known")).with_hint(hint).into())
}

/// The seals of our OpenCode plugin for the entry of this name.
pub(crate) fn seals(key: Option<&str>, entry: &str) -> anyhow::Result<Option<Seals>> {
    let seals = key.map(|key| SealKey::parse(key).map(|key| Seals::new(key, entry))).transpose();
    Ok(seals.map_err(|error| Failure::new(Code::Usage, format!("{SEAL_KEY}: {error}")))?)
}
