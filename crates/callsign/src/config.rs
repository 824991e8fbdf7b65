//! `callsign.toml` → values that cannot be wrong.
//!
//! ```text
//! lookup.rs   which file        table.rs    spanned TOML, one mistake per wrong type
//! parse       text → Config     server.rs   [servers.NAME]: stdio.rs, http.rs, value.rs, units.rs, names.rs
//!                                           fixed.rs, variables.rs
//!                               serve.rs    [serve]; workspace.rs [workspace]; hosts.rs [hosts.NAME]
//!                               hooks.rs    [hooks], and the `hooks` of a server
//!                               ledger.rs   [ledger]; telemetry.rs [telemetry]
//!                               sessions.rs [sessions], and the MCP_* variables over it
//! ```
//!
//! **Invariant:** a file with a mistake yields no [`Config`], only every mistake in it. A key that this version
//! does not carry out is a mistake, never ignored.

mod context;
mod environment;
mod fixed;
mod hooks;
mod hosts;
mod http;
mod ledger;
mod lookup;
mod mistake;
mod names;
mod serve;
mod server;
pub mod sessions;
mod stdio;
mod table;
mod telemetry;
mod units;
mod value;
mod variables;
mod workspace;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::settings::SessionSettings;
use model::{HookFile, HostSpec, InheritEnv, ServerName, ServerSpec};
use toml::de::DeTable;

use context::{Context, Found, Resolve};
use server::Section;
use table::Table;

pub use environment::Environment;
pub use hooks::HooksConfig;
pub use http::check_url;
pub use ledger::LedgerConfig;
pub use lookup::{Sources, load};
pub use mistake::{ConfigErrors, Mistake};
pub use names::{check_header, check_variable, is_variable};
pub use serve::{Auth, OpenToOthers, ServeConfig};
pub use server::{OWN, own_server, own_target};
pub use telemetry::TelemetryConfig;
pub use value::entry_header_value;
pub use variables::pass_variable;

/// What a daemon waits for a silent call. `wrap` leaves it to the host, which has a deadline of its own.
const SERVE_TIMEOUT: Duration = Duration::from_mins(10);

const KEYS: [&str; 8] =
    ["servers", "serve", "workspace", "hosts", "hooks", "ledger", "telemetry", "sessions"];

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// In the order of the file. For `wrap`: the one it starts.
    pub servers: Vec<ServerSpec>,
    pub serve: ServeConfig,
    /// Under which directories a workspace may lie; absolute, and not necessarily there.
    pub roots: Vec<PathBuf>,
    /// Hosts that the file describes, in its order.
    pub hosts: Vec<HostSpec>,
    /// Beside the servers and not in them: a server whose hooks change is still the same and keeps running.
    pub hooks: HooksConfig,
    pub ledger: LedgerConfig,
    /// None: nothing is exported.
    pub telemetry: Option<TelemetryConfig>,
    /// How sessions run, by the file alone.
    pub sessions: SessionSettings,
    /// None: no file was found.
    pub path: Option<PathBuf>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Mistake>,
}

/// For whom the configuration is read.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    Serve,
    /// A daemon that somebody started without being asked to.
    Background,
    Wrap(&'a Wrapped),
}

/// What the command line of `wrap` says about its server.
#[derive(Debug, Clone, PartialEq)]
pub struct Wrapped {
    pub name: ServerName,
    pub section: UseSection,
    /// None: `[servers.NAME]` must say it.
    pub target: Option<Target>,
    /// What holds where `[servers.NAME]` does not say: hosts that pass everything on go on doing so.
    pub inherit_env: Option<InheritEnv>,
}

/// Whether `[servers.NAME]` supplies what the command line does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseSection {
    /// `--name` was given.
    Yes,
    /// The name is one we made up; that the file has the same is chance.
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Command {
        command: String,
        args: Vec<String>,
    },
    Url(String),
    /// One that may lead to a private address.
    PrivateUrl(String),
}

/// A configuration's text, and where it came from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub text: &'a str,
    /// As messages show it.
    pub shown: &'a Path,
    /// Absolute; what relative paths in the text are relative to.
    pub directory: &'a Path,
}

/// Reads the text of a configuration. `path` of the result is not set.
pub fn parse(
    source: Source<'_>,
    purpose: Purpose<'_>,
    environment: Environment<'_>,
) -> Result<Config, ConfigErrors> {
    let Source { text, shown, directory } = source;
    let found = RefCell::new(Found::default());
    let context = Context { shown, text, directory, environment, resolve: Resolve::Yes, found: &found };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        report_syntax(context, &error);
    }
    let root = Table::new(document.get_ref(), "");
    root.check_keys(context, &KEYS, &[]);
    let serve = root.get("serve").and_then(|field| field.table(context, ""));
    let serve = serve.map(|table| serve::read(context, &table)).unwrap_or_default();
    let (roots, hosts) = (workspace::roots(context, &root), hosts::read(context, &root));
    let (servers, of_server) = servers(context, &root, purpose);
    let hooks = HooksConfig { of_server, ..hooks::read(context, &root) };
    let (ledger, telemetry) = (ledger::read(context, &root), telemetry::read(context, &root, purpose));
    let mut found = found.into_inner();
    let sessions = sessions(source, purpose, environment, &mut found);
    let (path, warnings) = (None, Vec::new());
    let config = Config { servers, serve, roots, hosts, hooks, ledger, telemetry, sessions, path, warnings };
    finish(config, found)
}

