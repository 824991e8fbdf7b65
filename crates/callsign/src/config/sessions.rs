//! `[sessions]` and the variables that override it → [`SessionSettings`].
//!
//! ```text
//! defaults ─▶ parse: [sessions] ─▶ resolve: MCP_* of the daemon ─▶ resolve: MCP_* that came with a session
//!                                                                       │              ▲
//! values.rs     what a setting may say, whoever wrote it                └─ document.rs ┘
//! variables.rs  MCP_* as they were found                                   what is kept of them with the session
//! resolve.rs    variables over settings
//! ```
//!
//! **Invariants:** what a layer says of a model, a url or a key holds for its own provider only, and its key goes to
//! its own url only. A key is in no message, no `Debug` and no document.

mod document;
mod resolve;
mod values;
mod variables;

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

use gateway::address::check_host;
use model::ServerName;
use model::settings::{ApiKey, Budget, Egress, Limits, ModelName, Provider, SessionSettings};
use toml::de::DeTable;

use super::context::{Context, Found, Resolve};
use super::names::check_readable;
use super::table::{Field, Table};
use super::{ConfigErrors, Environment, Mistake, Source, units};

pub use document::{BadDocument, Document};
pub use resolve::{Resolved, key, resolve};
pub use variables::{VARIABLES, Variables, state_dir};

/// `api_key` is among them to be refused with a better word than that it is unknown.
const KEYS: [&str; 23] = [
    "runtime",
    "image",
    "command",
    "provider",
    "model",
    "small_model",
    "base_url",
    "api_key_env",
    "api_key",
    "idle",
    "max_hot",
    "limits",
    "budget",
    "egress",
    "mcp_servers",
    "start_timeout",
    "request_timeout",
    "poll_interval",
    "extras_dir",
    "isolation",
    "warm",
    "orphan_grace",
    "strict_limits",
];
const LIMIT_KEYS: [&str; 4] = ["memory", "pids", "cpus", "disk"];
const BUDGET_KEYS: [&str; 2] = ["requests", "tokens"];

/// With less, the agent does not start: it takes 300 MB before it has done anything.
const LEAST_MEMORY: u64 = 256 << 20;
const LEAST_DISK: u64 = 16 << 20;

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromFile {
    pub settings: SessionSettings,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Mistake>,
}

/// Reads `[sessions]` of a configuration's text, and nothing else of it.
pub fn parse(source: Source<'_>, environment: Environment<'_>) -> Result<FromFile, ConfigErrors> {
    let Source { text, shown, directory } = source;
    let found = RefCell::new(Found::default());
    let context = Context { shown, text, directory, environment, resolve: Resolve::Yes, found: &found };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        super::report_syntax(context, &error);
    }
    let settings = read(context, &Table::new(document.get_ref(), ""));
    let Found { mut mistakes, mut warnings, .. } = found.into_inner();
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    warnings.sort_by_key(|warning| (warning.line, warning.column));
    if mistakes.is_empty() { Ok(FromFile { settings, warnings }) } else { Err(ConfigErrors(mistakes)) }
}

/// Where there was a mistake, what is returned is of no use; the caller drops it.
fn read(context: Context<'_>, root: &Table<'_>) -> SessionSettings {
    let section = root.get("sessions");
    let table = section.and_then(|field| field.table(context, "sessions.")).unwrap_or_default();
    table.check_keys(context, &KEYS, &[]);
    let defaults = SessionSettings::default();
    let Spoken { model, small_model, base_url, api_key } = spoken(context, &table, &defaults);
    let get = |key: &str| table.get(key);
    let duration = |key: &str| get(key).and_then(|field| units::duration(context, field));
    let between =
        |key: &str, range: &RangeInclusive<Duration>| get(key).and_then(|it| within(context, it, range));
    let limits = get("limits").map(|field| limits(context, field));
    let mcp_servers = get("mcp_servers").map(|field| mcp_servers(context, field, root));
    let (max_hot, warm) = boxes(context, &table, defaults.max_hot);
    let runtime = get("runtime").and_then(|field| written(context, field, values::runtime));
    let runtime = runtime.unwrap_or(defaults.runtime);
    SessionSettings {
        runtime,
        image: get("image")
            .and_then(|field| written(context, field, values::image))
            .unwrap_or(defaults.image),
        command: get("command")
            .and_then(|field| written(context, field, values::command))
            .unwrap_or(defaults.command),
        model,
        small_model,
        base_url,
        api_key,
        idle: duration("idle").unwrap_or(defaults.idle),
        max_hot,
        limits: limits.unwrap_or_default(),
        budget: get("budget").map(|field| budget(context, field)).unwrap_or_default(),
        egress: get("egress").and_then(|field| egress(context, field)).unwrap_or(defaults.egress),
        mcp_servers: mcp_servers.unwrap_or_default(),
        start_timeout: between("start_timeout", &values::START_TIMEOUT).unwrap_or(defaults.start_timeout),
        request_timeout: between("request_timeout", &values::REQUEST_TIMEOUT)
            .unwrap_or(defaults.request_timeout),
        poll_interval: between("poll_interval", &values::POLL_INTERVAL).unwrap_or(defaults.poll_interval),
        extras_dir: get("extras_dir").and_then(|field| extras_dir(context, field)),
        isolation: get("isolation")
            .and_then(|field| written(context, field, |text| values::isolation(runtime, text)))
            .unwrap_or(defaults.isolation),
        warm,
        orphan_grace: duration("orphan_grace").unwrap_or(defaults.orphan_grace),
        strict_limits: get("strict_limits").and_then(|field| field.boolean(context)).unwrap_or_default(),
    }
}

