//! The keys of a server that is a child process.

use std::path::PathBuf;

use model::{EnvVar, InheritEnv, Isolation, StdioSpec, Template};

use super::context::{Context, Resolve};
use super::names::{check_inherited, check_variable};
use super::table::{Field, Table, not_available};
use super::value::{Carrier, template};
use super::{Defaults, units};

pub(super) const KEYS: [&str; 9] =
    ["command", "args", "env", "env_vars", "isolation", "cwd", "inherit_env", "idle", "max_children"];

/// All but `command` and `args`, which the command line may replace.
pub(super) fn read(context: Context<'_>, table: &Table<'_>, defaults: &Defaults) -> StdioSpec {
    StdioSpec {
        command: String::new(),
        args: Vec::new(),
        env: table.get("env").map(|field| env(context, field)).unwrap_or_default(),
        env_vars: table.get("env_vars").map(|field| env_vars(context, field)).unwrap_or_default(),
        isolation: table
            .get("isolation")
            .and_then(|field| isolation(context, field))
            .unwrap_or(Isolation::Session),
        cwd: table.get("cwd").and_then(|field| cwd(context, field)).or_else(|| defaults.cwd.clone()),
        inherit_env: table
            .get("inherit_env")
            .and_then(|field| inherit_env(context, field))
            .unwrap_or(InheritEnv::Safe),
        idle: table
            .get("idle")
            .and_then(|field| units::duration(context, field))
            .unwrap_or(model::server::DEFAULT_IDLE),
        max_children: table
            .get("max_children")
            .and_then(|field| units::count(context, field))
            .unwrap_or(model::server::DEFAULT_MAX_CHILDREN),
    }
}

pub(super) fn args(context: Context<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let mut args = Vec::new();
    for item in field.list(context, "a list of strings")? {
        let Some(text) = item.string(context).and_then(|text| item.without_nul(context, text)) else {
            continue;
        };
        if let Some(name) = placeholder_in(text) {
            context
                .warn(item.at, format!("`args` are passed on as they are, {{{name}}} too; use `env` for it"));
        }
        args.push(text.to_owned());
    }
    Some(args)
}

/// What would be filled in, were this a template.
fn placeholder_in(text: &str) -> Option<&str> {
    let known = |name: &&str| {
        name.starts_with("env:")
            || name.starts_with("file:")
            || model::template::PLACEHOLDERS.iter().any(|(spelling, _)| spelling == name)
    };
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).find(known)
}

fn env(context: Context<'_>, field: &Field<'_>) -> Vec<(String, Template)> {
    let mut env = Vec::new();
    for variable in field.table(context, "env.").unwrap_or_default().fields {
        if let Err(problem) = check_variable(variable.key) {
            context.mistake(variable.key_at, problem);
        }
        if let Some(value) = template(context, &variable, Carrier::Variable) {
            env.push((variable.key.to_owned(), value));
        }
    }
    env
}

fn env_vars(context: Context<'_>, field: &Field<'_>) -> Vec<EnvVar> {
    let items = field.list(context, "a list of names").unwrap_or_default();
    items.iter().filter_map(|item| env_var(context, item)).collect()
}

/// `"NAME"`, or Codex's shape `{ name = "NAME", source = "local" }`.
fn env_var(context: Context<'_>, item: &Field<'_>) -> Option<EnvVar> {
    if item.is_string() {
        return inherited(context, item);
    }
    if !item.is_table() {
        return item.wrong(context, "a name or { name = …, source = … }", "");
    }
    let table = item.table(context, "")?;
    table.check_keys(context, &["name", "source"], &[]);
    let source_is_ours = table.get("source").is_none_or(|source| check_source(context, source).is_some());
    let Some(name) = table.get("name") else {
        context.absent(item.at, format!("{} needs a `name`", item.label));
        return None;
    };
    if source_is_ours { inherited(context, name) } else { None }
}

fn check_source(context: Context<'_>, source: &Field<'_>) -> Option<()> {
    const LATER: [&str; 6] = ["session", "thread", "parent", "title", "workspace", "host"];
    let written = source.string(context)?;
    if written == "local" {
        return Some(());
    }
    let problem = if LATER.contains(&written) {
        not_available(&format!("`source = {written:?}`"))
    } else {
        format!("`source` must be \"local\", not {written:?}")
    };
    context.mistake(source.at, problem);
    None
}

fn inherited(context: Context<'_>, field: &Field<'_>) -> Option<EnvVar> {
    let name = field.string(context)?;
    if let Err(problem) = check_inherited(name) {
        context.mistake(field.at, problem);
        return None;
    }
    Some(EnvVar { name: name.to_owned() })
}

fn isolation(context: Context<'_>, field: &Field<'_>) -> Option<Isolation> {
    match field.string(context)? {
        "session" => Some(Isolation::Session),
        "shared" => Some(Isolation::Shared),
        other => {
            context
                .mistake(field.at, format!("`isolation` must be \"session\" or \"shared\", not {other:?}"));
            None
        }
    }
}

fn inherit_env(context: Context<'_>, field: &Field<'_>) -> Option<InheritEnv> {
    let expected = "\"safe\", \"host\" or a list of names";
    if !field.is_string() {
        let items = field.list(context, expected)?;
        let names = items.iter().filter_map(|item| inherited(context, item)).map(|variable| variable.name);
        return Some(InheritEnv::Names(names.collect()));
    }
    match field.string(context)? {
        "safe" => Some(InheritEnv::Safe),
        "host" => Some(InheritEnv::Host),
        other => {
            context.mistake(field.at, format!("`inherit_env` must be {expected}, not {other:?}"));
            None
        }
    }
}

fn cwd(context: Context<'_>, field: &Field<'_>) -> Option<PathBuf> {
    field.text(context)?;
    let written = template(context, field, Carrier::Variable)?;
    let Some(written) = written.render(&|_| None) else {
        context.mistake(field.at, not_available("a placeholder that differs per call in `cwd`"));
        return None;
    };
    let path = match context.path(&written) {
        Ok(path) => path,
        Err(problem) => {
            context.mistake(field.at, format!("`cwd`: {problem}"));
            return None;
        }
    };
    // Only a warning: it may be there by the time the server starts.
    if context.resolve == Resolve::Yes && !path.is_dir() {
        context.warn(field.at, format!("`cwd` is not a directory: {}", path.display()));
    }
    Some(path)
}
