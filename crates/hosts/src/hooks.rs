//! The hook by which Claude Code announces its calls: an element of `hooks.PreToolUse` in `settings.json`.

use std::path::Path;

use serde_json::{Value, json};

use crate::document::{Broken, CannotEdit, Document, Format, Kind, render};
use crate::install::Settings;
use crate::journal::{Edit, changed_lines};
use crate::uninstall::put_lines_back;

/// What the hook is called where edits are listed.
pub const NAME: &str = "PreToolUse hook";

const EVENT: [&str; 2] = ["hooks", "PreToolUse"];

/// The file with our hook; None: it is there already.
pub(crate) fn add(
    document: Option<&Document>,
    settings: &Settings,
) -> Result<Option<(String, Edit)>, Broken> {
    let group = json!({
        "matcher": "mcp__.*",
        "hooks": [{ "type": "command", "command": command_line(settings) }],
    });
    let Some(document) = document else {
        let hooks = json!({ EVENT[1]: [group] });
        let text = format!("{}\n", pretty(&json!({ EVENT[0]: hooks }), "", "  ", "\n"));
        let edit = edit(None, hooks, ("", &text));
        return Ok(Some((text, edit)));
    };
    if !ours(document).is_empty() {
        return Ok(None);
    }
    let not_editable = |error: CannotEdit| Broken {
        line: 1,
        column: 1,
        message: format!("the hook cannot be added to `hooks`: {error}"),
    };
    let changed = insert(document, &group).map_err(not_editable)?;
    if changed.value() != wanted(document, &group) {
        return Err(not_editable(CannotEdit("it is written in an unusual way")));
    }
    let hooks = |document: &Document| document.value().get(EVENT[0]).cloned();
    let written = hooks(&changed).unwrap_or_default();
    let edit = edit(hooks(document), written, (document.text(), changed.text()));
    Ok(Some((changed.text().to_owned(), edit)))
}

/// The file without our hooks; None: there are none.
pub(crate) fn remove(document: &Document, edits: &[Edit]) -> Result<Option<String>, String> {
    if ours(document).is_empty() {
        return Ok(None);
    }
    let restored = edits.iter().rev().find_map(|edit| put_lines_back(document, edit));
    if let Some(restored) = restored.filter(|restored| ours(restored).is_empty()) {
        return Ok(Some(restored.text().to_owned()));
    }
    let mut document = document.clone();
    while let Some((group, hook)) = ours(&document).last().copied() {
        let event = EVENT.map(str::to_owned);
        let of_group = [&event[..], &[group.to_string(), "hooks".to_owned()]].concat();
        let alone = matches!(document.get(&of_group).map(|list| &list.kind), Some(Kind::List(hooks)) if hooks.len() == 1);
        let removed = if alone {
            document.remove_element(&event, group)
        } else {
            document.remove_element(&of_group, hook)
        };
        document = removed.map_err(|error| error.to_string())?;
    }
    // What we made, or what nobody can tell from what we made, goes when it is empty.
    let before = edits.first().and_then(|edit| edit.value.as_ref());
    let had_event = before.is_some_and(|hooks| hooks.get(EVENT[1]).is_some());
    for (path, was_there) in [(&EVENT[..], had_event), (&EVENT[..1], before.is_some())] {
        let empty = document.get(path).is_some_and(|node| match &node.kind {
            Kind::List(items) => items.is_empty(),
            Kind::Map(fields) => fields.is_empty(),
            Kind::Plain(_) => false,
        });
        if empty && !was_there {
            document = document.remove(path).map_err(|error| error.to_string())?;
        }
    }
    Ok(Some(document.text().to_owned()))
}

/// Whether the file has our hook.
pub(crate) fn is_there(document: &Document) -> bool {
    !ours(document).is_empty()
}

fn edit(value: Option<Value>, written: Value, (before, after): (&str, &str)) -> Edit {
    let (before, after) = changed_lines(before, after);
    Edit { path: vec![EVENT[0].to_owned()], value, written, before, after, texts: Vec::new() }
}

