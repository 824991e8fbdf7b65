//! Claude Code: `mcpServers` in `.claude.json` (for the user, and for the user in one project) and in `.mcp.json`.
//! Who calls comes from a hook: see [`crate::hooks`].

use serde_json::Value;

use crate::entry::{
    Dialect, HostEnvironment, Kinds, NO_OAUTH, no_variables, plain_headers, plain_headers_back,
};

pub(crate) const DIALECT: Dialect = Dialect {
    host: "claude-code",
    containers,
    command: "command",
    env: "env",
    urls: &["url"],
    kind: Kinds {
        started: Some("stdio"),
        remote: &["http", "sse", "streamable-http"],
        remote_default: Some("http"),
    },
    environment: HostEnvironment::HandedOn,
    variables: no_variables,
    headers: plain_headers,
    headers_back: plain_headers_back,
    its_own: &[
        ("oauth", NO_OAUTH),
        (
            "headersHelper",
            "Claude Code runs a program for its headers; put it into `headers_command` of callsign's configuration",
        ),
    ],
};

fn containers(file: &Value) -> Vec<Vec<String>> {
    let servers = || "mcpServers".to_owned();
    let mut paths = vec![vec![servers()]];
    if let Some(Value::Object(projects)) = file.get("projects") {
        paths.extend(projects.keys().map(|project| vec!["projects".to_owned(), project.clone(), servers()]));
    }
    paths
}
