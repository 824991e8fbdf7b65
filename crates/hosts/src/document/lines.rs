//! Edits of fields that stand on lines of their own: TOML tables and YAML blocks.

use std::ops::Range;

use super::render::pair;
use super::tree::{Field, Kind, Node, Style};
use super::{CannotEdit, Format, NewField, Splice, yaml};

/// Line and column of a byte, as editors count them.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let start = line_start(before, before.len());
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

pub(super) fn line_end(text: &str) -> &'static str {
    if text.find('\n').is_some_and(|at| text[..at].ends_with('\r')) { "\r\n" } else { "\n" }
}

pub(super) fn insert(
    format: Format,
    text: &str,
    map: &Node,
    NewField { name, raw, after }: NewField<'_>,
) -> Result<Splice, CannotEdit> {
    let named = after.and_then(|after| map.field(after)).filter(|field| on_lines(field));
    let last = map.fields().iter().filter(|field| on_lines(field)).max_by_key(|field| field.key.start);
    let pair = pair(format, name, raw);
    let Some(sibling) = named.or(last) else {
        if map.style != Style::Header {
            return Err(CannotEdit("there is no line to write behind"));
        }
        let end = rest_of_line(text, map.range.end);
        return Ok(Splice { range: end..end, text: format!("{}{pair}", line_end(text)) });
    };
    // What stands before the key, dots and all, stands before its new neighbour.
    let before = match format {
        Format::Yaml => yaml::indentation(text, sibling.key.start)?,
        Format::Toml | Format::Jsonc => &text[line_start(text, sibling.key.start)..sibling.key.start],
    };
    let end = rest_of_line(text, sibling.value.range.end);
    Ok(Splice { range: end..end, text: format!("{}{before}{pair}", line_end(text)) })
}

/// Takes a field out, with its lines. A comment behind it stays.
pub(super) fn remove(text: &str, parent: &Node, index: usize) -> Result<Vec<Splice>, CannotEdit> {
    let field = parent.fields().get(index).ok_or(CannotEdit("the field is not there"))?;
    let mut ranges = Vec::new();
    cut(text, field, &mut ranges)?;
    Ok(ranges.into_iter().map(|range| Splice { range, text: String::new() }).collect())
}

fn cut(text: &str, field: &Field, ranges: &mut Vec<Range<usize>>) -> Result<(), CannotEdit> {
    match (&field.value.style, &field.value.kind) {
        (Style::Whole | Style::Lines, _) => {
            ranges.push(whole_lines(text, field.key.start, field.value.range.end));
        }
        (Style::Header | Style::Dotted, Kind::Map(fields)) => {
            if field.value.style == Style::Header {
                ranges.push(whole_lines(text, field.value.range.start, field.value.range.end));
            }
            for inner in fields {
                cut(text, inner, ranges)?;
            }
        }
        (Style::Header | Style::Dotted, Kind::List(_) | Kind::Plain(_)) => {
            return Err(CannotEdit("it is written as an array of tables"));
        }
    }
    Ok(())
}

fn on_lines(field: &Field) -> bool {
    matches!(field.value.style, Style::Whole | Style::Lines)
}

/// Where the line ends, before its line end.
fn rest_of_line(text: &str, from: usize) -> usize {
    let rest = &text[from..];
    let line = rest.find('\n').map_or(rest, |end| &rest[..end]);
    from + line.strip_suffix('\r').unwrap_or(line).len()
}

fn whole_lines(text: &str, from: usize, to: usize) -> Range<usize> {
    let start = line_start(text, from);
    let end = rest_of_line(text, to);
    if text[to..end].trim().is_empty() {
        let rest = &text[end..];
        let line_end = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
        return start..end + line_end;
    }
    // The comment behind stays where it is.
    let blanks = text[to..end].len() - text[to..end].trim_start().len();
    start..to + blanks
}
