//! VS Code: `servers` in `mcp.json`.

use crate::entry::{
    Dialect, HostEnvironment, Kinds, NO_OAUTH, no_variables, plain_headers, plain_headers_back,
};

pub(crate) const DIALECT: Dialect = Dialect {
    host: "vscode",
    containers: |_| vec![vec!["servers".to_owned()]],
    command: "command",
    env: "env",
    urls: &["url"],
    kind: Kinds { started: Some("stdio"), remote: &["http", "sse"], remote_default: Some("http") },
    environment: HostEnvironment::HandedOn,
    variables: no_variables,
    headers: plain_headers,
    headers_back: plain_headers_back,
    its_own: &[
        ("oauth", NO_OAUTH),
        ("sandboxEnabled", "VS Code runs it in a sandbox of its own, which callsign cannot leave"),
    ],
};
