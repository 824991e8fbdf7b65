//! The keys of a server that is a child process.

use std::borrow::Cow;

use model::{Directory, InheritEnv, Isolation, Placeholder, StdioSpec};

use super::context::{Context, Resolve};
use super::fixed::{self, Fixed};
use super::table::{Field, Table};
use super::value::{Carrier, placeholder_in, placeholders, template, template_of};
use super::variables::{check_inherited, env, env_vars};
use super::{Defaults, units};

pub(super) const KEYS: [&str; 9] =
    ["command", "args", "env", "env_vars", "isolation", "cwd", "inherit_env", "idle", "max_children"];

/// All but `command` and `args`, which the command line may replace.
pub(super) fn read(context: Context<'_>, table: &Table<'_>, defaults: &Defaults) -> StdioSpec {
    let isolation = table.get("isolation").and_then(|field| isolation(context, field));
    let isolation = isolation.unwrap_or(Isolation::Session);
    let cwd = table.get("cwd").and_then(|field| cwd(context, field, isolation, defaults));
    StdioSpec {
        command: String::new(),
        args: Vec::new(),
        env: table.get("env").map(|field| env(context, field, isolation)).unwrap_or_default(),
        env_vars: table.get("env_vars").map(|field| env_vars(context, field, isolation)).unwrap_or_default(),
        isolation,
        cwd: cwd.or_else(|| defaults.cwd.clone().map(Directory::Fixed)),
        inherit_env: table
            .get("inherit_env")
            .and_then(|field| inherit_env(context, field))
            .unwrap_or_else(|| defaults.inherit_env.clone()),
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

fn inherited<'i>(context: Context<'_>, item: &Field<'i>) -> Option<&'i str> {
    let name = item.string(context)?;
    check_inherited(name).map_err(|problem| context.mistake(item.at, problem)).ok()?;
    Some(name)
}

fn inherit_env(context: Context<'_>, field: &Field<'_>) -> Option<InheritEnv> {
    let expected = "\"safe\", \"host\" or a list of names";
    if !field.is_string() {
        let items = field.list(context, expected)?;
        let names = items.iter().filter_map(|item| inherited(context, item)).map(str::to_owned);
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

fn cwd(
    context: Context<'_>,
    field: &Field<'_>,
    isolation: Isolation,
    defaults: &Defaults,
) -> Option<Directory> {
    let text = field.text(context)?;
    let written = template(context, field, Carrier::Variable)?;
    let used = placeholders(&written);
    if used.is_empty() {
        return fixed_directory(context, field, &written.render(&|_| None)?);
    }
    let label = &field.label;
    fixed::check(context, Fixed { at: field.at, label, what: "directory", isolation }, &used);
    let path = match text.strip_prefix("~/") {
        None => written,
        Some(rest) => {
            context
                .path("~")
                .map_err(|problem| context.mistake(field.at, format!("`cwd`: {problem}")))
                .ok()?;
            template_of(context, field, &format!("{{env:HOME}}/{rest}"), Carrier::Variable)?
        }
    };
    let example =
        |placeholder| Some(Cow::Borrowed(if placeholder == Placeholder::Workspace { "/" } else { "x" }));
    if context.resolve == Resolve::Yes && !path.render(&example)?.starts_with('/') {
        let problem = "`cwd`: a path with placeholders is absolute; begin it with {workspace}, / or ~/";
        context.mistake(field.at, problem);
    }
    Some(Directory::Template { path, otherwise: defaults.cwd.clone() })
}

fn fixed_directory(context: Context<'_>, field: &Field<'_>, written: &str) -> Option<Directory> {
    let path = match context.path(written) {
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
    Some(Directory::Fixed(path))
}
