//! The tree: maps, lists and plain values, each with its place in the text.

use std::ops::Range;

use serde_json::{Map, Value};

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub range: Range<usize>,
    pub kind: Kind,
    pub style: Style,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Map(Vec<Field>),
    List(Vec<Node>),
    Plain(Value),
}

/// How a node is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// In one piece, from its first byte to its last: `{…}`, `[…]`, a plain value.
    Whole,
    /// A field or an element a line (YAML's block style, the root of a TOML file).
    Lines,
    /// Under a header of its own (`[table]`); the range is the header's.
    Header,
    /// By dots in the keys of its fields; it has no place of its own.
    Dotted,
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub name: String,
    pub key: Range<usize>,
    pub value: Node,
}

impl Node {
    pub(crate) fn plain(range: Range<usize>, value: Value) -> Self {
        Self { range, kind: Kind::Plain(value), style: Style::Whole }
    }

    pub(crate) fn fields(&self) -> &[Field] {
        match &self.kind {
            Kind::Map(fields) => fields,
            Kind::List(_) | Kind::Plain(_) => &[],
        }
    }

    /// Where a name is there twice, the last one counts, as every JSON parser has it.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.fields().iter().rposition(|field| field.name == name)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields().get(self.index(name)?)
    }

    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Map(fields) => {
                let entries = fields.iter().map(|field| (field.name.clone(), field.value.to_value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
            Kind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Kind::Plain(value) => value.clone(),
        }
    }

    /// Moves every place by so many bytes.
    pub(crate) fn shift(&mut self, by: usize) {
        let moved = |range: &Range<usize>| range.start + by..range.end + by;
        self.range = moved(&self.range);
        match &mut self.kind {
            Kind::Map(fields) => {
                for field in fields {
                    field.key = moved(&field.key);
                    field.value.shift(by);
                }
            }
            Kind::List(items) => items.iter_mut().for_each(|item| item.shift(by)),
            Kind::Plain(_) => {}
        }
    }
}
