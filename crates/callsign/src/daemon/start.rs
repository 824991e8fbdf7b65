//! A daemon that somebody needs and nobody has started.
//!
//! ```text
//! mcp ── ensure ──▶ does one answer on the socket? ── yes ──▶ done
//!           │ no: start.lock, and look again
//!           ▼
//!        __daemon   closes what it inherited, leaves the host's session, starts ─▶ serve --socket-only
//!           │ the daemon's pid, and ends            so that the daemon is nobody's child and in nobody's group
//!           ▼
//!        until it answers
//! ```
//!
//! Whoever starts it may be killed at any moment: what is started is a whole daemon or none, and its own lock keeps a
//! second one out.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gateway::environment::{HostEnvironment, PROBE};
use model::server::IDENTITY_VARIABLES;

use super::socket;
use crate::commands::wrap::SEAL_KEY;
use crate::exit::{Code, Failure};
use crate::state::{StateDir, StateError};

/// The first argument of the process that starts a daemon and ends.
pub const DETACH: &str = "__daemon";

const LOCK: &str = "start.lock";
const LOG: &str = "daemon.log";
/// A log that is longer at a start is cut to its end.
const LONGEST_LOG: u64 = 10 << 20;
const KEPT_OF_LOG: u64 = 1 << 20;
/// How much of the log is shown where a daemon does not start.
const SHOWN_LINES: usize = 8;
const SHOWN_BYTES: usize = 4096;
/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// A daemon that was just ending keeps the first one out.
const STARTS: usize = 2;

/// How a daemon is started where none runs.
#[derive(Debug, Clone)]
pub struct Start {
    pub state: StateDir,
    /// Absolute. None: it looks for one itself.
    pub config: Option<PathBuf>,
    /// The daemon's whole environment.
    pub environment: HostEnvironment,
}

impl Start {
    /// With what a daemon may have of our own environment. `key` is the variable that holds the provider's key.
    pub fn new(state: StateDir, config: Option<PathBuf>, key: Option<&str>) -> Self {
        let key = key.filter(|key| !key.starts_with("MCP_")).map(OsStr::new);
        let environment =
            std::env::vars_os().filter(|(name, _)| Some(name.as_os_str()) == key || is_kept(name));
        Self { state, config, environment: HostEnvironment(environment.collect()) }
    }
}

/// Settings of an entry travel with its calls and hold for its sessions only; whoever happened to call first says
/// nothing about anybody else.
fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return true };
    let of_a_host = ["MCP_", "CLAUDE", "OPENCODE", "CODEX_"]
        .iter()
        .any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)));
    let of_a_session = IDENTITY_VARIABLES.iter().any(|(known, _)| *known == name)
        || identity::projection::VARIABLES.iter().any(|(known, _)| *known == name);
    // It is started elsewhere than we were.
    let of_a_place = ["PWD", "OLDPWD"].contains(&name);
    !of_a_host && !of_a_session && !of_a_place && ![SEAL_KEY, PROBE].contains(&name)
}

/// The socket of a daemon that answers, started if need be. Many may ask at once: one is started.
pub async fn ensure(start: &Start) -> anyhow::Result<PathBuf> {
    let socket = socket::path(&start.state);
    if socket::is_well(&socket).await {
        return Ok(socket);
    }
    let until = Instant::now() + PATIENCE;
    let _one_at_a_time = lock(&start.state, until).await?;
    let before = fs::metadata(start.state.file(LOG)).map_or(0, |log| log.len());
    let mut started: Option<u32> = None;
    let mut starts = 0;
    loop {
        if socket::is_well(&socket).await {
            return Ok(socket);
        }
        let is_starting = started.is_some_and(lives);
        // One that starts or ends just now has the lock and does not answer.
        let has_one = is_starting || start.state.is_daemon_locked()?;
        if Instant::now() >= until || starts >= STARTS && !has_one {
            return Err(failed(start, before, has_one).into());
        }
        if !has_one {
            started = Some(launch(start).await?);
            starts += 1;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn lock(state: &StateDir, until: Instant) -> anyhow::Result<File> {
    let file = state.lock_file(LOCK)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(LOOK).await,
            Err(TryLockError::WouldBlock) => {
                let message = "others have been starting a daemon for 30 s, and none answers";
                return Err(Failure::new(Code::State, message).into());
            }
            Err(TryLockError::Error(source)) => {
                return Err(StateError::Lock { path: state.file(LOCK), source }.into());
            }
        }
    }
}

/// Starts a daemon and says which process it is.
async fn launch(start: &Start) -> anyhow::Result<u32> {
    let mut command = tokio::process::Command::new(program());
    command.arg(DETACH).arg(start.state.path()).args(["serve", "--socket-only", "--state-dir"]);
    command.arg(start.state.path());
    if let Some(config) = &start.config {
        command.arg("--config").arg(config);
    }
    command.env_clear().envs(start.environment.0.iter().map(|(name, value)| (name, value)));
    let output = command.stdin(Stdio::null()).output().await.context("could not start a daemon")?;
    let pid = std::str::from_utf8(&output.stdout).ok().and_then(|text| text.trim().parse().ok());
    pid.filter(|_| output.status.success()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Failure::new(Code::State, format!("could not start a daemon: {said}")).into()
    })
}

