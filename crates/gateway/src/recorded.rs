//! What is noted of a call: that it begins, before it goes out, and how it ended, once.
//!
//! ```text
//! identify ─ Recorder::open ─→ Record ─ begin (as it is sent) ─ … ─ answered | failed | dropped
//!                                         └ ledger                    └ ledger, meters, span, log
//! ```
//!
//! A record is made when it is known who calls and goes along with the call. Whoever ends the call ends it; a record
//! that is let go without that was canceled.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ledger::{Begin, End, Entry, Ledger, LedgerError, Outcome};
use mcp::glance::{Glance, Seen};
use mcp::{Message, headers, meta};
use model::{Capture, Id, Trust};
use sha2::{Digest as _, Sha256};
use telemetry::{CallFacts, Exporter, Span, Transport};

use crate::caller::{Call, Caller};
use crate::meters::Meters;
use crate::rate::Rate;
use crate::redact::Redactor;
use crate::respond::CallError;
use crate::traced::Traced;

/// Where notes go. One for all servers.
#[derive(Debug)]
pub struct Sinks {
    /// None: it is turned off, or the state directory cannot be used.
    pub ledger: Option<Arc<Ledger>>,
    pub exporter: Option<Exporter>,
    pub redactor: Arc<Redactor>,
    /// Unix milliseconds.
    pub clock: fn() -> u64,
}

/// Notes the calls of one server.
#[derive(Debug)]
pub struct Recorder {
    pub sinks: Arc<Sinks>,
    pub server: Box<str>,
    pub capture: Capture,
    pub meters: Meters,
    /// How the server is reached.
    pub transport: Transport,
}

/// The process or address that was asked. Empty until it is known.
pub type Target = OnceLock<Box<str>>;

/// A longer name of a tool, a uri or a method is cut off.
const LONGEST_NAME: usize = 256;
/// How much of a uri is searched for secrets.
const LOOKED_AT: usize = 8 * 1024;
/// Forged names of one call that are noted.
pub(crate) const MOST_FORGED: usize = 16;
/// Lines about calls of boxes that came to nothing: a box can make as many as it likes. All are in the ledger.
pub(crate) static UNSUCCESSFUL: Rate = Rate::new("calls that came to nothing");

/// What a server is asked to do is noted. What it is, and whether something has happened yet, is asked all the time.
pub(crate) fn is_noted(method: &str) -> bool {
    !meta::is_discovery(method) && !matches!(method, "subscriptions/listen" | "tasks/get" | "tasks/list")
}

impl Recorder {
    /// None: such requests are not noted.
    pub fn open(self: &Arc<Self>, call: &Call) -> Option<Arc<Record>> {
        let Call { message, caller, .. } = call;
        if !is_noted(message.method()) {
            return None;
        }
        let tool = headers::mirrored_name(message).map(|name| match message.method() {
            "tools/call" | "prompts/get" => clipped(&name),
            // An address may hold a password. What is cut off need not be looked at.
            _ => clipped(&self.sinks.redactor.redact(&name[..name.floor_char_boundary(LOOKED_AT)])),
        });
        let state = match &self.sinks.ledger {
            Some(_) => State::Open(self.row(message, caller, tool.clone())),
            None => State::Unwritten,
        };
        self.meters.begin();
        Some(Arc::new(Record {
            recorder: Arc::clone(self),
            caller: Arc::clone(caller),
            method: clipped(message.method()),
            tool,
            begun: Instant::now(),
            target: OnceLock::new(),
            state: Mutex::new(state),
        }))
    }

    fn row(&self, message: &Message, caller: &Caller, tool: Option<Box<str>>) -> Box<Begin> {
        let identity = &caller.identity;
        let id = |id: &Option<Id>| id.as_ref().map(|id| Box::from(id.as_str()));
        let mut row = Box::new(Begin {
            at: (self.sinks.clock)(),
            host: id(&identity.host),
            session: id(&identity.session),
            thread: id(&identity.thread),
            parent: id(&identity.parent),
            run: id(&identity.run),
            turn: id(&identity.turn),
            call: identity.call.as_ref().map_or("", Id::as_str).into(),
            server: self.server.clone(),
            tool,
            method: clipped(message.method()),
            workspace: caller.workspace.clone(),
            trust: identity.trust.as_str(),
            source: Some(identity.source.as_str()),
            digest: None,
            size: 0,
            arguments: None,
            spoof: (!caller.spoof.is_empty()).then(|| joined(&caller.spoof)),
            trace: caller.trace.as_ref().and_then(Traced::column),
        });
        self.put_arguments(&mut row, message);
        row
    }

