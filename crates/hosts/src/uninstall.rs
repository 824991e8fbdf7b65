//! Taking out what `install` put in.

use serde_json::Value;

use crate::document::{Broken, Document, Format, Node};
use crate::entry::{Dialect, Left, apply};
use crate::hooks;
use crate::journal::{Edit, Record};
use crate::opencode;
use crate::place::Content;
use crate::restore::unwrap;

/// What to do with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing of ours in it.
    Keep,
    Write(Vec<u8>),
    /// It was made by us and holds nothing else.
    Remove,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uninstalled {
    pub outcome: Outcome,
    pub restored: Vec<String>,
    pub left: Vec<Left>,
}

/// The original bytes where the file is as `install` left it; else our edits come out, one by one, and every
/// later edit of others stays. The original is never put back over those.
pub fn uninstall(
    content: Content,
    current: Option<&[u8]>,
    record: Option<&Record>,
) -> Result<Uninstalled, Broken> {
    let mut undone = Uninstalled { outcome: Outcome::Keep, restored: Vec::new(), left: Vec::new() };
    let Some(current) = current else { return Ok(undone) };
    if let Some(record) = record
        && record.installed == current
    {
        undone.restored = match content {
            Content::Servers { .. } => names(&record.journal.edits),
            Content::Hook => vec![hooks::NAME.to_owned()],
            Content::Plugin => vec![opencode::NAME.to_owned()],
        };
        undone.outcome = record.original.clone().map_or(Outcome::Remove, Outcome::Write);
        return Ok(undone);
    }
    match content {
        Content::Servers { format, dialect } => {
            let mut document = Document::read(format, current)?;
            for edit in record.into_iter().flat_map(|record| record.journal.edits.iter().rev()) {
                document = undo(&dialect, document, edit, &mut undone);
            }
            document = undo_unnoted(&dialect, document, &mut undone);
            undone.restored.reverse();
            undone.outcome = written(current, document.text());
        }
        Content::Hook => {
            let document = Document::read(Format::Jsonc, current)?;
            let edits = record.map_or(&[][..], |record| &record.journal.edits);
            let text =
                hooks::remove(&document, edits).map_err(|why| Broken { line: 1, column: 1, message: why })?;
            if let Some(text) = text {
                undone.restored.push(hooks::NAME.to_owned());
                let made_by_us = record.is_some_and(|record| record.original.is_none());
                let empty = Document::parse(Format::Jsonc, text.clone()).is_ok_and(|document| {
                    document.root().fields().is_empty() && document.text().trim().len() <= 3
                });
                undone.outcome = if made_by_us && empty { Outcome::Remove } else { written(current, &text) };
            }
        }
        Content::Plugin => {
            if opencode::is_unchanged(current) {
                undone.restored.push(opencode::NAME.to_owned());
                undone.outcome = Outcome::Remove;
            } else if opencode::is_ours(current) {
                let why = "the plugin was changed by hand since it was installed; remove the file yourself"
                    .to_owned();
                undone.left.push(Left { name: opencode::NAME.to_owned(), why });
            }
        }
    }
    Ok(undone)
}

fn names(edits: &[Edit]) -> Vec<String> {
    edits.iter().filter_map(|edit| edit.path.last().cloned()).collect()
}

fn written(current: &[u8], text: &str) -> Outcome {
    if current == text.as_bytes() { Outcome::Keep } else { Outcome::Write(text.as_bytes().to_vec()) }
}

fn undo(dialect: &Dialect, document: Document, edit: &Edit, undone: &mut Uninstalled) -> Document {
    let name = edit.path.last().cloned().unwrap_or_default();
    if let Some(restored) = put_lines_back(&document, edit) {
        undone.restored.push(name);
        return restored;
    }
    let Some(now) = document.get(&edit.path).map(Node::to_value) else { return document };
    let Some(changes) = unwrap(dialect, &now, Some(edit)) else { return document };
    match apply(&document, &edit.path, &changes) {
        Ok(restored) => {
            undone.restored.push(name);
            restored
        }
        Err(why) => {
            undone.left.push(Left { name, why });
            document
        }
    }
}

/// The lines we wrote stand there as we wrote them: the lines they replaced come back, comments and all. The
/// file must then say what it says now, but for this one entry.
pub(crate) fn put_lines_back(document: &Document, edit: &Edit) -> Option<Document> {
    let mut wanted = document.value();
    let (name, parent) = edit.path.split_last()?;
    let parent = parent.iter().try_fold(&mut wanted, |value, name| value.get_mut(name))?.as_object_mut()?;
    if parent.get(name) != Some(&edit.written) {
        return None;
    }
    match &edit.value {
        Some(value) => parent.insert(name.clone(), value.clone()),
        None => parent.remove(name),
    };
    lines_at(document.text(), &edit.after).into_iter().take(8).find_map(|at| {
        let mut text = document.text().to_owned();
        text.replace_range(at..at + edit.after.len(), &edit.before);
        Document::parse(document.format(), text).ok().filter(|restored| restored.value() == wanted)
    })
}

/// Where a run of lines stands, beginning at the start of a line.
fn lines_at(text: &str, lines: &str) -> Vec<usize> {
    let starts = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    text.match_indices(lines).map(|(at, _)| at).filter(starts).collect()
}

/// Entries that `install` wrote and of which no note was kept: the state directory was lost, or somebody
/// copied one.
fn undo_unnoted(dialect: &Dialect, mut document: Document, undone: &mut Uninstalled) -> Document {
    for container in (dialect.containers)(&document.value()) {
        let Some(Value::Object(entries)) = document.get(&container).map(Node::to_value) else { continue };
        for (name, now) in entries {
            let Some(changes) = unwrap(dialect, &now, None) else { continue };
            let path = [container.as_slice(), std::slice::from_ref(&name)].concat();
            match apply(&document, &path, &changes) {
                Ok(restored) => {
                    document = restored;
                    undone.restored.push(name);
                }
                Err(why) if undone.left.iter().any(|left| left.name == name) => drop(why),
                Err(why) => undone.left.push(Left { name, why }),
            }
        }
    }
    document
}
