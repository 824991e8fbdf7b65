//! Gemini CLI: `mcpServers` in `settings.json`. It sends nothing that tells sessions apart.

use crate::entry::{
    Dialect, HostEnvironment, Kinds, NO_OAUTH, no_variables, plain_headers, plain_headers_back,
};

pub(crate) const DIALECT: Dialect = Dialect {
    host: "auto",
    containers: |_| vec![vec!["mcpServers".to_owned()]],
    command: "command",
    env: "env",
    urls: &["httpUrl", "url"],
    // Only an address has a `type` there.
    kind: Kinds { started: None, remote: &["http", "sse"], remote_default: None },
    environment: HostEnvironment::HandedOn,
    variables: no_variables,
    headers: plain_headers,
    headers_back: plain_headers_back,
    its_own: &[
        ("oauth", NO_OAUTH),
        ("authProviderType", "Gemini CLI logs in for it with an account of Google's"),
        ("tcp", "it is reached by a transport of Gemini CLI's own"),
    ],
};
