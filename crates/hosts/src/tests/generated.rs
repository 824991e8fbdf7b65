//! The same, for configurations nobody thought of.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::document::render;

/// Text as it comes up in configurations, and characters that need escaping somewhere.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9._/-]{0,8}",
        "[ -~]{1,8}",
        Just("${TOKEN}".to_owned()),
        Just("a\tb\"c\\d'e".to_owned()),
        Just("naïve — ü".to_owned()),
        Just("--".to_owned()),
        Just("no".to_owned()),
        Just("12".to_owned()),
    ]
}

/// Command, arguments, variables or headers, and whether it has more fields.
type Made = (Option<String>, Vec<String>, Vec<(String, String)>, bool);

fn entry() -> impl Strategy<Value = Made> {
    let env = prop::collection::vec(("[A-Z]{1,4}", word()), 0..3);
    (proptest::option::of("[a-z/]{1,8}"), prop::collection::vec(word(), 0..4), env, any::<bool>())
}

/// A started server, or a remote one where there is no command.
fn value_of(content: Content, (command, args, pairs, more): Made) -> Value {
    let Content::Servers { dialect, format } = content else { return json!({}) };
    let table: Map<String, Value> = pairs.into_iter().map(|(name, value)| (name, json!(value))).collect();
    let mut entry = Map::new();
    if let Some(command) = command {
        entry.insert(dialect.command.to_owned(), json!(command));
        if more || format == Format::Yaml {
            entry.insert("args".to_owned(), json!(args));
        }
        if !table.is_empty() {
            entry.insert(dialect.env.to_owned(), Value::Object(table));
        }
    } else {
        entry.insert(dialect.urls[0].to_owned(), json!("https://a.example/mcp"));
        let headers = if format == Format::Toml { "http_headers" } else { "headers" };
        let mut table = table;
        table.insert("X-Key".to_owned(), json!("k"));
        entry.insert(headers.to_owned(), Value::Object(table));
    }
    if more {
        entry.insert("timeout".to_owned(), json!(7));
    }
    Value::Object(entry)
}

/// White space, comments and styles of writing, chosen by a stream of numbers.
struct Hand {
    choices: Vec<u8>,
    at: usize,
}

impl Hand {
    fn choose(&mut self, among: u8) -> u8 {
        self.at += 1;
        self.choices.get(self.at % self.choices.len()).map_or(0, |choice| choice % among)
    }

    fn gap(&mut self) -> &'static str {
        ["", " ", "\n", "\r\n", "\t", " /* c */ ", " // c\n", "\n\n  "][usize::from(self.choose(8))]
    }

    fn json(&mut self, value: &Value) -> String {
        match value {
            Value::Array(items) => {
                let parts: Vec<_> = items.iter().map(|item| self.part(item)).collect();
                self.joined('[', &parts, ']')
            }
            Value::Object(fields) => {
                let parts: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| {
                        let gap = self.gap();
                        format!("{}{gap}:{}", json!(name), self.part(value))
                    })
                    .collect();
                self.joined('{', &parts, '}')
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        }
    }

    fn part(&mut self, value: &Value) -> String {
        format!("{}{}{}", self.gap(), self.json(value), self.gap())
    }

    fn joined(&mut self, open: char, parts: &[String], close: char) -> String {
        let comma = if !parts.is_empty() && self.choose(3) == 0 { "," } else { "" };
        let parts: Vec<_> = parts.iter().map(|part| format!("{}{part}", self.gap())).collect();
        format!("{open}{}{comma}{}{close}", parts.join(","), self.gap())
    }

    fn toml(&mut self, servers: &Map<String, Value>) -> String {
        let end = ["\n", "\r\n"][usize::from(self.choose(2))];
        let (mut dotted, mut sections) = (Vec::new(), Vec::new());
        for (name, entry) in servers {
            let name = render(Format::Toml, &json!(name));
            let fields = entry.as_object().unwrap().iter();
            match self.choose(3) {
                0 => {
                    dotted
                        .push(format!("mcp_servers.{name} = {} # inline{end}", render(Format::Toml, entry)));
                }
                1 => {
                    for (field, value) in fields {
                        dotted.push(format!(
                            "  mcp_servers . {name} .{field}= {}{end}",
                            render(Format::Toml, value)
                        ));
                    }
                }
                _ => {
                    sections.push(format!("{end}[ mcp_servers.{name} ] # header{end}"));
                    let mut behind = Vec::new();
                    for (field, value) in fields {
                        if value.is_object() && self.choose(2) == 0 {
                            behind.push(format!("[mcp_servers.{name}.{field}]{end}"));
                            for (field, value) in value.as_object().unwrap() {
                                behind.push(format!("{field} = {} # c{end}", render(Format::Toml, value)));
                            }
                        } else {
                            sections.push(format!("\t{field} = {}{end}", render(Format::Toml, value)));
                        }
                    }
                    sections.append(&mut behind);
                }
            }
        }
        format!("# top{end}{}{}", dotted.concat(), sections.concat())
    }

    fn yaml(&mut self, servers: &Map<String, Value>) -> String {
        let end = ["\n", "\r\n"][usize::from(self.choose(2))];
        let mut text = vec![format!("# top{end}extensions:{end}")];
        for (name, entry) in servers {
            let name = json!(name);
            if self.choose(4) == 0 {
                text.push(format!("  {name}: {} # flow{end}", render(Format::Yaml, entry)));
                continue;
            }
            text.push(format!("  {name}:   # block{end}"));
            for (field, value) in entry.as_object().unwrap() {
                match value {
                    Value::Array(items) if !items.is_empty() && self.choose(2) == 0 => {
                        text.push(format!("    {field}:{end}"));
                        let indent = ["    ", "      "][usize::from(self.choose(2))];
                        for item in items {
                            text.push(format!("{indent}- {item} # item{end}"));
                        }
                    }
                    Value::Object(fields) if !fields.is_empty() && self.choose(2) == 0 => {
                        text.push(format!("    {field}:{end}"));
                        for (name, value) in fields {
                            text.push(format!("        {}: {value}{end}", json!(name)));
                        }
                    }
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => {
                        text.push(format!("    {field}: {} # plain{end}", render(Format::Yaml, value)));
                    }
                }
            }
        }
        text.concat()
    }
}

