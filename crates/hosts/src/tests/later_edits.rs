//! Between install and uninstall others write to the file: theirs stays, ours goes.

use serde_json::{Map, json};

use super::*;
use crate::document::render;

/// The file as a program writes it that keeps what it says and nothing of how it was written: Claude Code and
/// Goose do that all day.
pub(crate) fn rewritten(content: Content, text: &str) -> String {
    let value = value(content, text);
    match format(content) {
        Format::Jsonc | Format::Yaml => serde_json::to_string_pretty(&value).unwrap(),
        Format::Toml => {
            let fields = value.as_object().unwrap().iter();
            fields
                .map(|(name, value)| format!("{name:?} = {}\n", render(Format::Toml, value)))
                .collect::<Vec<_>>()
                .concat()
        }
    }
}

/// Somebody adds a line at the end, or a field where lines mean nothing.
fn with_addition(content: Content, text: &str) -> String {
    match format(content) {
        Format::Toml => format!("{text}\n[added.by.others] # here\nx = 1\n"),
        Format::Yaml => format!("{text}\nadded_by_others: 1 # here\n"),
        Format::Jsonc => {
            let at = text.rfind('}').unwrap();
            let document = Document::parse(Format::Jsonc, text).unwrap();
            let comma = if document.root().fields().is_empty() || text[..at].trim_end().ends_with(',') {
                ""
            } else {
                ","
            };
            let mut text = text.to_owned();
            text.insert_str(at, &format!("\n{comma}\"addedByOthers\": 1\n"));
            text
        }
    }
}

#[test]
fn an_addition_elsewhere_stays_and_the_rest_is_as_it_was() {
    for (content, original) in fixtures::all() {
        if original.trim().is_empty() {
            continue;
        }
        let (done, record) = installed(content, &original);
        let current = with_addition(content, &text(done.bytes.as_deref().unwrap()));
        let back = given_back(content, &current, Some(&record));
        let wanted = with_addition(content, &original);
        assert_eq!(value(content, &back), value(content, &wanted), "{original}\n{current}");
        // What is spread over lines comes back as it was written.
        if original.lines().count() > 8 {
            let strip = |text: &str| text.replace("\n,\"added", "\n\"added");
            assert_eq!(strip(&back), strip(&wanted), "{original}\n{current}");
        }
    }
}

#[test]
fn a_file_that_was_written_anew_says_what_it_said() {
    for (content, original) in fixtures::all() {
        if original.trim().is_empty() {
            continue;
        }
        let (done, record) = installed(content, &original);
        let current = rewritten(content, &text(done.bytes.as_deref().unwrap()));
        let back = given_back(content, &current, Some(&record));
        assert_eq!(value(content, &back), value(content, &original), "{original}\n{current}");
    }
}

/// Without a note some things cannot be known: whether empty args were written out, and the like.
pub(crate) fn without_what_is_lost(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let empty = |value: &Value| *value == json!([]) || *value == json!({});
            let kept = fields
                .into_iter()
                .filter(|(name, _)| !["type", "Accept", "X-Thread"].contains(&name.as_str()));
            let renamed = kept.map(|(name, value)| {
                let name = if name == "httpUrl" { "url".to_owned() } else { name };
                (name, without_what_is_lost(value))
            });
            Value::Object(renamed.filter(|(_, value)| !empty(value)).collect::<Map<_, _>>())
        }
        Value::String(text) => Value::String(text.replace("{env:API_KEY}", "$API_KEY")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value,
    }
}

#[test]
fn without_a_note_the_arguments_say_what_was_there() {
    for (content, original) in fixtures::all() {
        if original.trim().is_empty() {
            continue;
        }
        let (done, _) = installed(content, &original);
        let back = given_back(content, &text(done.bytes.as_deref().unwrap()), None);
        let (back, wanted) = (value(content, &back), value(content, &original));
        assert_eq!(without_what_is_lost(back), without_what_is_lost(wanted), "{original}");
    }
}

/// Runs `edit` on every wrapped entry's text.
fn edited(
    content: Content,
    done: &Installed,
    record: &Record,
    edit: impl Fn(Document, &[String]) -> Document,
) -> String {
    let current = text(done.bytes.as_deref().unwrap());
    let mut document = Document::parse(format(content), current).unwrap();
    for note in &record.journal.edits {
        document = edit(document, &note.path);
    }
    document.text().to_owned()
}

fn servers() -> impl Iterator<Item = (Content, String)> {
    fixtures::all().into_iter().filter(|(content, _)| matches!(content, Content::Servers { .. }))
}

#[test]
fn other_fields_of_an_entry_are_others() {
    for (content, original) in servers() {
        let (done, record) = installed(content, &original);
        let current = edited(content, &done, &record, |document, path| {
            document.insert(path, "addedByOthers", "7", None).unwrap()
        });
        let back = given_back(content, &current, Some(&record));
        let mut wanted = value(content, &original);
        for note in &record.journal.edits {
            let entry = note.path.iter().fold(&mut wanted, |value, name| &mut value[name]);
            entry["addedByOthers"] = json!(7);
        }
        assert_eq!(value(content, &back), wanted, "{original}\n{current}");
    }
}

