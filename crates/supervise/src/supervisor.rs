//! The process between the spawner and one main child: reports on the child, and ends it with all its descendants.
//!
//! Single-threaded, without exec, all signals blocked. It waits for three things at once: its control socket, SIGCHLD
//! and the launch pipe, which closes when the main child's exec succeeds and otherwise carries one `Failed` record.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, getpid, pipe2, setsid};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::child::{Stdio, become_program};
use crate::fork::fork_into;
use crate::phase::{Event, Phase};
use crate::proc::{close_others, signal_children};
use crate::reap::{ChildWatch, Left};
use crate::wire::{self, Record, Step};

/// The descriptors that came with one byte from the owner.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) control: UnixStream,
    pub(crate) stdio: Stdio,
}

/// The body of a supervisor. Returns 0 if no descendant is left; after anything else the spawner looks for strays.
pub(crate) fn run(job: Job) -> i32 {
    let Job { control, stdio } = job;
    let kept = [control.as_fd(), stdio.stdin.as_fd(), stdio.stdout.as_fd(), stdio.stderr.as_fd()];
    match prepare(&kept).and_then(|children| Supervisor::launch(&control, stdio, children)) {
        Ok(mut supervisor) => {
            supervisor.control = Some(control);
            i32::from(supervisor.supervise().is_err())
        }
        Err(error) => {
            report(&control, refusal(&error));
            0
        }
    }
}

fn prepare(kept: &[BorrowedFd<'_>]) -> io::Result<ChildWatch> {
    close_others(kept)?;
    setsid()?;
    set_child_subreaper(true)?;
    set_name(c"callsign-sup")?;
    Ok(ChildWatch::new()?)
}

/// Never blocks. If the owner is gone, there is nobody to tell.
pub(crate) fn report(control: &UnixStream, record: Record) {
    let _ = send(control, &record.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// What the owner is told when no process could be made.
pub(crate) fn refusal(error: &io::Error) -> Record {
    Record::Failed { step: Step::Process, errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw) }
}

struct Supervisor {
    /// None once the owner has let go.
    control: Option<UnixStream>,
    children: ChildWatch,
    main_child: Pid,
    launch: Launch,
    phase: Phase,
}

enum Launch {
    Pending(File),
    Started,
    Failed,
}

impl Supervisor {
    /// Blocks until the owner has written the request; there is nothing to supervise yet.
    fn launch(control: &UnixStream, stdio: Stdio, children: ChildWatch) -> io::Result<Self> {
        let request = wire::read_request(control)?;
        let (receiver, sender) = pipe2(OFlag::O_CLOEXEC)?;
        let supervisor = getpid();
        // The pipes move into the child: this process is left without a copy.
        let main_child = fork_into(move || {
            let (step, errno) = become_program(&request, &stdio, supervisor);
            drop(File::from(sender).write_all(&Record::Failed { step, errno }.encode()));
            127
        })?;
        let launch = Launch::Pending(receiver.into());
        Ok(Self { control: None, children, main_child, launch, phase: Phase::Running })
    }

    /// Returns when the kernel says that no child is left.
    fn supervise(mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            if ready.launch {
                self.settle_launch();
            }
            if ready.control
                && let Some(event) = self.read_command()
            {
                self.step(event)?;
            }
            let (left, main_status) = self.reap()?;
            if let Some(status) = main_status {
                self.settle_launch();
                self.report_exit(status);
            }
            if left == Left::Nobody {
                return Ok(());
            }
            if main_status.is_some() {
                self.step(Event::MainExited)?;
            }
            if self.phase.deadline().is_some_and(|until| until <= Instant::now()) {
                self.step(Event::Elapsed)?;
            }
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let timeout = self.phase.deadline().map_or(PollTimeout::NONE, |until| {
            // Rounded up, so as not to wake just before the deadline.
            let left = until.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let readable = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let launch = match &self.launch {
            Launch::Pending(receiver) => Some(receiver.as_fd()),
            Launch::Started | Launch::Failed => None,
        };
        let control = self.control.as_ref().map(AsFd::as_fd);
        let mut watched = vec![readable(self.children.descriptor().as_fd())];
        watched.extend(launch.map(readable));
        watched.extend(control.map(readable));
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut events = watched.iter().skip(1).map(|descriptor| descriptor.any() == Some(true));
        Ok(Ready {
            launch: launch.is_some() && events.next() == Some(true),
            control: control.is_some() && events.next() == Some(true),
        })
    }

    /// Reports how exec went, once. Also called when the main child has died, the only writer: never blocks then.
    fn settle_launch(&mut self) {
        let Launch::Pending(receiver) = &mut self.launch else { return };
        let mut bytes = [0; Record::SIZE];
        let failure = receiver.read_exact(&mut bytes).ok().and_then(|()| Record::decode(bytes));
        self.launch = if failure.is_some() { Launch::Failed } else { Launch::Started };
        self.report(failure.unwrap_or(Record::Started { pid: self.main_child.as_raw() }));
    }

    fn report_exit(&self, status: WaitStatus) {
        match (&self.launch, status) {
            (Launch::Started, WaitStatus::Exited(_, code)) => self.report(Record::ExitedCode(code)),
            (Launch::Started, WaitStatus::Signaled(_, signal, _)) => {
                self.report(Record::ExitedSignal(signal as i32));
            }
            // A failed launch was reported as such; no other status ends a process.
            (Launch::Started | Launch::Failed | Launch::Pending(_), _) => {}
        }
    }

    fn report(&self, record: Record) {
        if let Some(control) = &self.control {
            report(control, record);
        }
    }

    /// One byte at a time, so that none is lost between two events.
    fn read_command(&mut self) -> Option<Event> {
        let mut byte = [0; 1];
        let received = recv(self.control.as_ref()?, &mut byte, RecvFlags::DONTWAIT);
        match received.map(|(_, length)| (length, byte)) {
            Ok((1.., [wire::TERMINATE])) => Some(Event::Terminate),
            Ok((1.., [wire::KILL])) => Some(Event::Kill),
            Ok((1.., _)) => None,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            // Not only EOF: an owner that dies with unread records leaves ECONNRESET.
            Ok((0, _)) | Err(_) => {
                self.control = None;
                Some(Event::OwnerGone)
            }
        }
    }

    fn reap(&self) -> nix::Result<(Left, Option<WaitStatus>)> {
        let mut main_status = None;
        let left = self.children.reap(|status| {
            if status.pid() == Some(self.main_child) {
                main_status = Some(status);
            }
        })?;
        Ok((left, main_status))
    }

    fn step(&mut self, event: Event) -> io::Result<()> {
        let (phase, signal) = self.phase.next(event, Instant::now());
        self.phase = phase;
        signal.map_or(Ok(()), signal_children)
    }
}

struct Ready {
    launch: bool,
    control: bool,
}
