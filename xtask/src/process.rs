//! Starting programs so that they end with us.
//!
//! Short commands (`run`, `output`) stay in our process group, long ones (`Program`) lead their own, so that
//! whatever they start can be ended with them. All are in one list, which a signal to us works through.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

static LIVE: LazyLock<Mutex<Live>> = LazyLock::new(Mutex::default);

/// Set when a signal has come: the thread that got it ends everything and then the process.
static ENDING: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct Live {
    commands: BTreeSet<i32>,
    groups: BTreeSet<i32>,
    /// Network namespaces to remove.
    namespaces: BTreeSet<String>,
}

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on SIGINT, SIGTERM and SIGHUP end every program started here, then us.
pub(crate) fn end_children_on_signals() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        ENDING.store(true, Ordering::SeqCst);
        end_everything();
        leave();
    })?;
    Ok(())
}

/// Does not return once a signal has come: a main thread that leaves first, because its child has just been ended,
/// would cut the cleaning short.
pub(crate) fn stay_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

#[expect(
    clippy::exit,
    reason = "the main thread waits for a child that we have just ended; nothing is left to unwind"
)]
fn leave() {
    std::process::exit(130)
}

fn end_everything() {
    let Live { commands, groups, namespaces } = std::mem::take(&mut *live());
    for pid in commands.iter().chain(&groups) {
        kill(Pid::from_raw(*pid), Signal::SIGTERM).ok();
    }
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline && groups.iter().any(|pid| alive(*pid)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    for pid in groups {
        kill(Pid::from_raw(-pid), Signal::SIGKILL).ok();
    }
    for name in namespaces {
        Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status().ok();
    }
}

/// Whether a process is there and more than a zombie.
pub(crate) fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z')))
}

/// Runs a command to its end with our own stdin, stdout and stderr.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = wait(command, None)?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// As `run`; a command that has not ended by the deadline is ended, which is an error.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<()> {
    let status = wait(command, Some(limit))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// What a command writes to stdout; its stderr is part of the error if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed ({}): {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn wait(command: &mut Command, limit: Option<Duration>) -> Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("could not start `{}`", shown(command)))?;
    let pid = child.id().cast_signed();
    live().commands.insert(pid);
    let result = match limit {
        None => child.wait().map_err(Into::into),
        Some(limit) => wait_until(&mut child, Instant::now() + limit).and_then(|status| {
            status.map_or_else(
                || {
                    child.kill()?;
                    child.wait()?;
                    bail!("`{}` did not end within {} s", shown(command), limit.as_secs())
                },
                Ok,
            )
        }),
    };
    live().commands.remove(&pid);
    result
}

fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// A program that runs beside us until it is stopped or dropped, with everything in its process group.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    pub(crate) child: Child,
}

impl Program {
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name}: could not start `{}`", shown(command)))?;
        live().groups.insert(child.id().cast_signed());
        Ok(Self { name: name.to_owned(), child })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// An error if the program has ended already.
    pub(crate) fn still_runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status})", self.name),
        }
    }

    /// SIGTERM, then up to `grace` to end by itself, then SIGKILL to its whole group.
    pub(crate) fn stop(&mut self, grace: Duration) -> Result<Ended> {
        let pid = self.pid();
        if !live().groups.remove(&pid) {
            return Ok(Ended::ByItself);
        }
        kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
        let ended = wait_until(&mut self.child, Instant::now() + grace)?;
        kill(Pid::from_raw(-pid), Signal::SIGKILL).ok();
        if ended.is_some() {
            return Ok(Ended::ByItself);
        }
        self.child.wait()?;
        Ok(Ended::Killed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    ByItself,
    Killed,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(3)).ok();
    }
}

/// A network namespace of our own with nothing but loopback in it.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    /// Needs root.
    pub(crate) fn create() -> Result<Self> {
        let name = format!("callsign-bench-{}", std::process::id());
        output(Command::new("ip").args(["netns", "add", &name]))
            .context("could not make a network namespace")?;
        live().namespaces.insert(name.clone());
        let namespace = Self { name };
        output(namespace.command("ip").args(["link", "set", "lo", "up"]))?;
        Ok(namespace)
    }

    /// A command that runs inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        live().namespaces.remove(&self.name);
        Command::new("ip").args(["netns", "del", &self.name]).status().ok();
    }
}
