//! The Inspector's command line: each call starts a `callsign mcp` of its own, and all find the same session.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Tools, walk};
use crate::rig::{CALLSIGN, Rig};

struct Inspector<'a> {
    rig: &'a Rig,
    era: &'static str,
}

impl<'a> Inspector<'a> {
    /// With an entry as people have it in a file.
    fn new(rig: &'a Rig, era: &'static str) -> Self {
        let entry = json!({
            "type": "stdio",
            "command": CALLSIGN,
            "args": ["mcp", "--config", rig.config(), "--state-dir", rig.state()],
            "env": rig.variables(),
        });
        std::fs::write(
            rig.path().join("mcp.json"),
            json!({ "mcpServers": { "sessions": entry } }).to_string(),
        )
        .expect("a file");
        Self { rig, era }
    }
}

impl Tools for Inspector<'_> {
    async fn ask(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let modules = tools().join("node_modules");
        let launcher = modules.join("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
        assert!(launcher.is_file(), "{} is missing: install it with `cargo xtask tools`", launcher.display());
        let mut command = tokio::process::Command::new(modules.join(".bin/node"));
        command.arg(launcher).args([
            "--cli",
            "--format",
            "json",
            "-q",
            "--protocol-era",
            self.era,
            "--config",
        ]);
        command.arg(self.rig.path().join("mcp.json")).args([
            "--server",
            "sessions",
            "--method",
            "tools/call",
        ]);
        command.args(["--tool-name", tool, "--tool-args-json", &arguments.to_string()]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.rig.path()).stdin(Stdio::null());
        let output = command.kill_on_drop(true).output().await.expect("the Inspector runs");
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_str(&said).unwrap_or_default();
        let result = &answer["result"];
        if result["isError"] == true {
            return Err(result["structuredContent"]["error"].clone());
        }
        assert!(output.status.success(), "{tool} {arguments}: {}\n{said}\n{errors}", output.status);
        Ok(result["structuredContent"].clone())
    }
}

/// Where `cargo xtask tools` puts it: with the build that runs, else with the workspace.
fn tools() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.ancestors().map(|path| path.join("tools/npm")).find(|path| path.is_dir());
    built.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/npm"))
}

#[tokio::test]
async fn the_example_workflow_in_the_inspectors_old_era() {
    let rig = Rig::new();
    walk(&rig, &Inspector::new(&rig, "legacy")).await;
}

#[tokio::test]
async fn the_inspectors_new_era_finds_the_same_session() {
    let mut rig = Rig::new();
    rig.serve();
    let session = rig.client().create("customer-dataset-a");
    let inspector = Inspector::new(&rig, "modern");
    let wanted = json!({ "reuse_key": "customer-dataset-a" });
    let answer = inspector.get("create_or_reuse_session", wanted).await;
    assert_eq!((&answer["session"]["id"], &answer["session"]["reused"]), (&json!(session), &json!(true)));
    let error = inspector.ask("submit_task", json!({ "session_id": "ses_nobody", "task": "x" })).await;
    let error = error.expect_err("there is no such session");
    assert_eq!(error["code"], "no_session", "{error}");
}
