//! One server process: started, told what its client said, read from, ended.
//!
//! ```text
//! starting ─ started ─→ serving ─ stop ─→ stopping ─→ gone
//!     │                    └ exits, strikes out ──────┘
//!     └ could not start ───────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mcp::Message;
use mcp::splice::{Edit, on_one_line};
use mcp::stdio::{Line, LineReader};
use supervise::{Control, ExitStatus};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use crate::caller::{Caller, Stamp};
use crate::connection::{Connection, Recorded};
use crate::outbox::Outbox;
use crate::respond::CallError;
use crate::server::link::{Asked, Link, LinkOptions, Reply, Role};
use crate::server::pool::{ChildKey, Company};

/// How much of a server's stderr is kept for error messages.
const STDERR_KEPT: usize = 64 * 1024;
/// How much of it an error shows.
const STDERR_SHOWN: usize = 2000;
/// Lines over the limit before a server is given up.
const STRIKES: u32 = 3;
/// How long the last words of a process that has ended may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long a server has to leave after its stdin has closed, before it is asked with a signal.
const LEAVE_GRACE: Duration = Duration::from_secs(1);
/// How long the supervisor may take after that; it kills after two seconds of its own.
const END_GRACE: Duration = Duration::from_secs(4);
/// How long a server has to answer the replayed `initialize`.
const HANDSHAKE: Duration = Duration::from_mins(1);
/// How long a reader that does not read holds everybody else up.
pub(crate) const SLOW_READER: Duration = Duration::from_secs(30);
/// What to do about a server that holds a port or a lock.
pub(crate) const ONLY_ONE: &str =
    "; another process of it runs already: if it can run only once, set isolation = \"shared\" for it";
/// How much is gathered into one write.
const WRITE_BATCH: usize = 64 * 1024;

#[derive(Debug)]
pub struct Child {
    pub key: ChildKey,
    /// Whom it serves alone; the one whose identity is in its environment.
    pub caller: Option<Arc<Caller>>,
    pub link: Arc<Link>,
    pub started: Instant,
    handshake: Mutex<Option<Handshake>>,
    ready: AtomicBool,
    initialized: AtomicBool,
    /// It was told to stop; nothing new goes to it.
    leaving: AtomicBool,
    stop: watch::Sender<Stop>,
    stderr: Arc<Stderr>,
    options: Arc<LinkOptions>,
    tasks: TaskTracker,
}

/// The server's answer to `initialize`, once it is there.
type Handshake = watch::Receiver<Option<Result<Message, CallError>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    Gently,
    Now,
}

/// How a child ended, for the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// We wanted it.
    Stopped,
    ByItself,
}

impl Child {
    pub fn new(
        key: ChildKey,
        caller: Option<Arc<Caller>>,
        options: Arc<LinkOptions>,
        tasks: TaskTracker,
    ) -> Self {
        let role = if matches!(key, ChildKey::Lobby(..)) { Role::Lobby } else { Role::Serving };
        Self {
            key,
            caller,
            link: Arc::new(Link::new(Arc::clone(&options), role)),
            started: Instant::now(),
            handshake: Mutex::default(),
            ready: AtomicBool::new(false),
            initialized: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            stop: watch::Sender::new(Stop::No),
            stderr: Arc::default(),
            options,
            tasks,
        }
    }

    pub fn is_alive(&self) -> bool {
        !self.leaving.load(Ordering::Acquire) && !self.link.has_ended()
    }

    /// Stops the process if nobody uses it, and not a moment after somebody began to.
    pub fn stop_if_idle_since(&self, since: Instant) {
        if self.link.retire_if_idle_since(since) {
            self.stop();
        }
    }

    /// Ends the process and everything it started. Returns at once.
    pub fn stop(&self) {
        self.leaving.store(true, Ordering::Release);
        self.stop.send_modify(|stop| *stop = (*stop).max(Stop::Gently));
    }

    /// The same without asking.
    pub fn kill(&self) {
        self.leaving.store(true, Ordering::Release);
        self.stop.send_modify(|stop| *stop = Stop::Now);
    }

    /// Without the secrets we know of: a server may print its environment.
    pub fn stderr_tail(&self) -> String {
        let tail = self.stderr.tail();
        self.options.recorder.sinks.redactor.redact(&tail).into_owned()
    }

