//! `env` and `env_vars`: the variables of a child, those that name its caller among them.

use identity::projection::VARIABLES;
use model::server::IDENTITY_VARIABLES;
use model::{EnvSource, EnvVar, Isolation, Placeholder, StdioSpec, Template};

use super::context::Context;
use super::fixed::{self, Fixed, Varies};
use super::names::{check_variable, is_variable};
use super::table::Field;
use super::value::{Carrier, is_text_free, placeholders, template};

/// What `source` may say beside `local`.
const SOURCES: [(&str, Placeholder); 6] = [
    ("session", Placeholder::SessionId),
    ("thread", Placeholder::ThreadId),
    ("parent", Placeholder::ParentId),
    ("title", Placeholder::SessionTitle),
    ("workspace", Placeholder::Workspace),
    ("host", Placeholder::Host),
];

pub(super) fn env(context: Context<'_>, field: &Field<'_>, isolation: Isolation) -> Vec<(String, Template)> {
    let mut env = Vec::new();
    for variable in field.table(context, "env.").unwrap_or_default().fields {
        let name = variable.key;
        if let Err(problem) = check_variable(name) {
            context.mistake(variable.key_at, problem);
        }
        let Some(value) = template(context, &variable, Carrier::Variable) else {
            continue;
        };
        let used = placeholders(&value);
        let names_the_caller = used.iter().any(|used| fixed::varies(*used) != Varies::Never);
        if of_host(name).is_some() && !(names_the_caller && is_text_free(&value)) {
            let problem = format!(
                "`{name}` says who calls, and a text of its own would be a lie; take it out and name it in `env_vars`"
            );
            context.mistake(variable.key_at, problem);
        }
        let label = &variable.label;
        fixed::check(context, Fixed { at: variable.at, label, what: "environment", isolation }, &used);
        env.push((name.to_owned(), value));
    }
    env
}

pub(super) fn env_vars(context: Context<'_>, field: &Field<'_>, isolation: Isolation) -> Vec<EnvVar> {
    let mut variables: Vec<EnvVar> = Vec::new();
    for item in field.list(context, "a list of names").unwrap_or_default() {
        let Some(variable) = env_var(context, &item) else {
            continue;
        };
        if let Err(problem) = check_shared(&variable, isolation) {
            context.mistake(item.at, problem);
        }
        let same_name = variables.iter().find(|other| other.name == variable.name);
        if same_name.is_some_and(|other| other.source != variable.source) {
            let problem = format!("`{}` is there already, with another source; keep one", variable.name);
            context.mistake(item.at, problem);
        }
        variables.push(variable);
    }
    variables
}

/// Hands the variable `name` on to the server that `stdio` starts, unless the configuration does already. `Err` is a sentence for the person who named it.
///
/// The host's own entry set it, so it may be one that a configuration of ours may not set: without us the host would
/// have given it to the server itself.
pub fn pass_variable(stdio: &mut StdioSpec, name: &str) -> Result<(), String> {
    let variable = match by_name(name) {
        Err(_) if is_variable(name) && !name.starts_with("CALLSIGN_") => {
            EnvVar { name: name.to_owned(), source: EnvSource::Local }
        }
        named => named?,
    };
    check_shared(&variable, stdio.isolation)?;
    if !stdio.env_vars.iter().any(|other| other.name == name) {
        stdio.env_vars.push(variable);
    }
    Ok(())
}

/// Whether a configuration may hand the variable `name` on as we have it in our own environment.
pub(super) fn check_inherited(name: &str) -> Result<(), String> {
    check_variable(name)?;
    match of_host(name) {
        None => Ok(()),
        Some(_) => Err(format!(
            "`{name}` says who calls, which what we inherited does not; name it in `env_vars` instead"
        )),
    }
}

/// `"NAME"`, or Codex's shape `{ name = "NAME", source = "local" }`.
fn env_var(context: Context<'_>, item: &Field<'_>) -> Option<EnvVar> {
    if item.is_string() {
        return report(context, item.at, by_name(item.string(context)?));
    }
    if !item.is_table() {
        return item.wrong(context, "a name or { name = …, source = … }", "");
    }
    let table = item.table(context, "")?;
    table.check_keys(context, &["name", "source"], &[]);
    let source = table.get("source").map(|field| (field.at, source(context, field)));
    let Some(field) = table.get("name") else {
        context.absent(item.at, format!("{} needs a `name`", item.label));
        return None;
    };
    let name = field.string(context)?;
    let by_name = report(context, field.at, by_name(name))?;
    match source {
        None => Some(by_name),
        Some((at, source)) => report(context, at, with_source(by_name, source?)),
    }
}

/// What a name means where no source is given.
fn by_name(name: &str) -> Result<EnvVar, String> {
    if let Some(placeholder) = our_own(name).or_else(|| of_host(name)) {
        return Ok(EnvVar { name: name.to_owned(), source: EnvSource::Caller(placeholder) });
    }
    check_variable(name)?;
    Ok(EnvVar { name: name.to_owned(), source: EnvSource::Local })
}

fn with_source(by_name: EnvVar, source: EnvSource) -> Result<EnvVar, String> {
    let EnvVar { name, source: own } = by_name;
    if our_own(&name).is_some() && own != source {
        return Err(format!("`{name}` is callsign's own and has its meaning; leave `source` out"));
    }
    if let (EnvSource::Local, EnvSource::Caller(placeholder)) = (source, own) {
        let spelling = SOURCES.iter().find(|(_, other)| *other == placeholder).map_or("", |(word, _)| word);
        return Err(format!(
            "`{name}` says who calls, and what callsign inherited under that name is another session's; write \
             `source = \"{spelling}\"`, or leave it out"
        ));
    }
    Ok(EnvVar { name, source })
}

fn source(context: Context<'_>, field: &Field<'_>) -> Option<EnvSource> {
    let written = field.string(context)?;
    if written == "local" {
        return Some(EnvSource::Local);
    }
    if let Some((_, placeholder)) = SOURCES.iter().find(|(word, _)| *word == written) {
        return Some(EnvSource::Caller(*placeholder));
    }
    let problem = if written == "remote" {
        "`source = \"remote\"` is a variable of another machine, on which callsign starts nothing; use \"local\" for \
         one of this machine"
            .to_owned()
    } else {
        let expected = "\"local\", \"session\", \"thread\", \"parent\", \"title\", \"workspace\" or \"host\"";
        format!("`source` must be {expected}, not {written:?}")
    };
    context.mistake(field.at, problem);
    None
}

fn check_shared(variable: &EnvVar, isolation: Isolation) -> Result<(), String> {
    match (variable.source, isolation) {
        (EnvSource::Caller(_), Isolation::Shared) => Err(fixed::one_for_all(&format!("`{}`", variable.name))),
        (EnvSource::Caller(_), Isolation::Session) | (EnvSource::Local, _) => Ok(()),
    }
}

/// A variable that is always given where it has a value. That a configuration names one changes nothing and is no mistake.
fn our_own(name: &str) -> Option<Placeholder> {
    VARIABLES.iter().find(|(own, _)| *own == name).map(|(_, placeholder)| *placeholder)
}

/// What a host means by the variable `name`, if it tells sessions apart by it.
pub(super) fn of_host(name: &str) -> Option<Placeholder> {
    IDENTITY_VARIABLES.iter().find(|(known, _)| *known == name).map(|(_, placeholder)| *placeholder)
}

fn report<T>(context: Context<'_>, at: usize, outcome: Result<T, String>) -> Option<T> {
    outcome.map_err(|problem| context.mistake(at, problem)).ok()
}
