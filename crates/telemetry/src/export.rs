//! Spans to a collector, by OTLP over HTTP.
//!
//! ```text
//! offer ─→ queue (4,096) ─→ gather (512, or 2 s) ─→ deliver: POST ─┬→ sent
//!                                                        ↑        ├→ refused: dropped
//!                                                        └─ wait ─┴→ unreachable, busy: again, for 5 minutes
//! ```
//!
//! One batch is under way at a time: while it waits, the queue fills, and what finds no room is dropped. So a
//! collector that is down costs a bounded amount of memory and no call any time.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::otlp::{self, Span};
use crate::prometheus::Counter;
use crate::trace::random;

/// How many spans may wait.
const QUEUE: usize = 4096;
/// How many go out at once.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(2);
/// How long a request may take, from the connection to the end of the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The first wait after a failure; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long a batch is tried, and the longest wait that a collector may ask for.
const GIVE_UP: Duration = Duration::from_mins(5);
/// How long the end may take.
const FLUSH: Duration = Duration::from_secs(2);
/// How long an unused connection is kept.
const KEEP: Duration = Duration::from_mins(1);
/// How much of an answer is read.
const ANSWER: usize = 64 * 1024;

pub struct ExportOptions {
    /// The whole of it, with `/v1/traces`.
    pub url: Uri,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub service: String,
    pub version: String,
    pub tls: Arc<rustls::ClientConfig>,
}

/// Headers and the address may hold secrets.
impl fmt::Debug for ExportOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&HeaderName> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("ExportOptions")
            .field("collector", &host_of(&self.url))
            .field("headers", &names)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// Where spans are handed in. Copies lead to the same queue.
#[derive(Debug, Clone)]
pub struct Exporter {
    queue: mpsc::Sender<Span>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    sent: Counter,
    dropped: Counter,
    /// A whole batch waits.
    full: Notify,
}

impl Exporter {
    /// Runs on `tasks` until `stop`; then what waits is sent within 2 s, or dropped.
    pub fn start(options: ExportOptions, tasks: &TaskTracker, stop: CancellationToken) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::default());
        tasks.spawn(Worker::new(options, waiting, Arc::clone(&shared), stop).run());
        Self { queue, shared }
    }

    /// Never waits. A span that finds no room is dropped and counted.
    pub fn offer(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.shared.dropped.one();
        } else if QUEUE - self.queue.capacity() >= BATCH {
            self.shared.full.notify_one();
        }
    }

    /// How many spans a collector has taken, and how many it will never see.
    pub fn counts(&self) -> (u64, u64) {
        (self.shared.sent.get(), self.shared.dropped.get())
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        QUEUE - self.queue.capacity()
    }
}

struct Worker {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    headers: HeaderMap,
    service: String,
    version: String,
    waiting: mpsc::Receiver<Span>,
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// Set when the end has begun.
    ends: Option<Instant>,
    health: Health,
    /// The next wait, if the collector does not name one.
    wait: Duration,
}

/// What was last said in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Unreachable,
    Refusing,
}

/// What became of a request.
enum Answer {
    /// All but so many were taken.
    Sent {
        rejected: u64,
    },
    /// It would not take them the next time either.
    Refused(StatusCode),
    Again {
        after: Option<Duration>,
        reason: String,
    },
}

impl Worker {
    fn new(
        options: ExportOptions,
        waiting: mpsc::Receiver<Span>,
        shared: Arc<Shared>,
        stop: CancellationToken,
    ) -> Self {
        let ExportOptions { url, headers: configured, service, version, tls } = options;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(DEADLINE));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(KEEP)
            .pool_timer(TokioTimer::new())
            .build(HttpsConnector::from((connector, tls)));
        let mut headers = HeaderMap::new();
        if let Ok(agent) = HeaderValue::try_from(format!("{service}/{version}")) {
            headers.insert(header::USER_AGENT, agent);
        }
        for (name, mut value) in configured {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self {
            client,
            url,
            headers,
            service,
            version,
            waiting,
            shared,
            stop,
            ends: None,
            health: Health::Well,
            wait: FIRST_WAIT,
        }
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.gather(&mut batch).await {
            self.deliver(&mut batch).await;
        }
        // From here on a span that is offered is dropped, by whoever offers it.
        self.waiting.close();
        self.begin_end();
        loop {
            self.take(&mut batch);
            if batch.is_empty() {
                return;
            }
            self.deliver(&mut batch).await;
        }
    }

