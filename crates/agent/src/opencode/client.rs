//! One request, one connection, one deadline.
//!
//! Connections are not kept: one that was opened while OpenCode started stays mute for ever, and one to a box that was
//! restarted is dead. On a loopback a new one costs less than finding that out.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::sse::Decoder;
use super::{Place, Since};

/// How long an answer may take, and how many bytes of it are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) within: Duration,
    pub(super) most: usize,
}

type Io = TokioIo<Box<dyn ReadWrite>>;

trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

#[derive(Debug)]
pub(super) struct Client {
    place: Place,
    host: HeaderValue,
    authorization: HeaderValue,
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There was no connection, so nothing arrived.
    Refused(String),
    /// There was one, and it ended before the answer did.
    Broken(String),
    Late(Duration),
    TooLarge,
}

impl Client {
    pub(super) fn new(place: Place, password: &str) -> Self {
        let host = match &place {
            Place::Tcp(address) => address.to_string(),
            Place::Unix(_) | Place::Through(_) => "localhost".to_owned(),
        };
        let basic = format!("Basic {}", STANDARD.encode(format!("opencode:{password}")));
        let value = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        let mut authorization = value(basic);
        authorization.set_sensitive(true);
        Self { place, host: value(host), authorization }
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        bounds: Bounds,
    ) -> Result<Response, Trouble> {
        let Bounds { within, most } = bounds;
        let exchange = async {
            let (mut line, head) = self.begin(method, path, body).await?;
            let (parts, body) = head.into_parts();
            let read = line.wait(Limited::new(body, most).collect()).await.map_err(|error| {
                if error.is::<LengthLimitError>() { Trouble::TooLarge } else { broken(&*error) }
            })?;
            Ok(Response { status: parts.status, headers: parts.headers, body: read.to_bytes() })
        };
        timeout(within, exchange).await.unwrap_or(Err(Trouble::Late(within)))
    }

    /// Whether a stream may begin with what was told before.
    pub(super) fn has_kept_events(&self) -> bool {
        matches!(self.place, Place::Through(_))
    }

    /// Opens a stream of events. The deadline is for its head.
    pub(super) async fn events(&self, path: &str, since: Since, within: Duration) -> Result<Events, Trouble> {
        if let Place::Through(way) = &self.place {
            let opened = timeout(within, way.events(path, since)).await;
            let stream = opened.map_err(|_| Trouble::Late(within))?;
            let stream = stream.map_err(|error| Trouble::Refused(error.to_string()))?;
            return Ok(Events {
                source: Source::Bare { stream, piece: vec![0; PIECE].into() },
                decoder: Decoder::default(),
            });
        }
        let opened = timeout(within, self.begin(Method::GET, path, None)).await;
        let (line, head) = opened.unwrap_or(Err(Trouble::Late(within)))?;
        if !head.status().is_success() {
            return Err(Trouble::Broken(format!("no stream of events: status {}", head.status().as_u16())));
        }
        let source = Source::Http { line: Box::new(line), body: head.into_body() };
        Ok(Events { source, decoder: Decoder::default() })
    }

    async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(Line, http::Response<Incoming>), Trouble> {
        let io = self.connect().await.map_err(|error| Trouble::Refused(error.to_string()))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(io)).await.map_err(|error| broken(&error))?;
        let mut line = Line { connection: Some(connection) };
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| broken(&error))?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        if method != Method::GET {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        *request.method_mut() = method;
        let head = line.wait(sender.send_request(request)).await.map_err(|error| broken(&error))?;
        Ok((line, head))
    }

    async fn connect(&self) -> std::io::Result<Box<dyn ReadWrite>> {
        match &self.place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Place::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Place::Through(way) => Ok(Box::new(way.open().await?)),
        }
    }
}

fn broken(error: &(dyn Error + 'static)) -> Trouble {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Trouble::Broken(text)
}

/// A connection. It moves only while somebody waits on it, so that none outlives its owner.
struct Line {
    /// None once it has ended.
    connection: Option<http1::Connection<Io, Full<Bytes>>>,
}

impl Line {
    async fn wait<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        poll_fn(|context| {
            if let Some(connection) = &mut self.connection
                && Pin::new(connection).poll(context).is_ready()
            {
                self.connection = None;
            }
            match wanted.as_mut().poll(context) {
                Poll::Ready(value) => Poll::Ready(value),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// A stream of events.
pub(super) struct Events {
    source: Source,
    decoder: Decoder,
}

enum Source {
    Http {
        line: Box<Line>,
        body: Incoming,
    },
    /// Events and nothing around them.
    Bare {
        stream: UnixStream,
        piece: Box<[u8]>,
    },
}

/// As much of a bare stream as is read at once.
const PIECE: usize = 16 * 1024;

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Whether some that came before the last one were left out, and nobody has asked since.
    pub(super) fn take_gap(&mut self) -> bool {
        self.decoder.take_gap()
    }

    /// The data of the next event; none at the end of the stream. Nothing is lost where the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(data) = self.decoder.event() {
                return Some(data);
            }
            match &mut self.source {
                Source::Http { line, body } => {
                    let frame = line.wait(body.frame()).await?.ok()?;
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(&bytes);
                    }
                }
                Source::Bare { stream, piece } => {
                    // A future that is dropped has read nothing; and one that never has to wait gives others their turn.
                    match stream.read(piece).await {
                        Ok(0) | Err(_) => return None,
                        Ok(read) => self.decoder.push(&piece[..read]),
                    }
                }
            }
        }
    }
}
