//! What exactly is written, and what is left alone.

use super::*;

#[track_caller]
fn check(host: Host, before: &str, after: &str) {
    let (done, _) = installed(content(host, 0), before);
    assert_eq!(text(&done.bytes.unwrap()), after);
}

#[test]
fn codex_entries() {
    check(
        Host::Codex,
        "[mcp_servers.a]\ncommand = \"npx\" # c\nenv = { T = \"1\" }\nenv_vars = [\"CODEX_THREAD_ID\", \"O\"]\n",
        "[mcp_servers.a]\ncommand = \"/opt/bin/callsign\" # c\nargs = [\"wrap\", \"--name\", \"a\", \"--host\", \"codex\", \
         \"--state-dir\", \"/var/lib/call sign\", \"--pass-env\", \"O,T\", \"--\", \"npx\"]\nenv = { T = \"1\" }\nenv_vars = \
         [\"CODEX_THREAD_ID\", \"O\"]\n",
    );
    check(
        Host::Codex,
        "[mcp_servers.r]\nurl = \"https://a.example/mcp\" # c\nbearer_token_env_var = \"TOK\"\nenabled = true\n\n\
         [mcp_servers.r.http_headers]\nX-A = \"1\"\n\n[mcp_servers.r.env_http_headers]\nX-T = \"CODEX_THREAD_ID\"\n",
        "[mcp_servers.r]\ncommand = \"/opt/bin/callsign\" # c\nargs = [\"wrap\", \"--name\", \"r\", \"--host\", \"codex\", \
         \"--state-dir\", \"/var/lib/call sign\", \"--headers-env\", \"CALLSIGN_ENTRY_HEADERS\", \"--allow-private\", \"--url\", \
         \"https://a.example/mcp\"]\nenv_vars = [\"TOK\"]\nenv = { CALLSIGN_ENTRY_HEADERS = '{\"Authorization\":\"Bearer \
         {env:TOK}\",\"X-A\":\"1\"}' }\nenabled = true\n\n\n",
    );
}

#[test]
fn claude_code_entries() {
    check(
        Host::ClaudeCode,
        "{\n  \"mcpServers\": {\n    \"r\": {\n      \"type\": \"http\",\n      \"url\": \"https://a.example/mcp\",\n      \
         \"headers\": {\n        \"X\": \"${K}\"\n      }\n    }\n  }\n}\n",
        "{\n  \"mcpServers\": {\n    \"r\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/bin/callsign\",\n      \
         \"args\": [\"wrap\", \"--name\", \"r\", \"--host\", \"claude-code\", \"--state-dir\", \"/var/lib/call sign\", \
         \"--headers-env\", \"CALLSIGN_ENTRY_HEADERS\", \"--allow-private\", \"--url\", \"https://a.example/mcp\"],\n      \"env\": \
         {\"CALLSIGN_ENTRY_HEADERS\": \"{\\\"X\\\":\\\"${K}\\\"}\"}\n    }\n  }\n}\n",
    );
    let hook = content(Host::ClaudeCode, 1);
    let (done, _) = installed(hook, "{\n  \"model\": \"x\"\n}\n");
    let expected = "{\n  \"model\": \"x\",\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"mcp__.*\",\n        \
         \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \
         \"\\\"/opt/bin/callsign\\\" announce --state-dir '/var/lib/call sign'\"\n          }\n        ]\n      }\n    ]\n  \
         }\n}\n";
    assert_eq!(text(&done.bytes.unwrap()), expected);
}

#[test]
fn goose_entries() {
    check(
        Host::Goose,
        "extensions:\n  f:\n    type: stdio\n    cmd: uvx # c\n    args:\n    - pkg\n    envs:\n      A: '1'\n    env_keys: [K]\n",
        "extensions:\n  f:\n    type: stdio\n    cmd: \"/opt/bin/callsign\" # c\n    args: [\"wrap\", \"--name\", \"f\", \
         \"--host\", \"goose\", \"--state-dir\", \"/var/lib/call sign\", \"--inherit-env\", \"host\", \"--pass-env\", \"A,K\", \
         \"--\", \"uvx\", \"pkg\"]\n    envs:\n      A: '1'\n    env_keys: [K]\n",
    );
}

#[test]
fn what_cannot_be_wrapped_is_left_and_said() {
    let check = |host: Host, text: &str, name: &str, why: &str| {
        let done = install(content(host, 0), &settings(), Some(text.as_bytes()), None).unwrap();
        assert_eq!(done.bytes, None, "{text}");
        assert_eq!(done.left.len(), 1, "{text}");
        assert_eq!(done.left[0].name, name);
        assert!(done.left[0].why.contains(why), "{:?}", done.left);
    };
    let codex = |body: &str| format!("[mcp_servers.x]\n{body}\n");
    check(Host::Codex, &codex("url = \"https://a.example/mcp\""), "x", "OAuth");
    check(Host::Codex, &codex("url = \"http://127.0.0.1/mcp\"\nscopes = [\"a\"]"), "x", "OAuth");
    check(Host::Codex, &codex("command = \"a\"\nenv = { PYTHONPATH = \"x\" }"), "x", "PYTHONPATH");
    check(
        Host::Codex,
        &codex("command = \"a\"\nenv_vars = [{ name = \"A\", source = \"remote\" }]"),
        "x",
        "remote",
    );
    check(Host::Codex, &codex("command = 1"), "x", "not a string");
    check(Host::Codex, &codex("command = \"a\"\nurl = \"b\""), "x", "both");
    check(Host::Codex, &codex("enabled = true"), "x", "neither");
    let json = |body: &str| format!("{{\"mcpServers\": {{\"x\": {body}}}}}");
    check(Host::Cursor, &json("{\"command\": \"npx -y pkg\"}"), "x", "shell");
    check(Host::Cursor, &json("{\"command\": \"a\", \"args\": \"b\"}"), "x", "args");
    check(
        Host::Cursor,
        &json("{\"url\": \"https://a.example\", \"auth\": {\"CLIENT_ID\": \"c\"}}"),
        "x",
        "OAuth",
    );
    check(Host::ClaudeCode, &json("{\"type\": \"ws\", \"url\": \"wss://a.example\"}"), "x", "ws");
    check(
        Host::ClaudeCode,
        &json("{\"type\": \"http\", \"url\": \"https://a.example\", \"headersHelper\": \"x\"}"),
        "x",
        "headers_command",
    );
    check(Host::Gemini, &json("{\"tcp\": \"x\", \"command\": \"a\"}"), "x", "transport");
    check(Host::Gemini, &json("\"text\""), "x", "not a table");
    check(Host::Goose, "extensions:\n  x: {type: sse, uri: 'https://a.example'}\n", "x", "OAuth");
}

#[test]
fn a_remote_server_that_needs_no_login_can_be_named() {
    let text = "[mcp_servers.x]\nurl = \"https://a.example/mcp\"\n";
    let named = Settings { also: vec!["x".to_owned()], ..settings() };
    let done = install(content(Host::Codex, 0), &named, Some(text.as_bytes()), None).unwrap();
    assert_eq!(done.wrapped, ["x"]);
}

/// Anchors make one text mean two places: an edit that would change both does not happen.
#[test]
fn an_edit_that_would_change_more_does_not_happen() {
    let text = "shared: &a {type: stdio, cmd: npx, args: []}\nextensions:\n  x: *a\n";
    let done = install(content(Host::Goose, 0), &settings(), Some(text.as_bytes()), None).unwrap();
    assert_eq!((done.bytes, done.left.len()), (None, 1));
}