    /// Waits for a batch. False: it is the last one.
    async fn gather(&mut self, batch: &mut Vec<Span>) -> bool {
        if self.ends.is_some() {
            return false;
        }
        let first = tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            first = self.waiting.recv() => first,
        };
        let Some(first) = first else { return false };
        batch.push(first);
        self.take(batch);
        let due = Instant::now() + GATHER;
        // Not woken by every span: that would cost more than the spans do. The word that a batch is full may be about
        // spans that have left since.
        while batch.len() + self.waiting.len() < BATCH && Instant::now() < due {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = self.shared.full.notified() => {}
                () = sleep_until(due) => {}
            }
        }
        self.take(batch);
        true
    }

    /// Fills a batch with what is there.
    fn take(&mut self, batch: &mut Vec<Span>) {
        while batch.len() < BATCH {
            match self.waiting.try_recv() {
                Ok(span) => batch.push(span),
                Err(_none) => return,
            }
        }
    }

    /// Sends a batch, or drops it. It is empty afterwards.
    async fn deliver(&mut self, batch: &mut Vec<Span>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = match self.try_for_long(batch).await {
            Some(rejected) => count.saturating_sub(rejected),
            None => 0,
        };
        self.shared.sent.add(sent);
        self.shared.dropped.add(count - sent);
        batch.clear();
    }

    /// How many of the spans were rejected; none: all of them are lost.
    async fn try_for_long(&mut self, batch: &[Span]) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let body = Bytes::from(otlp::encode(&self.service, &self.version, batch));
        let given_up = Instant::now() + GIVE_UP;
        loop {
            match self.attempt(body.clone()).await {
                Answer::Sent { rejected } => {
                    self.wait = FIRST_WAIT;
                    self.say_well();
                    return Some(rejected);
                }
                Answer::Refused(status) => {
                    self.say_refusing(status);
                    return None;
                }
                Answer::Again { after, reason } => {
                    self.say_unreachable(&reason);
                    let wait = after.map_or_else(|| self.next_wait(), |after| after.min(GIVE_UP));
                    let until = Instant::now() + wait;
                    if self.ends.is_some_and(|ends| until >= ends) {
                        return None;
                    }
                    self.pause(until).await;
                    if Instant::now() >= given_up {
                        return None;
                    }
                }
            }
        }
    }

    /// One request. When the end begins meanwhile, it has the time that is left: sent anew, it might arrive twice.
    async fn attempt(&mut self, body: Bytes) -> Answer {
        let mut sending = pin!(post(&self.client, &self.url, &self.headers, body));
        let late = || Answer::Again { after: None, reason: "no answer before the program ended".to_owned() };
        if self.ends.is_none() {
            tokio::select! {
                biased;
                answer = &mut sending => return answer,
                () = self.stop.cancelled() => self.ends = Some(Instant::now() + FLUSH),
            }
        }
        let ends = self.ends.unwrap_or_else(Instant::now);
        timeout_at(ends, sending).await.unwrap_or_else(|_late| late())
    }

    /// Ends early when the end begins, for a last try.
    async fn pause(&mut self, until: Instant) {
        if self.ends.is_some() {
            sleep_until(until).await;
            return;
        }
        let stopped = tokio::select! {
            () = self.stop.cancelled() => true,
            () = sleep_until(until) => false,
        };
        if stopped {
            self.begin_end();
        }
    }

    /// Somewhere between half of the wait and the whole, so that many processes do not come back at once.
    fn next_wait(&mut self) -> Duration {
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        let half = u64::try_from(wait.as_millis() / 2).unwrap_or(u64::MAX);
        Duration::from_millis(half + random() % (half + 1))
    }

    fn begin_end(&mut self) {
        self.ends.get_or_insert_with(|| Instant::now() + FLUSH);
    }

    fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
    }

    fn say_well(&mut self) {
        if self.health != Health::Well {
            self.health = Health::Well;
            tracing::info!(collector = host_of(&self.url), "the collector takes spans again");
        }
    }

    fn say_unreachable(&mut self, reason: &str) {
        if self.health != Health::Unreachable {
            self.health = Health::Unreachable;
            let collector = host_of(&self.url);
            tracing::warn!(
                collector,
                reason,
                "the collector cannot be reached; spans wait, then are dropped"
            );
        }
    }

    fn say_refusing(&mut self, status: StatusCode) {
        if self.health != Health::Refusing {
            self.health = Health::Refusing;
            let (collector, status) = (host_of(&self.url), status.as_u16());
            tracing::warn!(collector, status, "the collector refuses spans; they are dropped");
        }
    }
}

async fn post(
    client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Answer {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    *request.headers_mut() = headers.clone();
    let exchange = async {
        let response = client.request(request).await?;
        let (head, body) = response.into_parts();
        // Read to its end, so that the connection can be used again; what it says decides little.
        let read = Limited::new(body, ANSWER).collect().await;
        Ok((head, read.map(http_body_util::Collected::to_bytes).unwrap_or_default()))
    };
    match timeout(DEADLINE, exchange).await {
        Ok(Ok((head, body))) => judge(head.status, &head.headers, &body),
        Ok(Err(error)) => {
            Answer::Again { after: None, reason: causes::<hyper_util::client::legacy::Error>(&error) }
        }
        Err(_late) => Answer::Again { after: None, reason: "no answer within 10 s".to_owned() },
    }
}

fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    match status {
        status if status.is_success() => Answer::Sent { rejected: rejected(body) },
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            // Seconds, as OTLP has it. A date would need a clock that agrees with theirs.
            let after =
                headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            Answer::Again {
                after: after.map(Duration::from_secs),
                reason: format!("it answers {}", status.as_u16()),
            }
        }
        status => Answer::Refused(status),
    }
}

/// How many spans a collector did not want although it took the request.
fn rejected(body: &[u8]) -> u64 {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(body) else { return 0 };
    let count = &answer["partialSuccess"]["rejectedSpans"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

fn host_of(url: &Uri) -> String {
    match (url.host(), url.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    }
}

/// An error with what lies beneath it, on one line.
fn causes<E: Error>(error: &E) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
