//! `callsign wrap`: a stdio MCP server towards the host; behind it the real one.

pub(crate) mod run;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use gateway::environment::HostEnvironment;
use model::{InheritEnv, ServerName, ServerSpec, Transport};
use supervise::Spawner;

use crate::app::Global;
use crate::conceal;
use crate::config::{self, Config, Environment, Purpose, Sources, Target, UseSection, Wrapped};
use crate::daemon::catalogue_file;
use crate::exit::{Code, Failure};
use crate::identification::state_if_usable;
use crate::logging;
use crate::state::StateDir;
use run::{Carried, carry, seals};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  callsign wrap -- npx -y @modelcontextprotocol/server-everything\n  callsign wrap --url https://tracker.example/mcp --headers-env TRACKER_HEADERS"
)]
pub struct WrapArgs {
    /// The server's name; `[servers.NAME]` of the configuration supplies what is not said here.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The host that starts us: which of the ways to say who calls is looked for. `auto` goes by what it calls itself.
    #[arg(long, value_name = "HOST", default_value = "auto")]
    host: String,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Variables of our environment that the server needs, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pass_env: Vec<String>,
    /// What the server inherits of our environment where the configuration does not say: `safe`, or `host` for all
    /// but secrets.
    #[arg(long, value_name = "WHICH")]
    inherit_env: Option<Inherit>,
    /// What the host calls the server, where that can be no name of ours.
    #[arg(long, value_name = "NAME", hide = true)]
    entry: Option<String>,
    /// The variable that holds the headers for --url, as a JSON object: arguments are visible to others.
    #[arg(long, value_name = "NAME", requires = "url")]
    headers_env: Option<String>,
    /// The address of a remote server.
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// The address may be a private one: of this machine's network, or a name that leads there.
    #[arg(long, requires = "url")]
    allow_private: bool,
    /// The server's command and its arguments, after `--`.
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Inherit {
    Safe,
    Host,
}

/// The key that our OpenCode plugin seals with.
pub(crate) const SEAL_KEY: &str = "CALLSIGN_SEAL_KEY";

pub fn run(global: &Global, arguments: &WrapArgs) -> anyhow::Result<()> {
    let environment = Environment::of_process();
    let seal_key = environment.get(SEAL_KEY);
    let entry_headers = arguments.headers_env.as_deref().and_then(|name| environment.get(name));
    let secret: Vec<&str> =
        [Some(SEAL_KEY), arguments.headers_env.as_deref()].into_iter().flatten().collect();
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
    let (mut spec, config) = specification(arguments, &current_dir, environment)?;
    pass_variables(&mut spec, arguments, environment, entry_headers.as_deref())?;
    let located = StateDir::locate(global.state_dir.as_deref(), environment, &current_dir).ok();
    let fingerprints = match (&arguments.name, &located) {
        (Some(_), Some(directory)) => Some(catalogue_file(directory, &spec.name)),
        _ => None, // Without a name of its own, a record would be mixed up with other servers'.
    };
    let entry = arguments.entry.as_deref().unwrap_or(spec.name.as_str());
    carry(Carried {
        spawner,
        seals: seals(seal_key.as_deref(), entry)?,
        spec,
        config,
        state: located.as_deref().and_then(state_if_usable),
        host: Arc::new(HostEnvironment(host_environment(arguments))),
        named_host: &arguments.host,
        current_dir,
        fingerprints,
        secrets: entry_headers.as_deref().map(header_values).unwrap_or_default(),
        door: None,
        kind: "wrap",
    })
}

/// Every value of the entry's headers: they were hidden for a reason.
fn header_values(text: &str) -> Vec<String> {
    let headers: std::collections::BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    headers.into_values().collect()
}

fn specification(
    arguments: &WrapArgs,
    current_dir: &Path,
    environment: Environment<'_>,
) -> anyhow::Result<(ServerSpec, Config)> {
    let target = match (arguments.command.split_first(), &arguments.url) {
        (Some((command, rest)), _) => Some(Target::Command { command: command.clone(), args: rest.to_vec() }),
        (None, Some(url)) if arguments.allow_private => Some(Target::PrivateUrl(url.clone())),
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
    let inherit_env = arguments.inherit_env.map(|inherit| match inherit {
        Inherit::Safe => InheritEnv::Safe,
        Inherit::Host => InheritEnv::Host,
    });
    let wrapped = Wrapped { name: name.clone(), section, target, inherit_env };
    let purpose = Purpose::Wrap(&wrapped);
    let sources = Sources { named: arguments.config.as_deref(), current_dir, environment, purpose };
    let mut config = config::load(&sources)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let spec = config.servers.pop().ok_or_else(|| {
        let hint = "give its command after `--`, or write [servers.NAME] into the configuration";
        Failure::new(Code::Configuration, format!("the server `{name}` is not configured")).with_hint(hint)
    })?;
    Ok((spec, config))
}

/// The command's own name, as far as it can be one.
fn default_name(target: Option<&Target>) -> String {
    let stem = match target {
        Some(Target::Command { command, .. }) => {
            Path::new(command).file_stem().and_then(|stem| stem.to_str())
        }
        Some(Target::Url(_) | Target::PrivateUrl(_)) | None => None,
    };
    let usable = stem.filter(|stem| ServerName::new(*stem).is_ok() && *stem != "sessions");
    usable.unwrap_or("server").to_owned()
}

fn pass_variables(
    spec: &mut ServerSpec,
    arguments: &WrapArgs,
    environment: Environment<'_>,
    entry_headers: Option<&str>,
) -> anyhow::Result<()> {
    let wrong = |message: String| Failure::new(Code::Usage, message);
    match &mut spec.transport {
        Transport::Stdio(stdio) => {
            for name in &arguments.pass_env {
                config::pass_variable(stdio, name)
                    .map_err(|why| wrong(format!("--pass-env {name}: {why}")))?;
            }
        }
        Transport::Http(http) => {
            if !arguments.pass_env.is_empty() {
                return Err(
                    wrong("--pass-env is for servers that are started, not for --url".to_owned()).into()
                );
            }
            let Some(variable) = &arguments.headers_env else { return Ok(()) };
            let text = entry_headers.ok_or_else(|| wrong(format!("--headers-env: {variable} is not set")))?;
            let headers: std::collections::BTreeMap<String, String> = serde_json::from_str(text)
                .map_err(|_| wrong(format!("--headers-env: {variable} is not a JSON object of strings")))?;
            for (name, value) in headers {
                let why = |why: String| wrong(format!("--headers-env: {name}: {why}"));
                let value = config::entry_header_value(&value, environment).map_err(why)?;
                config::check_header(&name).map_err(why)?;
                let Some(value) = value else { continue };
                http.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
                http.headers.push((name, value));
            }
        }
    }
    Ok(())
}

fn host_environment(arguments: &WrapArgs) -> Vec<(OsString, OsString)> {
    let secret = arguments.headers_env.as_deref().map(OsString::from);
    std::env::vars_os().filter(|(name, _)| Some(name) != secret.as_ref()).collect()
}