    /// Tells the server what its client said first, once, and returns its answer to `initialize`.
    ///
    /// The telling goes on if the one who waits for it goes away: a server must not be initialized twice.
    pub async fn handshake(self: &Arc<Self>, connection: &Arc<Connection>) -> Result<Message, CallError> {
        let mut outcome = {
            let mut handshake = self.handshake.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = || {
                let (sender, receiver) = watch::channel(None);
                let (child, connection) = (Arc::clone(self), Arc::clone(connection));
                self.tasks.spawn(async move {
                    let outcome = child.replay(&connection).await;
                    let served = matches!(&outcome, Ok(answer) if answer.head().error.is_none());
                    child.ready.store(served, Ordering::Release);
                    if served {
                        // After `ready`: an `initialized` that comes now is passed on by whoever brings it.
                        child.pass_initialized(&connection);
                    } else {
                        child.stop(); // What one client was refused with must not be told the next one.
                    }
                    sender.send_replace(Some(outcome));
                });
                receiver
            };
            handshake.get_or_insert_with(begin).clone()
        };
        match outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(_) => Err(self.why_gone()),
        }
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    async fn replay(&self, connection: &Arc<Connection>) -> Result<Message, CallError> {
        let Recorded { initialize, .. } = connection.recorded();
        let server = || self.options.server.clone();
        let Some(initialize) = initialize else {
            return Err(CallError::AnswerInvalid {
                server: server(),
                reason: "never initialized".to_owned(),
            });
        };
        let (sender, receiver) = oneshot::channel();
        let stamp = self.stamp(connection, &initialize)?;
        let asked = Asked { message: &initialize, stamp: &stamp, question: None };
        self.link.call(connection, asked, Reply::Internal(sender))?;
        let patience = self.options.timeout.unwrap_or(HANDSHAKE).min(HANDSHAKE);
        match tokio::time::timeout(patience, receiver).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_gone)) => Err(self.why_gone()),
            Err(_late) => Err(CallError::Timeout { server: server(), seconds: patience.as_secs() }),
        }
    }

    /// Sends `notifications/initialized`, and the log level after it, as soon as both sides are there. Once.
    pub fn pass_initialized(&self, connection: &Arc<Connection>) {
        let Recorded { initialized, level, .. } = connection.recorded();
        let Some(initialized) = initialized else { return };
        if self.initialized.swap(true, Ordering::AcqRel) {
            return;
        }
        self.link.send(initialized.bytes());
        if let Some(level) = level {
            let (sender, _nobody_waits) = oneshot::channel();
            let _ended = self.stamp(connection, &level).and_then(|stamp| {
                let asked = Asked { message: &level, stamp: &stamp, question: None };
                self.link.call(connection, asked, Reply::Internal(sender))
            });
        }
    }

    /// What the server is told of a request that is repeated for it.
    fn stamp(&self, connection: &Connection, message: &Message) -> Result<Arc<Stamp>, CallError> {
        let nobody = || Arc::new(Caller::nobody(connection.principal.clone()));
        let caller = self.caller.clone().unwrap_or_else(nobody);
        self.options.identification.stamp(&caller, &self.options.server, message, None)
    }

    fn why_gone(&self) -> CallError {
        let ended = || CallError::Exited {
            server: self.options.server.clone(),
            how: "it ended".to_owned(),
            stderr: self.stderr.tail(),
        };
        self.link.ended().unwrap_or_else(ended)
    }

    /// Serves until the process is gone. Whoever waits for an answer then is told.
    ///
    /// `company` says what else there is of the server.
    pub async fn drive(self: Arc<Self>, process: supervise::Child, company: impl Fn() -> Company) -> Ended {
        let supervise::Child { stdin, stdout, stderr, mut control } = process;
        match control.started().await {
            Ok(pid) => drop(self.link.target.set(format!("pid {pid}").into())),
            Err(error) => {
                let reason = error.to_string();
                self.link.end(&CallError::StartFailed { server: self.options.server.clone(), reason });
                return Ended::ByItself;
            }
        }
        let mut stopping = self.stop.subscribe();
        let mut reader = LineReader::new(stdout, self.options.max_message);
        let erring = self.stderr.fill(stderr);
        tokio::pin!(erring);
        let mut erred = false;
        let read = async {
            let writing = write_all(&self.link.outbox, stdin, LineEnds::Present);
            let reading = self.read(&mut reader);
            tokio::pin!(writing, reading);
            loop {
                tokio::select! {
                    () = &mut reading => return,
                    // A server that does not read any more answers nothing any more.
                    () = &mut writing => return,
                    () = &mut erring, if !erred => erred = true,
                }
            }
        };
        let ended = tokio::select! {
            () = read => Ended::ByItself,
            _ = stopping.wait_for(|stop| *stop != Stop::No) => Ended::Stopped,
        };
        // Dropping the loop above has closed the server's stdin: the protocol's way to say goodbye.
        self.link.outbox.close();
        let status = end(&mut control, &mut reader, &mut stopping).await;
        if !erred {
            // Its last words may still be in the pipe, which a descendant may hold open.
            let _as_far_as_they_are_there = tokio::time::timeout(LAST_WORDS, &mut erring).await;
        }
        let failed_start = ended == Ended::ByItself && !self.link.has_answered();
        let (server, stderr) = (self.options.server.clone(), self.stderr_tail());
        let company = company();
        let hint = if failed_start && company.others_run { ONLY_ONE } else { "" };
        let error = if failed_start && self.key.is_unknown() && company.others_served {
            // It serves, but not without an identity: that is what this process did not have.
            CallError::IdentityNeeded { server, hint, stderr }
        } else {
            CallError::Exited { server, how: format!("{status}{hint}"), stderr }
        };
        self.link.end(&error);
        // Its descendants too: a place in the pool is free when nothing runs in it any more.
        let _in_time = tokio::time::timeout(END_GRACE, control.gone()).await;
        ended
    }

    async fn read(&self, reader: &mut LineReader<impl AsyncRead + Unpin>) {
        let mut strikes = 0;
        loop {
            let Ok(Some(line)) = reader.next().await else { return };
            match line {
                Line::TooLong(ends) => {
                    self.link.lost_an_answer(ends.id().as_deref());
                    strikes += 1;
                    if strikes >= STRIKES {
                        tracing::warn!(server = self.options.server, "ended: too many lines over the limit");
                        return;
                    }
                }
                Line::Text(text) => match Message::parse(text) {
                    Ok(message) => {
                        if let Some(full) = self.link.receive(&message) {
                            wait_for_room(&full).await;
                        }
                    }
                    Err(refused) => {
                        self.options.counters.noise.fetch_add(1, Ordering::Relaxed);
                        tracing::debug!(server = self.options.server, %refused, "a line was skipped");
                    }
                },
            }
        }
    }
}