fn written(content: Content, list: &str, servers: &Map<String, Value>, choices: Vec<u8>) -> String {
    let mut hand = Hand { choices, at: 0 };
    match format(content) {
        Format::Jsonc => hand.json(&json!({ "a": [], list: servers, "z": { "command": "not a server" } })),
        Format::Toml => hand.toml(servers),
        Format::Yaml => hand.yaml(servers),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn only_ours_comes_and_goes(
        which in 0_usize..6,
        servers in prop::collection::btree_map("[a-zA-Z0-9 ._-]{1,6}", entry(), 1..4),
        choices in prop::collection::vec(any::<u8>(), 32),
        later in any::<bool>(),
    ) {
        let hosts = [
            (Host::Codex, "mcp_servers"),
            (Host::ClaudeCode, "mcpServers"),
            (Host::Goose, "extensions"),
            (Host::Vscode, "servers"),
            (Host::Cursor, "mcpServers"),
            (Host::Gemini, "mcpServers"),
        ];
        let (host, list) = hosts[which];
        let content = content(host, 0);
        let servers: Map<String, Value> =
            servers.into_iter().map(|(name, entry)| (name, value_of(content, entry))).collect();
        let original = written(content, list, &servers, choices);
        let before = value(content, &original);
        prop_assert_eq!(&before[list], &Value::Object(servers.clone()), "the test wrote another file: {}", original);

        let done = install(content, &settings(), Some(original.as_bytes()), None).unwrap();
        prop_assert_eq!(&done.left, &[], "{}", original);
        prop_assert_eq!(done.wrapped.len(), servers.len());
        let record = done.record.unwrap();
        let current = text(&done.bytes.unwrap());

        // Every entry runs us, and what it ran is in its arguments.
        let after = value(content, &current);
        for (name, entry) in &servers {
            let args = after[list][name]["args"].to_string();
            let Content::Servers { dialect, .. } = content else { unreachable!() };
            prop_assert_eq!(&after[list][name][dialect.command], &json!("/opt/bin/callsign"));
            let inner = entry.get(dialect.command).or_else(|| entry.get(dialect.urls[0])).unwrap();
            prop_assert!(args.contains(&inner.to_string()));
        }

        let again = install(content, &settings(), Some(current.as_bytes()), Some(&record)).unwrap();
        prop_assert_eq!(again.bytes, None);
        prop_assert_eq!(given_back(content, &current, Some(&record)), original.clone());

        // Others wrote to the file, or wrote it anew.
        let current = if later { later_edits::rewritten(content, &current) } else { format!("{current}\n") };
        let back = given_back(content, &current, Some(&record));
        prop_assert_eq!(value(content, &back), before.clone(), "{}", current);
        let back = given_back(content, &current, None);
        prop_assert_eq!(
            later_edits::without_what_is_lost(value(content, &back)),
            later_edits::without_what_is_lost(before)
        );
    }
}
