//! Changes to the fields of one entry, on its text and on its value alike: the two must agree.

use serde_json::{Map, Value};

use crate::document::{Document, render};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Sets a field, new or not. `text` is how it was once written, where that is known.
    Put {
        path: Vec<String>,
        value: Value,
        text: Option<String>,
        after: Option<String>,
    },
    Rename {
        from: String,
        to: String,
    },
    Drop {
        path: Vec<String>,
    },
}

impl Change {
    pub(crate) fn put(path: &[&str], value: Value) -> Self {
        Self::Put { path: owned(path), value, text: None, after: None }
    }

    pub(crate) fn put_after(path: &[&str], value: Value, after: &str) -> Self {
        Self::Put { path: owned(path), value, text: None, after: Some(after.to_owned()) }
    }

    pub(crate) fn rename(from: &str, to: &str) -> Self {
        Self::Rename { from: from.to_owned(), to: to.to_owned() }
    }

    pub(crate) fn drop(path: &[&str]) -> Self {
        Self::Drop { path: owned(path) }
    }
}

/// Makes the changes to the entry at `path`, or says why that is not possible. Nothing else changes: what the
/// file says afterwards is compared with what it should say.
pub(crate) fn apply(document: &Document, path: &[String], changes: &[Change]) -> Result<Document, String> {
    let mut edited = document.clone();
    for change in changes {
        edited = step(&edited, path, change).map_err(|error| error.to_string())?;
    }
    let mut wanted = document.value();
    let entry = path.iter().try_fold(&mut wanted, |value, name| value.get_mut(name));
    let entry = entry.ok_or("it is not there")?;
    *entry = expected(entry, changes).ok_or("its parts are not tables")?;
    if edited.value() == wanted {
        Ok(edited)
    } else {
        Err("it is written in a way that cannot be edited without changing more".to_owned())
    }
}

/// The entry's value after the changes.
pub(crate) fn expected(entry: &Value, changes: &[Change]) -> Option<Value> {
    let mut entry = entry.clone();
    for change in changes {
        match change {
            Change::Put { path, value, .. } => {
                let (name, parent) = path.split_last()?;
                table(&mut entry, parent)?.insert(name.clone(), value.clone());
            }
            Change::Rename { from, to } => {
                let fields = entry.as_object_mut()?;
                let value = fields.remove(from)?;
                fields.insert(to.clone(), value);
            }
            Change::Drop { path } => {
                let (name, parent) = path.split_last()?;
                table(&mut entry, parent)?.remove(name);
            }
        }
    }
    Some(entry)
}

fn table<'a>(entry: &'a mut Value, path: &[String]) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(entry, |value, name| value.get_mut(name))?.as_object_mut()
}

fn step(
    document: &Document,
    entry: &[String],
    change: &Change,
) -> Result<Document, crate::document::CannotEdit> {
    let full = |path: &[String]| [entry, path].concat();
    match change {
        Change::Put { path, value, text, after } => {
            let text = text.clone().unwrap_or_else(|| render(document.format(), value));
            let path = full(path);
            if document.get(&path).is_some() {
                return match document.set(&path, &text) {
                    Ok(document) => Ok(document),
                    // Written as a table of its own: out with it, and in again where it can stand.
                    Err(_) => put_anew(document, &path, &text, after.as_deref()),
                };
            }
            insert(document, &path, &text, after.as_deref())
        }
        Change::Rename { from, to } => document.rename(&full(std::slice::from_ref(from)), to),
        Change::Drop { path } => document.remove(&full(path)),
    }
}

fn put_anew(
    document: &Document,
    path: &[String],
    text: &str,
    after: Option<&str>,
) -> Result<Document, crate::document::CannotEdit> {
    insert(&document.remove(path)?, path, text, after)
}

fn insert(
    document: &Document,
    path: &[String],
    text: &str,
    after: Option<&str>,
) -> Result<Document, crate::document::CannotEdit> {
    let (name, parent) = path.split_last().ok_or(crate::document::CannotEdit("it has no name"))?;
    document.insert(parent, name, text, after)
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|name| (*name).to_owned()).collect()
}
