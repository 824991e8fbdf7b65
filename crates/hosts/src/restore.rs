//! How an entry that runs `callsign wrap` becomes what it was.

use serde_json::{Map, Value, json};

use crate::entry::{Change, Dialect, url, words};
use crate::journal::Edit;
use crate::wrap::{self, HEADERS_VARIABLE, Target, Wrapped};

/// The changes that unwrap the entry as it is now; None: it does not run us, so it is not ours to change.
/// `edit` is what was noted when it was wrapped; without one, the arguments say what was there.
pub(crate) fn unwrap(dialect: &Dialect, now: &Value, edit: Option<&Edit>) -> Option<Vec<Change>> {
    let fields = now.as_object()?;
    let args = words(fields.get("args"))?;
    let wrapped = wrap::read(fields.get(dialect.command)?.as_str()?, &args)?;
    if edit.is_none() && !wrapped.by_install {
        return None;
    }
    let wanted = wanted(dialect, fields, &wrapped, edit);
    Some(changes(dialect, fields, &wanted, edit))
}

/// The entry as it should be: what others changed since stays, what we changed goes back.
fn wanted(
    dialect: &Dialect,
    now: &Map<String, Value>,
    wrapped: &Wrapped,
    edit: Option<&Edit>,
) -> Map<String, Value> {
    let noted = edit.and_then(|edit| Some((edit.value.as_ref()?.as_object()?, edit.written.as_object()?)));
    let address = noted.and_then(|(before, _)| url(dialect, before)).map(|(field, _)| field);
    let mut inferred = now.clone();
    reconstruct(dialect, &mut inferred, wrapped, address.or(dialect.urls.first().copied()));
    let Some((before, written)) = noted else { return inferred };
    let mut wanted = now.clone();
    let headers = |fields: &Map<String, Value>| fields.get(dialect.env)?.get(HEADERS_VARIABLE).cloned();
    let same_headers = headers(now) == headers(written);
    let same_arguments = now.get("args") == written.get("args");
    for field in before.keys().chain(written.keys()).filter(|field| before.get(*field) != written.get(*field))
    {
        let name = field.as_str();
        // As long as nobody touched what we wrote, what was there before is better than what can be inferred.
        let target = if name == dialect.command || name == "args" || dialect.urls.contains(&name) {
            if same_arguments { before.get(field) } else { inferred.get(field) }
        } else if now.get(field) == written.get(field) {
            if written.contains_key(field) || same_headers { before.get(field) } else { inferred.get(field) }
        } else {
            without_ours(dialect, &mut wanted, (before.get(field), written.get(field)), field);
            continue;
        };
        match target.cloned() {
            Some(value) => wanted.insert(field.clone(), value),
            None => wanted.remove(field),
        };
    }
    if !before.contains_key("args") && wanted.get("args") == Some(&json!([])) {
        wanted.remove("args");
    }
    wanted
}

/// A table or list that both we and others added to: our part of it goes.
fn without_ours(
    dialect: &Dialect,
    entry: &mut Map<String, Value>,
    (before, written): (Option<&Value>, Option<&Value>),
    field: &str,
) {
    let Some(now) = entry.get_mut(field) else { return };
    match (now, written) {
        (Value::Object(now), _) if field == dialect.env => drop(now.remove(HEADERS_VARIABLE)),
        (Value::Array(now), Some(Value::Array(written))) => {
            let earlier = before.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            now.retain(|item| !written.contains(item) || earlier.contains(item));
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)
            | Value::Array(_),
            _,
        ) => {}
    }
}

/// What the arguments alone say.
fn reconstruct(dialect: &Dialect, entry: &mut Map<String, Value>, wrapped: &Wrapped, field: Option<&str>) {
    match &wrapped.target {
        Target::Command { command, args } => {
            entry.insert(dialect.command.to_owned(), json!(command));
            entry.insert("args".to_owned(), json!(args));
        }
        Target::Url(address) => {
            entry.remove(dialect.command);
            entry.remove("args");
            if let Some(field) = field {
                entry.insert(field.to_owned(), json!(address));
            }
            headers_back(dialect, entry, wrapped);
            match dialect.kind.remote_default {
                Some(word) => drop(entry.insert("type".to_owned(), json!(word))),
                None => drop(entry.remove("type")),
            }
        }
    }
}

fn headers_back(dialect: &Dialect, entry: &mut Map<String, Value>, wrapped: &Wrapped) {
    let Some(variable) = &wrapped.headers_variable else { return };
    let Some(Value::Object(variables)) = entry.get_mut(dialect.env) else { return };
    let Some(text) = variables.remove(variable) else { return };
    if variables.is_empty() {
        entry.remove(dialect.env);
    }
    let headers = text.as_str().and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let headers: Vec<_> = headers
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
        .collect();
    // The variables that Codex was told to hand over for these headers.
    let needed = |item: &Value| {
        let placeholder = item.as_str().map(|name| format!("{{env:{name}}}"));
        placeholder.is_some_and(|placeholder| headers.iter().any(|(_, value)| value.contains(&placeholder)))
    };
    if let Some(Value::Array(names)) = entry.get_mut("env_vars") {
        names.retain(|item| !needed(item));
        if names.is_empty() {
            entry.remove("env_vars");
        }
    }
    for (field, value) in (dialect.headers_back)(headers) {
        entry.insert(field.to_owned(), value);
    }
}

/// From the entry as it is to the entry as it should be, with every field as it was once written.
fn changes(
    dialect: &Dialect,
    now: &Map<String, Value>,
    wanted: &Map<String, Value>,
    edit: Option<&Edit>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut now = now.clone();
    let mut main = dialect.command;
    if let (Some((field, _)), Some(command)) = (url(dialect, wanted), now.remove(dialect.command)) {
        if wanted.contains_key(dialect.command) {
            now.insert(dialect.command.to_owned(), command);
        } else {
            // In the place where the address once stood stands our command.
            changes.push(Change::rename(dialect.command, field));
            now.insert(field.to_owned(), command);
            main = field;
        }
    }
    for (field, value) in wanted {
        if now.get(field) == Some(value) {
            continue;
        }
        let text = edit.and_then(|edit| edit.text(field, value));
        let path = vec![field.clone()];
        changes.push(Change::Put { path, value: value.clone(), text, after: Some(main.to_owned()) });
    }
    for field in now.keys().filter(|field| !wanted.contains_key(*field)) {
        changes.push(Change::drop(&[field]));
    }
    changes
}