/// Waits a while for a slow reader, then gives it up: others are served by the same pipe.
async fn wait_for_room(outbox: &Outbox) {
    if tokio::time::timeout(SLOW_READER, outbox.room()).await.is_err() {
        outbox.close();
    }
}

/// Waits for the process to leave, then makes it.
async fn end(
    control: &mut Control,
    reader: &mut LineReader<impl AsyncRead + Unpin>,
    stopping: &mut watch::Receiver<Stop>,
) -> ExitStatus {
    // What it still says is read away, so that it is not stuck in a write.
    let drained = async {
        while let Ok(Some(_)) = reader.next().await {}
        std::future::pending::<()>().await;
    };
    tokio::pin!(drained);
    let impatient = stopping.wait_for(|stop| *stop == Stop::Now);
    tokio::select! {
        status = control.exited() => return status,
        () = &mut drained => {}
        () = tokio::time::sleep(LEAVE_GRACE) => control.terminate(),
        _ = impatient => control.kill(),
    }
    tokio::select! {
        status = control.exited() => return status,
        () = &mut drained => {}
        () = tokio::time::sleep(END_GRACE) => control.kill(),
    }
    tokio::time::timeout(END_GRACE, control.exited()).await.unwrap_or(ExitStatus::Unknown)
}

/// Writes what is queued, in as few writes as there are moments. Ends when the queue is closed or nobody reads.
pub(crate) async fn write_all(outbox: &Outbox, mut output: impl AsyncWrite + Unpin, ends: LineEnds) {
    let mut batch = BytesMut::new();
    let put = |batch: &mut BytesMut, bytes: &[u8]| {
        let at = batch.len();
        batch.extend_from_slice(bytes);
        if ends == LineEnds::Added {
            on_one_line(&mut batch[at..]);
            batch.extend_from_slice(b"\n");
        }
    };
    while let Some(first) = outbox.pop().await {
        put(&mut batch, &first.bytes);
        while batch.len() < WRITE_BATCH {
            match outbox.try_pop() {
                Some(next) => put(&mut batch, &next.bytes),
                None => break,
            }
        }
        if output.write_all(&batch).await.is_err() || output.flush().await.is_err() {
            break;
        }
        if batch.capacity() > 4 * WRITE_BATCH {
            batch = BytesMut::new();
        }
        batch.clear();
    }
    outbox.close();
}

/// Whether the messages of a queue end their lines themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnds {
    Present,
    Added,
}

/// The end of what a server wrote to stderr.
#[derive(Debug, Default)]
struct Stderr {
    kept: Mutex<VecDeque<u8>>,
}

impl Stderr {
    /// Reads to the end, so that the server never waits for us, and keeps the last part.
    async fn fill(&self, mut input: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = input.read(&mut chunk).await {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&chunk[..read]);
            let over = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..over);
        }
    }

    /// The last lines, as text without control characters.
    fn tail(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = kept.len().saturating_sub(STDERR_SHOWN);
        let bytes: Vec<u8> = kept.iter().skip(skip).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(5)..].join(" | ");
        tail.chars().filter(|character| !character.is_control()).collect()
    }
}

/// `message` with the id the client gave its own request.
pub fn as_answer_to(answer: &Message, id: &[u8]) -> bytes::Bytes {
    match answer.head().id.clone() {
        Some(span) => answer.with(&mut [Edit { span, with: id }]),
        None => answer.bytes().clone(),
    }
}
