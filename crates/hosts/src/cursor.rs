//! Cursor: `mcpServers` in `mcp.json`. It sends nothing that tells sessions apart.

use crate::entry::{
    Dialect, HostEnvironment, Kinds, NO_OAUTH, no_variables, plain_headers, plain_headers_back,
};

pub(crate) const DIALECT: Dialect = Dialect {
    host: "auto",
    containers: |_| vec![vec!["mcpServers".to_owned()]],
    command: "command",
    env: "env",
    urls: &["url"],
    kind: Kinds {
        started: Some("stdio"),
        remote: &["http", "sse", "streamable-http", "streamableHttp"],
        remote_default: None,
    },
    environment: HostEnvironment::HandedOn,
    variables: no_variables,
    headers: plain_headers,
    headers_back: plain_headers_back,
    its_own: &[("auth", NO_OAUTH), ("oauth", NO_OAUTH)],
};
