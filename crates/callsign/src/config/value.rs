//! Values with placeholders: of variables, of headers and of arguments.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs;
use std::io::Read as _;

use model::template::{BadTemplate, Load, PLACEHOLDERS};
use model::{Placeholder, Template};

use super::Environment;
use super::context::{Context, Resolve};
use super::names::is_variable;
use super::table::{Field, nearest};

/// A secret or a certificate fits; a wrong path to something large does not.
const LARGEST_FILE: u64 = 64 * 1024;

/// Where a value ends up, and so what it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Variable,
    Header,
    /// JSON, which has room for everything.
    Argument,
}

impl Carrier {
    /// Whether `text` can be carried. `Err` names what cannot, and never shows the rest: it may be a secret.
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        let allowed = |character: char| match self {
            Self::Variable => character != '\0',
            Self::Header => matches!(character, ' '..='~'),
            Self::Argument => true,
        };
        match (text.chars().find(|character| !allowed(*character)), self) {
            (None, _) | (Some(_), Self::Argument) => Ok(()),
            (Some(_), Self::Variable) => Err("it holds a NUL character, which no variable can".to_owned()),
            (Some(character), Self::Header) => {
                Err(format!("it holds {character:?}; a header takes visible ASCII characters only"))
            }
        }
    }
}

/// Reads a template and reports everything that is wrong with it.
pub(super) fn template(context: Context<'_>, field: &Field<'_>, carrier: Carrier) -> Option<Template> {
    template_of(context, field, field.string(context)?, carrier)
}

/// The same, of another text than the field's own.
pub(super) fn template_of(
    context: Context<'_>,
    field: &Field<'_>,
    text: &str,
    carrier: Carrier,
) -> Option<Template> {
    if let Err(problem) = carrier.check(text) {
        context.mistake(field.at, format!("{} cannot be sent: {problem}", field.label));
        return None;
    }
    let load = |source: Load<'_>| load(context, carrier, source);
    let error = match Template::parse(text, &load) {
        Ok(template) => return Some(template),
        Err(error) => error,
    };
    let mut next = Some((text, error));
    while let Some((rest, error)) = next.take() {
        context.mistake(field.at, format!("{}: {}", field.label, explain(&error)));
        // A template ends at its first mistake; what follows may hold more.
        let after = match &error {
            BadTemplate::Unclosed => None,
            BadTemplate::Unknown(name) | BadTemplate::Unresolved { placeholder: name, .. } => {
                rest.split_once(&format!("{{{name}}}")).map(|(_, after)| after)
            }
        };
        next = after.and_then(|after| Template::parse(after, &load).err().map(|error| (after, error)));
    }
    None
}

/// What is filled in.
pub(super) fn placeholders(template: &Template) -> Vec<Placeholder> {
    let used = RefCell::new(Vec::new());
    let note = |placeholder| {
        used.borrow_mut().push(placeholder);
        Some(Cow::Borrowed(""))
    };
    template.render(&note);
    used.into_inner()
}

/// Whether all of it is filled in.
pub(super) fn is_text_free(template: &Template) -> bool {
    template.render(&|_| Some(Cow::Borrowed(""))).is_some_and(|text| text.is_empty())
}

/// What would be filled in, were `text` a template.
pub(super) fn placeholder_in(text: &str) -> Option<&str> {
    let known = |name: &&str| {
        name.starts_with("env:")
            || name.starts_with("file:")
            || PLACEHOLDERS.iter().any(|(spelling, _)| spelling == name)
    };
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).find(known)
}

/// The value of a header that comes from a host's own entry. `{env:NAME}` is looked up; other braces are text, since
/// the entry was written for the host. None where a variable is not set: hosts leave such a header out. `Err` never
/// shows the value: it may be a secret.
pub fn entry_header_value(text: &str, environment: Environment<'_>) -> Result<Option<Template>, String> {
    let mut value = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{env:") {
        value.push_str(before);
        let variable = after.split_once('}').filter(|(name, _)| is_variable(name));
        let Some((name, behind)) = variable else {
            value.push_str("{env:");
            rest = after;
            continue;
        };
        if name.starts_with("CALLSIGN_") {
            return Err(format!("{{env:{name}}}: `{name}` is callsign's own; take it out"));
        }
        let Some(found) = environment.get(name) else { return Ok(None) };
        value.push_str(&found);
        rest = behind;
    }
    value.push_str(rest);
    Carrier::Header.check(&value)?;
    Ok(Some(Template::literal(value)))
}

fn explain(error: &BadTemplate) -> String {
    match error {
        BadTemplate::Unknown(name) => match nearest(name, PLACEHOLDERS.iter().map(|(spelling, _)| *spelling))
        {
            Some(near) => format!("unknown placeholder {{{name}}}; did you mean {{{near}}}?"),
            None => {
                format!("unknown placeholder {{{name}}}; text with braces of its own goes in a {{file:PATH}}")
            }
        },
        BadTemplate::Unclosed => {
            "a { without its }; text with braces of its own goes in a {file:PATH}".to_owned()
        }
        BadTemplate::Unresolved { placeholder, reason } => format!("{{{placeholder}}}: {reason}"),
    }
}

fn load(context: Context<'_>, carrier: Carrier, source: Load<'_>) -> Result<String, String> {
    if context.resolve == Resolve::No {
        return Ok(String::new());
    }
    let value = match source {
        Load::Env(name) => {
            context.environment.get(name).ok_or_else(|| format!("the variable {name} is not set"))?
        }
        Load::File(path) => load_file(context, path)?,
    };
    carrier.check(&value)?;
    Ok(value)
}

fn load_file(context: Context<'_>, written: &str) -> Result<String, String> {
    let path = context.path(written)?;
    let could_not = |error: std::io::Error| format!("could not read {}: {error}", path.display());
    // Before it is opened: a pipe without a writer would hold us here.
    if !fs::metadata(&path).map_err(could_not)?.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    let mut text = String::new();
    let file = fs::File::open(&path).map_err(could_not)?;
    file.take(LARGEST_FILE + 1).read_to_string(&mut text).map_err(could_not)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(format!("{} is larger than 64 KiB", path.display()));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}
