//! Process 1 of a box: starts COMMAND, reaps whatever is left to it, passes signals on, and ends with COMMAND.
//!
//! ```text
//! running ──COMMAND ends──────────────────────────────▶ its code, or 128 and the signal
//!    └─────nobody comes back──▶ TERM ──5 s──▶ KILL ───▶ 75
//! ```
//!
//! Where it is process 1, the kernel ends the box with it. Where it is not, it is the reaper of its descendants, and
//! ends them itself.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::process::Command;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bridge::code;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getrlimit, kill_process,
    set_child_subreaper, setrlimit, wait,
};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio::time::sleep;

use crate::Failure;
use crate::race::{First, race};

/// What is passed on to COMMAND.
const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// How long COMMAND has after TERM when the box is nobody's.
const GRACE: Duration = Duration::from_secs(5);
/// How long the descendants may take to go once they are killed: one that waits for a disk goes when it can.
const SWEEP: Duration = Duration::from_secs(5);
/// Five ports of 256 connections, 128 of the daemon's, each with two ends, and some.
const DESCRIPTORS: u64 = 4096;
const BETWEEN_SWEEPS: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Init {
    command: Pid,
    children: Arrivals,
    forwarded: Vec<(Signal, Arrivals)>,
}

impl Init {
    pub(crate) fn start(command: &OsStr, args: &[OsString]) -> Result<Self, Failure> {
        let refused = |error: io::Error| Failure::system("could not prepare to start the command", &error);
        // Before it starts: a signal that comes meanwhile is kept and passed on.
        let children = signal(SignalKind::child()).map_err(refused)?;
        let mut forwarded = Vec::with_capacity(FORWARDED.len());
        for one in FORWARDED {
            forwarded.push((one, signal(SignalKind::from_raw(one.as_raw())).map_err(refused)?));
        }
        if !is_first() {
            set_child_subreaper(Some(getpid())).map_err(|errno| refused(errno.into()))?;
        }
        let child = Command::new(command).args(args).spawn().map_err(|error| Failure {
            code: if error.kind() == ErrorKind::NotFound { code::NOT_FOUND } else { code::NOT_STARTED },
            message: format!("could not start {}: {error}", command.display()),
        })?;
        let command = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let command = command.ok_or_else(|| refused(io::Error::other("it has no process id")))?;
        widen();
        Ok(Self { command, children, forwarded })
    }

    /// Returns the exit code, once COMMAND has ended. `orphaned` is ready when nobody owns the box any more.
    pub(crate) async fn wait(mut self, orphaned: impl Future<Output = ()>) -> u8 {
        let first = race(self.ended(), orphaned).await;
        let ended = match first {
            First::Left(status) => code_of(status),
            First::Right(()) => {
                self.send(Signal::TERM);
                let first = race(self.ended(), sleep(GRACE)).await;
                if let First::Right(()) = first {
                    self.send(Signal::KILL);
                    self.ended().await;
                }
                code::ORPHANED
            }
        };
        if !is_first() {
            sweep().await;
        }
        ended
    }

    async fn ended(&mut self) -> WaitStatus {
        loop {
            if let Some(status) = poll_fn(|context| self.step(context)).await {
                return status;
            }
        }
    }

    /// One arrival: signals are passed on, children are reaped.
    fn step(&mut self, context: &mut Context<'_>) -> Poll<Option<WaitStatus>> {
        let mut came = Poll::Pending;
        for at in 0..self.forwarded.len() {
            let (signal, arrivals) = &mut self.forwarded[at];
            let signal = *signal;
            if arrivals.poll_recv(context).is_ready() {
                self.send(signal);
                came = Poll::Ready(None);
            }
        }
        if self.children.poll_recv(context).is_ready() {
            return Poll::Ready(reap(self.command));
        }
        came
    }

    /// The number is COMMAND's as long as it was not reaped, and nobody but `step` reaps.
    fn send(&self, signal: Signal) {
        let _ended = kill_process(self.command, signal);
    }
}

/// All connections that are allowed at once need more descriptors than a process usually may have. COMMAND keeps its
/// limit: it has started.
fn widen() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        // Fewer have to do then: more wait their turn.
        let _refused = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

fn is_first() -> bool {
    getpid() == Pid::INIT
}

fn code_of(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Everybody who has ended. Tells how `command` did, if it is among them.
fn reap(command: Pid) -> Option<WaitStatus> {
    let mut ended = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => ended = Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return ended,
        }
    }
}

/// Ends all descendants. Those of a child that is killed become children of this process, so it goes on until there
/// are none.
async fn sweep() {
    let until = Instant::now() + SWEEP;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) => {}
            Err(_) => return,
        }
        if Instant::now() > until {
            return;
        }
        kill_below(getpid());
        sleep(BETWEEN_SWEEPS).await;
    }
}

/// All of them in one go, not the children alone: one that makes new ones all the time gets no head start.
fn kill_below(top: Pid) {
    let mut parents = vec![top];
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            let _ended = kill_process(child, Signal::KILL);
            parents.push(child);
        }
    }
}

fn children(parent: Pid) -> Vec<Pid> {
    let number = parent.as_raw_nonzero();
    let Ok(threads) = fs::read_dir(format!("/proc/{number}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)));
    }
    found
}