#[test]
fn variables_that_others_added_stay() {
    for (content, original) in servers() {
        let Content::Servers { dialect, .. } = content else { continue };
        let (done, record) = installed(content, &original);
        let current = rewritten(content, &text(done.bytes.as_deref().unwrap()));
        let current = Document::parse(format(content), current).unwrap();
        let current = record.journal.edits.iter().fold(current, |document, note| {
            let env = [&note.path[..], &[dialect.env.to_owned()]].concat();
            if document.get(&env).is_none() {
                return document
                    .insert(&note.path, dialect.env, &render(document.format(), &json!({"ADDED": "1"})), None)
                    .unwrap();
            }
            document.insert(&env, "ADDED", &render(document.format(), &json!("1")), None).unwrap()
        });
        let back = given_back(content, current.text(), Some(&record));
        let mut wanted = value(content, &original);
        for note in &record.journal.edits {
            let entry = note.path.iter().fold(&mut wanted, |value, name| &mut value[name]);
            entry[dialect.env]["ADDED"] = json!("1");
        }
        assert_eq!(value(content, &back), wanted, "{original}\n{}", current.text());
    }
}

#[test]
fn what_others_did_to_the_arguments_stays() {
    for (content, original) in servers() {
        let (done, record) = installed(content, &original);
        let current = edited(content, &done, &record, |document, path| {
            let path = [path, &["args".to_owned()]].concat();
            let mut args = document.get(&path).unwrap().to_value();
            let args = args.as_array_mut().unwrap();
            let last = args.len() - 1;
            args[last] = json!(format!("{}/changed", args[last].as_str().unwrap()));
            document.set(&path, &render(document.format(), &json!(args))).unwrap()
        });
        let back = value(content, &given_back(content, &current, Some(&record)));
        for note in &record.journal.edits {
            let entry = note.path.iter().fold(&back, |value, name| &value[name]);
            let text = entry.to_string();
            assert!(text.contains("/changed") && !text.contains("callsign"), "{text}");
        }
    }
}

#[test]
fn an_entry_that_others_took_over_is_theirs() {
    for (content, original) in servers() {
        let Content::Servers { dialect, .. } = content else { continue };
        let (done, record) = installed(content, &original);
        let current = edited(content, &done, &record, |document, path| {
            let path = [path, &[dialect.command.to_owned()]].concat();
            document.set(&path, &render(document.format(), &json!("mine"))).unwrap()
        });
        assert_eq!(given_back(content, &current, Some(&record)), current, "{original}");
        // Removed by somebody: it does not come back.
        let gone =
            edited(content, &done, &record, |document, path| document.remove(path).unwrap_or(document));
        assert_eq!(given_back(content, &gone, Some(&record)), gone, "{original}");
    }
}

#[test]
fn an_entry_still_is_ours_when_callsign_was_moved() {
    for (content, original) in servers() {
        let (done, record) = installed(content, &original);
        let current = text(done.bytes.as_deref().unwrap()).replace("/opt/bin/callsign", "/new/callsign");
        let back = given_back(content, &current, Some(&record));
        assert_eq!(value(content, &back), value(content, &original), "{original}");
    }
}

#[test]
fn an_install_on_top_of_another_is_undone_with_it() {
    let content = content(Host::Codex, 0);
    let first = "[mcp_servers.a]\ncommand = \"x\" # c\n";
    let added = "\n[mcp_servers.b]\ncommand = \"y\"\n";
    let (done, record) = installed(content, first);
    let current = text(&done.bytes.unwrap()) + added;
    let again = install(content, &settings(), Some(current.as_bytes()), Some(&record)).unwrap();
    assert_eq!((again.wrapped, again.already), (vec!["b".to_owned()], vec!["a".to_owned()]));
    let record = again.record.unwrap();
    let back = given_back(content, &text(&again.bytes.clone().unwrap()), Some(&record));
    assert_eq!(back, format!("{first}{added}"));
    // And with a later edit.
    let back = given_back(content, &(text(&again.bytes.unwrap()) + "# late\n"), Some(&record));
    assert_eq!(back, format!("{first}{added}# late\n"));
}

#[test]
fn a_copied_entry_is_unwrapped_and_one_wrapped_by_hand_is_not() {
    let content = content(Host::Cursor, 0);
    let (done, record) = installed(content, "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}");
    let mut value = value(content, &text(&done.bytes.unwrap()));
    value["mcpServers"]["copy"] = value["mcpServers"]["a"].clone();
    let by_hand = json!({ "command": "callsign", "args": ["wrap", "--", "z"] });
    value["mcpServers"]["by_hand"] = by_hand.clone();
    let back = given_back(content, &value.to_string(), Some(&record));
    let back = super::value(content, &back);
    let wanted =
        json!({ "a": { "command": "x" }, "copy": { "command": "x", "args": [] }, "by_hand": by_hand });
    assert_eq!(back["mcpServers"], wanted);
}

#[test]
fn hooks_of_others_stay() {
    let content = content(Host::ClaudeCode, 1);
    for original in fixtures::SETTINGS {
        let (done, record) = installed(content, original);
        let mut current = value(content, &text(&done.bytes.unwrap()));
        let groups = current["hooks"]["PreToolUse"].as_array_mut().unwrap();
        // Somebody puts a hook of their own beside ours, and a group behind it.
        let last = groups.len() - 1;
        groups[last]["hooks"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "type": "command", "command": "mine" }));
        groups.push(json!({ "matcher": "x", "hooks": [] }));
        for record in [Some(&record), None] {
            let back = given_back(content, &current.to_string(), record);
            let mut wanted = current.clone();
            let groups = wanted["hooks"]["PreToolUse"].as_array_mut().unwrap();
            groups[last]["hooks"] = json!([{ "type": "command", "command": "mine" }]);
            assert_eq!(value(content, &back), wanted, "{original}");
        }
    }
    // A file that we made goes when nothing else is in it.
    let made = install(content, &settings(), None, None).unwrap();
    let rewritten = rewritten(content, &text(made.bytes.as_deref().unwrap())).replace("  ", " ");
    let undone = uninstall(content, Some(rewritten.as_bytes()), made.record.as_ref()).unwrap();
    assert_eq!(undone.outcome, Outcome::Remove);
}
