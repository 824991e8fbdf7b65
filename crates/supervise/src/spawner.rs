//! The process that forks supervisors: tiny and single-threaded, because it left the owner before the owner grew.
//!
//! All signals are blocked, so that a host's SIGINT, SIGHUP or SIGTERM does not end it before its supervisors.

use std::collections::BTreeSet;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, getppid, setsid};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::child::Stdio;
use crate::fork::fork_into;
use crate::proc::{children, close_others, stdio_to_null};
use crate::reap::{ChildWatch, Left};
use crate::supervisor::{self, Job, refusal, report};

/// Supervisors end within 3 s of the owner. One that has not by now is stopped or stuck.
const PATIENCE: Duration = Duration::from_secs(4);
/// The list of children may miss one while others come and go, so a clean sweep is repeated this often …
const CLEAN_SWEEPS: u8 = 5;
/// … and this far apart.
const SWEEP: Duration = Duration::from_millis(50);
/// How often to look whether the owner lives, once its socket has closed.
const LOOK: Duration = Duration::from_millis(200);

/// The body of the spawner. Tells the owner first whether it could set itself up: an errno, or 0.
pub(crate) fn run(mut socket: UnixStream, owner: Pid) -> i32 {
    let prepared = prepare(&socket);
    let answer =
        prepared.as_ref().map_or_else(|error| error.raw_os_error().unwrap_or(Errno::EIO as i32), |_| 0);
    let told = socket.write_all(&answer.to_le_bytes());
    match (prepared, told) {
        (Ok(watch), Ok(())) => i32::from(Spawner::new(socket, owner, watch).serve().is_err()),
        (Err(_), _) | (_, Err(_)) => 1,
    }
}

fn prepare(socket: &UnixStream) -> io::Result<ChildWatch> {
    SigSet::all().thread_block()?;
    setsid()?;
    stdio_to_null()?;
    close_others(&[socket.as_fd()])?;
    set_child_subreaper(true)?;
    set_name(c"callsign-spawn")?;
    Ok(ChildWatch::new()?)
}

struct Spawner {
    /// None once the owner has closed it; then this process ends with its last child.
    socket: Option<UnixStream>,
    owner: Pid,
    watch: ChildWatch,
    supervisors: BTreeSet<Pid>,
    /// Above 0 while there may be children that are not supervisors.
    sweeps: u8,
    /// When the owner was first found dead.
    orphaned: Option<Instant>,
}

impl Spawner {
    fn new(socket: UnixStream, owner: Pid, watch: ChildWatch) -> Self {
        Self { socket: Some(socket), owner, watch, supervisors: BTreeSet::new(), sweeps: 0, orphaned: None }
    }

    fn serve(mut self) -> io::Result<()> {
        loop {
            if self.wait()? {
                self.read_job();
            }
            if self.reap()? == Left::Nobody && self.socket.is_none() {
                return Ok(());
            }
            if self.sweeps > 0 {
                self.sweep()?;
            }
            self.check_owner();
        }
    }

    /// Waits for anything; true if the socket has something.
    fn wait(&self) -> io::Result<bool> {
        let timeout = match &self.socket {
            _ if self.sweeps > 0 => Some(SWEEP),
            None => Some(LOOK),
            Some(_) => None,
        };
        let timeout =
            timeout.and_then(|timeout| PollTimeout::try_from(timeout).ok()).unwrap_or(PollTimeout::NONE);
        let mut watched = vec![PollFd::new(self.watch.descriptor().as_fd(), PollFlags::POLLIN)];
        watched.extend(self.socket.as_ref().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(watched.get(1).is_some_and(|socket| socket.any() == Some(true)))
    }

    fn read_job(&mut self) {
        let Some(socket) = &self.socket else { return };
        match receive(socket) {
            Ok(Received::Job(job)) => self.start(job),
            Ok(Received::Incomplete) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Received::End) | Err(_) => self.socket = None,
        }
    }

    fn start(&mut self, job: Job) {
        // Kept only to say that the fork failed.
        let control = job.control.try_clone();
        match (fork_into(move || supervisor::run(job)), control) {
            (Ok(supervisor), _) => drop(self.supervisors.insert(supervisor)),
            (Err(error), Ok(control)) => report(&control, refusal(&error)),
            (Err(_), Err(_)) => {}
        }
    }

    /// A supervisor that ends with code 0 has left nobody. After any other end its descendants are now ours.
    fn reap(&mut self) -> nix::Result<Left> {
        let Self { watch, supervisors, sweeps, .. } = self;
        let left = watch.reap(|status| {
            let known = status.pid().is_some_and(|pid| supervisors.remove(&pid));
            if !known || !matches!(status, WaitStatus::Exited(_, 0)) {
                *sweeps = CLEAN_SWEEPS;
            }
        })?;
        // Without supervisors, whoever is left is a stray, however it came here.
        if left == Left::Somebody && supervisors.is_empty() {
            *sweeps = CLEAN_SWEEPS;
        }
        Ok(left)
    }

    /// Kills every child that is no supervisor. Their children become ours in turn, and die in the next sweep.
    fn sweep(&mut self) -> io::Result<()> {
        self.sweeps -= 1;
        for child in children()? {
            if !self.supervisors.contains(&child) && kill(child, Signal::SIGKILL).is_ok() {
                self.sweeps = CLEAN_SWEEPS;
            }
        }
        Ok(())
    }

    /// An owner that only dropped its `Spawner` may keep its children; one that is dead may not.
    fn check_owner(&mut self) {
        if self.socket.is_some() || getppid() == self.owner {
            return;
        }
        let since = *self.orphaned.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            // Their main children die with them, and the rest becomes ours to sweep.
            for &supervisor in &self.supervisors {
                let _ = kill(supervisor, Signal::SIGKILL);
            }
        }
    }
}

enum Received {
    Job(Job),
    /// Some descriptors did not arrive, which closes those that did: the owner sees EOF on its control socket.
    Incomplete,
    End,
}

/// One byte is one job: the kernel never joins bytes that carry descriptors of different messages.
fn receive(socket: &UnixStream) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(Received::End);
    }
    let mut received: Vec<OwnedFd> = Vec::with_capacity(4);
    for item in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = item {
            received.extend(descriptors);
        }
    }
    let Ok([control, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(received) else {
        return Ok(Received::Incomplete);
    };
    Ok(Received::Job(Job { control: control.into(), stdio: Stdio { stdin, stdout, stderr } }))
}
