//! Secrets, each of its own, in every place where a gateway can come across one.

use std::os::unix::fs::PermissionsExt as _;

use testkit::harness::Setup;

use super::spans::Collector;
use crate::support::setup;

// None of them looks like a credential: it is kept out by being known, or by not being written down at all.
pub(super) const ENVIRONMENT: &str = "canary-aaf1-environment";
pub(super) const ENVIRONMENT_TOO: &str = "canary-ab27-other-variable";
pub(super) const SERVERS_ENVIRONMENT: &str = "canary-ac93-servers-variable";
pub(super) const HEADER: &str = "canary-ad54-header-value";
pub(super) const FILE: &str = "canary-ae68-file-contents";
pub(super) const MINTED: &str = "canary-af02-printed-by-a-program";
pub(super) const ENTRY: &str = "canary-ag31-entry-header";
pub(super) const META: &str = "canary-ah75-meta-member";
pub(super) const ARGUMENT: &str = "canary-ai46-argument";
pub(super) const RESULT: &str = "canary-aj89-result";
pub(super) const HOOK: &str = "canary-ak17-hook-variable";
pub(super) const COLLECTOR: &str = "canary-al63-collector-header";
pub(super) const CLIENTS_HEADER: &str = "canary-am20-clients-header";
pub(super) const QUERY: &str = "canary-an58-url-query";
pub(super) const WRONG_TOKEN: &str = "canary-ao94-wrong-token";

pub(super) const ALL: [&str; 15] = [
    ENVIRONMENT,
    ENVIRONMENT_TOO,
    SERVERS_ENVIRONMENT,
    HEADER,
    FILE,
    MINTED,
    ENTRY,
    META,
    ARGUMENT,
    RESULT,
    HOOK,
    COLLECTOR,
    CLIENTS_HEADER,
    QUERY,
    WRONG_TOKEN,
];

pub(super) fn environment() -> [(&'static str, &'static str); 8] {
    [
        ("OPENAI_API_KEY", ENVIRONMENT),
        ("MY_TOKEN", ENVIRONMENT_TOO),
        ("SERVER_SECRET", SERVERS_ENVIRONMENT),
        ("HEADER_SECRET", HEADER),
        ("HOOK_SECRET", HOOK),
        ("COLLECTOR_SECRET", COLLECTOR),
        ("ENTRY_HEADERS", r#"{"X-Entry":"Bearer canary-ag31-entry-header"}"#),
        ("CALLSIGN_LOG", "trace"),
    ]
}

/// Says its secret in the log, and in what it throws.
const SAYS: &str = r#"export default {
  "mcp.call.before": (input) => {
    console.log("with " + process.env.HOOK_SECRET)
    if (input.tool === "thrown") throw new Error("not with " + process.env.HOOK_SECRET)
  },
}
"#;

/// Says its environment and goes.
const DIES: &str = "env >&2; echo \"and a line: $SERVER_SECRET\" >&2; exit 7";

/// A configuration with all of them; the files lie in `directory`.
pub(super) fn house(directory: &std::path::Path, collector: &Collector) -> Setup {
    let path = |name: &str| directory.join(name).to_str().expect("UTF-8").to_owned();
    std::fs::write(path("hook.js"), SAYS).expect("a hook");
    std::fs::write(path("secret"), FILE).expect("a file");
    let script = format!("#!/bin/sh\nprintf '{{\"X-Minted\":\"Bearer {MINTED}\"}}'\n");
    std::fs::write(path("mint"), script).expect("a script");
    std::fs::set_permissions(path("mint"), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    setup()
        .toml(&format!(
            "{}headers = {{ Authorization = \"Bearer {{env:COLLECTOR_SECRET}}\" }}\n",
            collector.toml()
        ))
        .toml(&format!("[hooks]\nfiles = [{:?}]\nenv = [\"HOOK_SECRET\"]\n", path("hook.js")))
        .server("dies", &["sh", "-c", DIES], "env = { SERVER_SECRET = \"{env:SERVER_SECRET}\" }")
}

/// Further lines of a server that is reached by HTTP.
pub(super) fn headers(directory: &std::path::Path) -> String {
    let path = |name: &str| directory.join(name).to_str().expect("UTF-8").to_owned();
    format!(
        "headers = {{ Authorization = \"Bearer {{env:HEADER_SECRET}}\", X-File = \"{{file:{}}}\" }}\nheaders_command = [{:?}]",
        path("secret"),
        path("mint")
    )
}
