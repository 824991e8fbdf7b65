//! The same commands and `callsign doctor` with what is really there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::harness::{alive, kill};

use super::fake::Printed;
use crate::support::{CALLSIGN, SOON};

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("callsign-").tempdir().expect("a directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Printed {
        let mut command = Command::new(CALLSIGN);
        command.args(arguments).env_clear().current_dir(self.path());
        let bin = self.path().join("bin");
        command.env("HOME", self.path()).env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command.env("CALLSIGN_STATE_DIR", self.path().join("state"));
        Printed::of(command.envs(variables.iter().copied()).output().expect("callsign runs"))
    }

    fn daemon(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.path().join("state/daemon.json")).ok()?;
        let daemon: Value = serde_json::from_str(&text).ok()?;
        u32::try_from(daemon["pid"].as_u64()?).ok()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(pid) = self.daemon() else { return };
        kill(pid, Signal::SIGTERM);
        let deadline = Instant::now() + 2 * SOON;
        while alive(pid) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_daemon_is_started_for_whoever_asks_and_is_there_for_the_next() {
    let home = Home::new();
    let sessions = home.run(&["sessions", "--json"], &[]).json();
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(0), "{sessions}");
    let daemon = home.daemon().expect("a daemon runs");
    home.run(&["runs", "nobody"], &[]).failed(2, &["no session"]);
    home.run(&["logs", "run_01k00000000000000000000000"], &[]).failed(2, &["no run"]);
    home.run(&["logs", "run_01k00000000000000000000000", "--follow"], &[]).failed(2, &["no run"]);
    home.run(&["runs", "sn_01k00000000000000000000000"], &[]).failed(2, &["no session"]);
    home.run(&["artifacts", "read", "sn_01k00000000000000000000000/x"], &[]).failed(2, &["no artifact"]);
    assert_eq!(home.daemon(), Some(daemon));
    let report = home.run(&["doctor", "--json"], &[]).json();
    assert_eq!(report["sessions"]["daemon"]["pid"], daemon);
}

#[test]
fn the_doctor_looks_at_what_sessions_need() {
    let home = Home::new();
    let report = home.run(&["doctor", "--json"], &[]).json();
    let sessions = &report["sessions"];
    assert_eq!((&sessions["opencode"], &sessions["daemon"]), (&Value::Null, &Value::Null));
    assert_eq!(sessions["provider"]["name"], "ollama");
    let notes = sessions["findings"].to_string();
    assert!(notes.contains("npm install -g opencode-ai@"), "{notes}");
    for limit in ["memory", "pids", "cpus", "disk", "syscalls"] {
        let how = sessions["box"]["limits"][limit].as_str().unwrap_or_default();
        assert!(["enforced", "watched", "absent"].contains(&how), "{limit}: {sessions}");
    }
    assert!(!home.path().join("state").exists(), "who only looks makes nothing");

    // A program of this machine, in the place of OpenCode's.
    std::fs::create_dir(home.path().join("bin")).expect("a directory");
    let program = home.path().join("bin/opencode");
    std::fs::copy("/bin/true", &program).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let found = home.run(&["doctor", "--json"], &[]).json();
    let program = program.canonicalize().expect("it is there");
    assert_eq!(found["sessions"]["opencode"]["program"].as_str(), program.to_str());

    let secret = "sk-CANARY-doctor";
    let wrong = [("MCP_OPENCODE_PROVIDER", "openai"), ("MCP_OPENCODE_API_KEY", secret)];
    let printed = home.run(&["doctor"], &wrong);
    printed.failed(3, &["problem"]);
    assert!(printed.stdout.contains("MCP_OPENCODE_MODEL"), "{}", printed.stdout);
    let right = [wrong[0], wrong[1], ("MCP_OPENCODE_MODEL", "openai/gpt-4.1")];
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let printed = home.run(arguments, &right);
        assert!(printed.ok().contains("openai/gpt-4.1"), "{}", printed.stdout);
        assert!(!printed.stdout.contains(secret) && !printed.stderr.contains(secret));
    }
}