/// This program, as it lies there now: one that was replaced meanwhile starts the new one.
fn program() -> PathBuf {
    let ours = std::env::current_exe().ok().filter(|path| path.is_file());
    ours.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Nobody may have waited for it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn failed(start: &Start, before: u64, has_one: bool) -> Failure {
    let what = if has_one {
        format!("a daemon runs on {} and does not answer", start.state.path().display())
    } else {
        "the daemon that was started has ended".to_owned()
    };
    let log = start.state.file(LOG);
    let message = match last_words(&log, before) {
        Some(words) => format!("{what}; its last words:\n{words}"),
        None => what,
    };
    let hint = format!("see {}, or start one by hand with `callsign serve`", log.display());
    Failure::new(Code::State, message).with_hint(hint)
}

/// What was written since.
fn last_words(log: &Path, before: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    // A shorter one was cut.
    let from = if before > length { 0 } else { before }.max(length.saturating_sub(SHOWN_BYTES as u64));
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(SHOWN_BYTES as u64).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    (!shown.is_empty()).then(|| shown.join("\n"))
}

/// The body of the process between: `arguments` are a state directory and what to run. It must be the only thread.
pub fn detach(arguments: &[OsString]) -> io::Result<()> {
    let [state, arguments @ ..] = arguments else { return Err(io::ErrorKind::InvalidInput.into()) };
    close_others()?;
    nix::unistd::setsid()?;
    let log = open_log(Path::new(state))?;
    let daemon = Command::new(program())
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    writeln!(io::stdout(), "{}", daemon.id())
}

/// Whatever the host forgot to mark: no daemon keeps a pipe of a host's open.
fn close_others() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in open.into_iter().filter(|&number| number > 2) {
        // The listing's own is in the list, and closed already.
        let _gone = nix::unistd::close(number);
    }
    Ok(())
}

fn open_log(state: &Path) -> io::Result<File> {
    let path = state.join(LOG);
    let mut options = File::options();
    options.read(true).append(true).create(true).mode(0o600);
    let mut log = options.open(&path)?;
    let length = log.metadata()?.len();
    if length > LONGEST_LOG {
        let mut kept = Vec::new();
        log.seek(SeekFrom::Start(length - KEPT_OF_LOG))?;
        log.read_to_end(&mut kept)?;
        // From the beginning of a line.
        let first = kept.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        log.set_len(0)?;
        log.write_all(&kept[first..])?;
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_has_nothing_of_the_host_that_happened_to_start_it() {
        for gone in [
            "MCP_OPENCODE_API_KEY",
            "MCP_STATE_DIR",
            "mcp_anything",
            "CODEX_THREAD_ID",
            "CLAUDECODE",
            "CLAUDE_CODE_SESSION_ID",
            "OPENCODE_SESSION_ID",
            "OPENCODE",
            "AGENT_SESSION_ID",
            "CALLSIGN_SEAL_KEY",
            "CALLSIGN_SESSION_ID",
            "CALLSIGN_PROBE",
            "PWD",
        ] {
            assert!(!is_kept(OsStr::new(gone)), "{gone}");
        }
        for kept in [
            "PATH",
            "HOME",
            "XDG_STATE_HOME",
            "LANG",
            "TMPDIR",
            "OPENAI_API_KEY",
            "CALLSIGN_LISTEN",
            "CALLSIGN_CONFIG",
            "CALLSIGN_STATE_DIR",
            "MCPX",
        ] {
            assert!(is_kept(OsStr::new(kept)), "{kept}");
        }
    }

    #[test]
    fn a_long_log_keeps_its_end_and_a_short_one_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOG);
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut log = open_log(directory.path()).unwrap();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(last_words(&path, 8).as_deref(), Some("three"));
        assert_eq!(last_words(&path, 100).as_deref(), Some("one\ntwo\nthree"));
        assert_eq!(last_words(&path, 14), None);

        fs::write(&path, "0123456789abcde\n".repeat(700_000)).unwrap();
        let mut log = open_log(directory.path()).unwrap();
        log.write_all(b"last\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() <= (1 << 20) + 5 && text.starts_with("0123") && text.ends_with("cde\nlast\n"));
    }
}
