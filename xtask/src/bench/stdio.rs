//! stdio: the server directly against the server behind `callsign wrap`.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::echo::{Latencies, call, initialize, read};
use super::load::Outcome;
use super::usage::{self, Usage};
use crate::process::Program;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Wrap,
}

pub(super) fn command(way: Way, callsign: &Path, echo: &Path) -> Command {
    match way {
        Way::Direct => {
            let mut command = Command::new(echo);
            command.arg("--stdio");
            command
        }
        Way::Wrap => {
            let mut command = Command::new(callsign);
            command.args(["wrap", "--"]).arg(echo).arg("--stdio");
            command
        }
    }
}

/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends a process group unless it is dropped in time. Costs the measured loop nothing, unlike a timeout per read.
struct Watchdog {
    /// Dropping it tells the thread that all is well.
    _alive: std::sync::mpsc::Sender<()>,
}

impl Watchdog {
    fn start(pid: i32, limit: Duration) -> Self {
        let (alive, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            if told.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                kill(Pid::from_raw(-pid), Signal::SIGKILL).ok();
            }
        });
        Self { _alive: alive }
    }
}

/// One connection over pipes.
pub(super) struct Pipe {
    program: Program,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    next: u64,
    /// From the spawn to the answer to `initialize`.
    pub(super) started: Duration,
}

impl Pipe {
    pub(super) fn open(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let start = Instant::now();
        let mut program = Program::start("stdio", command)?;
        let stdin = program.child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(program.child.stdout.take().context("no stdout")?);
        let mut pipe = Self { program, stdin, stdout, line: Vec::new(), next: 1, started: Duration::ZERO };
        pipe.write(initialize())?;
        pipe.read()?;
        pipe.started = start.elapsed();
        anyhow::ensure!(
            memchr::memmem::find(&pipe.line, b"protocolVersion").is_some(),
            "initialize was answered {}",
            String::from_utf8_lossy(&pipe.line)
        );
        pipe.write(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec())?;
        Ok(pipe)
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        usage::measure(self.program.pid())
    }

    fn write(&mut self, mut message: Vec<u8>) -> Result<()> {
        message.push(b'\n');
        self.stdin.write_all(&message).context("it does not read its stdin")
    }

    fn read(&mut self) -> Result<()> {
        self.line.clear();
        anyhow::ensure!(self.stdout.read_until(b'\n', &mut self.line)? > 0, "it closed its stdout");
        Ok(())
    }

    /// Keeps `depth` calls in flight for a time. A lost answer is an error, for the watchdog ends the program.
    pub(super) fn load(&mut self, depth: usize, seconds: f64) -> Result<Outcome> {
        let _watchdog = Watchdog::start(self.program.pid(), Duration::from_secs_f64(seconds) + PATIENCE);
        let mut open: HashMap<u64, (String, Instant)> = HashMap::new();
        let mut latencies = Latencies::default();
        let mut outcome = Outcome { seconds, ..Outcome::default() };
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        for _ in 0..depth {
            self.send(&mut open)?;
        }
        while !open.is_empty() {
            self.read()?;
            let now = Instant::now();
            match read(&self.line).and_then(|(id, text)| Some((open.remove(&id)?, text))) {
                Some(((expected, sent), text)) if expected == text => {
                    if now < end {
                        latencies.add(now - sent);
                    }
                }
                found => {
                    outcome.wrong += 1;
                    let line = String::from_utf8_lossy(&self.line).into_owned();
                    outcome.sample.get_or_insert(line);
                    anyhow::ensure!(found.is_some() || outcome.wrong < 100, "{:?}", outcome.sample);
                }
            }
            if now < end {
                self.send(&mut open)?;
            }
        }
        outcome.calls = latencies.count();
        (outcome.p50_us, outcome.p99_us) = latencies.percentiles();
        Ok(outcome)
    }

    fn send(&mut self, open: &mut HashMap<u64, (String, Instant)>) -> Result<()> {
        let id = self.next;
        self.next += 1;
        let text = format!("call {id} of {}", std::process::id());
        let message = call("echo", id, &text);
        open.insert(id, (text, Instant::now()));
        self.write(message)
    }
}
