//! What a box is closed to, and whom its calls are taken for: seen from inside, by what an agent runs there.
//!
//! ```text
//! the test ── script, input ─▶ /workspace ─▶ the agent's shell runs it in the box ─▶ answers in /workspace ─▶ the test
//!          └─ the same script, outside: what is closed in the box is open here, or the probe shows nothing
//! ```
//!
//! Every test here is of whatever makes the boxes in this run.

mod calls;
mod forged;
mod inside;
mod limits;
mod plugin;
mod restarted;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{Client, Rig, bash, text};

/// `tables` stand before `[sessions]`, `lines` in it.
fn rig(tables: &str, lines: &str) -> Rig {
    Rig::with(&format!("{tables}\n[sessions]\n{lines}"))
}

/// Both keys of these tests begin so.
const KEYS: &str = "sk-CANARY";
/// The key that one session was made with; the daemon's own environment has another.
const OWN_KEY: &str = "sk-CANARY-of-the-session-5d1e";
/// Put where something has to be found.
const DECOY: &str = "sk-DECOY-41c0";
/// The interpreter of the system: others may lie where a box has nothing.
const PYTHON: &str = "/usr/bin/python3";

/// A session, and what the test knows of it.
#[derive(Debug, Clone)]
struct Lodging {
    id: String,
    workspace: PathBuf,
}

impl Lodging {
    fn new(client: &Client, key: &str) -> Self {
        let id = client.create(key);
        let workspace = PathBuf::from(text(&client.session(&id)["workspace"]));
        Self { id, workspace }
    }

    /// What is written down of its box: the token, the password and the key for seals. The box knows them.
    fn access(&self, rig: &Rig) -> Value {
        let path = rig.state().join("sessions").join(&self.id).join("access.json");
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Places a script with its input; the command that runs it in the box.
    fn place(&self, name: &str, script: &str, input: &Value) -> String {
        fs::write(self.workspace.join(format!("{name}.py")), script).expect("a person places files there");
        fs::write(self.workspace.join(format!("{name}.in")), input.to_string()).expect("a file");
        let file = |kind: &str| format!("/workspace/{name}.{kind}");
        format!("{PYTHON} {} {} {} 2>&1", file("py"), file("in"), file("out"))
    }

    /// What a script that was placed answered.
    #[track_caller]
    fn answers(&self, name: &str) -> Value {
        let path = self.workspace.join(format!("{name}.out"));
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Has the agent run a script; what it answered.
    #[track_caller]
    fn run(&self, client: &Client, name: &str, script: &str, input: &Value) -> Value {
        let command = self.place(name, script, input);
        let run = client.submit(&self.id, json!([bash(&command), { "text": "it ran" }]));
        let ended = client.wait(&self.id, &run, Duration::from_mins(3));
        assert_eq!(ended["status"], "completed", "{ended}\n{}", client.log(&run));
        assert!(self.workspace.join(format!("{name}.out")).is_file(), "no answers:\n{}", client.log(&run));
        self.answers(name)
    }
}

/// The same outside of any box, after these words.
#[track_caller]
fn outside(directory: &Path, before: &[&str], script: &str, input: &Value) -> Value {
    let [program, asked, answers] = ["probe.py", "probe.in", "probe.out"].map(|name| directory.join(name));
    fs::write(&program, script).expect("a file");
    fs::write(&asked, input.to_string()).expect("a file");
    let words: Vec<&str> = before.iter().copied().chain([PYTHON]).collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .args([&program, &asked, &answers])
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let bytes = fs::read(&answers).unwrap_or_else(|error| panic!("{error}: {said}"));
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Where the daemon listens for everybody.
fn daemon_address(rig: &Rig) -> String {
    let bytes = fs::read(rig.state().join("daemon.json")).expect("a daemon");
    let daemon: Value = serde_json::from_slice(&bytes).expect("JSON");
    text(&daemon["url"]).trim_start_matches("http://").trim_end_matches('/').to_owned()
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
