//! `[hooks]`, and the `hooks` of a server. Whether a file is there and can be loaded is not looked at here: files
//! change without the configuration, so whoever loads them has to say it anyway.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use model::{HookFile, ServerName};

use super::context::Context;
use super::names::check_readable;
use super::table::{Field, Table};
use super::units;
use super::value::placeholder_in;
use super::variables::of_host;

const KEYS: [&str; 4] = ["files", "env", "timeout_ms", "memory_mb"];
const FILE_KEYS: [&str; 2] = ["path", "optional"];
const ENDINGS: [&str; 2] = ["js", "mjs"];

/// Which hooks there are, and what they may see and use.
#[derive(Clone, PartialEq, Eq)]
pub struct HooksConfig {
    /// For every server, in order.
    pub files: Vec<HookFile>,
    /// After those, by server name. Only servers that have some.
    pub of_server: Vec<(ServerName, Vec<HookFile>)>,
    /// What `process.env` shows: name and value, only those that are set. A name is there once.
    pub env: Vec<(String, String)>,
    /// CPU time a hook may take for one call.
    pub timeout: Duration,
    /// What a hook may use for one call, in bytes.
    pub memory: usize,
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            of_server: Vec::new(),
            env: Vec::new(),
            timeout: Duration::from_millis(50),
            memory: 16 * 1024 * 1024,
        }
    }
}

impl fmt::Debug for HooksConfig {
    /// Without the values of `env`: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, of_server, env, timeout, memory } = self;
        let names: Vec<_> = env.iter().map(|(name, _)| name).collect();
        f.debug_struct("HooksConfig")
            .field("files", files)
            .field("of_server", of_server)
            .field("env", &names)
            .field("timeout", timeout)
            .field("memory", memory)
            .finish()
    }
}

/// `[hooks]`. What single servers have of their own is not in it.
pub(super) fn read(context: Context<'_>, root: &Table<'_>) -> HooksConfig {
    let table = root.get("hooks").and_then(|field| field.table(context, "hooks."));
    let table = table.unwrap_or_default();
    table.check_keys(context, &KEYS, &[]);
    let defaults = HooksConfig::default();
    let timeout = table.get("timeout_ms").and_then(|field| timeout(context, field));
    let memory = table.get("memory_mb").and_then(|field| memory(context, field));
    HooksConfig {
        files: table.get("files").map(|field| files(context, field)).unwrap_or_default(),
        env: table.get("env").map(|field| env(context, field)).unwrap_or_default(),
        timeout: timeout.unwrap_or(defaults.timeout),
        memory: memory.unwrap_or(defaults.memory),
        of_server: defaults.of_server,
    }
}

/// `hooks` of one `[servers.NAME]`.
pub(super) fn of_server(context: Context<'_>, section: &Table<'_>) -> Vec<HookFile> {
    section.get("hooks").map(|field| files(context, field)).unwrap_or_default()
}

fn files(context: Context<'_>, field: &Field<'_>) -> Vec<HookFile> {
    let mut files: Vec<HookFile> = Vec::new();
    for item in field.list(context, "a list of files").unwrap_or_default() {
        let Some((at, file)) = file(context, &item) else {
            continue;
        };
        if let Some(other) = files.iter().find(|other| other.path == file.path) {
            let same = other.shown == file.shown;
            let spelling = if same { String::new() } else { format!(", as `{}`", other.shown) };
            context.mistake(at, format!("`{}` is there already{spelling}; keep one", file.shown));
        }
        files.push(file);
    }
    files
}

/// `"PATH"`, or `{ path = "PATH", optional = true }`; and where the path stands.
fn file(context: Context<'_>, item: &Field<'_>) -> Option<(usize, HookFile)> {
    if item.is_string() {
        return by_path(context, item);
    }
    if !item.is_table() {
        return item.wrong(context, "a path or { path = …, optional = … }", "");
    }
    let table = item.table(context, "")?;
    table.check_keys(context, &FILE_KEYS, &[]);
    let optional = table.get("optional").and_then(|field| field.boolean(context));
    let Some(field) = table.get("path") else {
        context.absent(item.at, format!("{} needs a `path`", item.label));
        return None;
    };
    let (at, file) = by_path(context, field)?;
    Some((at, HookFile { optional: optional.unwrap_or_default(), ..file }))
}

fn by_path(context: Context<'_>, field: &Field<'_>) -> Option<(usize, HookFile)> {
    let written = field.text(context)?;
    let ending = Path::new(written).extension();
    if !ending.is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
        context.mistake(field.at, format!("{written:?} is no file of hooks; its name ends in .js or .mjs"));
        return None;
    }
    if let Some(name) = placeholder_in(written) {
        context.warn(field.at, format!("the path of a file of hooks is taken as it is, {{{name}}} too"));
    }
    match context.path(written) {
        Ok(path) => Some((field.at, HookFile { path, shown: written.to_owned(), optional: false })),
        Err(problem) => {
            context.mistake(field.at, format!("{}: {problem}", field.label));
            None
        }
    }
}

/// The variables that are named and set.
fn env(context: Context<'_>, field: &Field<'_>) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    for item in field.list(context, "a list of names").unwrap_or_default() {
        let Some(name) = item.string(context) else {
            continue;
        };
        if let Err(problem) = check_shown(name) {
            context.mistake(item.at, problem);
            continue;
        }
        match context.environment.get(name) {
            Some(value) if env.iter().all(|(other, _)| other != name) => env.push((name.to_owned(), value)),
            Some(_) => {}
            None => context.warn(
                item.at,
                format!("`{name}` is not set, so no hook sees it; some hosts clear the environment and must be told to pass it"),
            ),
        }
    }
    env
}

/// Whether a hook may be shown the variable `name` as we have it in our own environment.
fn check_shown(name: &str) -> Result<(), String> {
    check_readable(name)?;
    match of_host(name) {
        None => Ok(()),
        Some(_) => Err(format!(
            "`{name}` says who calls, which what we inherited does not; take it out, a hook finds who calls in `input`"
        )),
    }
}

fn timeout(context: Context<'_>, field: &Field<'_>) -> Option<Duration> {
    let milliseconds = units::within(context, field, 1..=10_000, "milliseconds")?;
    Some(Duration::from_millis(milliseconds.into()))
}

/// The engine itself takes a part of it, so there is a least that leaves a hook some.
fn memory(context: Context<'_>, field: &Field<'_>) -> Option<usize> {
    let megabytes = units::within(context, field, 4..=1024, "megabytes")?;
    Some(usize::from(megabytes) << 20)
}
