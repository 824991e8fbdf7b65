//! Ports of the box that lead to sockets of the daemon.
//!
//! ```text
//! accepted ─▶ dialled ─▶ asked: what the port says goes to the daemon, and is kept ──first byte of an answer──▶ spliced
//!               ▲                              │
//!               └── the daemon went before it had read all of it: late, not lost ──┘
//! ```
//!
//! A daemon that restarts leaves no socket, or one that nobody listens on, or connections that it never looked at. Who
//! made a request then waits until the next one has answered it. A daemon that has read the whole of a request may have
//! acted on it, so that one is not sent again: the connection ends, and whoever asked knows best what to do. A model is
//! another matter: a question that it has not begun to answer is asked again, which costs time and changes nothing.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use bridge::{MODEL, code, file_name};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::args::Carried;
use crate::race::{First, race};
use crate::splice::{BUFFER, splice};

/// Connections of one port at once. More wait in the kernel.
const MOST: usize = 256;
/// How long a daemon may be away.
const AWAY: Duration = Duration::from_secs(10);
/// Between two tries, at first and at most.
const TRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));
/// What is kept of a request until its answer begins. More than a prompt usually has; a longer one is not sent again.
const KEPT: usize = 256 << 10;
/// Out of descriptors, most likely: those who hold them are given time to finish.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    socket: Arc<PathBuf>,
    /// What was read and not answered may be asked again.
    again: bool,
}

impl Port {
    pub(crate) async fn bind(carried: &Carried, sockets: &Path) -> Result<Self, Failure> {
        let Carried { port, name } = carried;
        let bound = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port)).await;
        let listener = bound.map_err(|error| Failure {
            code: if error.kind() == ErrorKind::AddrInUse { code::TAKEN } else { code::SYSTEM },
            message: format!("could not listen on 127.0.0.1:{port} for {name}: {error}"),
        })?;
        let socket = Arc::new(sockets.join(file_name(name)));
        Ok(Self { listener, socket, again: name == MODEL })
    }

    pub(crate) async fn serve(self, tasks: Tasks) {
        let places = Arc::new(Semaphore::new(MOST));
        // Nobody closes it.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match self.listener.accept().await {
                Ok((port, _)) => {
                    let (socket, again) = (Arc::clone(&self.socket), self.again);
                    tasks.spawn(async move {
                        // Whoever is on the other side of it sees that it ended; there is nobody else to tell.
                        let _ended = carry(port, &socket, again).await;
                        drop(place);
                    });
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

async fn carry(mut port: TcpStream, socket: &Path, again: bool) -> io::Result<()> {
    port.set_nodelay(true)?;
    let mut asked = Asked { again, ..Asked::default() };
    let mut patience = Patience::default();
    loop {
        let mut daemon = match UnixStream::connect(socket).await {
            Ok(daemon) => daemon,
            Err(error) => {
                patience.wait(error).await?;
                continue;
            }
        };
        match asked.put(&mut port, &mut daemon).await? {
            Heard::Answer(first) => {
                let unsent = asked.kept.split_off(asked.sent);
                drop(asked);
                return splice(&mut daemon, &mut port, &first, &unsent).await;
            }
            Heard::Lost(error) => patience.wait(error).await?,
        }
        asked.sent = 0;
    }
}

/// How much longer a daemon that is away is waited for.
#[derive(Debug, Default)]
struct Patience {
    until: Option<Instant>,
    next: Duration,
}

impl Patience {
    async fn wait(&mut self, error: io::Error) -> io::Result<()> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + AWAY);
        self.next = (self.next * 2).clamp(TRY.0, TRY.1);
        if Instant::now() + self.next > until {
            return Err(error);
        }
        sleep(self.next).await;
        Ok(())
    }
}

/// What the port has said so far, all of it.
#[derive(Debug, Default)]
struct Asked {
    kept: Vec<u8>,
    /// How much of it the daemon was handed.
    sent: usize,
    /// The port has nothing more to say.
    ended: bool,
    /// All of it may be said again where no answer has begun.
    again: bool,
}

#[derive(Debug)]
enum Heard {
    /// It can be passed on from here: the first bytes of an answer, or none where it is not kept any more.
    Answer(Vec<u8>),
    /// The daemon cannot have read all that was said.
    Lost(io::Error),
}

impl Asked {
    async fn put(&mut self, port: &mut TcpStream, daemon: &mut UnixStream) -> io::Result<Heard> {
        let mut buffer = vec![0; BUFFER];
        let mut told = false;
        loop {
            if self.kept.len() > KEPT {
                return Ok(Heard::Answer(Vec::new()));
            }
            if self.ended && self.sent == self.kept.len() && !told {
                told = true;
                let _seen_by_the_read = daemon.shutdown().await;
            }
            match race(self.more(port, daemon), daemon.readable()).await {
                First::Left(Ok(())) => {}
                First::Left(Err(More::Port(error))) => return Err(error),
                // It may have answered before it went, without waiting for the rest.
                First::Left(Err(More::Daemon(error))) => match daemon.try_read(&mut buffer) {
                    Ok(read) if read > 0 => {
                        buffer.truncate(read);
                        return Ok(Heard::Answer(buffer));
                    }
                    Ok(_) | Err(_) => return Ok(Heard::Lost(error)),
                },
                First::Right(ready) => {
                    ready?;
                    match daemon.try_read(&mut buffer) {
                        Ok(0) if self.sent < self.kept.len() || self.may_ask_again() => {
                            return Ok(Heard::Lost(ErrorKind::BrokenPipe.into()));
                        }
                        Ok(read) => {
                            buffer.truncate(read);
                            return Ok(Heard::Answer(buffer));
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        // The kernel says so where something was left unread, or nobody had accepted.
                        Err(error) => return Ok(Heard::Lost(error)),
                    }
                }
            }
        }
    }

    /// Whoever asked is still there, and has asked for something.
    fn may_ask_again(&self) -> bool {
        self.again && !self.ended && !self.kept.is_empty()
    }

    /// One step: something is handed to the daemon, or heard from the port.
    async fn more(&mut self, port: &mut TcpStream, daemon: &UnixStream) -> Result<(), More> {
        if self.sent < self.kept.len() {
            daemon.writable().await.map_err(More::Daemon)?;
            match daemon.try_write(&self.kept[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(More::Daemon(error)),
            }
        } else if self.ended {
            std::future::pending::<()>().await;
        } else {
            self.kept.reserve(BUFFER);
            let read = port.read_buf(&mut self.kept).await.map_err(More::Port)?;
            self.ended = read == 0;
        }
        Ok(())
    }
}

#[derive(Debug)]
enum More {
    Port(io::Error),
    Daemon(io::Error),
}
