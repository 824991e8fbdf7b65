//! What is kept with a session.

use super::*;
use crate::config::sessions::{BadDocument, Document};

const EVERYTHING: [(&str, &str); 13] = [
    ("MCP_RUNTIME_MODE", "docker"),
    ("MCP_STATE_DIR", "/srv/state"),
    ("MCP_RUNTIME_IMAGE", "boxes/opencode:1"),
    ("MCP_OPENCODE_COMMAND", "opencode"),
    ("MCP_OPENCODE_PROVIDER", "openrouter"),
    ("MCP_OPENCODE_MODEL", "openrouter/openai/gpt-4o"),
    ("MCP_OPENCODE_SMALL_MODEL", "openrouter/openai/gpt-4o-mini"),
    ("MCP_OPENCODE_BASE_URL", "https://openrouter.ai/api/v1/"),
    ("MCP_OPENCODE_API_KEY", "sk-CANARY-7f3a"),
    ("MCP_OPENCODE_SERVER_START_TIMEOUT", "20"),
    ("MCP_OPENCODE_REQUEST_TIMEOUT", "300"),
    ("MCP_WORKER_POLL_INTERVAL", "0.2"),
    ("MCP_RUNTIME_EXTRAS_DIR", "/srv/extras"),
];

/// Through JSON and back, the key by another way.
#[track_caller]
fn check_round_trip(base: &SessionSettings, variables: &[(&str, &str)]) -> String {
    let (found, _) = resolved(base, variables);
    let json = found.document.to_json().unwrap();
    let again = Document::from_json(&json).unwrap();
    assert_eq!(again, found.document);
    assert_eq!(again.has_key(), found.key.is_some());
    let restored = resolve(base, &again.variables(found.key.as_ref()).unwrap()).unwrap();
    assert_eq!(restored.settings, found.settings);
    assert_eq!((restored.document, restored.key), (found.document, found.key));
    json
}

#[test]
fn the_same_comes_out_again() {
    let base = SessionSettings::default();
    assert_eq!(check_round_trip(&base, &[]), r#"{"variables":{}}"#);
    let json = check_round_trip(&base, &EVERYTHING);
    for (name, value) in EVERYTHING {
        let kept = !matches!(name, "MCP_STATE_DIR" | "MCP_OPENCODE_API_KEY");
        assert_eq!(json.contains(&format!("\"{name}\":\"{value}\"")), kept, "{name} in {json}");
    }
    assert!(json.ends_with(r#","key":"MCP_OPENCODE_API_KEY"}"#), "{json}");
    for provider in Provider::ALL {
        let model = ("MCP_OPENCODE_MODEL", provider.example());
        let key = ("MCP_OPENCODE_API_KEY", "k");
        check_round_trip(&base, &[("MCP_OPENCODE_PROVIDER", provider.name()), model, key]);
    }
}

#[test]
fn only_what_was_used_is_kept() {
    let base = SessionSettings::default();
    let alias = [("MCP_OLLAMA_BASE_URL", "http://127.0.0.1:1/v1"), ("MCP_OLLAMA_API_KEY", "k")];
    let expected =
        r#"{"variables":{"MCP_OLLAMA_BASE_URL":"http://127.0.0.1:1/v1"},"key":"MCP_OLLAMA_API_KEY"}"#;
    assert_eq!(check_round_trip(&base, &alias), expected);
    let other = settings("provider = \"openai\"\nmodel = \"openai/x\"\napi_key_env = \"TRACKER_TOKEN\"");
    assert_eq!(check_round_trip(&other, &alias), r#"{"variables":{}}"#);
    assert_eq!(
        check_round_trip(&base, &[("MCP_TIMEOUT", "1"), ("MCP_OPENCODE_MODEL", "")]),
        r#"{"variables":{}}"#
    );
}

/// A session follows the file in what its own variables leave open.
#[test]
fn a_file_that_changes_holds_for_sessions_that_are_there() {
    let (found, _) = resolved(&SessionSettings::default(), &[("MCP_OPENCODE_MODEL", "ollama/x")]);
    let variables = found.document.variables(None).unwrap();
    let changed = settings("egress = \"open\"\nbase_url = \"http://10.0.0.7:11434/v1\"");
    let model = model_name(Provider::Ollama, "ollama/x");
    assert_eq!(resolve(&changed, &variables).unwrap().settings, SessionSettings { model, ..changed });
    let changed = settings("provider = \"openai\"\nmodel = \"openai/x\"\napi_key_env = \"TRACKER_TOKEN\"");
    let problem = resolve(&changed, &variables).unwrap_err().to_string();
    assert!(problem.starts_with("MCP_OPENCODE_MODEL: must begin with \"openai/\""), "{problem}");
}

#[test]
fn no_secret_is_shown_or_kept() {
    let (found, _) = resolved(&SessionSettings::default(), &EVERYTHING);
    assert_eq!(found.key, Some(Secret::new("sk-CANARY-7f3a")));
    let variables = set(&EVERYTHING);
    let restored = found.document.variables(found.key.as_ref()).unwrap();
    let shown =
        format!("{found:?} {found:#?} {variables:?} {restored:?} {}", found.document.to_json().unwrap());
    assert!(!shown.contains("CANARY"), "{shown}");
    // One that stands in the wrong place is not shown either.
    let misplaced = set(&[("MCP_OPENCODE_MODEL", "sk-CANARY-7f3a"), ("MCP_GITHUB_TOKEN", "sk-CANARY-7f3a")]);
    assert!(!format!("{misplaced:?}").contains("CANARY"));
}

#[test]
fn documents_that_cannot_be_used() {
    for text in ["", "[]", "{}", r#"{"variables":{"A":1}}"#, r#"{"variables":{},"x":1}"#, r#"{"variables":"#]
    {
        assert!(matches!(Document::from_json(text), Err(BadDocument::Garbled(_))), "{text}");
    }
    let key = Secret::new("sk-CANARY-7f3a");
    let rows = [
        (
            r#"{"variables":{"MCP_OPENCODE_API_KEY":"sk-CANARY-7f3a"}}"#,
            None,
            "the settings kept with the session hold MCP_OPENCODE_API_KEY, which is kept apart",
        ),
        (
            r#"{"variables":{},"key":"PATH"}"#,
            Some(&key),
            "the settings kept with the session name PATH for its key, which is none",
        ),
        (
            r#"{"variables":{},"key":"MCP_OLLAMA_API_KEY"}"#,
            None,
            "the key of the session, MCP_OLLAMA_API_KEY, is not there any more",
        ),
        (r#"{"variables":{}}"#, Some(&key), "there is a key for a session that has none"),
    ];
    for (text, key, expected) in rows {
        let problem = Document::from_json(text).unwrap().variables(key).unwrap_err();
        assert_eq!(problem.to_string(), expected);
    }
    // What a later version has kept is not taken for nothing.
    let later =
        Document::from_json(r#"{"variables":{"MCP_OPENCODE_LATER":"x"}}"#).unwrap().variables(None).unwrap();
    let problem = resolve(&SessionSettings::default(), &later).unwrap_err().to_string();
    assert_eq!(problem, "MCP_OPENCODE_LATER: is no setting; take it out");
}
