//! The process that keeps one box: it starts it, holds it to its limits, writes down what it prints, and outlives
//! whoever asked for it.
//!
//! ```text
//! launch   detaches, starts `keep`, ends           so that the keeper is nobody's child
//! keep     takes `keeper.lock`, gives `start.lock` back, starts `stage`, keeps the box, writes how it ended
//! stage    joins the groups, makes the mounts, becomes an unprivileged user, becomes bubblewrap
//! hold     limits a process as the user it runs as, where root may not
//! try      as `stage`, to see whether it can be done at all
//! ```
//!
//! Single-threaded, all signals blocked, subreaper: it ends when the kernel says that it has no child left.
//!
//! SIGTERM asks the command to end, SIGUSR1 ends it. Both are idempotent.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use model::ports::sandbox::{BoxInfo, Cause, Ending, Exit, Hits, Level};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{close, dup2_stdin, setsid};
use rustix::process::Signal;

use crate::bwrap::inside;
use crate::lock::Lock;
use crate::process::{Process, children};
use crate::record::{Job, KeeperCommand, Record, Running, Status};

mod birth;
mod log;
mod stage;
mod watch;

use birth::Born;
use log::Log;
use watch::Watch;

/// How long a command has after SIGTERM if nobody says more.
const GRACE: Duration = Duration::from_secs(30);
/// … and if its owner is gone.
const ORPHAN_STOP: Duration = Duration::from_secs(5);
/// How often the owner and the limits are looked at.
const TICK: Duration = Duration::from_millis(500);
/// While the last processes go.
const SWEEP: Duration = Duration::from_millis(20);

/// The body of a keeper's process: `args` is what follows [`KeeperCommand::args`]. Returns its exit code.
///
/// Call it before anything else runs: it must be the only thread.
pub fn main(args: &[OsString]) -> i32 {
    let [mode, directory, rest @ ..] = args else { return 2 };
    let directory = PathBuf::from(directory);
    let done = match mode.to_str() {
        Some("launch") => launch(&directory),
        Some("keep") => keep(&Record::at(directory)),
        Some("stage") => stage::run(&Record::at(directory), rest),
        Some("hold") => stage::hold(&Record::at(directory), rest),
        Some("try") => stage::attempt(&directory, rest),
        _ => return 2,
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            // The keeper's log in case of a stage, nothing otherwise.
            writeln!(io::stderr(), "callsign: {error}").ok();
            1
        }
    }
}

/// This program once more, also if its file has been replaced since.
fn again(keeper: &KeeperCommand, mode: &str, directory: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(&keeper.args).arg(mode).arg(directory).env_clear();
    command
}

fn launch(directory: &Path) -> io::Result<()> {
    close_others()?;
    setsid()?;
    let job = Record::at(directory.to_owned()).job()?.ok_or_else(|| io::Error::other("there is no job"))?;
    // Standard input is `start.lock`: it passes on.
    again(&job.keeper, "keep", directory).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(())
}

/// Whatever the daemon forgot to mark: no box keeps a socket of the daemon's open.
fn close_others() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in open.into_iter().filter(|&number| number > 2) {
        // The listing's own is in the list, and closed already.
        let _ = close(number);
    }
    Ok(())
}

fn keep(record: &Record) -> io::Result<()> {
    let _ = setsid();
    umask(Mode::from_bits_truncate(0o077));
    SigSet::all().thread_block()?;
    set_child_subreaper(true)?;
    set_name(c"callsign-box")?;
    let Some(lock) = Lock::try_take(&record.keeper_lock())? else { return Ok(()) };
    let own = i32::try_from(std::process::id()).ok().and_then(Process::of);
    lock.file().set_len(0)?;
    lock.file().write_all(&serde_json::to_vec(&own)?)?;
    // From here on whoever starts the box finds this keeper.
    dup2_stdin(File::open("/dev/null")?)?;
    let job = record.job()?.ok_or_else(|| io::Error::other("there is no job"))?;
    let ending = match Keeper::start(&job, record) {
        Ok(keeper) => keeper.run(),
        Err(message) => not_started(message),
    };
    if let Some(groups) = &job.plan.groups {
        groups.remove();
    }
    record.write_status(&Status::Ended(ending))
}

fn not_started(message: String) -> Ending {
    Ending { cause: Cause::NotStarted, exit: Exit::Unknown, hits: Hits::default(), message: Some(message) }
}

/// How far the box is on the way to its end.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Running,
    /// Asked to end; ended at the given moment.
    Stopping(Instant),
    /// Nothing is left to ask.
    Killing,
}

struct Keeper<'a> {
    record: &'a Record,
    job: &'a Job,
    signals: SignalFd,
    output: Option<OwnedFd>,
    log: Log,
    /// What this process started: bubblewrap, or the command itself.
    outer: i32,
    /// Set when `outer` has ended.
    exit: Option<Exit>,
    command: Process,
    running: Running,
    watch: Watch,
    phase: Phase,
    /// Why the box ends, if not by itself.
    cause: Option<Cause>,
    next_tick: Instant,
}

