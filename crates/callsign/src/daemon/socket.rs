//! `daemon.sock`: the unix socket of a daemon, in its state directory.
//!
//! Whoever speaks on it is believed who they say calls. So nobody speaks on it but this user, or root: it is readable
//! and writable by its owner only, and who connects is looked at.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway::server::remote::door::{Door, Opening};
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exit::{Code, Failure};
use crate::state::{DaemonLock, StateDir};

const NAME: &str = "daemon.sock";
/// The same before it is in its place. A daemon that was killed may have left it.
const NEW: &str = ".new-daemon.sock";
/// What the kernel takes for the path of a socket, in bytes.
const LONGEST: usize = 107;
/// Connections at once.
const MAX_CONNECTIONS: usize = 4096;
/// How long a daemon may take to accept one more.
const ACCEPT: Duration = Duration::from_secs(5);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// How long a daemon may take to say that it is well.
const HEALTH: Duration = Duration::from_secs(2);
/// How long requests under way may take once we are asked to stop.
const DRAIN: Duration = Duration::from_secs(5);

pub type Body = BoxBody<Bytes, Infallible>;

pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// What answers a request.
pub type Service = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

pub fn path(state: &StateDir) -> PathBuf {
    state.file(NAME)
}

/// The socket of this daemon. Dropped, it takes the file away.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Replaces what a daemon that was killed has left: with the lock, no other is there.
    pub fn bind(state: &StateDir, _held: &DaemonLock) -> anyhow::Result<Self> {
        let path = path(state);
        let listener = bind(&state.file(NEW), &path).map_err(|error| {
            let message = format!("could not make the socket {}: {error}", path.display());
            let hint = "choose another directory with --state-dir, on a file system that takes sockets";
            Failure::new(Code::State, message).with_hint(hint)
        })?;
        Ok(Self { path, listener })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nobody is misled if it stays: nobody answers on it.
        let _stays = fs::remove_file(&self.path);
    }
}

/// It has its mode before it can be found.
fn bind(new: &Path, path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(Short::of(new)?.path())?;
    fs::set_permissions(new, Permissions::from_mode(0o600))?;
    fs::rename(new, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A path as the kernel takes it. One that is too long leads through its directory, held open.
struct Short {
    path: PathBuf,
    _directory: Option<File>,
}

impl Short {
    fn of(path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().as_bytes().len() <= LONGEST {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let directory = File::open(parent)?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _directory: Some(directory) })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Connects to the socket of a daemon. `NotFound` and `ConnectionRefused` mean that none runs.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = Short::of(path)?;
    let until = Instant::now() + ACCEPT;
    loop {
        match UnixStream::connect(short.path()).await {
            // It has not accepted as many as have come.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            connected => return connected,
        }
    }
}

/// Whether a daemon answers there.
pub async fn is_well(path: &Path) -> bool {
    let asked = async {
        let mut stream = connect(path).await?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: callsign\r\nConnection: close\r\n\r\n").await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        io::Result::Ok(head == *b"HTTP/1.1 200")
    };
    matches!(tokio::time::timeout(HEALTH, asked).await, Ok(Ok(true)))
}

/// The door to the daemon that we are ourselves.
#[derive(Debug)]
pub struct OwnDoor(pub PathBuf);

impl Door for OwnDoor {
    fn open(&self) -> Opening<io::Result<UnixStream>> {
        let path = self.0.clone();
        Box::pin(async move { connect(&path).await })
    }

    fn knock(&self) -> Opening<bool> {
        Box::pin(std::future::ready(true))
    }

    fn headers(&self) -> &[(&'static str, String)] {
        &[]
    }
}

/// Serves until `stop`, then lets what is under way finish.
pub async fn serve(listener: UnixListener, service: Service, stop: CancellationToken) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) if !is_let_in(&stream) => {
                tracing::warn!("a connection to the socket was refused: it is another user's");
            }
            Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(connection(stream, Arc::clone(&service), stop.clone()));
            }
            Ok(_) => tracing::warn!("a connection to the socket was refused: there are {MAX_CONNECTIONS}"),
            Err(error) => {
                // Out of descriptors, most likely: give those who hold them time to finish.
                tracing::warn!(%error, "could not accept a connection to the socket");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        tracing::debug!("{} connections to the socket did not finish in time", connections.len());
    }
    Ok(())
}

/// Whoever is root can be anybody.
fn is_let_in(stream: &UnixStream) -> bool {
    let ours = nix::unistd::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

async fn connection(stream: UnixStream, service: Service, stop: CancellationToken) {
    let answer = service_fn(|request: Request<Incoming>| {
        let answer = route(&service, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    // A client keeps connections that it does not use now: there is no deadline for the next head.
    let connection =
        http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the socket ended early");
    }
}

fn route(service: &Service, request: Request<Incoming>) -> Answer {
    match request.uri().path() {
        "/healthz" => said(StatusCode::OK, "ok\n"),
        path if path == "/mcp/sessions" || path.starts_with("/v1/") => service(request),
        _ => said(StatusCode::NOT_FOUND, "there is nothing here; sessions are at /mcp/sessions\n"),
    }
}

fn said(status: StatusCode, text: &'static str) -> Answer {
    Box::pin(std::future::ready(plain(status, text)))
}

/// A response of text.
pub fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
