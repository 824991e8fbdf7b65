//! Files that cannot be read are refused, with the place.

use super::*;

#[test]
fn a_broken_file_is_refused_with_its_line() {
    let check = |host, which, text: &[u8], line: usize, column: usize| {
        let content = content(host, which);
        let error = install(content, &settings(), Some(text), None).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{error}");
        assert!(!error.message.is_empty());
        let undone = uninstall(content, Some(text), None).unwrap_err();
        assert_eq!((undone.line, undone.column), (line, column), "{undone}");
    };
    check(Host::ClaudeCode, 0, b"{\n  \"mcpServers\": {\n    \"a\": oops\n  }\n}", 3, 10);
    check(Host::ClaudeCode, 0, b"{\"a\": 1 \"b\": 2}", 1, 8);
    check(Host::ClaudeCode, 1, b"{\n\"hooks\": {", 2, 10);
    check(Host::Vscode, 0, b"{'servers': {}}", 1, 2);
    check(Host::Cursor, 0, b"{\"a\": \"\xff\"}", 1, 8);
    check(Host::Gemini, 0, b"{} {}", 1, 4);
    check(Host::Codex, 0, b"[mcp_servers.a]\ncommand = \n", 2, 11);
    check(Host::Codex, 0, b"a = 1\na = 2\n", 2, 1);
    check(Host::Goose, 0, b"extensions:\n  a: [1\nb: 2\n", 3, 2);
    check(Host::Goose, 0, b"a: 1\n---\nb: 1\n", 3, 1);
    // A mark at the start of the file does not move the place.
    check(Host::Codex, 0, "\u{feff}command = \n".as_bytes(), 1, 11);
}

#[test]
fn nesting_has_a_bound() {
    for (host, deep) in [
        (Host::ClaudeCode, "[".repeat(100_000)),
        (Host::Codex, format!("a = {}", "[".repeat(100_000))),
        (Host::Goose, format!("a: {}", "[".repeat(2_000))),
    ] {
        assert!(install(content(host, 0), &settings(), Some(deep.as_bytes()), None).is_err(), "{host}");
    }
}

#[test]
fn a_file_that_lists_nothing_is_left_alone() {
    for (host, text) in [
        (Host::ClaudeCode, "{}"),
        (Host::ClaudeCode, "{\"mcpServers\": []}"),
        (Host::ClaudeCode, ""),
        (Host::Codex, "model = 1"),
        (Host::Codex, ""),
        (Host::Goose, "# nothing\n"),
        (Host::Goose, "extensions:\n"),
        (Host::Cursor, "[]"),
    ] {
        let done = install(content(host, 0), &settings(), Some(text.as_bytes()), None).unwrap();
        assert_eq!(done, Installed::default(), "{host} {text:?}");
    }
}

#[test]
fn a_hook_does_not_go_where_it_has_no_place() {
    let content = content(Host::ClaudeCode, 1);
    for text in ["{\"hooks\": []}", "{\"hooks\": {\"PreToolUse\": {}}}", "{\"hooks\": 1}", "[]"] {
        assert!(install(content, &settings(), Some(text.as_bytes()), None).is_err(), "{text}");
    }
}
