//! The agent's events: one stream that is read as long as the agent lives, whether somebody takes them or not.
//!
//! ```text
//! agent ── GET path ──▶ http.rs: head, chunks ──▶ cut.rs: whole events ──▶ kept.rs: the newest 256 KiB ──▶ the taker
//! ```
//!
//! There is one taker at most: the daemon, or after its restart the next one, which begins with what the last one did
//! not get. A slow one loses the oldest events, and is told how many. One that was killed may not have read what the
//! kernel held for it: that cannot be handed over again without telling some of it twice, so the next is told of it.

mod cut;
mod http;
mod kept;

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::race::{First, race};
use crate::splice::BUFFER;
use cut::Cutter;
use http::Body;
use kept::Kept;

/// What is kept while nobody takes it.
const KEPT: usize = 256 << 10;
/// The largest event. It fits where nothing else is kept.
const LARGEST: usize = KEPT - 1024;
/// Between two tries to open the stream, at first and at most. An agent takes seconds to start.
const TRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How long the agent may take to answer. One that has just begun to listen never answers some of what it is asked
/// first, and all that is asked anew.
const HEAD: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Events {
    agent: u16,
    /// The header that lets us in, with its line's end; or nothing.
    authorization: String,
    state: Mutex<State>,
    /// Something of the state has changed.
    news: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    /// What the agent is asked for. Nobody has asked yet where it is empty.
    path: Arc<str>,
    /// The agent tells us.
    open: bool,
    /// It has told us before, in another stream.
    told: bool,
    /// Which taker it is.
    taker: u64,
}

/// What a taker begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// With what nobody took.
    Kept,
    /// With what happens from now on.
    Fresh,
}

impl Events {
    pub(crate) fn new(agent: u16, password: Option<&OsStr>) -> Self {
        let authorization = password.map_or_else(String::new, |password| {
            let both = [b"opencode:", password.as_bytes()].concat();
            format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(both))
        });
        let state = Mutex::new(State {
            kept: Kept::new(KEPT),
            path: Arc::from(""),
            open: false,
            told: false,
            taker: 0,
        });
        Self { agent, authorization, state, news: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.news.send_replace(());
        changed
    }

    /// From now on events are this one's. Its number is for `give`.
    pub(crate) fn take(&self, path: &str, what: What) -> u64 {
        self.change(|state| {
            if *state.path != *path {
                state.path = Arc::from(path);
                state.open = false;
            }
            if what == What::Fresh {
                state.kept = Kept::new(KEPT);
            }
            state.taker += 1;
            state.taker
        })
    }

    /// Ready when the agent tells us, or does not for so long.
    pub(crate) async fn opened(&self, within: Duration) {
        let _late = timeout(within, self.until(|state| state.open)).await;
    }

    /// Hands events to a daemon until it is gone, or until another one takes them.
    pub(crate) async fn give(&self, daemon: &mut UnixStream, mine: u64) {
        let (mut hears, mut says) = daemon.split();
        match self.hand(mine, &mut hears, &mut says).await {
            Taker::Replaced => {}
            Taker::Gone => {
                // The kernel says so where it had not read all.
                let unread = matches!(hears.read(&mut [0; 1]).await, Err(error) if is_reset(&error));
                if unread {
                    self.change(|state| state.kept.lost());
                }
            }
            Taker::Reset => self.change(|state| state.kept.lost()),
        }
    }

    async fn hand(&self, mine: u64, hears: &mut ReadHalf<'_>, says: &mut WriteHalf<'_>) -> Taker {
        let mut news = self.news.subscribe();
        loop {
            let next = {
                let mut state = self.state();
                if state.taker != mine {
                    return Taker::Replaced;
                }
                state.kept.next()
            };
            let Some(piece) = next else {
                // A taker says nothing: whatever can be read is its end.
                match race(news.changed(), hears.read(&mut [0; 1])).await {
                    First::Left(_) => continue,
                    First::Right(Err(error)) if is_reset(&error) => return Taker::Reset,
                    First::Right(_) => return Taker::Gone,
                }
            };
            match race(says.write_all(&piece), self.replaced(mine)).await {
                First::Left(Ok(())) => {}
                First::Left(Err(_)) => return Taker::Gone,
                First::Right(()) => return Taker::Replaced,
            }
            let mut state = self.state();
            if state.taker == mine {
                state.kept.done();
            }
        }
    }

    async fn replaced(&self, taker: u64) {
        self.until(|state| state.taker != taker).await;
    }

    fn until(&self, holds: impl Fn(&State) -> bool) -> impl Future<Output = ()> {
        let mut news = self.news.subscribe();
        async move {
            while !holds(&self.state()) {
                // The sender is here as long as we are.
                let _alive = news.changed().await;
            }
        }
    }

    /// Reads the agent's events, for ever.
    pub(crate) async fn read(&self) {
        self.until(|state| !state.path.is_empty()).await;
        let mut next = TRY.0;
        loop {
            let path = Arc::clone(&self.state().path);
            let mut opened = false;
            let stream = self.stream(&path, &mut opened);
            let ended = race(stream, self.until(|state| state.path != path)).await;
            self.change(|state| state.open = false);
            match ended {
                First::Right(()) => continue,
                First::Left(_ended) => {
                    if opened {
                        next = TRY.0;
                    }
                }
            }
            sleep(next).await;
            next = (next * 2).min(TRY.1);
        }
    }

    /// One stream from its beginning to its end.
    async fn stream(&self, path: &str, opened: &mut bool) -> io::Result<()> {
        let mut agent = TcpStream::connect((Ipv4Addr::LOCALHOST, self.agent)).await?;
        let Self { agent: port, authorization, .. } = self;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n{authorization}\
             Connection: close\r\n\r\n"
        );
        agent.write_all(request.as_bytes()).await?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut body = timeout(HEAD, head(&mut agent, &mut buffer)).await.map_err(io::Error::from)??;
        *opened = true;
        self.change(|state| {
            state.open = *state.path == *path;
            // Nobody told us what happened since the one before had ended.
            if std::mem::replace(&mut state.told, true) {
                state.kept.lost();
            }
        });
        let mut cutter = Cutter::new(LARGEST);
        loop {
            let goes_on = body.decode(&buffer, |data| self.keep(&mut cutter, data))?;
            buffer.clear();
            if !goes_on || agent.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    fn keep(&self, cutter: &mut Cutter, data: &[u8]) {
        let mut came = false;
        cutter.push(data, |event| {
            self.state().kept.push(event);
            came = true;
        });
        if came {
            self.news.send_replace(());
        }
    }
}

/// How a taker ended.
enum Taker {
    Replaced,
    Gone,
    /// Gone, and it had not read all.
    Reset,
}

fn is_reset(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

/// Leaves in `buffer` what has come of the body.
async fn head(agent: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Body> {
    loop {
        if agent.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((length, body)) = http::head(buffer)? {
            buffer.drain(..length);
            return Ok(body);
        }
        if buffer.len() >= BUFFER {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
