//! Configurations as people write them, and worse.

use super::*;

/// Comments, tabs, CRLF, trailing commas, a byte order mark, unusual escapes, one line, no final line end.
pub(crate) const JSON: &[&str] = &[
    "{\n  // servers\n  \"mcpServers\": {\n    \"one\": {\n      \"command\": \"npx\", // the runner\n      \"args\": [\n        \"-y\", /* always */\n        \"pkg\",\n      ],\n      \"env\": { \"TOKEN\": \"s3cret\", \"CODEX_THREAD_ID\": \"stale\", },\n    },\n    \"two\": { \"command\": \"uvx\" }, // no args\n  },\n  \"other\": [1, 2.50, 1e3, null],\n}\n",
    "{\r\n\t\"mcpServers\": {\r\n\t\t\"crlf\": {\r\n\t\t\t\"type\": \"http\",\r\n\t\t\t\"url\": \"https://tracker.example/mcp\",\r\n\t\t\t\"headers\": {\r\n\t\t\t\t\"Authorization\": \"Bearer ${TOKEN}\",\r\n\t\t\t\t\"Accept\": \"application/json\"\r\n\t\t\t}\r\n\t\t}\r\n\t}\r\n}\r\n",
    "\u{feff}{\"mcpServers\":{\"a\":{\"command\":\"\\u006epx\",\"args\":[]},\"b\":{\"url\":\"http://127.0.0.1:1/mcp\"}},\"é\":\"ü\"}",
    "{ \"before\" : { } ,\n\"mcpServers\"\n:\n{ \"x\" : { \"env\" : { } , \"command\" : \"./run me.sh\" , \"args\" : [ \"--\" , \"a b\" ] , \"timeout\":5 } } }",
    "/* top */ {\n \"mcpServers\": { // list\n  \"u\": { // entry\n   // where\n   \"url\": \"https://a.example/mcp\" /* here */, // there\n   // what\n   \"headers\": { \"X-Key\": \"k\" }\n  }\n }\n} // end",
    "{\n    \"mcpServers\": {\n        \"odd name/with space\": {\n            \"headers\": {\n                \"X-Api-Key\": \"k\"\n            },\n            \"url\": \"https://a.example/mcp\",\n            \"env\": {\n                \"KEEP\": \"1\"\n            }\n        },\n        \"sessions\": {\n            \"command\": \"python\",\n            \"args\": [\n                \"-m\",\n                \"srv\"\n            ],\n            \"env\": {\n                \"PYTHONPATH\": \"lib\",\n                \"A\": \"1\"\n            }\n        }\n    }\n}",
];

/// Header tables, inline tables, dotted keys, all kinds of strings, sections out of order.
pub(crate) const TOML: &[&str] = &[
    "# top\nmodel = \"m\"\n\n[mcp_servers.plain] # the plain one\ncommand = \"npx\" # runner\nargs = [\n  \"-y\", # always\n  'pkg',\n]\nenv = { TOKEN = \"s\", CODEX_THREAD_ID = \"x\" }\nenv_vars = [\"CODEX_THREAD_ID\", \"OUTER\", { name = \"OTHER\", source = \"local\" }]\nstartup_timeout_sec = 20.5\n\n[mcp_servers.noargs]\n  command = '''uvx'''\n\n[tui]\ntheme = \"x\"\n",
    "[mcp_servers]\r\ninline = { command = \"npx\", env = { A = '1' } } # c\r\n\"quoted name\" = {command='a'}\r\nremote = { url = \"https://a.example/mcp\", bearer_token_env_var = \"TOKEN\", enabled = true }\r\n",
    "mcp_servers.dotted.command = \"npx\"\nmcp_servers.dotted.args = [\"a\"]\nmcp_servers.'d q'.command = 'uvx' # behind\nmcp_servers.dotted.env.A = \"1\"\nmcp_servers.far.url = \"http://localhost:9/mcp\" # home\nmcp_servers.far.http_headers.X-One = \"1\"\nmcp_servers.far.http_headers.X-Two = \"2\"",
    "[mcp_servers.httpd]\nurl = \"https://a.example/mcp\"   # where\nbearer_token_env_var = \"HTTPD_TOKEN\" # whence\n[mcp_servers.httpd.http_headers]\n# static ones\nX-Static = \"static-value\"\n\"X-Tmpl\" = '${CODEX_THREAD_ID}'\n\n[mcp_servers.between]\ncommand = \"a\"\n\n[mcp_servers.httpd.env_http_headers]\nX-From-Env = \"OUTER_VAR\"\nX-Thread = \"CODEX_THREAD_ID\"\n\n[mcp_servers.httpd.tools.x]\napproval_mode = \"approve\"\n",
    "\u{feff}[mcp_servers.bom]\ncommand = \"a\"",
];

