//! The owner's side: starting the spawner, and asking it for children.

use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::{getpid, pipe2};
use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use tokio::net::unix::pipe;

use crate::control::Control;
use crate::fork::fork_into;
use crate::{spawner, wire};

/// About twenty jobs wait in the socket at most. More would exceed what a user with the usual limit of 1024
/// descriptors may have in flight, and the kernel would refuse them instead of letting the sender wait.
const QUEUE_BYTES: usize = 8 << 10;

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// With a slash: a path, relative to `cwd`. Without: sought in the PATH of `env`.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// The whole environment. Nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// None is the directory in which the owner was when it called [`Spawner::start`].
    pub cwd: Option<PathBuf>,
}

/// A child that has been asked for, and may already run.
#[derive(Debug)]
pub struct Child {
    pub stdin: pipe::Sender,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub control: Control,
}

/// Starts children through a process of its own. Dropping it ends that process, not the children.
///
/// # Synchronization
///
/// `spawn` may be called from many threads at once without a lock: a job is one byte sent by one `sendmsg`, which the
/// kernel neither splits nor mixes with another, and the request that follows goes over the child's own socket.
#[derive(Debug)]
pub struct Spawner {
    socket: UnixStream,
}

impl Spawner {
    /// Call it at the very top of `main`: it fails in a process with more than one thread, and what the owner has
    /// allocated by then stays in the memory of the spawner and of every supervisor.
    pub fn start() -> io::Result<Self> {
        let (mut socket, theirs) = UnixStream::pair()?;
        setsockopt(&socket, sockopt::SndBuf, &QUEUE_BYTES)?;
        let owner = getpid();
        fork_into(move || spawner::run(theirs, owner))?;
        // Only when it has answered does it hold none of our descriptors.
        let mut answer = [0; 4];
        socket.read_exact(&mut answer)?;
        match i32::from_le_bytes(answer) {
            0 => Ok(Self { socket }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Asks for a child; [`Control::started`] says what became of it. Needs a tokio runtime with IO.
    ///
    /// Blocks for a moment, as a fork does: while twenty earlier jobs wait, or while a request of more than 200 KB is
    /// read. Fails if descriptors run out, the spawner is gone, or `command` could not be passed to any program.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        let request = wire::encode(&command)?;
        // Pipes keep the kernel's size of 64 KiB: larger ones use up the user's allowance, after which each new pipe
        // gets two pages.
        let (their_stdin, stdin) = pipe2(OFlag::O_CLOEXEC)?;
        let (stdout, their_stdout) = pipe2(OFlag::O_CLOEXEC)?;
        let (stderr, their_stderr) = pipe2(OFlag::O_CLOEXEC)?;
        let (control, their_control) = UnixStream::pair()?;
        self.send_job(&[their_control.into(), their_stdin, their_stdout, their_stderr])?;
        send_request(&control, &request)?;
        let Command { program, cwd, .. } = command;
        Ok(Child {
            stdin: pipe::Sender::from_owned_fd(stdin)?,
            stdout: pipe::Receiver::from_owned_fd(stdout)?,
            stderr: pipe::Receiver::from_owned_fd(stderr)?,
            control: Control::new(control, program.to_string_lossy().into_owned(), cwd)?,
        })
    }

    fn send_job(&self, descriptors: &[OwnedFd; 4]) -> io::Result<()> {
        let borrowed = descriptors.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(io::Error::other("no room for four descriptors"));
        }
        let job = [IoSlice::new(&[0])];
        retry_on_intr(|| sendmsg(&self.socket, &job, &mut ancillary, SendFlags::NOSIGNAL))?;
        Ok(())
    }
}

fn send_request(control: &UnixStream, mut request: &[u8]) -> io::Result<()> {
    while !request.is_empty() {
        match retry_on_intr(|| send(control, request, SendFlags::NOSIGNAL)) {
            Ok(sent) => request = request.get(sent..).unwrap_or_default(),
            // The supervisor could not be made, or has gone; the records in the socket, or their absence, say why.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
