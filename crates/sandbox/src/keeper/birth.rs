//! From a job to a running command: the stage is started, bubblewrap says which process is the box's first, that one is
//! held to its limits while it waits, and then let go.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use model::ports::sandbox::{Exit, Level};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, write};
use rustix::process::Signal;

use super::log::{Log, without_waiting};
use super::{again, stage::limit_processes};
use crate::process::{Process, children};
use crate::record::{Job, Record};

/// For each step. A machine that swaps is slow; one that takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);

pub(super) struct Born {
    pub(super) output: OwnedFd,
    pub(super) outer: i32,
    /// The first process of the box, which takes all others along.
    pub(super) init: Process,
    pub(super) command: Process,
    /// If it has ended already.
    pub(super) exit: Option<Exit>,
}

/// An error is a message for a person; then nothing is left.
pub(super) fn bear(job: &Job, record: &Record, log: &mut Log) -> Result<Born, String> {
    if let Some(groups) = &job.plan.groups {
        groups
            .make(&job.spec.limits)
            .map_err(|error| format!("its control group cannot be made: {error}"))?;
    }
    let Staged { output, info, block, outer } = stage(job, record).map_err(|error| error.to_string())?;
    let mut nursery = Nursery { output, outer, log, exit: None };
    let born = match job.plan.level {
        Level::Bubblewrap | Level::Container => nursery.boxed(job, record, (info, block)),
        Level::Nothing => nursery.bare(info),
    };
    match born {
        Ok((init, command)) => Ok(Born { output: nursery.output, outer, init, command, exit: nursery.exit }),
        Err(reason) => Err(nursery.give_up(&reason)),
    }
}

struct Staged {
    output: OwnedFd,
    /// Where bubblewrap says what it made; closed at exec where there is no bubblewrap.
    info: OwnedFd,
    /// What lets the box go when something is written to it.
    block: OwnedFd,
    outer: i32,
}

fn stage(job: &Job, record: &Record) -> io::Result<Staged> {
    let (output, their_output) = pipe2(OFlag::O_CLOEXEC)?;
    let (info, their_info) = pipe2(OFlag::O_CLOEXEC)?;
    let (their_block, block) = pipe2(OFlag::O_CLOEXEC)?;
    without_waiting(&output)?;
    for inherited in [&their_info, &their_block] {
        fcntl(inherited, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    let mut command = again(&job.keeper, "stage", record.directory());
    command.arg(their_info.as_raw_fd().to_string()).arg(their_block.as_raw_fd().to_string());
    command.arg(std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(their_output.try_clone()?).stderr(their_output);
    let child = command.spawn()?;
    let outer = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(Staged { output, info, block, outer })
}

struct Nursery<'a> {
    output: OwnedFd,
    outer: i32,
    log: &'a mut Log,
    exit: Option<Exit>,
}

impl Nursery<'_> {
    fn boxed(
        &mut self,
        job: &Job,
        record: &Record,
        pipes: (OwnedFd, OwnedFd),
    ) -> Result<(Process, Process), String> {
        let (info, block) = pipes;
        let init = Self::first_process(info)?;
        if let Some(most) = job.spec.limits.pids.filter(|_| job.plan.nproc) {
            hold(job, record, init, most)
                .map_err(|error| format!("its processes cannot be limited: {error}"))?;
        }
        write(&block, b"g").map_err(|errno| errno.to_string())?;
        drop(block);
        let before = command_line(init.pid);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            self.drain_and_reap(job.plan.level);
            let first = children(init.pid).into_iter().next().and_then(Process::of);
            if let Some(command) =
                first.filter(|command| command_line(command.pid).is_some_and(|line| Some(line) != before))
            {
                return Ok((init, command));
            }
            match self.exit {
                Some(_) if self.log.tail().is_some_and(|tail| tail.contains("bwrap: ")) => {
                    return Err("its command could not be run".to_owned());
                }
                // It came and went between two looks.
                Some(_) => return Ok((init, init)),
                None => thread::sleep(LOOK),
            }
        }
        Err("its command did not start in time".to_owned())
    }

    /// Without a box the stage becomes the command, which closes the pipe, or says why it does not.
    fn bare(&mut self, info: OwnedFd) -> Result<(Process, Process), String> {
        let said = Self::read_info(info, |_| false)?;
        if !said.is_empty() {
            return Err(said);
        }
        self.drain_and_reap(Level::Nothing);
        let command = Process::of(self.outer);
        match (command, self.exit) {
            (Some(command), _) => Ok((command, command)),
            (None, _) => Err("its command ended at once".to_owned()),
        }
    }

    fn first_process(info: OwnedFd) -> Result<Process, String> {
        let said = Self::read_info(info, |text| text.contains('}'))?;
        let value: serde_json::Value =
            serde_json::from_str(&said).map_err(|_| "bubblewrap made no box".to_owned())?;
        let pid = value.get("child-pid").and_then(serde_json::Value::as_i64);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).ok_or("bubblewrap named no process")?;
        Process::of(pid).ok_or_else(|| "its first process ended at once".to_owned())
    }

    /// Reads until `enough`, or until nobody can write any more.
    fn read_info(info: OwnedFd, enough: impl Fn(&str) -> bool) -> Result<String, String> {
        let until = Instant::now() + PATIENCE;
        let mut pipe = fs::File::from(info);
        let mut text = String::new();
        while !enough(&text) {
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) => return Err("it did not start in time".to_owned()),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            }
            let mut bytes = [0; 512];
            let length = pipe.read(&mut bytes).map_err(|error| error.to_string())?;
            if length == 0 {
                break;
            }
            text.push_str(&String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()));
        }
        Ok(text)
    }

    fn drain_and_reap(&mut self, level: Level) {
        self.log.take_from(&self.output);
        // Only what this process started itself: the rest is the keeper's business, later.
        if let Ok(status) = waitpid(Pid::from_raw(self.outer), Some(WaitPidFlag::WNOHANG)) {
            self.exit = exit(level, status).or(self.exit);
        }
    }

    /// Ends what there is, waits for it, and says what it printed.
    fn give_up(&mut self, reason: &str) -> String {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        loop {
            for child in children(own).into_iter().filter_map(Process::of) {
                child.signal(Signal::KILL);
            }
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => break,
                Ok(WaitStatus::StillAlive) => thread::sleep(LOOK),
                Ok(_) | Err(_) => {}
            }
        }
        self.log.take_from(&self.output);
        self.log.tail().map_or_else(|| reason.to_owned(), |said| format!("{reason}: {said}"))
    }
}

/// Root without `CAP_SYS_RESOURCE`, as in a container, may not do this to another user's process: that user may.
fn hold(job: &Job, record: &Record, init: Process, most: u32) -> io::Result<()> {
    match limit_processes(init, most) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && job.plan.root => {
            let mut command = again(&job.keeper, "hold", record.directory());
            let status = command.arg(serde_json::to_string(&init)?).arg(most.to_string()).status()?;
            if status.success() { Ok(()) } else { Err(error) }
        }
        other => other,
    }
}

fn command_line(pid: i32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|line| !line.is_empty())
}

/// None if the status is no end.
pub(super) fn exit(level: Level, status: WaitStatus) -> Option<Exit> {
    match (status, level) {
        // Bubblewrap's way to say that the command died of a signal.
        (WaitStatus::Exited(_, code @ 129..=192), Level::Bubblewrap) => Some(Exit::Signal(code - 128)),
        (WaitStatus::Exited(_, code), _) => Some(Exit::Code(code)),
        (WaitStatus::Signaled(_, signal, _), _) => Some(Exit::Signal(signal as i32)),
        _ => None,
    }
}
