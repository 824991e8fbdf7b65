//! Waiting for children, as the spawner and the supervisors do it.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// Readable when a child has ended. SIGCHLD must be blocked.
pub(crate) struct ChildWatch(SignalFd);

impl ChildWatch {
    pub(crate) fn new() -> nix::Result<Self> {
        let mut sigchld = SigSet::empty();
        sigchld.add(Signal::SIGCHLD);
        SignalFd::with_flags(&sigchld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    pub(crate) fn descriptor(&self) -> &SignalFd {
        &self.0
    }

    /// Reaps every child that has ended, and reports each.
    ///
    /// Forgets the signal first: a child that ends after that makes the descriptor readable again.
    pub(crate) fn reap(&self, mut ended: impl FnMut(WaitStatus)) -> nix::Result<Left> {
        while self.0.read_signal()?.is_some() {}
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return Ok(Left::Somebody),
                Ok(status) => ended(status),
                Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return Ok(Left::Nobody),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Whether the kernel still knows a child of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nobody,
    Somebody,
}
