use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::otlp::{Kind, Status};
use crate::trace::Trace;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A collector that answers what it is told to, and 200 after that.
#[derive(Debug, Clone)]
struct Collector {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    answers: Arc<Mutex<VecDeque<Reply>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug, Clone)]
struct Seen {
    at: Instant,
    head: String,
    headers: HeaderMap,
    names: Vec<String>,
}

#[derive(Debug, Clone)]
enum Reply {
    Status(u16, Vec<(&'static str, &'static str)>, &'static str),
    /// The connection ends without an answer.
    HangUp,
    Never,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Collector {
    async fn start(answers: Vec<Reply>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self::serve(listener, answers)
    }

    fn serve(listener: TcpListener, answers: Vec<Reply>) -> Self {
        let collector = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            answers: Arc::new(Mutex::new(answers.into())),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        collector.tasks.spawn(collector.clone().accept(listener));
        collector
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            let stream = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted.unwrap().0,
            };
            let (this, stop) = (self.clone(), self.stop.clone());
            self.tasks.spawn(async move {
                let service = service_fn(|request| this.answer(request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    () = stop.cancelled() => {}
                    _ended = serving => {}
                }
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let head = format!("{} {}", request.method(), request.uri());
        let headers = request.headers().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Json = serde_json::from_slice(&body).unwrap();
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let names = spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect();
        lock(&self.seen).push(Seen { at: Instant::now(), head, headers, names });
        let reply = lock(&self.answers).pop_front().unwrap_or(Reply::Status(200, vec![], "{}"));
        match reply {
            Reply::HangUp => Err(io::Error::other("hung up")),
            Reply::Never => std::future::pending().await,
            Reply::Status(status, headers, body) => {
                let mut response = Response::new(Full::new(Bytes::from(body)));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                for (name, value) in headers {
                    response.headers_mut().insert(name, HeaderValue::from_static(value));
                }
                Ok(response)
            }
        }
    }

    fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }

    fn sizes(&self) -> Vec<usize> {
        self.seen().iter().map(|seen| seen.names.len()).collect()
    }

    async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn tls() -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// An exporter with what it runs on.
struct Rig {
    exporter: Exporter,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Rig {
    fn new(address: SocketAddr) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let options = ExportOptions {
            url: format!("http://{address}/v1/traces?key=canary").parse().unwrap(),
            headers: vec![(header::AUTHORIZATION, HeaderValue::from_static("Bearer canary"))],
            service: "callsign".to_owned(),
            version: "0.1.0".to_owned(),
            tls: tls(),
        };
        assert!(!format!("{options:?}").contains("canary"));
        Self { exporter: Exporter::start(options, &tasks, stop.clone()), tasks, stop }
    }

    fn offer(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.exporter.offer(span(number));
        }
    }

    async fn counts(&self, expected: (u64, u64)) {
        wait_for(|| self.exporter.counts() == expected, || format!("{:?}", self.exporter.counts())).await;
    }

    /// Returns how long the end took.
    async fn end(&self) -> Duration {
        let begun = Instant::now();
        self.stop.cancel();
        self.tasks.close();
        timeout(PATIENCE, self.tasks.wait()).await.unwrap();
        begun.elapsed()
    }
}

async fn wait_for(done: impl Fn() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not come: {}", state());
        sleep(Duration::from_millis(5)).await;
    }
}

fn span(number: usize) -> Span {
    Span {
        trace: Trace::fresh(),
        name: number.to_string(),
        kind: Kind::Client,
        start_unix_nanos: 1,
        end_unix_nanos: 2,
        status: Status::Unset,
        attributes: Vec::new(),
    }
}

/// What was logged, for as long as the guard lives.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines of this crate.
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(lock(&self.0).clone()).unwrap();
        text.lines().filter(|line| line.contains("telemetry")).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_full_batch_goes_at_once_and_the_rest_after_a_while() {
    let collector = Collector::start(vec![]).await;
    let rig = Rig::new(collector.address);
    let begun = Instant::now();
    rig.offer(0..1100);
    rig.counts((1100, 0)).await;
    assert_eq!(collector.sizes(), [512, 512, 76]);
    let seen = collector.seen();
    let names: Vec<String> = seen.iter().flat_map(|seen| seen.names.clone()).collect();
    assert_eq!(names, (0..1100).map(|number| number.to_string()).collect::<Vec<_>>(), "in order, each once");
    assert!(seen[1].at - begun < GATHER, "a full batch waits for nothing");
    assert!(seen[2].at - begun >= GATHER, "the rest waits for more");
    assert_eq!(seen[0].head, "POST /v1/traces?key=canary");
    assert_eq!(seen[0].headers["content-type"], "application/json");
    assert_eq!(seen[0].headers["authorization"], "Bearer canary");
    assert_eq!(seen[0].headers["user-agent"], "callsign/0.1.0");
    assert!(rig.end().await < GATHER);
    collector.end().await;
}

#[tokio::test]
async fn a_batch_that_fills_while_it_is_gathered_does_not_wait() {
    let collector = Collector::start(vec![]).await;
    let rig = Rig::new(collector.address);
    rig.offer(0..1);
    // The worker has taken the first and waits for others.
    wait_for(|| rig.exporter.waiting() == 0, String::new).await;
    let begun = Instant::now();
    rig.offer(1..513);
    rig.counts((512, 0)).await;
    assert!(begun.elapsed() < GATHER);
    rig.end().await;
    assert_eq!(collector.sizes(), [512, 1]);
    collector.end().await;
}

#[tokio::test]
async fn what_a_collector_cannot_take_now_is_sent_again() {
    let (log, _guard) = Log::start();
    for reply in [
        Reply::Status(503, vec![], "busy"),
        Reply::Status(429, vec![], ""),
        Reply::Status(502, vec![], ""),
        Reply::Status(504, vec![("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], ""),
        Reply::HangUp,
    ] {
        let before = log.lines().len();
        let collector = Collector::start(vec![reply.clone(), reply.clone()]).await;
        let rig = Rig::new(collector.address);
        rig.offer(0..512);
        rig.counts((512, 0)).await;
        assert_eq!(collector.sizes(), [512, 512, 512], "{reply:?}");
        let seen = collector.seen();
        assert!(seen[1].at - seen[0].at >= FIRST_WAIT / 2, "{reply:?}");
        assert!(seen[2].at - seen[1].at >= FIRST_WAIT, "each wait is longer");
        rig.end().await;
        collector.end().await;
        let lines = &log.lines()[before..];
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].contains("cannot be reached") && lines[1].contains("again"), "{lines:#?}");
    }
    assert!(!log.lines().join("\n").contains("canary"));
}

#[tokio::test]
async fn a_wait_that_a_collector_asks_for_is_kept() {
    let busy = Reply::Status(503, vec![("retry-after", "2")], "");
    let collector = Collector::start(vec![busy]).await;
    let rig = Rig::new(collector.address);
    rig.offer(0..512);
    rig.counts((512, 0)).await;
    let seen = collector.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(2));
    rig.end().await;
    collector.end().await;
}

#[tokio::test]
async fn what_a_collector_refuses_is_dropped_and_said_once() {
    let (log, _guard) = Log::start();
    let refused = |status| Reply::Status(status, vec![("location", "/elsewhere")], "canary");
    let collector = Collector::start([400, 401, 404, 413, 500, 307].map(refused).into()).await;
    let rig = Rig::new(collector.address);
    for batch in 0..6 {
        rig.offer(0..512);
        rig.counts((0, 512 * (batch + 1))).await;
    }
    rig.offer(0..512);
    rig.counts((512, 512 * 6)).await;
    rig.end().await;
    assert_eq!(collector.sizes(), [512; 7], "nothing is sent twice, and nothing followed");
    collector.end().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("refuses") && lines[0].contains("400"), "{lines:#?}");
    assert!(!lines.join("").contains("canary"));
}

#[tokio::test]
async fn spans_that_a_collector_rejects_are_not_counted_as_sent() {
    let partly = |body| Reply::Status(200, vec![], body);
    let collector = Collector::start(vec![
        partly(r#"{"partialSuccess":{"rejectedSpans":"12","errorMessage":"too old"}}"#),
        partly(r#"{"partialSuccess":{"rejectedSpans":8}}"#),
        partly(r#"{"partialSuccess":{"rejectedSpans":"99999"}}"#),
        partly("not JSON"),
    ])
    .await;
    let rig = Rig::new(collector.address);
    for expected in [(500, 12), (1004, 20), (1004, 532), (1516, 532)] {
        rig.offer(0..512);
        rig.counts(expected).await;
    }
    rig.end().await;
    collector.end().await;
}

#[tokio::test]
async fn while_a_collector_is_down_calls_wait_for_nothing_and_the_newest_are_dropped() {
    let (log, _guard) = Log::start();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let rig = Rig::new(address);
    rig.offer(0..512);
    wait_for(|| rig.exporter.waiting() == 0 && !log.lines().is_empty(), || format!("{:?}", log.lines()))
        .await;
    rig.offer(512..512 + QUEUE + 100);
    assert_eq!(rig.exporter.counts(), (0, 100));
    assert_eq!(rig.exporter.waiting(), QUEUE);
    // It comes up, and gets what waited.
    let collector = Collector::serve(TcpListener::bind(address).await.unwrap(), vec![]);
    rig.counts((512 + QUEUE as u64, 100)).await;
    let names: Vec<String> = collector.seen().into_iter().flat_map(|seen| seen.names).collect();
    assert_eq!(names, (0..512 + QUEUE).map(|number| number.to_string()).collect::<Vec<_>>());
    rig.end().await;
    rig.exporter.offer(span(0));
    assert_eq!(rig.exporter.counts(), (512 + QUEUE as u64, 101), "nobody takes it any more");
    collector.end().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("cannot be reached") && lines[1].contains("again"), "{lines:#?}");
}

#[tokio::test]
async fn what_waits_is_sent_at_the_end() {
    let collector = Collector::start(vec![]).await;
    let rig = Rig::new(collector.address);
    rig.offer(0..1300);
    let took = rig.end().await;
    assert_eq!(rig.exporter.counts(), (1300, 0));
    assert_eq!(collector.sizes(), [512, 512, 276]);
    assert!(took < FLUSH);
    collector.end().await;
}

#[tokio::test]
async fn a_request_that_is_under_way_at_the_end_is_not_sent_twice() {
    let collector = Collector::start(vec![Reply::Never]).await;
    let rig = Rig::new(collector.address);
    rig.offer(0..600);
    wait_for(|| collector.sizes() == [512], || format!("{:?}", collector.sizes())).await;
    let took = rig.end().await;
    assert!(took >= FLUSH && took < FLUSH * 2, "{took:?}");
    assert_eq!(collector.sizes(), [512]);
    assert_eq!(rig.exporter.counts(), (0, 600));
    collector.end().await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_collector_that_is_down() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let rig = Rig::new(address);
    rig.offer(0..QUEUE);
    let took = rig.end().await;
    assert!(took < FLUSH + Duration::from_secs(1), "{took:?}");
    assert_eq!(rig.exporter.counts(), (0, QUEUE as u64));
}

#[tokio::test]
async fn the_end_interrupts_a_wait_and_tries_once_more() {
    let collector = Collector::start(vec![Reply::Status(503, vec![("retry-after", "100")], "")]).await;
    let rig = Rig::new(collector.address);
    rig.offer(0..512);
    wait_for(|| collector.sizes() == [512], || format!("{:?}", collector.sizes())).await;
    let took = rig.end().await;
    assert!(took < FLUSH, "{took:?}");
    assert_eq!((rig.exporter.counts(), collector.sizes()), ((512, 0), vec![512, 512]));
    collector.end().await;
}

#[tokio::test]
async fn it_ends_by_itself_when_nobody_can_offer_any_more() {
    let collector = Collector::start(vec![]).await;
    let Rig { exporter, tasks, stop: _stop } = Rig::new(collector.address);
    exporter.offer(span(0));
    drop(exporter);
    tasks.close();
    timeout(PATIENCE, tasks.wait()).await.unwrap();
    assert_eq!(collector.sizes(), [1]);
    collector.end().await;
}
