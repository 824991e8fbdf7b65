//! stdio: the server directly against the server behind `callsign wrap`.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ring::hmac;
use tempfile::TempDir;

use super::echo::{Latencies, initialize, read};
use super::load::Outcome;
use super::usage::{self, Usage};
use crate::process::Program;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    /// Behind `wrap`, called by nobody in particular.
    Bare,
    /// Called by somebody, as Codex says it, and unsigned.
    Known,
    /// The same, signed.
    Signed,
    /// Called by somebody, as our OpenCode plugin says it, and signed.
    Sealed,
}

/// What is started.
pub(super) struct Piping<'a> {
    pub(super) callsign: &'a Path,
    pub(super) echo: &'a Path,
}

impl Piping<'_> {
    fn command(&self, way: Way, state: &Path) -> Command {
        if way == Way::Direct {
            let mut command = Command::new(self.echo);
            command.arg("--stdio");
            return command;
        }
        let mut command = Command::new(self.callsign);
        // Without a state directory there are no keys to sign with.
        let state = if way == Way::Known { Path::new("/dev/null/none") } else { state };
        command.arg("--state-dir").arg(state).args(["wrap", "--name", "bench", "--"]);
        command.arg(self.echo).arg("--stdio");
        if way == Way::Sealed {
            command.env("CALLSIGN_SEAL_KEY", BASE64.encode(SEAL_KEY));
        }
        command
    }
}

const SEAL_KEY: [u8; 32] = [7; 32];

/// A call as the host of this way makes it. Made outside of what is measured.
fn call(way: Way, id: u64, text: &str) -> Vec<u8> {
    let (meta, sealed) = match way {
        Way::Direct | Way::Bare => (String::new(), String::new()),
        Way::Known | Way::Signed => (codex_meta(id), String::new()),
        Way::Sealed => (String::new(), format!(r#","__callsign":"{}""#, seal(id))),
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{meta}"name":"echo","arguments":{{"text":"{text}"{sealed}}}}}}}"#
    )
    .into_bytes()
}

fn codex_meta(id: u64) -> String {
    let thread = "01a1e081-d381-7130-b22b-a8c348eb1dfc";
    format!(
        r#""_meta":{{"callId":"call_{id}","x-codex-turn-metadata":{{"session_id":"{thread}","thread_id":"{thread}","model":"m","turn_id":"01a1e081-d42f-70d2-bca1-7664220a3a29","turn_started_at_unix_ms":1794767967347,"thread_source":"user","turn_trigger":"exec","sandbox":"none","codex_version":"0.166.0"}},"threadId":"{thread}","sessionId":"{thread}","windowId":"{thread}:0","itemId":"fc_{id}","progressToken":{id}}},"#
    )
}

fn seal(id: u64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    let payload = format!(
        r#"{{"session":"ses_e1f660ae2ffeZQ8u0lDn5Vd0aK","call":"call_{id}","title":"A session that is measured","directory":"/","tool":"bench_echo","at":{now},"nonce":"{id:024}"}}"#
    );
    let signed = format!("v1.{}", BASE64.encode(payload));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &SEAL_KEY);
    format!("{signed}.{}", BASE64.encode(hmac::sign(&key, signed.as_bytes())))
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
    way: Way,
    _state: TempDir,
    /// From the spawn to the answer to `initialize`.
    pub(super) started: Duration,
}

impl Pipe {
    pub(super) fn open(piping: &Piping<'_>, way: Way) -> Result<Self> {
        let state = TempDir::with_prefix("callsign-bench-")?;
        let mut command = piping.command(way, state.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let start = Instant::now();
        let mut program = Program::start("stdio", &mut command)?;
        let stdin = program.child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(program.child.stdout.take().context("no stdout")?);
        let (line, started) = (Vec::new(), Duration::ZERO);
        let mut pipe = Self { program, stdin, stdout, line, next: 1, way, _state: state, started };
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
        let message = call(self.way, id, &text);
        open.insert(id, (text, Instant::now()));
        self.write(message)
    }
}