    fn put_arguments(&self, row: &mut Begin, message: &Message) {
        let arguments = message.head().arguments.as_ref().map(|span| &message.bytes()[span.clone()]);
        row.digest = arguments.map(|arguments| Sha256::digest(arguments).into());
        row.size = arguments.map_or(0, <[u8]>::len) as u64;
        row.arguments =
            arguments.filter(|_| self.capture != Capture::Digests).and_then(|raw| self.shown(raw));
    }

    /// As it may be written down.
    fn shown(&self, raw: &[u8]) -> Option<Box<str>> {
        let text = std::str::from_utf8(raw).ok()?;
        Some(Box::from(&*self.sinks.redactor.redact(text)))
    }
}

/// A call, as far as it is noted.
#[derive(Debug)]
pub struct Record {
    recorder: Arc<Recorder>,
    caller: Arc<Caller>,
    method: Box<str>,
    tool: Option<Box<str>>,
    begun: Instant,
    target: OnceLock<Arc<Target>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nothing is written yet.
    Open(Box<Begin>),
    /// It is being written; with `strict` that is waited for.
    Beginning,
    Begun(Entry),
    /// There is no ledger.
    Unwritten,
    Ended,
}

/// What is known of an end.
#[derive(Debug)]
struct Ended<'a> {
    outcome: Outcome,
    reason: Option<&'a str>,
    /// Of the server's own error.
    code: Option<i64>,
    size: u64,
    result: Option<Box<str>>,
}

/// The call, once it is noted that it goes out. Whatever refused it before that is noted too.
pub async fn noted(record: Option<Arc<Record>>, ready: Result<Call, CallError>) -> Result<Call, CallError> {
    let Some(record) = record else { return ready };
    let noted = match ready {
        Ok(call) => record.begin(&call).await.map(|()| call),
        Err(error) => Err(error),
    };
    noted.inspect_err(|error| record.failed(error))
}

impl Record {
    /// Notes that the call goes out as it is now. With `strict` this waits; where it cannot be noted the call is
    /// refused.
    pub async fn begin(&self, call: &Call) -> Result<(), CallError> {
        if self.begin_at_once(call) {
            return Ok(());
        }
        let Some(ledger) = &self.recorder.sinks.ledger else { return Ok(()) };
        let Some(row) = self.take_row(call) else {
            return if self.is_over() { Err(given_up()) } else { Ok(()) };
        };
        match ledger.begin(row).await {
            Ok(entry) => self.has_begun(entry),
            Err(error) => {
                // The ledger has ended what it could not write.
                self.replace_beginning(State::Unwritten);
                Err(unavailable(&error))
            }
        }
    }

    /// The same where nothing can be waited for. False: it must be waited for.
    pub fn begin_at_once(&self, call: &Call) -> bool {
        let Some(ledger) = &self.recorder.sinks.ledger else { return true };
        let Some(row) = self.take_row(call) else { return !self.is_over() };
        match ledger.begin_at_once(row) {
            Ok(entry) => self.has_begun(entry).is_ok(),
            Err(row) => {
                self.replace_beginning(State::Open(row));
                false
            }
        }
    }

    /// None: it has begun already.
    fn take_row(&self, call: &Call) -> Option<Box<Begin>> {
        let mut state = self.lock();
        if !matches!(*state, State::Open(_)) {
            return None;
        }
        let State::Open(mut row) = std::mem::replace(&mut *state, State::Beginning) else { return None };
        drop(state);
        if call.hooked.as_ref().is_some_and(|hooked| hooked.arguments_changed) {
            self.recorder.put_arguments(&mut row, &call.message);
        }
        Some(row)
    }

    /// Fails if it was given up meanwhile: then it does not go out.
    fn has_begun(&self, entry: Entry) -> Result<(), CallError> {
        let Some(State::Begun(entry)) = self.replace_beginning(State::Begun(entry)) else { return Ok(()) };
        if let Some(ledger) = &self.recorder.sinks.ledger {
            let at = (self.recorder.sinks.clock)();
            let (outcome, reason) = (Outcome::Canceled, Some("canceled_before_sent".into()));
            ledger.end(entry, End { at, outcome, reason, target: None, micros: 0, size: 0, result: None });
        }
        Err(given_up())
    }

    /// Returns `next` where it is over already.
    fn replace_beginning(&self, next: State) -> Option<State> {
        let mut state = self.lock();
        if matches!(*state, State::Ended) {
            return Some(next);
        }
        *state = next;
        None
    }

    /// Who is asked.
    pub fn sent_to(&self, target: &Arc<Target>) {
        let _the_first = self.target.set(Arc::clone(target));
    }

