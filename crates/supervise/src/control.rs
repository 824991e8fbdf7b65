//! The owner's end of a control socket.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;

use nix::unistd::Pid;
use rustix::net::{SendFlags, send};
use tokio::net::UnixStream;

use crate::error::StartError;
use crate::wire::{self, Record, Step};

/// How a main child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
    /// The program never started, or the supervisor died before it could tell. Nothing runs in either case.
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
            Self::Unknown => write!(formatter, "an unknown exit status"),
        }
    }
}

/// Follows and ends one child. Dropping it ends the child and all its descendants: 1 s to leave by itself, then
/// SIGTERM, 2 s, SIGKILL.
///
/// All async methods are cancel-safe, and return the same again when called again.
#[derive(Debug)]
pub struct Control {
    stream: UnixStream,
    /// For messages only.
    program: String,
    cwd: Option<PathBuf>,
    /// The part of a record that has arrived, kept here so that a cancelled future loses nothing.
    partial: Vec<u8>,
    start: Start,
    /// Set with the `Exited` record, or at the end of the stream.
    exit: Option<ExitStatus>,
    /// Set at the end of the stream: the supervisor is gone, and it goes last.
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Pending,
    Started(Pid),
    Failed(Step, nix::errno::Errno),
    Vanished,
}

impl Control {
    pub(crate) fn new(stream: StdStream, program: String, cwd: Option<PathBuf>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        Ok(Self {
            stream,
            program,
            cwd,
            partial: Vec::new(),
            start: Start::Pending,
            exit: None,
            ended: false,
        })
    }

    /// Waits until the program runs, or is known not to.
    pub async fn started(&mut self) -> Result<Pid, StartError> {
        while matches!(self.start, Start::Pending) {
            self.advance().await;
        }
        let program = self.program.clone();
        match self.start {
            Start::Started(pid) => Ok(pid),
            Start::Failed(Step::Program, errno) => Err(StartError::Program { program, errno }),
            Start::Failed(Step::WorkingDirectory, errno) => Err(StartError::WorkingDirectory {
                program,
                cwd: self.cwd.clone().unwrap_or_default(),
                errno,
            }),
            Start::Failed(Step::Process, errno) => Err(StartError::Process { program, errno }),
            Start::Pending | Start::Vanished => Err(StartError::Vanished { program }),
        }
    }

    /// Waits for the end of the main child. Its descendants may live on for up to 1 s; see [`Self::gone`].
    pub async fn exited(&mut self) -> ExitStatus {
        loop {
            if let Some(exit) = self.exit {
                return exit;
            }
            self.advance().await;
        }
    }

    /// Waits until neither the main child nor any descendant nor the supervisor is left.
    pub async fn gone(&mut self) {
        while !self.ended {
            self.advance().await;
        }
    }

    /// SIGTERM now; SIGKILL after 2 s for whoever is left. Idempotent, and nothing to a child that has ended.
    pub fn terminate(&self) {
        self.command(wire::TERMINATE);
    }

    /// SIGKILL for the main child and every descendant.
    pub fn kill(&self) {
        self.command(wire::KILL);
    }

    /// An error means that the supervisor has gone (nothing to do) or that hundreds of commands are still unread.
    fn command(&self, byte: u8) {
        let _ = send(&self.stream, &[byte], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Takes in what the socket has, waiting until it has something.
    async fn advance(&mut self) {
        let mut bytes = [0; Record::SIZE];
        let wanted = Record::SIZE - self.partial.len();
        let outcome = match self.stream.readable().await {
            Ok(()) => self.stream.try_read(&mut bytes[..wanted]),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(1..) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return;
            }
            Ok(0) | Err(_) => return self.end(),
        }
        self.partial.extend(bytes.iter().take(outcome.unwrap_or(0)));
        if let Ok(record) = <[u8; Record::SIZE]>::try_from(self.partial.as_slice()) {
            self.partial.clear();
            self.apply(record);
        }
    }

    fn apply(&mut self, record: [u8; Record::SIZE]) {
        match Record::decode(record) {
            Some(Record::Started { pid }) => self.start = Start::Started(Pid::from_raw(pid)),
            Some(Record::Failed { step, errno }) => self.start = Start::Failed(step, errno),
            Some(Record::ExitedCode(code)) => self.exit = Some(ExitStatus::Code(code)),
            Some(Record::ExitedSignal(signal)) => self.exit = Some(ExitStatus::Signal(signal)),
            None => {}
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.exit.get_or_insert(ExitStatus::Unknown);
        if matches!(self.start, Start::Pending) {
            self.start = Start::Vanished;
        }
    }
}