/// What depends on the provider.
struct Spoken {
    model: ModelName,
    small_model: Option<ModelName>,
    base_url: String,
    api_key: Option<ApiKey>,
}

fn spoken(context: Context<'_>, table: &Table<'_>, defaults: &SessionSettings) -> Spoken {
    let named = table.get("provider").map(|field| (field, written(context, field, values::provider)));
    let api_key = api_key(context, table);
    let (model, small_model) = (table.get("model"), table.get("small_model"));
    let base_url = table.get("base_url").and_then(|field| base_url(context, field, api_key.is_some()));
    let spoken = |provider: Provider, model: ModelName, small_model: Option<ModelName>| Spoken {
        model,
        small_model,
        base_url: base_url.clone().unwrap_or_else(|| provider.base_url().to_owned()),
        api_key: api_key.clone(),
    };
    let provider = match named {
        None => defaults.provider(),
        Some((_, Some(provider))) => provider,
        // Whether a model fits cannot be told; only that it is a text.
        Some((_, None)) => {
            for field in [model, small_model].into_iter().flatten() {
                field.text(context);
            }
            return spoken(defaults.provider(), defaults.model.clone(), None);
        }
    };
    let parse = |field: &Field<'_>| {
        written(context, field, |text| values::model(provider, text, "`sessions.provider`"))
    };
    let (main, small_model) = (model.map(parse), small_model.and_then(parse));
    let main = match main {
        Some(model) => model,
        None if provider == defaults.provider() => Some(defaults.model.clone()),
        None => {
            let at = named.map_or(0, |(field, _)| field.at);
            let example = provider.example();
            context.absent(at, format!("{provider} needs a model; add `model`, such as {example:?}"));
            None
        }
    };
    spoken(provider, main.unwrap_or_else(|| defaults.model.clone()), small_model)
}

fn api_key(context: Context<'_>, table: &Table<'_>) -> Option<ApiKey> {
    if let Some(field) = table.get("api_key") {
        context.mistake(
            field.key_at,
            "a key does not go in the file; put it in a variable, and the variable's name in `api_key_env`",
        );
    }
    let field = table.get("api_key_env")?;
    let name = written(context, field, |name| {
        // Not shown: it may be the key itself.
        let problem = "must be the name of the variable that holds the key, such as \"OPENAI_API_KEY\"";
        check_readable(name).map_err(|_| problem.to_owned())
    });
    name?;
    let name = field.string(context)?;
    // Only a warning: another session may bring a key of its own.
    if context.environment.get(name).is_none_or(|value| value.is_empty()) {
        context.warn(field.at, format!("`{name}` is not set, so there is no key; set it for the daemon"));
    }
    Some(ApiKey::Variable(name.to_owned()))
}

fn base_url(context: Context<'_>, field: &Field<'_>, has_key: bool) -> Option<String> {
    let found = written(context, field, |text| values::base_url(text, "`sessions.api_key_env`"))?;
    for doubt in found.doubts(has_key) {
        context.warn(field.at, format!("{} {doubt}", field.label));
    }
    Some(found.url)
}

/// A text that `parse` makes something of. Its `Err` goes behind the name of the setting.
fn written<T>(
    context: Context<'_>,
    field: &Field<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let outcome = parse(field.text(context)?);
    outcome.map_err(|problem| context.mistake(field.at, format!("{} {problem}", field.label))).ok()
}

fn within(context: Context<'_>, field: &Field<'_>, range: &RangeInclusive<Duration>) -> Option<Duration> {
    let value = units::duration(context, field)?;
    if !range.contains(&value) {
        let (least, most) = (range.start(), range.end());
        context.mistake(field.at, format!("{} must be \"{least:?}\" to \"{most:?}\"", field.label));
        return None;
    }
    Some(value)
}

/// How many run at most, and how many of them before anybody asks.
fn boxes(context: Context<'_>, table: &Table<'_>, default: usize) -> (usize, usize) {
    let count = |key: &str, least: u16| {
        let value = units::within(context, table.get(key)?, least..=10_000, "boxes")?;
        Some(usize::from(value))
    };
    let (max_hot, warm) = (count("max_hot", 1).unwrap_or(default), count("warm", 0).unwrap_or_default());
    if let Some(field) = table.get("warm").filter(|_| warm > max_hot) {
        context.mistake(field.at, format!("{} must be at most `max_hot`, {max_hot}", field.label));
    }
    (max_hot, warm)
}

