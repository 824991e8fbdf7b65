//! `headers_command`: headers that a program prints, for each caller its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;
use testkit::client::{Client, Era};
use testkit::harness::{Gateway, HttpServer};

use crate::support::{CODEX, call_as, codex, header, log_file, messages, name_of, named, setup, whoami_as};

/// Prints the caller in a header and notes each run; three threads are trouble.
const MINT: &str = r#"#!/bin/sh
echo "${CALLSIGN_THREAD_ID:-nobody}" >> "$0.runs"
case "$CALLSIGN_THREAD_ID" in
    fails) echo "the vault is closed" >&2; exit 3;;
    prints-nothing) exit 0;;
    forges-ours) echo '{"Callsign-Session":"EVIL"}';;
    forges-ours-differently) echo '{"CALLSIGN_thread":"EVIL"}';;
    forges-the-protocols) echo '{"Mcp-Session-Id":"EVIL"}';;
    breaks-lines) printf '{"X-Minted":"a\\r\\nX-Evil: 1"}';;
    *) printf '{"X-Minted":"secret-of-%s","Authorization":"Bearer minted"}' "${CALLSIGN_THREAD_ID:-nobody}";;
esac
"#;

struct Rig {
    gateway: Gateway,
    _server: HttpServer,
    directory: tempfile::TempDir,
    log: String,
}

impl Rig {
    async fn new(more: &str) -> Self {
        let (directory, log) = log_file();
        let script = directory.path().join("mint");
        std::fs::write(&script, MINT).expect("a script");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let server = HttpServer::start("logging-server", &["--log", &log]);
        let more = format!("headers_command = [\"{}\"]\n{more}", script.display());
        let gateway = setup().url("echo", &server.url, &more).serve().await;
        Self { gateway, _server: server, directory, log }
    }

    async fn client(&self) -> Client {
        let client = self.gateway.client("echo", Era::Legacy);
        client.connect_with(named(CODEX)).await.expect("connected");
        client
    }

    /// How often it was run for this caller.
    fn runs(&self, thread: &str) -> usize {
        let runs = std::fs::read_to_string(self.directory.path().join("mint.runs")).unwrap_or_default();
        runs.lines().filter(|line| *line == thread).count()
    }

    fn log(&self) -> &Path {
        self.log.as_ref()
    }
}

#[tokio::test]
async fn every_caller_has_headers_of_its_own_and_they_are_kept() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    for _ in 0..3 {
        for thread in ["one", "two"] {
            let whoami = whoami_as(&client, &codex(thread)).await;
            assert_eq!(header(&whoami, "x-minted"), [format!("secret-of-{thread}")]);
            assert_eq!(header(&whoami, "authorization"), ["Bearer minted"]);
        }
        let whoami = whoami_as(&client, &json!({})).await;
        assert_eq!(header(&whoami, "x-minted"), ["secret-of-nobody"]);
    }
    assert_eq!([rig.runs("one"), rig.runs("two"), rig.runs("nobody")], [1, 1, 1], "kept for a minute");
    let log = rig.gateway.log();
    assert!(!log.contains("secret-of") && !log.contains("minted"), "what it prints is secret:\n{log}");
}

#[tokio::test]
async fn nothing_is_kept_where_nothing_is_to_be_kept() {
    let rig = Rig::new("cache_seconds = 0").await;
    let client = rig.client().await;
    for _ in 0..3 {
        whoami_as(&client, &codex("one")).await;
    }
    assert_eq!(rig.runs("one"), 3);
}

#[tokio::test]
async fn a_program_that_fails_or_takes_what_is_not_its_own_stops_the_call() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    let rows = [
        ("fails", "the vault is closed"),
        ("prints-nothing", "JSON"),
        ("forges-ours", "Callsign-Session"),
        ("forges-ours-differently", "CALLSIGN_thread"),
        ("forges-the-protocols", "Mcp-Session-Id"),
        ("breaks-lines", "X-Minted"),
    ];
    for (thread, says) in rows {
        let failure =
            call_as(&client, &codex(thread), "echo", json!({})).await.expect_err("no headers, no call");
        assert_eq!(name_of(&failure), "headers_command_failed", "{thread}: {failure:?}");
        assert!(failure.text().contains(says), "{thread}: {}", failure.text());
    }
    assert!(messages(rig.log(), "tools/call").is_empty(), "the server was not called");
    let text = std::fs::read_to_string(rig.log()).expect("a log");
    assert!(!text.contains("EVIL"), "{text}");
    // The next caller is served.
    assert!(call_as(&client, &codex("one"), "echo", json!({})).await.is_ok());
}
