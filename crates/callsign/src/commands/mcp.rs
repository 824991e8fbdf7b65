//! `callsign mcp`: agent sessions as a stdio MCP server. The daemon has them; this is a host's way to it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use gateway::environment::HostEnvironment;
use gateway::server::remote::door::{self, Door, Opening};
use model::settings::ApiKey;
use model::{ServerName, ServerSpec};
use supervise::Spawner;
use tokio::net::UnixStream;

use super::wrap::SEAL_KEY;
use super::wrap::run::{Carried, carry, seals};
use crate::app::Global;
use crate::client::settings;
use crate::conceal;
use crate::config::sessions::VARIABLES;
use crate::config::{self, Config, Environment, Purpose, Sources, UseSection, Wrapped};
use crate::daemon::socket;
use crate::daemon::start::{Start, ensure};
use crate::logging;
use crate::state::StateDir;

#[derive(Debug, Args)]
#[command(
    after_help = "Starts the daemon if none runs; the daemon, and every run in it, goes on when this ends.\nThe MCP_* variables of the host's entry are settings of the sessions it makes.\n\nExample entry:\n  { \"mcpServers\": { \"sessions\": { \"command\": \"callsign\", \"args\": [\"mcp\"],\n      \"env\": { \"MCP_OPENCODE_PROVIDER\": \"openai\", \"MCP_OPENCODE_MODEL\": \"openai/gpt-4.1\",\n               \"MCP_OPENCODE_API_KEY\": \"…\" } } } }"
)]
pub struct McpArgs {
    /// The host that starts us: which of the ways to say who calls is looked for. `auto` goes by what it calls itself.
    #[arg(long, value_name = "HOST", default_value = "auto")]
    host: String,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What the host calls this server.
    #[arg(long, value_name = "NAME", hide = true)]
    entry: Option<String>,
}

pub fn run(global: &Global, arguments: &McpArgs) -> anyhow::Result<()> {
    let environment = Environment::of_process();
    let seal_key = environment.get(SEAL_KEY);
    let settings = Settings::of_process()?;
    let located = {
        let current_dir = std::env::current_dir().context("could not find the current directory")?;
        StateDir::locate_for_sessions(global.state_dir.as_deref(), environment, &current_dir)?
    };
    let secret: Vec<&str> = VARIABLES.into_iter().filter(|name| is_key(name)).chain([SEAL_KEY]).collect();
    // A process forked later has a copy of this memory.
    let concealed = conceal::overwrite(&secret);
    conceal::make_undumpable();
    // First of all, while there is one thread and little memory: every supervisor is a copy of this.
    let spawner = Arc::new(Spawner::start().context("could not start the supervisor of processes")?);
    logging::start(global)?;
    if let Err(error) = concealed {
        tracing::debug!(%error, "secrets could not be removed from the environment we were started with");
    }
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let (spec, config) = load(arguments, &current_dir, environment)?;
    let state = StateDir::open(located)?;
    let host = std::env::vars_os().filter(|(name, _)| !is_setting(name)).collect();
    let entry = arguments.entry.as_deref().unwrap_or(spec.name.as_str());
    let seals = seals(seal_key.as_deref(), entry)?;
    let key = match &config.sessions.api_key {
        Some(ApiKey::Variable(name)) => Some(name.as_str()),
        Some(ApiKey::Given(_)) | None => None,
    };
    let start = Start::new(state.clone(), config.path.clone(), key);
    let secrets = settings.secrets();
    carry(Carried {
        spawner,
        spec,
        config,
        state: Some(state),
        host: Arc::new(HostEnvironment(host)),
        named_host: &arguments.host,
        seals,
        current_dir,
        fingerprints: None,
        secrets,
        door: Some(Arc::new(ToDaemon { start: Arc::new(start), headers: settings.headers() })),
        kind: "mcp",
    })
}

/// Only the server is ours; identification, recording and hooks are as the file has them.
fn load(
    arguments: &McpArgs,
    current_dir: &Path,
    environment: Environment<'_>,
) -> anyhow::Result<(ServerSpec, Config)> {
    let wrapped = Wrapped {
        name: ServerName::new(config::OWN)?,
        section: UseSection::No,
        target: Some(config::own_target()),
        inherit_env: None,
    };
    let (named, purpose) = (arguments.config.as_deref(), Purpose::Wrap(&wrapped));
    let mut config = config::load(&Sources { named, current_dir, environment, purpose })?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let spec = config.servers.pop().context("callsign's own server is not there")?;
    Ok((spec, config))
}

/// The `MCP_*` variables of the host's entry. They go with every call, and hold for the sessions that it makes.
#[derive(Clone, Default)]
struct Settings {
    keys: Vec<String>,
    encoded: Option<String>,
}

impl Settings {
    fn of_process() -> anyhow::Result<Self> {
        let environment = Environment::of_process();
        let keys = VARIABLES.into_iter().filter(|name| is_key(name)).filter_map(|name| environment.get(name));
        let header = settings::header(std::env::vars_os())?;
        let encoded = header.and_then(|value| value.to_str().map(str::to_owned).ok());
        Ok(Self { keys: keys.collect(), encoded })
    }

    fn secrets(&self) -> Vec<String> {
        self.keys.iter().chain(&self.encoded).cloned().collect()
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        self.encoded.iter().map(|encoded| (door::SETTINGS, encoded.clone())).collect()
    }
}

fn is_setting(name: &OsString) -> bool {
    name.as_encoded_bytes().get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"MCP_"))
}

fn is_key(name: &str) -> bool {
    name.ends_with("_API_KEY")
}

/// The door to the daemon, which is started where none runs: one that was killed comes back with the next call.
struct ToDaemon {
    start: Arc<Start>,
    headers: Vec<(&'static str, String)>,
}

/// Headers hold secrets.
impl std::fmt::Debug for ToDaemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToDaemon").field("start", &self.start).finish_non_exhaustive()
    }
}

impl Door for ToDaemon {
    fn open(&self) -> Opening<io::Result<UnixStream>> {
        let start = Arc::clone(&self.start);
        Box::pin(async move {
            match socket::connect(&socket::path(&start.state)).await {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                connected => return connected,
            }
            tracing::debug!("no daemon runs; starting one");
            let socket = ensure(&start).await.map_err(|error| io::Error::other(format!("{error:#}")))?;
            socket::connect(&socket).await
        })
    }

    fn knock(&self) -> Opening<bool> {
        let start = Arc::clone(&self.start);
        Box::pin(async move { socket::connect(&socket::path(&start.state)).await.is_ok() })
    }

    fn headers(&self) -> &[(&'static str, String)] {
        &self.headers
    }
}
