//! Values with placeholders: of variables and of headers.

use std::fs;
use std::io::Read as _;

use model::Template;
use model::template::{BadTemplate, Load, PLACEHOLDERS};

use super::context::{Context, Resolve};
use super::table::{Field, nearest};

/// A secret or a certificate fits; a wrong path to something large does not.
const LARGEST_FILE: u64 = 64 * 1024;

/// Where a value ends up, and so what it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Variable,
    Header,
}

impl Carrier {
    /// Whether `text` can be carried. `Err` names what cannot, and never shows the rest: it may be a secret.
    pub fn check(self, text: &str) -> Result<(), String> {
        let allowed = |character: char| match self {
            Self::Variable => character != '\0',
            Self::Header => matches!(character, ' '..='~'),
        };
        match (text.chars().find(|character| !allowed(*character)), self) {
            (None, _) => Ok(()),
            (Some(_), Self::Variable) => Err("it holds a NUL character, which no variable can".to_owned()),
            (Some(character), Self::Header) => {
                Err(format!("it holds {character:?}; a header takes visible ASCII characters only"))
            }
        }
    }
}

/// Reads a template and reports everything that is wrong with it.
pub(super) fn template(context: Context<'_>, field: &Field<'_>, carrier: Carrier) -> Option<Template> {
    let text = field.string(context)?;
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
