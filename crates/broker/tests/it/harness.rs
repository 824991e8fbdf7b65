//! A provider that does what it is told, a box that says what it likes, and a meter that remembers.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use broker::{Broker, BrokerOptions, Endpoint, Limits, Meter, Outcome, Refusal, Spent, Ticket, Upstream};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use model::settings::Secret;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) const KEY: &str = "sk-CANARY-7f3a";
pub(crate) const TOKEN: &str = "box-0123456789abcdef";
/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a provider was asked.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn answer(status: u16, content_type: &str, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).boxed();
    Response::builder().status(status).header("content-type", content_type).body(body).unwrap()
}

/// A stream of events whose pieces come when the test says.
pub(crate) fn streamed(pieces: mpsc::Receiver<Bytes>) -> Answer {
    let stream = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok(Frame::data(piece)), pieces))
    });
    let body = BoxBody::new(StreamBody::new(stream));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

/// A stream of events without an end, and how much of it was taken.
pub(crate) fn endless(taken: &Arc<AtomicUsize>) -> Answer {
    let taken = Arc::clone(taken);
    let pieces = futures_util::stream::repeat_with(move || {
        taken.fetch_add(64 * 1024, Ordering::SeqCst);
        Ok(Frame::data(Bytes::from(vec![b' '; 64 * 1024])))
    });
    let body = BoxBody::new(StreamBody::new(pieces));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

/// It has come to a halt when nothing more is taken for a while. Returns how much was.
pub(crate) async fn at_a_halt(taken: &AtomicUsize) -> usize {
    eventually(|| (taken.load(Ordering::SeqCst) > 0).then_some(())).await;
    loop {
        let before = taken.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if taken.load(Ordering::SeqCst) == before {
            return before;
        }
    }
}

/// A provider on this machine's loopback.
#[derive(Debug, Clone)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) open: Arc<AtomicUsize>,
}

impl Provider {
    /// Answers what `make` makes of each request, once its body is there.
    pub(crate) async fn start(make: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let make = Arc::new(make);
        Self::start_with(move |request, seen| {
            let make = Arc::clone(&make);
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let line = format!("{} {}", parts.method, parts.uri);
                let one = Seen { line, headers: parts.headers, body };
                lock(&seen).push(one.clone());
                make(&one)
            })
        })
        .await
    }

    pub(crate) async fn start_with(
        make: impl Fn(Request<Incoming>, Arc<Mutex<Vec<Seen>>>) -> Answering + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let provider = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
            open: Arc::default(),
        };
        let (one, make, tasks) = (provider.clone(), Arc::new(make), TaskTracker::new());
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                one.connections.fetch_add(1, Ordering::SeqCst);
                one.open.fetch_add(1, Ordering::SeqCst);
                let (make, one) = (Arc::clone(&make), one.clone());
                tasks.spawn(async move {
                    let seen = Arc::clone(&one.seen);
                    let service = service_fn(move |request| {
                        let answering = make(request, Arc::clone(&seen));
                        async move { Ok::<_, Infallible>(answering.await) }
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ended = server.serve_connection(TokioIo::new(stream), service).await;
                    one.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        provider
    }

    /// One whose every connection is left to `serve`.
    pub(crate) async fn raw<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, tasks) = (listener.local_addr().unwrap(), TaskTracker::new());
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tasks.spawn(serve(stream));
            }
        });
        address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }
}

/// Remembers what every request used; refuses when told to.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) spent: Arc<Mutex<Vec<Spent>>>,
    pub(crate) refusal: Mutex<Option<Refusal>>,
    /// Of the run that is at work.
    pub(crate) over: Mutex<CancellationToken>,
}

#[derive(Debug)]
struct Stub {
    spent: Arc<Mutex<Vec<Spent>>>,
    over: CancellationToken,
}

impl Ticket for Stub {
    fn end(self: Box<Self>, spent: Spent) {
        lock(&self.spent).push(spent);
    }

    fn over(&self) -> CancellationToken {
        self.over.clone()
    }
}

