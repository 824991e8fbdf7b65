//! Connections into one box, taken from those that its bridge keeps lying here.
//!
//! ```text
//! control.sock ─▶ serve ─▶ idle (64, the oldest goes) ─▶ take ──`AGENT`, `EVENTS path`, `FRESH path`──▶ `OK`: the stream is the caller's
//!                              ▲                                 │                        `NO reason`: refused
//!                              └──── gone, or spoke unasked: the next one ────┘
//! ```
//!
//! Anything in the box can connect here and lie. It gets what the bridge would have got: words of ours, and requests to
//! the agent of its own session.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge::{AGENT, EVENTS, FRESH, NO, OK, is_path};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

/// A bridge keeps two. More come from somebody else, or from bridges that are gone.
const MOST_IDLE: usize = 64;
/// How long a bridge may take to answer one word: it has only its own loopback to ask.
const ANSWER: Duration = Duration::from_secs(2);
/// A reason, in bytes.
const LONGEST_REASON: usize = 256;
/// Out of descriptors, most likely: those who hold them are given time to finish.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Hub {
    listener: UnixListener,
    idle: Mutex<VecDeque<UnixStream>>,
    arrived: Notify,
}

/// What an answer to a word was.
enum Said {
    Ok,
    No(String),
}

impl Hub {
    /// Within a runtime. Nothing arrives before somebody polls `serve`.
    pub fn new(listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { listener, idle: Mutex::default(), arrived: Notify::new() })
    }

    /// Accepts connections, for ever.
    pub async fn serve(&self) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let mut idle = self.idle();
                    // Those of a box that has ended are not kept until somebody asks.
                    idle.retain(is_quiet);
                    idle.push_back(stream);
                    if idle.len() > MOST_IDLE {
                        idle.pop_front();
                    }
                    drop(idle);
                    self.arrived.notify_one();
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// How many connections lie here.
    pub fn idle_count(&self) -> usize {
        self.idle().len()
    }

    /// A connection to the agent's port.
    ///
    /// | error | means |
    /// | --- | --- |
    /// | `NotConnected` | nothing arrived: no bridge is there |
    /// | `ConnectionRefused` | the bridge is there, the agent is not; it says why |
    /// | `TimedOut` | something is there and does not answer |
    pub async fn open(&self, within: Duration) -> io::Result<UnixStream> {
        self.ask(AGENT, within).await
    }

    /// The agent's events, as bytes: whole ones, first those that nobody took. Whoever took them before gets no more.
    ///
    /// Errors as in `open`; a path that cannot be asked for is `InvalidInput`.
    pub async fn events(&self, path: &str, within: Duration) -> io::Result<UnixStream> {
        self.ask_for(EVENTS, path, within).await
    }

    /// As `events`, without those that nobody took.
    pub async fn fresh_events(&self, path: &str, within: Duration) -> io::Result<UnixStream> {
        self.ask_for(FRESH, path, within).await
    }

    async fn ask_for(&self, word: &str, path: &str, within: Duration) -> io::Result<UnixStream> {
        if !is_path(path) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "events have no such path"));
        }
        self.ask(&format!("{word} {path}"), within).await
    }

    async fn ask(&self, word: &str, within: Duration) -> io::Result<UnixStream> {
        let until = Instant::now() + within;
        let mut seen = false;
        loop {
            let Some(mut stream) = self.take(until).await else {
                return Err(if seen {
                    io::Error::new(ErrorKind::TimedOut, "what is in the box does not answer")
                } else {
                    io::Error::new(ErrorKind::NotConnected, "nothing arrived from the box")
                });
            };
            let limit = until.min(Instant::now() + ANSWER);
            match timeout_at(limit, say(&mut stream, word)).await {
                Ok(Ok(Said::Ok)) => return Ok(stream),
                Ok(Ok(Said::No(reason))) => {
                    return Err(io::Error::new(ErrorKind::ConnectionRefused, Refused(reason)));
                }
                // It died while it lay here; so did its bridge, or it was never one.
                Ok(Err(_)) => {}
                Err(_late) => seen = true,
            }
        }
    }

    /// The oldest that is alive; nothing if none came in time.
    async fn take(&self, until: Instant) -> Option<UnixStream> {
        while Instant::now() < until {
            let waits = self.arrived.notified();
            let found = {
                let mut idle = self.idle();
                idle.retain(is_quiet);
                idle.pop_front()
            };
            if found.is_some() {
                return found;
            }
            timeout_at(until, waits).await.ok()?;
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<UnixStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it may be taken: there, and without a word. Who speaks unasked is no bridge.
fn is_quiet(stream: &UnixStream) -> bool {
    matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

async fn say(stream: &mut UnixStream, word: &str) -> io::Result<Said> {
    stream.write_all(format!("{word}\n").as_bytes()).await?;
    // Byte by byte: what follows the line belongs to the caller.
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            byte if line.len() < LONGEST_REASON => line.push(byte),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
    if line == OK.as_bytes() {
        return Ok(Said::Ok);
    }
    let reason = line.strip_prefix(NO.as_bytes()).ok_or(ErrorKind::InvalidData)?;
    Ok(Said::No(plain(reason)))
}

/// It goes into logs, and comes out of a box.
fn plain(reason: &[u8]) -> String {
    String::from_utf8_lossy(reason).chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
}

/// What the bridge said.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the bridge did not reach the agent: {}", self.0)
    }
}

impl std::error::Error for Refused {}