    /// The server has answered.
    pub fn answered(&self, answer: &Message) {
        let (head, bytes) = (answer.head(), answer.bytes());
        let seen = match (&head.result, &head.error) {
            // Most results do not have the word at all, spelled plainly or not.
            (Some(span), _) if !may_say_error(&bytes[span.clone()]) => Seen::Result { is_error: false },
            (None, None) => Seen::Other,
            // The same that sees answers which pass by: what is noted must not depend on the way.
            (Some(_), _) | (None, Some(_)) => {
                let mut glance = Glance::new();
                glance.feed(bytes);
                glance.finish().map_or(Seen::Other, |answer| answer.seen)
            }
        };
        let result = head.result.as_ref().or(head.error.as_ref()).map(|span| &bytes[span.clone()]);
        let captured = result.filter(|_| self.captures_results()).and_then(|raw| self.recorder.shown(raw));
        self.end_seen(&seen, bytes.len() as u64, captured);
    }

    /// The server has answered, and the answer has only been seen in passing.
    pub fn saw(&self, seen: &Seen, size: u64) {
        self.end_seen(seen, size, None);
    }

    fn end_seen(&self, seen: &Seen, size: u64, result: Option<Box<str>>) {
        let text;
        let (outcome, reason) = match seen {
            Seen::Result { is_error: false } => (Outcome::Ok, None),
            Seen::Result { is_error: true } => (Outcome::ToolError, None),
            Seen::Error { code: Some(code) } => {
                text = format!("error {code}");
                (Outcome::Failed, Some(text.as_str()))
            }
            Seen::Error { code: None } | Seen::Other => (Outcome::Failed, Some("answer_invalid")),
        };
        let code = match seen {
            Seen::Error { code } => *code,
            Seen::Result { .. } | Seen::Other => None,
        };
        self.end(Ended { outcome, reason, code, size, result });
    }

    /// It came to nothing, for this reason.
    pub fn failed(&self, error: &CallError) {
        self.end(Ended {
            outcome: error.outcome(),
            reason: Some(error.name()),
            code: None,
            size: 0,
            result: None,
        });
    }

    /// Nobody wants the answer any more.
    pub fn canceled(&self) {
        self.end(Ended { outcome: Outcome::Canceled, reason: None, code: None, size: 0, result: None });
    }

    /// Whether it is noted how it ended.
    pub fn is_over(&self) -> bool {
        matches!(*self.lock(), State::Ended)
    }

    /// Whether the text of the answer is wanted.
    pub fn captures_results(&self) -> bool {
        self.recorder.capture == Capture::Full && self.recorder.sinks.ledger.is_some()
    }

    fn end(&self, ended: Ended<'_>) {
        let before = std::mem::replace(&mut *self.lock(), State::Ended);
        let entry = match before {
            State::Ended => return,
            State::Begun(entry) => Some(entry),
            // Nobody was asked, and nothing waits for this: where the ledger has no room it is only counted.
            State::Open(row) => self.recorder.sinks.ledger.as_ref().and_then(|ledger| ledger.note(row)),
            State::Beginning | State::Unwritten => None,
        };
        let took = self.begun.elapsed();
        self.recorder.meters.end(ended.outcome, took);
        self.tell(&ended, took);
        let target = self.target.get().and_then(|target| target.get());
        if let (Some(entry), Some(ledger)) = (entry, &self.recorder.sinks.ledger) {
            let Ended { outcome, reason, size, result, .. } = ended;
            let at = (self.recorder.sinks.clock)();
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let (reason, target) = (reason.map(Into::into), target.cloned());
            ledger.end(entry, End { at, outcome, reason, target, micros, size, result });
        }
    }

