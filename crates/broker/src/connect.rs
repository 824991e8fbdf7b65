//! Connections to addresses that were checked, and to no other.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use tower_service::Service;

/// How long a connection may take to come about, its name and all its addresses included.
const CONNECT: Duration = Duration::from_secs(10);

/// Which addresses a connection may go to.
pub(crate) trait Reach: fmt::Debug + Send + Sync + 'static {
    /// `Err` says why not, to whoever asked.
    fn permits(&self, address: SocketAddr) -> Result<(), String>;
}

/// No connection goes there, ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Denied(String);

pub(crate) async fn connect(reach: &dyn Reach, host: &str, port: u16) -> io::Result<TcpStream> {
    match tokio::time::timeout(CONNECT, try_all(reach, host, port)).await {
        Ok(connected) => connected,
        Err(_late) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s")),
    }
}

async fn try_all(reach: &dyn Reach, host: &str, port: u16) -> io::Result<TcpStream> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut addresses: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => tokio::net::lookup_host((bare, port))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::NotFound, "its name is not known"))?
            .collect(),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    addresses.retain(|address| match reach.permits(*address) {
        Ok(()) => true,
        Err(reason) => {
            last = io::Error::new(io::ErrorKind::PermissionDenied, Denied(reason));
            false
        }
    });
    for (index, address) in addresses.iter().enumerate() {
        // One that does not answer leaves time for the next.
        let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match tokio::time::timeout(CONNECT / left, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_late) => last = io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s"),
        }
    }
    Err(last)
}

/// The same for an HTTP client.
#[derive(Debug, Clone)]
pub(crate) struct Connector(pub(crate) Arc<dyn Reach>);

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let reach = Arc::clone(&self.0);
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            connect(reach.as_ref(), host, port).await.map(TokioIo::new)
        })
    }
}

/// Runs what an HTTP client leaves to others, where its owner can wait for it.
#[derive(Debug, Clone)]
pub(crate) struct Tracked(pub(crate) TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// What went wrong, and whether it will the next time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) text: String,
    pub(crate) lasts: bool,
}

/// The innermost cause says it best; those around it only say that something did not work.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> Cause {
    let mut lasts = false;
    let mut innermost: &(dyn Error + 'static) = error;
    loop {
        lasts |= innermost.is::<Denied>() || innermost.is::<rustls::Error>();
        // An I/O error does not name what it holds as its source, but what that has as its own.
        let held = innermost.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let held = held.map(|held| held as &(dyn Error + 'static));
        match held.or_else(|| innermost.source()) {
            Some(next) => innermost = next,
            None => break,
        }
    }
    Cause { text: plain(innermost), lasts }
}

/// Without the numbers of the system, which OpenCode would take for something else.
fn plain(error: &(dyn Error + 'static)) -> String {
    let kind = error.downcast_ref::<io::Error>().map(|error| (error.kind(), error.raw_os_error()));
    let text = match kind {
        Some((io::ErrorKind::ConnectionRefused, _)) => "connection refused".to_owned(),
        Some((io::ErrorKind::ConnectionReset, _)) => "the connection was reset".to_owned(),
        Some((kind, Some(_))) => kind.to_string(),
        Some(_) | None => error.to_string(),
    };
    text.chars().filter(|character| !character.is_control()).take(300).collect()
}
