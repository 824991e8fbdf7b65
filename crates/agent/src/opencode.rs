//! One `opencode serve`.

mod client;
mod deliver;
mod history;
mod life;
mod questions;
mod sse;
mod tracker;
mod verdict;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use model::ports::agent::{
    Agent, AgentError, AgentSession, Answer, Answered, Delivery, FailedTurn, Origin, Policy, Progress,
    PromptId, PromptIntent, QuestionId, Ready, SessionRef, Turn, WantedSession,
};
use model::session::MessageId;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use self::client::{Bounds, Client, Response, Trouble};

/// Between two attempts to find out whether the agent answers.
const PAUSE: Duration = Duration::from_millis(20);
/// For one of them, at first and at most. OpenCode never answers a request that came while it was starting, so the first
/// is given little; on a busy machine others may need more.
const FIRST_HEALTH: Duration = Duration::from_millis(150);
const HEALTH: Duration = Duration::from_secs(1);
/// The longest answer, unless it is said otherwise.
const SMALL: usize = 1024 * 1024;
/// … where it is the configuration of a box, or what a provider has.
const MIDDLE: usize = 8 * 1024 * 1024;
/// … where it is messages. One holds what tools said, which OpenCode cuts at some 50 kB each.
const LARGE: usize = 32 * 1024 * 1024;
/// An answer that is longer is not read on the thread that all sessions share.
const READ_HERE: usize = 256 * 1024;
/// How many aborted prompts are remembered.
const REMEMBERED: usize = 64;

/// Where a server listens.
#[derive(Debug, Clone)]
pub enum Place {
    Tcp(SocketAddr),
    /// A socket that leads into a box.
    Unix(PathBuf),
    /// A box that nobody can connect to: it is asked for connections.
    Through(Arc<dyn Way>),
}

/// A way into a box.
pub trait Way: fmt::Debug + Send + Sync {
    /// A connection to the server. An error means that nothing was sent.
    fn open(&self) -> Opening;

    /// The bytes of its events, and nothing around them. Those that nobody took come first, unless it is to be fresh.
    fn events(&self, path: &str, since: Since) -> Opening;
}

/// From when on events are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Since somebody took them last.
    Taken,
    Now,
}

pub type Opening = Pin<Box<dyn Future<Output = io::Result<UnixStream>> + Send>>;

#[derive(Clone)]
pub struct Options {
    pub place: Place,
    /// `OPENCODE_SERVER_PASSWORD`.
    pub password: String,
    pub timing: Timing,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, password: _, timing } = self;
        f.debug_struct("Options").field("place", place).field("timing", timing).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// For one request.
    pub request: Duration,
    /// For the first requests in a directory: configuration, providers and plugins are loaded.
    pub load: Duration,
    /// How often is looked, although events come.
    pub poll: Duration,
    /// How often is looked where no events come.
    pub poll_alone: Duration,
    /// How long a connection may be refused until the agent counts as gone.
    pub gone: Duration,
    /// How long all requests may go unanswered until the agent counts as stalled.
    pub stalled: Duration,
    /// How long an idle session without an end of its turn is looked at, before that is taken for its end.
    pub settle: Duration,
    /// How long a prompt that was delivered may take to be seen.
    pub appear: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(5),
            load: Duration::from_mins(1),
            poll: Duration::from_secs(5),
            poll_alone: Duration::from_millis(250),
            gone: Duration::from_secs(3),
            stalled: Duration::from_secs(90),
            settle: Duration::from_secs(2),
            appear: Duration::from_secs(30),
        }
    }
}

impl Timing {
    /// A turn that has not begun may be about to, on a machine that is busy; one that has begun and rests does not go on.
    fn settled(&self, open: verdict::Open) -> Duration {
        match open {
            verdict::Open::Unanswered => self.settle * 3,
            verdict::Open::Unfinished => self.settle,
        }
    }
}

/// The driver. It holds no connection, so it costs nothing while nobody asks.
#[derive(Debug)]
pub struct OpenCode {
    client: Client,
    timing: Timing,
    /// Prompts that were aborted here. An abort between two steps leaves no other trace. Bounded.
    aborted: Mutex<Vec<MessageId>>,
    /// The prompt that was delivered here last: what was told before is not about it.
    delivered: Mutex<Option<MessageId>>,
}

impl OpenCode {
    pub fn new(options: Options) -> Self {
        let Options { place, password, timing } = options;
        let client = Client::new(place, &password);
        Self { client, timing, aborted: Mutex::default(), delivered: Mutex::default() }
    }