    /// The log, and whoever collects spans.
    fn tell(&self, ended: &Ended<'_>, took: Duration) {
        let Ended { outcome, reason, .. } = ended;
        let identity = &self.caller.identity;
        let text = |id: &Option<Id>| id.as_ref().map(|id| tracing::field::display(id.as_str().to_owned()));
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    session = text(&identity.session),
                    thread = text(&identity.thread),
                    call = text(&identity.call),
                    server = &*self.recorder.server,
                    tool = self.tool.as_deref(),
                    method = &*self.method,
                    outcome = outcome.as_str(),
                    reason,
                    ms = took.as_secs_f64() * 1000.0,
                    "call"
                )
            };
        }
        match outcome {
            Outcome::Ok | Outcome::ToolError | Outcome::Canceled => say!(debug),
            Outcome::Refused | Outcome::Timeout | Outcome::Failed | Outcome::Unknown => {
                let session = identity.session.as_ref().filter(|_| identity.trust == Trust::Bound);
                if session.is_none_or(|session| UNSUCCESSFUL.allows(session.as_str(), Instant::now())) {
                    say!(info);
                }
            }
        }
        if let Some(exporter) = &self.recorder.sinks.exporter
            && let Some(span) = self.span(ended, took)
        {
            exporter.offer(span);
        }
    }

    /// None: whoever began the trace does not want it.
    fn span(&self, ended: &Ended<'_>, took: Duration) -> Option<Span> {
        let trace = self.caller.trace.as_ref()?.ours.filter(telemetry::Trace::sampled)?;
        let identity = &self.caller.identity;
        let id = |id: &'_ Option<Id>| id.as_ref().map(|id| id.as_str().to_owned());
        let (host, session, thread) = (id(&identity.host), id(&identity.session), id(&identity.thread));
        let (parent, run, turn) = (id(&identity.parent), id(&identity.run), id(&identity.turn));
        let call = id(&identity.call);
        let now = (self.recorder.sinks.clock)().saturating_mul(1_000_000);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let facts = CallFacts {
            trace: Some(trace),
            start_unix_nanos: now.saturating_sub(nanos),
            duration: took,
            method: &self.method,
            tool: self.tool.as_deref(),
            server: &self.recorder.server,
            host: host.as_deref(),
            session: session.as_deref(),
            thread: thread.as_deref(),
            parent: parent.as_deref(),
            run: run.as_deref(),
            turn: turn.as_deref(),
            call: call.as_deref(),
            workspace: self.caller.workspace.as_deref(),
            trust: Some(identity.trust.as_str()),
            source: Some(identity.source.as_str()),
            outcome: telemetry::Outcome::parse(ended.outcome.as_str()).unwrap_or_default(),
            reason: ended.reason,
            error_code: ended.code,
            transport: Some(self.recorder.transport),
            target: self.target.get().and_then(|target| target.get()).map(|target| &**target),
            result_size: Some(ended.size),
            ..CallFacts::default()
        };
        Some(facts.span())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.canceled();
    }
}

/// What a client calls something, as far as it may be a name at all.
fn clipped(name: &str) -> Box<str> {
    Box::from(&name[..name.floor_char_boundary(LONGEST_NAME)])
}

/// Separated by commas, so none may be in a name.
fn joined(names: &[Cow<'static, str>]) -> Box<str> {
    let names: Vec<String> =
        names.iter().take(MOST_FORGED).map(|name| name.replace(',', "\u{fffd}")).collect();
    names.join(",").into()
}

/// Nobody is told: who gives up a call wants no answer.
fn given_up() -> CallError {
    CallError::Ledger("it was given up before that".to_owned())
}

fn unavailable(error: &LedgerError) -> CallError {
    CallError::Ledger(error.to_string())
}

fn may_say_error(result: &[u8]) -> bool {
    memchr::memmem::find(result, b"isError").is_some() || memchr::memchr(b'\\', result).is_some()
}

impl CallError {
    /// Refused: by us, and its server was not asked. Failed: it was asked, or should have been.
    fn outcome(&self) -> Outcome {
        match self {
            Self::Timeout { .. } => Outcome::Timeout,
            Self::Refused(_)
            | Self::DuplicateId(_)
            | Self::TooLarge { .. }
            | Self::Withheld { .. }
            | Self::NoSuchServer(_)
            | Self::NoSuchSession
            | Self::BadHeaders(_)
            | Self::MissingMeta(_)
            | Self::NoSuchStream
            | Self::ShuttingDown
            | Self::IdentityRequired { .. }
            | Self::IdentityNeeded { .. }
            | Self::Unsignable(_)
            | Self::MissingArgument { .. }
            | Self::HeadersCommand { .. }
            | Self::HookRefused { .. }
            | Self::HookFailed { .. }
            | Self::TooManyUnanswered { .. }
            | Self::NotANotification(_)
            | Self::Ledger(_)
            | Self::Busy { .. }
            | Self::BoxBusy { .. } => Outcome::Refused,
            Self::StartFailed { .. }
            | Self::Exited { .. }
            | Self::Unavailable { .. }
            | Self::AnswerTooLarge { .. }
            | Self::AnswerInvalid { .. }
            | Self::ListTooLong { .. }
            | Self::Unreachable { .. }
            | Self::UpstreamUnauthorized { .. }
            | Self::UpstreamStatus { .. }
            | Self::Restarting { .. }
            | Self::NoSingleCaller => Outcome::Failed,
        }
    }
}