/// `callsign announce`, for a shell.
fn command_line(settings: &Settings) -> String {
    let mut words = vec![quoted(&settings.command), "announce".to_owned()];
    let mut options = settings.options.iter();
    while let Some(option) = options.next() {
        // It reads no configuration.
        let value = options.next();
        if option == "--state-dir" {
            words.extend([option.clone()].into_iter().chain(value.map(|value| quoted(value))));
        }
    }
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@:,=".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return format!("\"{word}\"");
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Group and place of each hook that runs `callsign announce`.
fn ours(document: &Document) -> Vec<(usize, usize)> {
    let groups = document.get(&EVENT).map(crate::document::Node::to_value);
    let mut found = Vec::new();
    for (group, value) in groups.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate() {
        let hooks = value.get("hooks").and_then(Value::as_array);
        for (hook, value) in hooks.into_iter().flatten().enumerate() {
            if value.get("command").and_then(Value::as_str).is_some_and(announces) {
                found.push((group, hook));
            }
        }
    }
    found
}

fn announces(command: &str) -> bool {
    let command = command.trim();
    let (program, rest) = match command.chars().next() {
        Some(quote @ ('"' | '\'')) => command[1..].split_once(quote).unwrap_or_default(),
        _ => command.split_once(' ').unwrap_or_default(),
    };
    let stem = Path::new(program).file_stem().and_then(|stem| stem.to_str());
    stem == Some("callsign") && rest.split_whitespace().next() == Some("announce")
}

fn insert(document: &Document, group: &Value) -> Result<Document, CannotEdit> {
    let unit = indentation(document);
    let text = |value: &Value, depth: usize| match &unit {
        Some(unit) => pretty(value, &unit.repeat(depth), unit, document.line_end()),
        None => render(Format::Jsonc, value),
    };
    let list = json!([group]);
    match (document.get(&EVENT[..1]), document.get(&EVENT)) {
        (None, _) => document.insert::<&str>(&[], EVENT[0], &text(&json!({ EVENT[1]: list }), 1), None),
        (Some(_), None) => document.insert(&EVENT[..1], EVENT[1], &text(&list, 2), None),
        (Some(_), Some(_)) => document.append(&EVENT, &text(group, 3)),
    }
}

fn wanted(document: &Document, group: &Value) -> Value {
    let mut wanted = document.value();
    if let Some(file) = wanted.as_object_mut() {
        let hooks = file.entry(EVENT[0]).or_insert_with(|| json!({}));
        if let Some(hooks) = hooks.as_object_mut() {
            let groups = hooks.entry(EVENT[1]).or_insert_with(|| json!([]));
            if let Some(groups) = groups.as_array_mut() {
                groups.push(group.clone());
            }
        }
    }
    wanted
}

/// One step of indentation; None: the file is on one line.
fn indentation(document: &Document) -> Option<String> {
    let first = document.root().fields().first()?;
    let before = &document.text()[..first.key.start];
    let indent = &before[before.rfind('\n')? + 1..];
    (!indent.is_empty() && indent.trim().is_empty()).then(|| indent.to_owned())
}

/// JSON over several lines, the first of which is already indented.
fn pretty(value: &Value, indent: &str, unit: &str, line_end: &str) -> String {
    let inner = format!("{indent}{unit}");
    let block = |open: char, parts: Vec<String>, close: char| {
        let parts = parts.join(&format!(",{line_end}{inner}"));
        format!("{open}{line_end}{inner}{parts}{line_end}{indent}{close}")
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            block('[', items.iter().map(|item| pretty(item, &inner, unit, line_end)).collect(), ']')
        }
        Value::Object(fields) if !fields.is_empty() => {
            let pair = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::String(name.clone()), pretty(value, &inner, unit, line_end))
            };
            // As people write it: what it is for comes first.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| !["matcher", "type"].contains(&name.as_str()));
            block('{', fields.into_iter().map(pair).collect(), '}')
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_hook_is_known_however_the_path_is_quoted() {
        for line in [
            r#""/opt/bin/callsign" announce"#,
            "'/home/a b/callsign' announce --state-dir '/x y'",
            "callsign announce",
        ] {
            assert!(announces(line), "{line}");
        }
        for line in ["callsign doctor", "echo callsign announce", "", "\"callsign", "/x/callsigns announce"] {
            assert!(!announces(line), "{line}");
        }
    }
}
