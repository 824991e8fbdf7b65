//! YAML, as far as a configuration of servers goes. There is no editor for it that keeps comments, so edits are
//! made by line and proved by parsing again.

use std::ops::Range;

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use serde_json::Value;

use super::tree::{Field, Kind, Node, Style};
use super::{Broken, CannotEdit, Splice, lines};

/// A person's file is not deeper than this, and the stack is finite.
const DEEPEST: usize = 64;

pub(super) fn parse(text: &str) -> Result<Node, Broken> {
    let broken = |line, column, message: String| Broken { line, column, message };
    let documents = MarkedYaml::load_from_str(text)
        .map_err(|error| broken(error.marker().line(), error.marker().col() + 1, error.info().to_owned()))?;
    let places = Places::new(text);
    match documents.as_slice() {
        [] => Ok(Node { range: 0..text.len(), kind: Kind::Map(Vec::new()), style: Style::Lines }),
        [one] => {
            node(&places, one, 0).ok_or_else(|| broken(1, 1, "the file is nested too deeply".to_owned()))
        }
        [_, second, ..] => {
            let line = second.span.start.line();
            Err(broken(line, 1, "the file holds more than one document".to_owned()))
        }
    }
}

/// Replaces a value: what lies between the colon and the value's end.
pub(super) fn set(text: &str, field: &Field, raw: &str) -> Result<Splice, CannotEdit> {
    let rest = &text[field.key.end..];
    let colon = rest.find(':').filter(|at| rest[..*at].trim().is_empty());
    let start = field.key.end + colon.ok_or(CannotEdit("its key is written in an unusual way"))? + 1;
    let end = field.value.range.end.max(start);
    Ok(Splice { range: start..end, text: format!(" {raw}") })
}

/// The parser counts characters; we count bytes.
struct Places<'a> {
    text: &'a str,
    bytes: Vec<usize>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, bytes: text.char_indices().map(|(at, _)| at).chain([text.len()]).collect() }
    }

    fn range(&self, node: &MarkedYaml<'_>) -> Range<usize> {
        let byte = |index: usize| self.bytes.get(index).copied().unwrap_or(self.text.len());
        byte(node.span.start.index())..byte(node.span.end.index())
    }
}

fn node(places: &Places<'_>, source: &MarkedYaml<'_>, depth: usize) -> Option<Node> {
    if depth > DEEPEST {
        return None;
    }
    let range = places.range(source);
    let first = places.text[range.clone()].bytes().next();
    match &source.data {
        YamlData::Mapping(mapping) => {
            let mut fields = Vec::new();
            for (key, value) in mapping {
                let place = tight(places, places.range(key));
                let name = name_of(key, &places.text[place.clone()]);
                fields.push(Field { name, key: place, value: node(places, value, depth + 1)? });
            }
            Some(collection(places, range, first == Some(b'{'), Kind::Map(fields)))
        }
        YamlData::Sequence(items) => {
            let items = items.iter().map(|item| node(places, item, depth + 1)).collect::<Option<_>>()?;
            Some(collection(places, range, first == Some(b'['), Kind::List(items)))
        }
        YamlData::Tagged(_, inner) => node(places, inner, depth + 1),
        YamlData::Value(scalar) => Some(Node::plain(tight(places, range), value_of(scalar))),
        YamlData::Representation(text, ..) => {
            Some(Node::plain(tight(places, range), Value::String(text.clone().into_owned())))
        }
        YamlData::Alias(_) | YamlData::BadValue => {
            Some(Node::plain(tight(places, range), Value::String("an alias that leads nowhere".to_owned())))
        }
    }
}

/// The parser's end of a collection is where the next token starts. Ours is where it ends.
fn collection(places: &Places<'_>, range: Range<usize>, in_brackets: bool, kind: Kind) -> Node {
    let last = match &kind {
        Kind::Map(fields) => fields.iter().map(|field| field.value.range.end.max(field.key.end)).max(),
        Kind::List(items) => items.iter().map(|item| item.range.end).max(),
        Kind::Plain(_) => None,
    };
    if in_brackets {
        let inside = last.unwrap_or(range.start + 1);
        let closing = closing_bracket(places.text, inside);
        return Node { range: range.start..closing, kind, style: Style::Whole };
    }
    Node { range: range.start..last.unwrap_or(range.end), kind, style: Style::Lines }
}

/// From behind the last element: white space, comments and one comma may stand before the bracket.
fn closing_bracket(text: &str, from: usize) -> usize {
    let mut comment = false;
    for (at, character) in text[from..].char_indices() {
        match character {
            '\n' => comment = false,
            '#' => comment = true,
            ']' | '}' if !comment => return from + at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The parser counts a comment behind a quoted value in.
fn tight(places: &Places<'_>, range: Range<usize>) -> Range<usize> {
    let text = &places.text[range.clone()];
    let length = match text.as_bytes().first() {
        Some(b'\'') => single_quoted(text),
        Some(b'"') => double_quoted(text),
        _ => text.trim_end().len(),
    };
    range.start..range.start + length
}

fn single_quoted(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn double_quoted(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// A key that is not a string is told apart from one that is.
fn name_of(key: &MarkedYaml<'_>, written: &str) -> String {
    match &key.data {
        YamlData::Value(Scalar::String(name)) => name.clone().into_owned(),
        YamlData::Value(_)
        | YamlData::Representation(..)
        | YamlData::Sequence(_)
        | YamlData::Mapping(_)
        | YamlData::Tagged(..)
        | YamlData::Alias(_)
        | YamlData::BadValue => format!("? {written}"),
    }
}

fn value_of(scalar: &Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(boolean) => Value::Bool(*boolean),
        Scalar::Integer(integer) => Value::from(*integer),
        Scalar::FloatingPoint(float) => Value::String(float.to_string()),
        Scalar::String(text) => Value::String(text.clone().into_owned()),
    }
}

/// Whether a block value may follow on the lines after its key.
pub(super) fn indentation(text: &str, key: usize) -> Result<&str, CannotEdit> {
    let before = &text[lines::line_start(text, key)..key];
    if before.trim().is_empty() { Ok(before) } else { Err(CannotEdit("its key does not start a line")) }
}
