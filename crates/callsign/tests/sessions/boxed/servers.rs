//! MCP servers outside of the boxes: one on a pipe, one at an address, and one that no box may call. They write down what
//! they are told.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::bin;
use testkit::hosts::{Arrived, arrived};

use crate::rig::Rig;

/// For `[sessions]`.
pub(super) const NAMED: &str = "mcp_servers = [\"std\", \"web\"]\n";

pub(super) struct Servers {
    files: TempDir,
    web: Child,
    url: String,
}

impl Servers {
    pub(super) fn start() -> Self {
        let files = tempfile::Builder::new().prefix("callsign-servers-").tempdir().expect("a directory");
        let mut web = Command::new(bin("logging-server"))
            .args(["--http", "127.0.0.1:0", "--log"])
            .arg(files.path().join("web"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = web.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("where it listens");
        let url = line.trim().trim_start_matches("listening on ").to_owned();
        Self { files, web, url }
    }

    /// `[servers.…]`.
    pub(super) fn tables(&self) -> String {
        let on_pipe = |name: &str| {
            let arguments = ["--stdio".to_owned(), "--log".to_owned(), self.log(name).display().to_string()];
            let (command, arguments) = (Value::from(bin("logging-server")), Value::from(arguments.to_vec()));
            format!("[servers.{name}]\ncommand = {command}\nargs = {arguments}\ncwd = \"{{workspace}}\"\n")
        };
        let (std, hidden) = (on_pipe("std"), on_pipe("hidden"));
        format!("{std}\n{hidden}\n[servers.web]\nurl = {}\n", Value::from(self.url.as_str()))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The tools that were called at a server, as it was told.
    pub(super) fn called(&self, name: &str) -> Vec<Arrived> {
        let mut all = arrived(&self.log(name));
        all.retain(|message| message.method() == "tools/call");
        all
    }

    /// What any server was told, as it came.
    pub(super) fn everything(&self) -> String {
        let read =
            |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        ["std", "web", "hidden"].map(|name| read(&self.log(name))).concat()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.web.kill());
        drop(self.web.wait());
    }
}

/// What a server was told of who calls.
pub(super) fn identity(arrived: &Arrived) -> &Value {
    &arrived.meta()["dev.callsign/identity"]
}

/// Every call of a tool in the ledger.
pub(super) fn ledger(rig: &Rig) -> Vec<Value> {
    let (code, rows, said) = rig.run(&["calls", "--json", "--limit", "0"]);
    assert_eq!(code, Some(0), "{said}");
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    rows.filter(|row| row["method"] == "tools/call" && row["server"] != "sessions").collect()
}
