//! Edits inside `{…}` and `[…]`: whatever the format, elements are separated by commas.

use std::ops::Range;

use super::lines::{line_end, line_start};
use super::render::pair;
use super::tree::{Field, Kind, Node};
use super::{CannotEdit, Format, NewField, Splice};

pub(super) fn insert(
    format: Format,
    text: &str,
    map: &Node,
    NewField { name, raw, after }: NewField<'_>,
) -> Result<Splice, CannotEdit> {
    let Kind::Map(fields) = &map.kind else { return Err(CannotEdit("it is not a table")) };
    let pair = pair(format, name, raw);
    let named = after.and_then(|after| map.field(after));
    let Some(Field { key, value, .. }) = named.or_else(|| fields.last()) else {
        return Ok(first(map, pair));
    };
    Ok(behind(text, map, key.start, value.range.end, &pair))
}

pub(super) fn append(text: &str, list: &Node, raw: &str) -> Result<Splice, CannotEdit> {
    let Kind::List(items) = &list.kind else { return Err(CannotEdit("it is not a list")) };
    let Some(last) = items.last() else { return Ok(first(list, raw.to_owned())) };
    Ok(behind(text, list, last.range.start, last.range.end, raw))
}

/// Takes an element out, with its comma, and with its line where nothing else stands there. Comments stay.
pub(super) fn remove(format: Format, text: &str, parent: &Node, index: usize) -> Vec<Splice> {
    let ranges: Vec<Range<usize>> = match &parent.kind {
        Kind::Map(fields) => fields.iter().map(|field| field.key.start..field.value.range.end).collect(),
        Kind::List(items) => items.iter().map(|item| item.range.clone()).collect(),
        Kind::Plain(_) => Vec::new(),
    };
    let Some(own) = ranges.get(index) else { return Vec::new() };
    let following = comma(format, text, own.end);
    let mut splices = Vec::new();
    let mut end = own.end;
    match (following, index.checked_sub(1)) {
        (Some(at), _) if text[own.end..at].trim().is_empty() => end = at + 1,
        (Some(at), _) => splices.push(at..at + 1),
        (None, Some(previous)) => {
            splices.extend(comma(format, text, ranges[previous].end).map(|at| at..at + 1));
        }
        (None, None) => {}
    }
    splices.push(widened(text, own.start..end));
    splices.into_iter().map(|range| Splice { range, text: String::new() }).collect()
}

fn first(parent: &Node, content: String) -> Splice {
    let inside = parent.range.start + 1;
    Splice { range: inside..inside, text: content }
}

/// Behind the sibling; on a line of its own where the sibling has one.
fn behind(text: &str, parent: &Node, sibling: usize, end: usize, content: &str) -> Splice {
    let start = line_start(text, sibling);
    let indent = &text[start..sibling];
    let separator = if start > parent.range.start && indent.trim().is_empty() {
        format!(",{}{indent}", line_end(text))
    } else {
        ", ".to_owned()
    };
    Splice { range: end..end, text: format!("{separator}{content}") }
}

/// The comma behind an element: only white space and comments may stand before it.
fn comma(format: Format, text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = &text[at..];
        let skipped = match format {
            Format::Jsonc if rest.starts_with("//") => rest.find('\n').map_or(rest.len(), |end| end + 1),
            Format::Jsonc if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            Format::Toml | Format::Yaml if rest.starts_with('#') => {
                rest.find('\n').map_or(rest.len(), |end| end + 1)
            }
            Format::Jsonc | Format::Toml | Format::Yaml => {
                return rest.starts_with(',').then_some(at);
            }
        };
        at += skipped;
    }
}

/// The whole line where nothing else stands on it; else the blanks in front.
fn widened(text: &str, range: Range<usize>) -> Range<usize> {
    let start = line_start(text, range.start);
    let only_blanks = text[start..range.start].trim().is_empty();
    let rest = &text[range.end..];
    let line = rest.find('\n').map_or(rest, |end| &rest[..end]);
    if only_blanks && start > 0 && line.trim().is_empty() && line.len() < rest.len() {
        return start..range.end + line.len() + 1;
    }
    if only_blanks {
        return range;
    }
    let blanks = text[..range.start].len() - text[..range.start].trim_end_matches([' ', '\t']).len();
    range.start - blanks..range.end
}
