//! What stands between the driver and `OpenCode`: a socket, and now and then a cut.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use agent::Place;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinSet;

use crate::provider::read_request;

/// What happens to the next prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing.
    No = 0,
    /// The request is lost.
    Request = 1,
    /// `OpenCode` takes it, and its answer is lost.
    Answer = 2,
}

/// A unix socket that leads to `OpenCode`, as one into a box does. Runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    path: PathBuf,
    next: Arc<AtomicU8>,
    _directory: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(crate) fn start(opencode: SocketAddr) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("opencode.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let next = Arc::new(AtomicU8::new(0));
        let mut tasks = JoinSet::new();
        let cuts = next.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, opencode, cuts.clone()));
            }
        });
        Self { path, next, _directory: directory, _tasks: tasks }
    }

    pub(crate) fn place(&self) -> Place {
        Place::Unix(self.path.clone())
    }

    /// The next prompt is cut, once.
    pub(crate) fn cut(&self, cut: Cut) {
        self.next.store(cut as u8, Ordering::SeqCst);
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, opencode: SocketAddr, cuts: Arc<AtomicU8>) {
    let Some(request) = read_request(&mut stream).await else { return };
    let is_prompt =
        String::from_utf8_lossy(&request).lines().next().is_some_and(|line| line.contains("prompt_async"));
    let cut = if is_prompt { cuts.swap(Cut::No as u8, Ordering::SeqCst) } else { Cut::No as u8 };
    if cut == Cut::Request as u8 {
        return;
    }
    let mut behind = TcpStream::connect(opencode).await.expect("OpenCode");
    behind.write_all(&request).await.expect("OpenCode reads");
    if cut == Cut::Answer as u8 {
        let mut head = [0; 12];
        behind.read_exact(&mut head).await.expect("OpenCode answers");
        return;
    }
    drop(tokio::io::copy_bidirectional(&mut stream, &mut behind).await);
}
