//! Connections that lie at the daemon's `control.sock` until it wants one.
//!
//! ```text
//! dialled ─▶ idle ──`AGENT`────────▶ the agent's port is dialled ─▶ `OK`, spliced │ `NO reason`
//!    ▲        │  └──`EVENTS path`, `FRESH path`──▶ `OK`, events.rs
//!    └────────┘ replaced as soon as it is taken, or gone
//! ```
//!
//! They are also how the bridge knows whether there is a daemon at all.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use bridge::{AGENT, CONTROL, EVENTS, FRESH, LONGEST_LINE, NO, OK, file_name, is_path};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::events::{Events, What};
use crate::race::{First, race};
use crate::splice::splice;

/// How many lie there.
pub(crate) const IDLE: usize = 2;
/// How many are in use at once.
const MOST: usize = 128;
/// Between two tries to reach the daemon, at first and at most.
const TRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long is waited for the agent's stream before whoever takes it is told that it comes.
const OPEN: Duration = Duration::from_secs(1);
/// How long the daemon may take to say the rest of a word.
const WORD: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Control {
    socket: PathBuf,
    agent: u16,
    events: Arc<Events>,
    places: Arc<Semaphore>,
    presence: watch::Sender<Presence>,
}

/// Whether there is a daemon, as far as the idle connections tell. Those in use do not count: one that the agent holds
/// up may outlive its daemon.
#[derive(Debug, Clone, Copy)]
struct Presence {
    idle: usize,
    /// Since when there has been none.
    since: Instant,
}

/// What the daemon wants of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Agent,
    Events { path: String, what: What },
}

impl Control {
    pub(crate) fn new(sockets: &Path, agent: u16, events: Arc<Events>) -> Self {
        let (presence, _) = watch::channel(Presence { idle: 0, since: Instant::now() });
        let places = Arc::new(Semaphore::new(MOST));
        Self { socket: sockets.join(file_name(CONTROL)), agent, events, places, presence }
    }

    /// Keeps one connection idle, for ever.
    pub(crate) async fn keep_one(self: Arc<Self>, tasks: Tasks) {
        let mut next = TRY.0;
        loop {
            if let Ok(mut daemon) = UnixStream::connect(&self.socket).await {
                let began = Instant::now();
                self.presence.send_modify(|presence| presence.idle += 1);
                let line = line(&mut daemon).await;
                self.presence.send_modify(|presence| {
                    presence.idle -= 1;
                    presence.since = Instant::now();
                });
                if let Ok(line) = line {
                    tasks.spawn(Arc::clone(&self).taken(daemon, line));
                    next = TRY.0;
                    continue;
                }
                // One that takes connections and drops them is not asked over and over.
                if began.elapsed() > TRY.1 {
                    next = TRY.0;
                }
            }
            sleep(next).await;
            next = (next * 2).min(TRY.1);
        }
    }

    /// Ready when there has been no daemon for `limit`.
    pub(crate) fn orphaned(&self, limit: Option<Duration>) -> impl Future<Output = ()> + use<> {
        let mut seen = self.presence.subscribe();
        async move {
            let Some(limit) = limit else { return std::future::pending().await };
            loop {
                let Presence { idle, since } = *seen.borrow_and_update();
                let alone = async {
                    match idle {
                        0 => sleep_until(since + limit).await,
                        _ => std::future::pending().await,
                    }
                };
                if let First::Left(()) = race(alone, seen.changed()).await {
                    return;
                }
            }
        }
    }

    async fn taken(self: Arc<Self>, mut daemon: UnixStream, line: Line) {
        // The daemon sees that it ended; there is nobody else to tell.
        let _ended = self.give(&mut daemon, line).await;
    }

    async fn give(&self, daemon: &mut UnixStream, line: Line) -> io::Result<()> {
        let Ok(_place) = self.places.try_acquire() else {
            return refuse(daemon, "there are too many connections").await;
        };
        match wanted(&line.word) {
            Some(Wanted::Agent) => match TcpStream::connect((Ipv4Addr::LOCALHOST, self.agent)).await {
                Ok(mut port) => {
                    port.set_nodelay(true)?;
                    daemon.write_all(format!("{OK}\n").as_bytes()).await?;
                    splice(daemon, &mut port, &line.rest, &[]).await
                }
                Err(error) => refuse(daemon, &error.to_string()).await,
            },
            Some(Wanted::Events { path, what }) => {
                let taker = self.events.take(&path, what);
                // Whoever then looks at the agent's state has missed nothing in between.
                self.events.opened(OPEN).await;
                daemon.write_all(format!("{OK}\n").as_bytes()).await?;
                self.events.give(daemon, taker).await;
                Ok(())
            }
            None => refuse(daemon, "there is no such word").await,
        }
    }
}

async fn refuse(daemon: &mut UnixStream, reason: &str) -> io::Result<()> {
    daemon.write_all(format!("{NO} {reason}\n").as_bytes()).await
}

fn wanted(word: &str) -> Option<Wanted> {
    if word == AGENT {
        return Some(Wanted::Agent);
    }
    let (word, path) = word.split_once(' ')?;
    let what = match word {
        EVENTS => What::Kept,
        FRESH => What::Fresh,
        _ => return None,
    };
    is_path(path).then(|| Wanted::Events { path: path.to_owned(), what })
}

/// What the daemon said, and what it said right behind.
#[derive(Debug)]
struct Line {
    word: String,
    rest: Vec<u8>,
}

async fn line(daemon: &mut UnixStream) -> io::Result<Line> {
    let mut said = Vec::with_capacity(64);
    // Idle for as long as the daemon likes; but a word that has begun ends soon.
    daemon.read_buf(&mut said).await?;
    let rest = async {
        loop {
            if let Some(end) = said.iter().position(|byte| *byte == b'\n') {
                let rest = said.split_off(end + 1);
                said.truncate(end);
                return Ok(Line { word: String::from_utf8_lossy(&said).into_owned(), rest });
            }
            if said.len() > LONGEST_LINE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if said.is_empty() || daemon.read_buf(&mut said).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    timeout(WORD, rest).await.map_err(io::Error::from)?
}

#[cfg(test)]
mod tests {
    use super::{Wanted, What, wanted};

    #[test]
    fn words_are_told_apart() {
        assert_eq!(wanted("AGENT"), Some(Wanted::Agent));
        let events = |what| Some(Wanted::Events { path: "/event".to_owned(), what });
        assert_eq!(wanted("EVENTS /event"), events(What::Kept));
        assert_eq!(wanted("FRESH /event"), events(What::Fresh));
        for other in [
            "",
            "agent",
            "AGENT ",
            "AGENTS",
            "EVENTS",
            "EVENTS ",
            "FRESH",
            "FRESHER /event",
            "EVENTS event",
            "EVENTS /a b",
            "GET / HTTP/1.1\r",
        ] {
            assert_eq!(wanted(other), None, "{other:?}");
        }
    }
}
