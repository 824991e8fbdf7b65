//! The HTTP/1 accept loop that the test servers share.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::sse::Answer;

/// Binds, prints `listening on http://ADDR/mcp` on stdout, and serves until the process ends.
pub fn serve<F, Fut>(address: &str, handle: F) -> std::io::Result<()>
where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response<Answer>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .max_blocking_threads(4096)
        .thread_stack_size(256 * 1024)
        .build()?;
    runtime.block_on(accept(address, Arc::new(handle)))
}

async fn accept<F, Fut>(address: &str, handle: Arc<F>) -> std::io::Result<()>
where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response<Answer>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on http://{}/mcp", listener.local_addr()?)?;
    stdout.flush()?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        while connections.try_join_next().is_some() {}
        let handle = handle.clone();
        let service = service_fn(move |request| {
            let answer = handle(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        connections.spawn(async move {
            // A connection that breaks is the client's business; the server goes on.
            drop(
                http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}