impl Meter for Counting {
    fn begin(&self, _endpoint: Endpoint) -> Result<Box<dyn Ticket>, Refusal> {
        match *lock(&self.refusal) {
            Some(refusal) => Err(refusal),
            None => Ok(Box::new(Stub { spent: Arc::clone(&self.spent), over: lock(&self.over).clone() })),
        }
    }
}

/// A session with its broker.
#[derive(Debug, Clone)]
pub(crate) struct Rig {
    pub(crate) broker: Arc<Broker>,
    pub(crate) meter: Arc<Counting>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

pub(crate) fn no_roots() -> Arc<rustls::ClientConfig> {
    trusting(rustls::RootCertStore::empty())
}

pub(crate) fn trusting(roots: rustls::RootCertStore) -> Arc<rustls::ClientConfig> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions();
    Arc::new(builder.unwrap().with_root_certificates(roots).with_no_client_auth())
}

impl Rig {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::with(&format!("http://{address}/api/v1"), Limits::default(), no_roots())
    }

    pub(crate) fn limited(address: SocketAddr, limits: Limits) -> Self {
        Self::with(&format!("http://{address}/api/v1"), limits, no_roots())
    }

    pub(crate) fn with(url: &str, limits: Limits, tls: Arc<rustls::ClientConfig>) -> Self {
        let (meter, tasks) = (Arc::new(Counting::default()), TaskTracker::new());
        let broker = Broker::new(BrokerOptions {
            upstream: Upstream::parse(url).unwrap(),
            key: Some(Secret::new(KEY)),
            token: Secret::new(TOKEN),
            limits,
            meter: Arc::<Counting>::clone(&meter),
            tls,
            tasks: tasks.clone(),
        });
        Self { broker: broker.unwrap(), meter, stop: CancellationToken::new(), tasks }
    }

    /// A connection of the box.
    pub(crate) fn dial(&self) -> UnixStream {
        let (inside, outside) = UnixStream::pair().unwrap();
        self.serve(outside);
        inside
    }

    pub(crate) fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        self.tasks.spawn(Arc::clone(&self.broker).serve(stream, self.stop.clone()));
    }

    /// Says this on a connection of its own, and returns everything that comes back.
    pub(crate) async fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        exchange(self.dial(), bytes.as_ref()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> String {
        self.say(post(path, body)).await
    }

    /// What the last request used, once it is told.
    pub(crate) async fn spent(&self) -> Spent {
        eventually(|| lock(&self.meter.spent).last().copied()).await
    }

    pub(crate) async fn outcome(&self) -> Outcome {
        self.spent().await.outcome
    }
}

/// Writes everything and reads to the end. The key is in none of it.
pub(crate) async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut read = Vec::new();
    let both = async {
        // Who is refused early may be cut off while it still writes.
        let (_written, _read) = tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut read));
    };
    tokio::time::timeout(PATIENCE, both).await.expect("no end came");
    let text = String::from_utf8_lossy(&read).into_owned();
    assert!(!text.contains(KEY), "the key came back: {text}");
    text
}

pub(crate) fn head(line: &str, rest: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:4097\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n{rest}\r\n"
    )
}

pub(crate) fn post(path: &str, body: &str) -> String {
    let rest = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    head(&format!("POST {path}"), &rest) + body
}

#[track_caller]
pub(crate) fn assert_status(text: &str, status: u16) {
    assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "not {status}: {text:?}");
}

/// The JSON in an answer.
#[track_caller]
pub(crate) fn json(text: &str) -> serde_json::Value {
    let body = text.split_once("\r\n\r\n").expect("no body").1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[track_caller]
pub(crate) fn assert_code(text: &str, status: u16, code: &str) {
    assert_status(text, status);
    let error = &json(text)["error"];
    assert_eq!(error["code"], code, "{text}");
    assert!(error["message"].is_string() && error["type"].is_string(), "{text}");
}

/// Waits for a state.
pub(crate) async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it never came to be so")
}