impl<'a> Keeper<'a> {
    /// Returns when the command runs.
    fn start(job: &'a Job, record: &'a Record) -> Result<Self, String> {
        let mut wanted = SigSet::empty();
        for signal in [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGUSR1] {
            wanted.add(signal);
        }
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|errno| errno.to_string())?;
        let mut log =
            Log::open(record.log()).map_err(|error| format!("its log cannot be written: {error}"))?;
        let Born { output, outer, init, command, exit } = birth::bear(job, record, &mut log)?;
        let info = BoxInfo {
            name: job.spec.name.clone(),
            level: job.plan.level,
            holds: job.plan.holds,
            inside: match job.plan.level {
                Level::Bubblewrap | Level::Container => inside(&job.spec),
                Level::Nothing => model::ports::sandbox::Inside {
                    workspace: job.spec.workspace.clone(),
                    meta: job.spec.meta.clone(),
                    sockets: job.spec.sockets.clone(),
                },
            },
            log: record.log(),
            labels: job.spec.labels.clone(),
            hits: Hits::default(),
        };
        let running = Running { init, info, disk: None };
        let watch = Watch::new(job, init);
        let (phase, next_tick) = (Phase::Running, Instant::now());
        let cause = None;
        let output = Some(output);
        let keeper = Self {
            record,
            job,
            signals,
            output,
            log,
            outer,
            exit,
            command,
            running,
            watch,
            phase,
            cause,
            next_tick,
        };
        keeper.tell().map_err(|error| format!("its status cannot be written: {error}"))?;
        Ok(keeper)
    }

    /// Returns when no process of the box is left.
    fn run(mut self) -> Ending {
        while self.reap() {
            if self.exit.is_some() {
                // The command has ended: whatever it left behind goes as well.
                self.phase = Phase::Killing;
            }
            match self.phase {
                Phase::Running => {}
                Phase::Stopping(until) if Instant::now() < until => {}
                Phase::Stopping(_) | Phase::Killing => self.kill(),
            }
            if Instant::now() >= self.next_tick {
                self.next_tick = Instant::now() + TICK;
                self.tick();
            }
            self.count();
            self.wait();
        }
        self.drain();
        self.look_at_groups();
        self.ending()
    }

    fn ending(self) -> Ending {
        let exit = self.exit.unwrap_or(Exit::Unknown);
        let hits = self.running.info.hits;
        let killed = exit == Exit::Signal(NixSignal::SIGKILL as i32);
        let cause =
            self.cause.unwrap_or(if killed && hits.memory > 0 { Cause::Memory } else { Cause::Exited });
        Ending { cause, exit, hits, message: self.log.tail() }
    }

    fn tell(&self) -> io::Result<()> {
        self.record.write_status(&Status::Running(self.running.clone()))
    }

    /// Waits for anything: a signal, output, the next tick.
    fn wait(&mut self) {
        let until = match self.phase {
            _ if self.watch.is_counting() => Instant::now(),
            Phase::Running => self.next_tick,
            Phase::Stopping(until) => until.min(self.next_tick),
            Phase::Killing => Instant::now() + SWEEP,
        };
        // Rounded up, so as not to wake just before.
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = if left == 0 && !self.watch.is_counting() { 1 } else { left };
        let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        watched.extend(self.output.as_ref().map(|output| PollFd::new(output.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut watched, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        self.drain();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            match NixSignal::try_from(signal.ssi_signo.cast_signed()) {
                Ok(NixSignal::SIGTERM) => self.stop(Cause::Asked, GRACE),
                Ok(NixSignal::SIGUSR1) => {
                    self.cause.get_or_insert(Cause::Asked);
                    self.phase = Phase::Killing;
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Asks the command to end.
    fn stop(&mut self, cause: Cause, grace: Duration) {
        if matches!(self.phase, Phase::Running) {
            self.cause.get_or_insert(cause);
            self.command.signal(Signal::TERM);
            self.phase = Phase::Stopping(Instant::now() + grace);
        }
    }

    /// Ends everything that is left; called until it is gone.
    fn kill(&self) {
        // The init of a process namespace takes all others along.
        self.running.init.signal(Signal::KILL);
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        for child in children(own) {
            // A child that was not waited for keeps its number.
            if let Some(process) = Process::of(child) {
                process.signal(Signal::KILL);
            }
        }
    }

    /// False when the kernel knows no child of this process any more.
    fn reap(&mut self) -> bool {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(status) => self.note(status),
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        if status.pid().map(nix::unistd::Pid::as_raw) == Some(self.outer) {
            self.exit = birth::exit(self.job.plan.level, status).or(self.exit);
        }
    }

    fn drain(&mut self) {
        let Some(output) = &self.output else { return };
        if self.log.take_from(output) == log::End::Closed {
            self.output = None;
        }
    }

    fn tick(&mut self) {
        if self.watch.orphaned_for(&self.record.owner_lock()) > self.job.spec.orphan_grace {
            self.stop(Cause::Orphaned, ORPHAN_STOP);
        }
        self.look_at_groups();
        let before = self.running.info.hits;
        if let Some(cause) = self.watch.look(&mut self.running.info.hits) {
            self.cause.get_or_insert(cause);
            self.phase = Phase::Killing;
        }
        if before != self.running.info.hits {
            // The next change will be told if this one could not.
            self.tell().ok();
        }
    }

    fn look_at_groups(&mut self) {
        let Some(groups) = &self.job.plan.groups else { return };
        let (memory, pids) = groups.hits();
        let hits = &mut self.running.info.hits;
        let before = *hits;
        hits.memory = hits.memory.max(memory);
        hits.pids = hits.pids.max(pids);
        if before != *hits {
            self.tell().ok();
        }
    }

    /// Goes on counting what the box has on disk.
    fn count(&mut self) {
        let Some(bytes) = self.watch.count() else { return };
        if self.running.disk != Some(bytes) {
            self.running.disk = Some(bytes);
            self.tell().ok();
        }
        if self.job.spec.limits.disk.is_some_and(|most| bytes > most) && self.cause.is_none() {
            self.running.info.hits.disk += 1;
            self.cause = Some(Cause::Disk);
            self.phase = Phase::Killing;
        }
    }
}