fn limits(context: Context<'_>, field: &Field<'_>) -> Limits {
    let table = field.table(context, "sessions.limits.").unwrap_or_default();
    table.check_keys(context, &LIMIT_KEYS, &[]);
    let defaults = Limits::default();
    let size = |key: &str, least: u64| {
        let field = table.get(key)?;
        let value = units::size(context, field)? as u64;
        if value < least {
            context.mistake(field.at, format!("{} must be at least \"{}MiB\"", field.label, least >> 20));
        }
        Some(value)
    };
    let pids = |field| units::within(context, field, 16..=u16::MAX, "processes");
    Limits {
        memory: size("memory", LEAST_MEMORY).unwrap_or(defaults.memory),
        pids: table.get("pids").and_then(pids).map_or(defaults.pids, u32::from),
        millicpus: table.get("cpus").and_then(|field| cpus(context, field)).unwrap_or(defaults.millicpus),
        disk: size("disk", LEAST_DISK).unwrap_or(defaults.disk),
    }
}

fn budget(context: Context<'_>, field: &Field<'_>) -> Budget {
    let table = field.table(context, "sessions.budget.").unwrap_or_default();
    table.check_keys(context, &BUDGET_KEYS, &[]);
    let most = |key: &str| {
        let field = table.get(key)?;
        let expected = "a whole number from 1 on; leave it out for no limit";
        match field.integer() {
            None => return field.wrong(context, expected, ""),
            Some(Ok(number)) if number > 0 => return Some(number),
            Some(_) => context.mistake(field.at, format!("{} must be {expected}", field.label)),
        }
        None
    };
    Budget { requests: most("requests"), tokens: most("tokens") }
}

/// A whole number, or a fraction in quotes.
fn cpus(context: Context<'_>, field: &Field<'_>) -> Option<u32> {
    let expected = "a number of cores from \"0.1\" to 1024; a fraction goes in quotes";
    let value = match field.integer() {
        Some(number) => number.ok().and_then(|number| number.checked_mul(1000)),
        None if !field.is_string() => return field.wrong(context, expected, ""),
        None => values::thousandths(field.string(context)?),
    };
    let value = value.filter(|value| (100..=1_024_000).contains(value));
    let value = value.and_then(|value| u32::try_from(value).ok());
    if value.is_none() {
        context.mistake(field.at, format!("{} must be {expected}", field.label));
    }
    value
}

fn egress(context: Context<'_>, field: &Field<'_>) -> Option<Egress> {
    let expected = "\"none\", \"open\" or a list of hosts";
    if field.is_string() {
        return match field.string(context)? {
            "none" => Some(Egress::None),
            "open" => Some(Egress::Open),
            other => {
                context.mistake(field.at, format!("{} must be {expected}, not {other:?}", field.label));
                None
            }
        };
    }
    let mut hosts: Vec<String> = Vec::new();
    for item in field.list(context, expected)? {
        let Some(host) = item.text(context) else {
            continue;
        };
        let lower = host.to_ascii_lowercase();
        if let Err(problem) = check_host(&lower, true) {
            let advice = "a host is a name or an address alone, without scheme, port and path";
            context.mistake(item.at, format!("{problem}; {advice}"));
        } else if hosts.contains(&lower) {
            context.mistake(item.at, format!("`{host}` is there already; keep one"));
        }
        hosts.push(lower);
    }
    Some(if hosts.is_empty() { Egress::None } else { Egress::Hosts(hosts) })
}

/// Named ones only: each is a way out of the box.
fn mcp_servers(context: Context<'_>, field: &Field<'_>, root: &Table<'_>) -> Vec<ServerName> {
    let known = root.get("servers").filter(|servers| servers.is_table());
    let known = known.and_then(|servers| servers.table(context, "")).unwrap_or_default();
    let mut servers: Vec<ServerName> = Vec::new();
    for item in field.list(context, "a list of names").unwrap_or_default() {
        let Some(written) = item.text(context) else {
            continue;
        };
        let Ok(name) = ServerName::new(written) else {
            context.mistake(item.at, format!("{written:?} is not the name of a server"));
            continue;
        };
        if known.get(written).is_none() {
            context.absent(item.at, format!("there is no [servers.{name}]; add it, or take the name out"));
        }
        if servers.contains(&name) {
            context.mistake(item.at, format!("`{name}` is there already; keep one"));
        }
        servers.push(name);
    }
    servers
}

fn extras_dir(context: Context<'_>, field: &Field<'_>) -> Option<std::path::PathBuf> {
    let path = context.path(field.text(context)?);
    let path =
        path.map_err(|problem| context.mistake(field.at, format!("{}: {problem}", field.label))).ok()?;
    // Only a warning: it may be there by the time a session starts.
    if !path.is_dir() {
        context.warn(field.at, format!("{} is not a directory: {}", field.label, path.display()));
    }
    Some(path)
}