    async fn get<T: DeserializeOwned + Send + 'static>(&self, path: &Path<'_>) -> Result<T, AgentError> {
        let answer = self.call(Method::GET, path, None).await?;
        parse(path, answer).await
    }

    async fn post(&self, path: &Path<'_>, body: &serde_json::Value) -> Result<Bytes, AgentError> {
        self.call(Method::POST, path, Some(Bytes::from(body.to_string()))).await
    }

    /// The body of a success.
    async fn call(&self, method: Method, path: &Path<'_>, body: Option<Bytes>) -> Result<Bytes, AgentError> {
        let response = self.client.send(method, &path.written(), body, path.bounds(self)).await?;
        if response.status.is_success() { Ok(response.body) } else { Err(refusal(path, &response)) }
    }

    /// What the sessions of a directory do. One that does nothing is not in it.
    async fn statuses(&self, directory: &str) -> Result<BTreeMap<String, wire::Status>, AgentError> {
        self.get(&Path::of("/session/status", directory)).await
    }

    fn remember_abort(&self, message: &MessageId) {
        let mut aborted = self.aborted();
        if aborted.contains(message) {
            return;
        }
        if aborted.len() == REMEMBERED {
            aborted.remove(0);
        }
        aborted.push(message.clone());
    }

    fn has_delivered(&self, message: &MessageId) -> bool {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(message)
    }

    fn was_aborted(&self, message: &MessageId) -> bool {
        self.aborted().contains(message)
    }

    fn aborted(&self) -> MutexGuard<'_, Vec<MessageId>> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agent for OpenCode {
    async fn ready(&self, within: Duration) -> Result<Ready, AgentError> {
        let end = Instant::now() + within;
        let mut patience = FIRST_HEALTH;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let bounds = Bounds { within: patience.min(left), most: SMALL };
            let sent = self.client.send(Method::GET, "/global/health", None, bounds).await;
            if matches!(sent, Err(Trouble::Late(_))) {
                patience = (patience * 2).min(HEALTH);
            }
            let trouble = match sent {
                Ok(response) if response.status == StatusCode::UNAUTHORIZED => {
                    return Err(AgentError::Unauthorized);
                }
                Ok(response) if response.status.is_success() => {
                    let path = Path::of("/global/health", "");
                    let health: wire::Health = parse(&path, response.body).await?;
                    return Ok(Ready { version: wire::cut(&health.version, 100) });
                }
                Ok(response) => refusal(&Path::of("/global/health", ""), &response),
                Err(Trouble::Late(_)) => AgentError::NoAnswer { seconds: within.as_secs() },
                Err(trouble) => AgentError::from(trouble),
            };
            if Instant::now() + PAUSE >= end {
                return Err(trouble);
            }
            sleep(PAUSE).await;
        }
    }

    async fn ensure_session(&self, wanted: &WantedSession) -> Result<AgentSession, AgentError> {
        let WantedSession { known, title, directory } = wanted;
        // What is loaded now does not delay the first prompt, so that it is in the history soon after it was taken.
        for path in ["/agent", "/config/providers"] {
            self.get::<wire::Anything>(&Path::of(path, directory).at_most(MIDDLE).loading()).await?;
        }
        let session = |id: String| SessionRef { id, directory: directory.clone() };
        if let Some(known) = known {
            match self.get::<wire::Session>(&Path::session(known, "", directory)?).await {
                Ok(found) if found.id != *known => {
                    let what = "it answered with another conversation than it was asked for".to_owned();
                    return Err(AgentError::Protocol { what });
                }
                Ok(found) => {
                    return Ok(AgentSession { session: session(found.id), origin: Origin::Reused });
                }
                Err(AgentError::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let path = Path::of("/session", directory).loading();
        let made: wire::Session = parse(&path, self.post(&path, &json!({ "title": title })).await?).await?;
        // It stands in paths from now on.
        Path::session(&made.id, "", directory)?;
        let origin = match known {
            Some(lost) => Origin::Replaced { lost: lost.clone() },
            None => Origin::New,
        };
        Ok(AgentSession { session: session(made.id), origin })
    }

    async fn prompt(&self, intent: &PromptIntent) -> Result<Delivery, AgentError> {
        let delivery = self.deliver(intent).await?;
        if delivery == Delivery::Delivered {
            let message = intent.prompt.message.clone();
            *self.delivered.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        }
        Ok(delivery)
    }

    async fn was_delivered(&self, prompt: &PromptId) -> Result<bool, AgentError> {
        Ok(self.find(prompt).await? != history::Found::No)
    }

    async fn watch(
        &self,
        prompt: &PromptId,
        policy: &Policy,
        sink: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Turn, Box<FailedTurn>> {
        watch::Watch::new(self, prompt, policy, sink).run().await
    }

    async fn answer(&self, question: &QuestionId, answer: &Answer) -> Result<Answered, AgentError> {
        self.reply(question, answer).await
    }

    async fn abort(&self, prompt: &PromptId) -> Result<(), AgentError> {
        self.end_turn(prompt).await
    }
}

/// A path of the API, in a directory.
#[derive(Debug)]
struct Path<'a> {
    route: String,
    directory: &'a str,
    loads: bool,
    /// How long the answer may be.
    most: usize,
}

impl<'a> Path<'a> {
    fn of(route: impl Into<String>, directory: &'a str) -> Self {
        Self { route: route.into(), directory, loads: false, most: SMALL }
    }

    /// Something of a session. The id may come from a box: it is looked at before it stands in a path.
    fn session(id: &str, rest: &str, directory: &'a str) -> Result<Self, AgentError> {
        named(id)?;
        Ok(Self::of(format!("/session/{id}{rest}"), directory))
    }

    /// The first request in a directory may take long.
    fn loading(mut self) -> Self {
        self.loads = true;
        self
    }

    fn at_most(mut self, bytes: usize) -> Self {
        self.most = bytes;
        self
    }

    fn bounds(&self, opencode: &OpenCode) -> Bounds {
        let within = if self.loads { opencode.timing.load } else { opencode.timing.request };
        Bounds { within, most: self.most }
    }

    fn written(&self) -> String {
        if self.directory.is_empty() {
            return self.route.clone();
        }
        let join = if self.route.contains('?') { '&' } else { '?' };
        format!("{}{join}directory={}", self.route, encoded(self.directory))
    }
}

/// Refuses what is no id of OpenCode's form.
fn named(id: &str) -> Result<(), AgentError> {
    if is_name(id) {
        Ok(())
    } else {
        Err(AgentError::Protocol { what: format!("{:?} as an id", wire::cut(id, 100)) })
    }
}

/// Whether it has the form of OpenCode's ids. What has not is neither asked for nor kept.
fn is_name(id: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !id.is_empty() && id.len() <= 128 && id.bytes().all(fine)
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(digit), 16).unwrap_or_default().to_ascii_uppercase());
            }
        }
    }
    out
}

