//! Values with placeholders: `"{host}/{thread.id}"`.
//!
//! `{env:NAME}` and `{file:PATH}` are resolved when the configuration is loaded, so a [`Template`] holds
//! literals and per-call placeholders only. It may hold secrets: its `Debug` shows placeholders, never literals.

use std::borrow::Cow;
use std::fmt;

/// What can be filled in per call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placeholder {
    SessionId,
    SessionTitle,
    ThreadId,
    ParentId,
    TurnId,
    CallId,
    Host,
    Workspace,
    Server,
    Tool,
    RunId,
    User,
}

/// Every placeholder with its spelling; the one table both directions use.
pub const PLACEHOLDERS: [(&str, Placeholder); 12] = [
    ("session.id", Placeholder::SessionId),
    ("session.title", Placeholder::SessionTitle),
    ("thread.id", Placeholder::ThreadId),
    ("parent.id", Placeholder::ParentId),
    ("turn.id", Placeholder::TurnId),
    ("call.id", Placeholder::CallId),
    ("host", Placeholder::Host),
    ("workspace", Placeholder::Workspace),
    ("server", Placeholder::Server),
    ("tool", Placeholder::Tool),
    ("run.id", Placeholder::RunId),
    ("user", Placeholder::User),
];

#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    /// What was loaded: from where it comes, people keep secrets.
    loaded: Vec<String>,
}

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Placeholder(Placeholder),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    #[error("unknown placeholder {{{0}}}")]
    Unknown(String),
    #[error("a {{ without its }}")]
    Unclosed,
    #[error("could not resolve {{{placeholder}}}: {reason}")]
    Unresolved { placeholder: String, reason: String },
}

impl Template {
    /// Parses `text`. `load` answers `env:NAME` and `file:PATH`.
    pub fn parse(text: &str, load: &dyn Fn(Load<'_>) -> Result<String, String>) -> Result<Self, BadTemplate> {
        let (mut parts, mut loaded) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            push_literal(&mut parts, &rest[..open]);
            let inner = &rest[open + 1..];
            let close = inner.find('}').ok_or(BadTemplate::Unclosed)?;
            let name = &inner[..close];
            rest = &inner[close + 1..];
            let source = name
                .strip_prefix("env:")
                .map(Load::Env)
                .or_else(|| name.strip_prefix("file:").map(Load::File));
            if let Some(source) = source {
                let value = load(source)
                    .map_err(|reason| BadTemplate::Unresolved { placeholder: name.to_owned(), reason })?;
                push_literal(&mut parts, &value);
                loaded.push(value);
                continue;
            }
            let known = PLACEHOLDERS.iter().find(|(spelling, _)| *spelling == name);
            match known {
                Some((_, placeholder)) => parts.push(Part::Placeholder(*placeholder)),
                None => return Err(BadTemplate::Unknown(name.to_owned())),
            }
        }
        push_literal(&mut parts, rest);
        Ok(Self { parts, loaded })
    }

    pub fn literal(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Literal(text.into())], loaded: Vec::new() }
    }

    /// The values of `{env:…}` and `{file:…}`.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.loaded.iter().map(String::as_str)
    }

    /// None where a placeholder has no value: the header or variable is then left out.
    pub fn render<'a>(&'a self, value: &dyn Fn(Placeholder) -> Option<Cow<'a, str>>) -> Option<Cow<'a, str>> {
        if let [Part::Literal(only)] = self.parts.as_slice() {
            return Some(Cow::Borrowed(only));
        }
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Placeholder(placeholder) => text.push_str(&value(*placeholder)?),
            }
        }
        Some(Cow::Owned(text))
    }
}

/// What a template asks for when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load<'a> {
    Env(&'a str),
    File(&'a str),
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if text.is_empty() {
        return;
    }
    if let Some(Part::Literal(last)) = parts.last_mut() {
        last.push_str(text);
    } else {
        parts.push(Part::Literal(text.to_owned()));
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => list.entry(&format_args!("<{} bytes>", literal.len())),
                Part::Placeholder(placeholder) => list.entry(placeholder),
            };
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: Load<'_>) -> Result<String, String> {
        Err("nothing to load here".to_owned())
    }

    #[test]
    fn a_known_placeholder_without_a_value_leaves_the_whole_value_out() {
        let template = Template::parse("a-{server}-{thread.id}", &none).unwrap();
        let value = |placeholder| (placeholder == Placeholder::Server).then_some(Cow::Borrowed("s"));
        assert_eq!(template.render(&value), None);
        let both = |_| Some(Cow::Borrowed("x"));
        assert_eq!(template.render(&both).as_deref(), Some("a-x-x"));
    }

    #[test]
    fn an_unknown_placeholder_and_an_open_brace_are_errors() {
        assert_eq!(Template::parse("{sesion.id}", &none), Err(BadTemplate::Unknown("sesion.id".into())));
        assert_eq!(Template::parse("{host", &none), Err(BadTemplate::Unclosed));
    }

    #[test]
    fn a_loaded_value_is_a_literal_even_if_it_looks_like_a_placeholder() {
        let load = |source: Load<'_>| {
            assert_eq!(source, Load::Env("TOKEN"));
            Ok("{host}".to_owned())
        };
        let template = Template::parse("Bearer {env:TOKEN}", &load).unwrap();
        assert_eq!(template.render(&|_| None).as_deref(), Some("Bearer {host}"));
        assert_eq!(template.secrets().collect::<Vec<_>>(), ["{host}"]);
    }

    #[test]
    fn debug_never_shows_a_literal() {
        let template = Template::literal("sk-secret");
        assert!(!format!("{template:?}").contains("secret"));
    }
}
