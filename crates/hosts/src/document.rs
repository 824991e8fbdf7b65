//! A configuration file as a tree whose every node knows where in the text it stands.
//!
//! **Invariant:** an edit is a list of splices. What lies outside them stays byte for byte.

mod brackets;
mod jsonc;
mod lines;
mod render;
mod toml;
mod tree;
mod yaml;

use std::ops::Range;

use serde_json::Value;

pub(crate) use render::render;
pub(crate) use tree::{Field, Kind, Node, Style};

/// The format of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, with comments and trailing commas where the file has them.
    Jsonc,
    Toml,
    Yaml,
}

/// Why a file cannot be edited, and where it stops making sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct Broken {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// A file that makes sense.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    format: Format,
    text: String,
    root: Node,
}

/// Replace what lies in the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Splice {
    pub range: Range<usize>,
    pub text: String,
}

/// A field to be written, behind the one called `after` or last.
#[derive(Debug, Clone, Copy)]
struct NewField<'a> {
    name: &'a str,
    raw: &'a str,
    after: Option<&'a str>,
}

/// An edit this kind of text cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CannotEdit(pub &'static str);

const MARK: char = '\u{feff}';

impl Document {
    pub(crate) fn parse(format: Format, text: impl Into<String>) -> Result<Self, Broken> {
        let text = text.into();
        let start = if text.starts_with(MARK) { MARK.len_utf8() } else { 0 };
        let mut root = match format {
            Format::Jsonc => jsonc::parse(&text[start..]),
            Format::Toml => toml::parse(&text[start..]),
            Format::Yaml => yaml::parse(&text[start..]),
        }?;
        root.shift(start);
        Ok(Self { format, text, root })
    }

    /// Bytes that somebody wrote: UTF-8, or broken.
    pub(crate) fn read(format: Format, bytes: &[u8]) -> Result<Self, Broken> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let (line, column) = lines::position(&valid, valid.len());
            Broken { line, column, message: "the file is not UTF-8 from here on".to_owned() }
        })?;
        Self::parse(format, text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    pub(crate) fn value(&self) -> Value {
        self.root.to_value()
    }

    /// Elements of lists go by their number.
    pub(crate) fn get<S: AsRef<str>>(&self, path: &[S]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, name| match &node.kind {
            Kind::List(items) => items.get(name.as_ref().parse::<usize>().ok()?),
            Kind::Map(_) | Kind::Plain(_) => Some(&node.field(name.as_ref())?.value),
        })
    }

    /// The text of a value, in a form that can stand anywhere a value can.
    pub(crate) fn raw<S: AsRef<str>>(&self, path: &[S]) -> Option<String> {
        let node = self.get(path)?;
        Some(match node.style {
            Style::Whole => self.text[node.range.clone()].to_owned(),
            Style::Lines | Style::Header | Style::Dotted => render(self.format, &node.to_value()),
        })
    }

    /// Replaces the value of a field that is there.
    pub(crate) fn set<S: AsRef<str>>(&self, path: &[S], raw: &str) -> Result<Self, CannotEdit> {
        let field = self.field(path)?;
        let splice = match (field.value.style, self.format) {
            (Style::Whole, Format::Jsonc | Format::Toml) => {
                Splice { range: field.value.range.clone(), text: raw.to_owned() }
            }
            (Style::Whole | Style::Lines, Format::Yaml) => yaml::set(&self.text, field, raw)?,
            (Style::Header | Style::Dotted | Style::Lines, _) => {
                return Err(CannotEdit("it is written as a table of its own"));
            }
        };
        self.apply(vec![splice])
    }

    /// Gives a field another name, in its place.
    pub(crate) fn rename<S: AsRef<str>>(&self, path: &[S], name: &str) -> Result<Self, CannotEdit> {
        let field = self.field(path)?;
        let text = render::key(self.format, name);
        self.apply(vec![Splice { range: field.key.clone(), text }])
    }

    /// Puts a new field after the one called `after`, or last.
    pub(crate) fn insert<S: AsRef<str>>(
        &self,
        parent: &[S],
        name: &str,
        raw: &str,
        after: Option<&str>,
    ) -> Result<Self, CannotEdit> {
        let node = self.get(parent).ok_or(CannotEdit("the table is not there"))?;
        let new = NewField { name, raw, after };
        let splice = match node.style {
            Style::Whole => brackets::insert(self.format, &self.text, node, new)?,
            Style::Lines | Style::Header | Style::Dotted => {
                lines::insert(self.format, &self.text, node, new)?
            }
        };
        self.apply(vec![splice])
    }

    pub(crate) fn remove<S: AsRef<str>>(&self, path: &[S]) -> Result<Self, CannotEdit> {
        let (name, parent) = path.split_last().ok_or(CannotEdit("the file itself cannot be removed"))?;
        let parent = self.get(parent).ok_or(CannotEdit("the table is not there"))?;
        let index = parent.index(name.as_ref()).ok_or(CannotEdit("the field is not there"))?;
        let splices = match parent.style {
            Style::Whole => brackets::remove(self.format, &self.text, parent, index),
            Style::Lines | Style::Header | Style::Dotted => lines::remove(&self.text, parent, index)?,
        };
        self.apply(splices)
    }

    /// Puts a new element at the end of a list.
    pub(crate) fn append<S: AsRef<str>>(&self, path: &[S], raw: &str) -> Result<Self, CannotEdit> {
        let node = self.get(path).ok_or(CannotEdit("the list is not there"))?;
        self.apply(vec![brackets::append(&self.text, node, raw)?])
    }

    pub(crate) fn remove_element<S: AsRef<str>>(&self, path: &[S], index: usize) -> Result<Self, CannotEdit> {
        let node = self.get(path).ok_or(CannotEdit("the list is not there"))?;
        self.apply(brackets::remove(self.format, &self.text, node, index))
    }

    /// How lines end here.
    pub(crate) fn line_end(&self) -> &'static str {
        lines::line_end(&self.text)
    }

    fn field<S: AsRef<str>>(&self, path: &[S]) -> Result<&Field, CannotEdit> {
        let (name, parent) = path.split_last().ok_or(CannotEdit("the file itself has no field"))?;
        let parent = self.get(parent).ok_or(CannotEdit("the table is not there"))?;
        parent.field(name.as_ref()).ok_or(CannotEdit("the field is not there"))
    }

    fn apply(&self, mut splices: Vec<Splice>) -> Result<Self, CannotEdit> {
        splices.sort_by_key(|splice| splice.range.start);
        let mut text = String::with_capacity(self.text.len() + 256);
        let mut at = 0;
        for splice in &splices {
            let kept =
                self.text.get(at..splice.range.start).ok_or(CannotEdit("two edits touch one another"))?;
            text.push_str(kept);
            text.push_str(&splice.text);
            at = splice.range.end;
        }
        text.push_str(self.text.get(at..).ok_or(CannotEdit("an edit lies outside the file"))?);
        Self::parse(self.format, text).map_err(|_| CannotEdit("it is written in a way that cannot be edited"))
    }
}
