//! A state directory, its `callsign mcp` processes, and the daemon that they share.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::harness::{alive, kill};

use crate::support::CALLSIGN;

/// A key as an entry would hold it. It must not turn up anywhere.
pub(super) const KEY: &str = "sk-CANARY-entry-1f9c2d";

/// Removed on drop, after its daemon was ended.
pub(super) struct Place {
    directory: TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("callsign-").tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("home")).expect("a home");
        Self { directory }
    }

    pub(super) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.state().join("daemon.sock")
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.state().join("daemon.log")).unwrap_or_default()
    }

    /// `callsign ARGS…` in an environment as a host would give it, in a process group of its own.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CALLSIGN);
        command.args(arguments).current_dir(self.path()).env_clear();
        command.env("HOME", self.path().join("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("MCP_STATE_DIR", self.state()).env("MCP_OPENCODE_API_KEY", KEY);
        command.env("CODEX_THREAD_ID", "thread-of-whoever-came-first").env("CLAUDECODE", "1");
        command.env("KEPT_FOR_THE_DAEMON", "yes");
        command.process_group(0);
        command
    }

    pub(super) fn mcp(&self) -> Host {
        Host::start(self.command(&["mcp"]))
    }

    /// What `daemon.json` says.
    pub(super) fn daemon(&self) -> Value {
        let text = std::fs::read_to_string(self.state().join("daemon.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(super) fn daemon_pid(&self) -> u32 {
        let pid = self.daemon()["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.unwrap_or_else(|| panic!("no daemon runs:\n{}", self.log()))
    }

    /// Processes that serve this state directory, their helpers aside.
    pub(super) fn daemons(&self) -> Vec<u32> {
        let state = self.state();
        let state = state.to_str().expect("UTF-8");
        let entries = std::fs::read_dir("/proc").expect("/proc");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let words = read("cmdline");
            let words: Vec<_> = words.split(|byte| *byte == 0).collect();
            let serves = words.get(1).is_some_and(|word| *word == b"serve");
            serves && words.contains(&state.as_bytes()) && read("comm") != b"callsign-spawn\n" && alive(*pid)
        })
        .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.daemons() {
            kill(pid, Signal::SIGTERM);
            let deadline = Instant::now() + Duration::from_secs(10);
            while alive(pid) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            kill(pid, Signal::SIGKILL);
        }
    }
}

/// A host that speaks to `callsign mcp` over bare pipes.
pub(super) struct Host {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Host {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("mcp starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    pub(super) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{message}").expect("mcp reads");
    }

    /// `initialize`, whatever comes back: somebody was reached.
    pub(super) fn initialize(&mut self) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } } }));
        let answer = self.answer();
        assert_eq!(answer["id"], 1, "{answer}");
        answer
    }

    pub(super) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("mcp answers");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer: {line:?}"))
    }

    /// SIGKILL for all of its group, as a host in a hurry does it.
    pub(super) fn kill_group(&mut self) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        nix::sys::signal::killpg(Pid::from_raw(pid), Signal::SIGKILL).expect("the group is there");
        self.child.wait().expect("it ends");
    }

    /// End of input, and the exit code.
    pub(super) fn end(&mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().ok().and_then(|status| status.code())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.input = None;
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