async fn parse<T: DeserializeOwned + Send + 'static>(path: &Path<'_>, body: Bytes) -> Result<T, AgentError> {
    let read = if body.len() > READ_HERE {
        let reading = tokio::task::spawn_blocking(move || serde_json::from_slice(&body));
        reading
            .await
            .map_err(|error| error.to_string())
            .and_then(|read| read.map_err(|error| error.to_string()))
    } else {
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    };
    read.map_err(|error| AgentError::Protocol { what: format!("{}: {}", path.route, wire::cut(&error, 300)) })
}

fn refusal(path: &Path<'_>, response: &Response) -> AgentError {
    let message = wire::error_message(&response.body);
    match response.status {
        StatusCode::UNAUTHORIZED => AgentError::Unauthorized,
        StatusCode::NOT_FOUND => {
            AgentError::Unknown { what: if message.is_empty() { path.route.clone() } else { message } }
        }
        status => AgentError::Refused { status: status.as_u16(), message },
    }
}

impl From<Trouble> for AgentError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused(reason) | Trouble::Broken(reason) => Self::Unreachable { reason },
            Trouble::Late(within) => Self::NoAnswer { seconds: within.as_secs() },
            Trouble::TooLarge => Self::Protocol { what: "an answer over the limit of size".to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_encoded_in_a_path() {
        let path = Path::of("/x?limit=1", "/w s/ü&a=b#c");
        assert_eq!(path.written(), "/x?limit=1&directory=/w%20s/%C3%BC%26a%3Db%23c");
        assert_eq!(Path::of("/global/health", "").written(), "/global/health");
    }

    #[test]
    fn an_id_that_would_lead_elsewhere_is_refused() {
        for bad in ["", "../x", "ses_1/abort", "ses_1?x", "ses 1", "ses%2f", &"s".repeat(129)] {
            assert!(Path::session(bad, "", "/w").is_err(), "{bad:?}");
        }
        assert_eq!(Path::session("ses_aB1", "/abort", "").unwrap().written(), "/session/ses_aB1/abort");
    }

    #[tokio::test]
    async fn long_answers_are_read_elsewhere() {
        struct ReadBy(std::thread::ThreadId);
        impl<'de> serde::Deserialize<'de> for ReadBy {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::de::IgnoredAny::deserialize(deserializer)?;
                Ok(Self(std::thread::current().id()))
            }
        }
        let here = std::thread::current().id();
        for (length, expected) in [(10, true), (READ_HERE - 2, true), (READ_HERE, false)] {
            let body = Bytes::from(format!("\"{}\"", "x".repeat(length)));
            let ReadBy(thread) = parse(&Path::of("/x", ""), body).await.unwrap();
            assert_eq!(thread == here, expected, "{length}");
        }
        let body = Bytes::from("x".repeat(READ_HERE + 1));
        assert_eq!(parse::<ReadBy>(&Path::of("/x", ""), body).await.err().unwrap().code(), "agent_protocol");
    }

    #[test]
    fn no_password_is_shown() {
        let place = Place::Unix("/x".into());
        let options = Options { place, password: "CANARY".to_owned(), timing: Timing::default() };
        let shown = format!("{options:?} {:?}", OpenCode::new(options.clone()));
        assert!(!shown.contains("CANARY") && !shown.contains("b3BlbmNvZGU6"), "{shown}");
    }

    #[test]
    fn aborted_prompts_are_remembered_within_a_bound() {
        let place = Place::Unix("/x".into());
        let opencode = OpenCode::new(Options { place, password: String::new(), timing: Timing::default() });
        let id = |number: u8| {
            MessageId::new(model::session::Stamp { millis: u64::from(number), random: [number; 10] })
        };
        (0..=64).for_each(|number| opencode.remember_abort(&id(number)));
        assert!(
            !opencode.was_aborted(&id(0)) && opencode.was_aborted(&id(1)) && opencode.was_aborted(&id(64))
        );
    }
}