/// Its doubts are the daemon's business: whether a variable is set for `wrap` says nothing.
fn sessions(
    source: Source<'_>,
    purpose: Purpose<'_>,
    environment: Environment<'_>,
    found: &mut Found,
) -> SessionSettings {
    let errors = match (sessions::parse(source, environment), purpose) {
        (Ok(read), Purpose::Serve | Purpose::Background) => {
            found.warnings.extend(read.warnings);
            return read.settings;
        }
        (Ok(read), Purpose::Wrap(_)) => return read.settings,
        (Err(ConfigErrors(errors)), _) => errors,
    };
    // It reads the text by itself, so what is no TOML at all is known already.
    let news: Vec<_> = errors.into_iter().filter(|mistake| !found.mistakes.contains(mistake)).collect();
    found.mistakes.extend(news);
    SessionSettings::default()
}

/// What holds where the file says nothing.
#[derive(Debug)]
struct Defaults {
    timeout: Option<Duration>,
    cwd: Option<PathBuf>,
    inherit_env: InheritEnv,
}

/// The servers that are used, and the hooks of their own.
fn servers(
    context: Context<'_>,
    root: &Table<'_>,
    purpose: Purpose<'_>,
) -> (Vec<ServerSpec>, Vec<(ServerName, Vec<HookFile>)>) {
    let fields = root.get("servers").and_then(|field| field.table(context, "servers."));
    let (defaults, wrapped) = match purpose {
        Purpose::Serve | Purpose::Background => {
            let (timeout, cwd) = (Some(SERVE_TIMEOUT), Some(context.directory.to_owned()));
            (Defaults { timeout, cwd, inherit_env: InheritEnv::Safe }, None)
        }
        Purpose::Wrap(wrapped) => {
            let inherit_env = wrapped.inherit_env.clone().unwrap_or(InheritEnv::Safe);
            (Defaults { timeout: None, cwd: None, inherit_env }, Some(wrapped))
        }
    };
    let (mut servers, mut of_server) = (Vec::new(), Vec::new());
    let mut wrapped_was_there = false;
    for field in &fields.unwrap_or_default().fields {
        let (Some(name), Some(table)) = (server::name(context, field), field.table(context, "")) else {
            continue;
        };
        let files = hooks::of_server(context, &table);
        let section = Section { name: &name, at: field.key_at, table: &table };
        let is_wrapped = wrapped.is_some_and(|it| it.section == UseSection::Yes && it.name == name);
        wrapped_was_there |= is_wrapped;
        if wrapped.is_some() && !is_wrapped {
            // Checked all the same: a mistake is reported wherever the file is read.
            server::read(context.resolving(Resolve::No), &section, None, &defaults);
            continue;
        }
        let target = wrapped.and_then(|wrapped| wrapped.target.as_ref());
        servers.extend(server::read(context, &section, target, &defaults));
        if !files.is_empty() {
            of_server.push((name, files));
        }
    }
    if let Some(wrapped) = wrapped.filter(|_| !wrapped_was_there) {
        servers.extend(from_command_line(context, wrapped, &defaults));
    }
    (servers, of_server)
}

fn from_command_line(context: Context<'_>, wrapped: &Wrapped, defaults: &Defaults) -> Option<ServerSpec> {
    let Wrapped { name, section: _, target, inherit_env: _ } = wrapped;
    if target.is_none() {
        let message = format!("there is no [servers.{name}]; add it, or give a command after -- or a --url");
        context.absent(0, message);
        return None;
    }
    let section = Section { name, at: 0, table: &Table::default() };
    server::read(context, &section, target.as_ref(), defaults)
}

fn report_syntax(context: Context<'_>, error: &toml::de::Error) {
    let span = error.span().unwrap_or_default();
    let message = match error.message() {
        "duplicate key" => {
            let key = context.text.get(span.clone()).unwrap_or_default();
            format!("`{key}` is there already; keep one")
        }
        other => other.to_owned(),
    };
    context.syntax(span.start, message);
}

fn finish(config: Config, found: Found) -> Result<Config, ConfigErrors> {
    let Found { mut mistakes, mut warnings, .. } = found;
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    warnings.sort_by_key(|warning| (warning.line, warning.column));
    if mistakes.is_empty() { Ok(Config { warnings, ..config }) } else { Err(ConfigErrors(mistakes)) }
}

#[cfg(test)]
mod tests;
