//! `callsign wrap`: a stdio MCP server towards the host; behind it the real one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use gateway::environment::HostEnvironment;
use gateway::front::stdio;
use gateway::server::Server;
use gateway::server::pool::Surroundings;
use model::{EnvVar, ServerName, ServerSpec, Template, Transport};
use supervise::Spawner;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{Global, start_logging};
use crate::config::{self, Carrier, Environment, Purpose, Sources, Target, UseSection, Wrapped};
use crate::daemon::{catalogue_file, stop_on_signals};
use crate::exit::{Code, Failure};
use crate::state::StateDir;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  callsign wrap -- npx -y @modelcontextprotocol/server-everything\n  callsign wrap --url https://tracker.example/mcp --headers-env TRACKER_HEADERS"
)]
pub struct WrapArgs {
    /// The server's name; `[servers.NAME]` of the configuration supplies what is not said here.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Variables of our environment that the server needs, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pass_env: Vec<String>,
    /// The variable that holds the headers for --url, as a JSON object: arguments are visible to others.
    #[arg(long, value_name = "NAME", requires = "url")]
    headers_env: Option<String>,
    /// The address of a remote server.
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// The server's command and its arguments, after `--`.
    #[arg(last = true)]
    command: Vec<String>,
}

pub fn run(global: &Global, arguments: &WrapArgs) -> anyhow::Result<()> {
    // First of all, while there is one thread and little memory: every supervisor is a copy of this.
    let spawner = Arc::new(Spawner::start().context("could not start the supervisor of processes")?);
    start_logging(global)?;
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let environment = Environment::of_process();
    let mut spec = specification(arguments, &current_dir, environment)?;
    pass_variables(&mut spec, arguments, environment)?;
    let fingerprints =
        match (&arguments.name, StateDir::locate(global.state_dir.as_deref(), environment, &current_dir)) {
            (Some(_), Ok(directory)) => Some(catalogue_file(&directory, &spec.name)),
            _ => None, // Without a name of its own, a record would be mixed up with other servers'.
        };
    let host = HostEnvironment(host_environment(arguments));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tasks = TaskTracker::new();
        let around = Surroundings { spawner, host: Arc::new(host), tasks: tasks.clone() };
        let server = Arc::new(Server::new(spec, around, fingerprints));
        let stop = CancellationToken::new();
        let signals = stop_on_signals(stop.clone())?;
        let (input, output) = (stdio::standard_input()?, stdio::standard_output()?);
        stdio::serve(server, input, output, tasks, stop).await;
        signals.abort();
        Ok(())
    })
}

fn specification(
    arguments: &WrapArgs,
    current_dir: &Path,
    environment: Environment<'_>,
) -> anyhow::Result<ServerSpec> {
    let target = match (arguments.command.split_first(), &arguments.url) {
        (Some((command, rest)), _) => Some(Target::Command { command: command.clone(), args: rest.to_vec() }),
        (None, Some(url)) => Some(Target::Url(url.clone())),
        (None, None) => None,
    };
    if target.is_none() && arguments.name.is_none() {
        let hint =
            "say `callsign wrap -- COMMAND ARGS…`, `--url URL`, or `--name NAME` of a configured server";
        return Err(Failure::new(Code::Usage, "there is no server to wrap").with_hint(hint).into());
    }
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => default_name(target.as_ref()),
    };
    let name = ServerName::new(&name)
        .map_err(|error| Failure::new(Code::Usage, format!("--name {name:?}: {error}")))?;
    let section = if arguments.name.is_some() { UseSection::Yes } else { UseSection::No };
    let wrapped = Wrapped { name: name.clone(), section, target };
    let purpose = Purpose::Wrap(&wrapped);
    let sources = Sources { named: arguments.config.as_deref(), current_dir, environment, purpose };
    let config = config::load(&sources)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    config.servers.into_iter().next().ok_or_else(|| {
        let hint = "give its command after `--`, or write [servers.NAME] into the configuration";
        Failure::new(Code::Configuration, format!("the server `{name}` is not configured"))
            .with_hint(hint)
            .into()
    })
}

/// The command's own name, as far as it can be one.
fn default_name(target: Option<&Target>) -> String {
    let stem = match target {
        Some(Target::Command { command, .. }) => {
            Path::new(command).file_stem().and_then(|stem| stem.to_str())
        }
        Some(Target::Url(_)) | None => None,
    };
    let usable = stem.filter(|stem| ServerName::new(*stem).is_ok() && *stem != "sessions");
    usable.unwrap_or("server").to_owned()
}

fn pass_variables(
    spec: &mut ServerSpec,
    arguments: &WrapArgs,
    environment: Environment<'_>,
) -> anyhow::Result<()> {
    let wrong = |message: String| Failure::new(Code::Usage, message);
    match &mut spec.transport {
        Transport::Stdio(stdio) => {
            for name in &arguments.pass_env {
                config::check_inherited(name).map_err(|why| wrong(format!("--pass-env {name}: {why}")))?;
                stdio.env_vars.push(EnvVar { name: name.clone() });
            }
        }
        Transport::Http(http) => {
            if !arguments.pass_env.is_empty() {
                return Err(
                    wrong("--pass-env is for servers that are started, not for --url".to_owned()).into()
                );
            }
            let Some(variable) = &arguments.headers_env else { return Ok(()) };
            let text = environment
                .get(variable)
                .ok_or_else(|| wrong(format!("--headers-env: {variable} is not set")))?;
            let headers: std::collections::BTreeMap<String, String> = serde_json::from_str(&text)
                .map_err(|_| wrong(format!("--headers-env: {variable} is not a JSON object of strings")))?;
            for (name, value) in headers {
                Carrier::Header
                    .check(&value)
                    .map_err(|why| wrong(format!("--headers-env: {name}: {why}")))?;
                config::check_header(&name).map_err(|why| wrong(format!("--headers-env: {name}: {why}")))?;
                http.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
                http.headers.push((name, Template::literal(value)));
            }
        }
    }
    Ok(())
}

fn host_environment(arguments: &WrapArgs) -> Vec<(OsString, OsString)> {
    let secret = arguments.headers_env.as_deref().map(OsString::from);
    std::env::vars_os().filter(|(name, _)| Some(name) != secret.as_ref()).collect()
}