pub(crate) const YAML: &[&str] = &[
    "# goose\nGOOSE_PROVIDER: openai\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n  fetch:  # web\n    enabled: true\n    type: stdio\n    name: fetch\n    cmd: 'uvx'  # the é runner\n    args:\n    - mcp-server-fetch   # pkg\n    - \"a b\"\n    envs: {}\n    env_keys:\n    - API_KEY\n    timeout: 300\n  remote:\n    type: streamable_http\n    uri: https://a.example/mcp\n    headers:\n      Authorization: Bearer $API_KEY\n    envs:\n      KEEP: '1'\n    env_keys: [API_KEY]\nlast: ~\n",
    "extensions:\r\n    a: {type: stdio, cmd: npx, args: [-y, 'pkg'], enabled: true}  # flow\r\n    b:\r\n        cmd: \"x\"\r\n        args: []\r\n        type: stdio\r\n",
    "extensions:\n  local:\n    uri: \"http://localhost:4/mcp\"\n    type: streamable_http\n    description: >\n      folded\n      text\n  lit:\n    type: stdio\n    cmd: run\n    args:\n      - |\n        a\n        b\n      - last",
];

/// Claude Code's settings.
pub(crate) const SETTINGS: &[&str] = &[
    "{}",
    "{\n}\n",
    "{\n  \"model\": \"x\"\n}\n",
    "{\r\n\t\"hooks\": {\r\n\t\t\"Stop\": []\r\n\t}\r\n}",
    "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"Bash\",\n        \"hooks\": [ { \"type\": \"command\", \"command\": \"x\" } ]\n      }\n    ]\n  },\n  \"permissions\": { \"allow\": [] }\n}\n",
    "{\"hooks\":{\"PreToolUse\":[]},\"a\":1}",
    "\n  \n",
];

/// Every fixture with what it is.
pub(crate) fn all() -> Vec<(Content, String)> {
    let mut all: Vec<(Content, String)> = Vec::new();
    let mut add = |host, which, texts: &[&str]| {
        all.extend(texts.iter().map(|text| (content(host, which), (*text).to_owned())));
    };
    add(Host::ClaudeCode, 0, JSON);
    add(Host::Cursor, 0, JSON);
    add(Host::Gemini, 0, JSON);
    add(Host::Codex, 0, TOML);
    add(Host::Goose, 0, YAML);
    add(Host::ClaudeCode, 1, SETTINGS);
    for text in JSON {
        all.push((content(Host::Vscode, 0), text.replace("mcpServers", "servers")));
        all.push((content(Host::Gemini, 0), text.replace("\"url\"", "\"httpUrl\"")));
        let nested = text.trim_start_matches('\u{feff}');
        all.push((content(Host::ClaudeCode, 0), format!("{{ \"projects\": {{ \"/a b\": {nested} \n}} }}")));
    }
    all
}

#[test]
fn what_was_installed_is_given_back_byte_for_byte() {
    for (content, original) in all() {
        let (done, record) = installed(content, &original);
        let current = text(done.bytes.as_deref().unwrap());
        assert_ne!(current, original);
        assert_eq!(done.left, [], "{original}");
        assert_eq!(given_back(content, &current, Some(&record)), original);
    }
}

#[test]
fn a_second_install_changes_nothing() {
    for (content, original) in all() {
        let (done, record) = installed(content, &original);
        for record in [Some(&record), None] {
            let again = install(content, &settings(), done.bytes.as_deref(), record).unwrap();
            assert_eq!((again.bytes, again.record, again.wrapped), (None, None, vec![]), "{original}");
            assert_eq!(again.already, done.wrapped, "{original}");
        }
    }
}

#[test]
fn what_an_install_adds_is_only_ours() {
    for (content, original) in all() {
        let (done, record) = installed(content, &original);
        if original.trim().is_empty() {
            continue;
        }
        let mut current = value(content, &text(done.bytes.as_deref().unwrap()));
        for edit in &record.journal.edits {
            let (name, parent) = edit.path.split_last().unwrap();
            let parent = parent.iter().fold(&mut current, |value, name| &mut value[name]);
            match &edit.value {
                Some(value) => parent[name] = value.clone(),
                None => drop(parent.as_object_mut().unwrap().remove(name)),
            }
        }
        assert_eq!(current, value(content, &original), "{original}");
    }
}

#[test]
fn the_plugin_is_written_and_removed() {
    let content = Content::Plugin;
    let done = install(content, &settings(), None, None).unwrap();
    let bytes = done.bytes.unwrap();
    assert!(text(&bytes).contains(
        r#"const SETTINGS = {"args":["--state-dir","/var/lib/call sign"],"command":"/opt/bin/callsign"} //"#
    ));
    assert_eq!(install(content, &settings(), Some(&bytes), None).unwrap().bytes, None);
    let undone = |bytes: &[u8], record: Option<&Record>| uninstall(content, Some(bytes), record).unwrap();
    assert_eq!(undone(&bytes, done.record.as_ref()).outcome, Outcome::Remove);
    assert_eq!(undone(&bytes, None).outcome, Outcome::Remove);
    let edited = text(&bytes) + "// mine\n";
    assert_eq!(undone(edited.as_bytes(), done.record.as_ref()).outcome, Outcome::Keep);
    assert_eq!(undone(edited.as_bytes(), None).left.len(), 1);
    assert_eq!(undone(b"export default {}", None).outcome, Outcome::Keep);
    assert!(install(content, &settings(), Some(b"export default {}"), None).is_err());
    // Callsign was moved: the plugin is told.
    let moved = Settings { command: "/new/callsign".to_owned(), ..settings() };
    let updated = install(content, &moved, Some(&bytes), done.record.as_ref()).unwrap();
    assert_eq!(undone(&updated.bytes.unwrap(), updated.record.as_ref()).outcome, Outcome::Remove);
}
