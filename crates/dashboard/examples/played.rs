//! Serves the dashboard over a source that plays, on loopback, to be looked at: `cargo run -p dashboard --example played [PORT [WORD]]`.
//!
//! The token is `cs_local`. A further word is put into every text, to see what becomes of it.

#[path = "../tests/it/played.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "it is made for tests, which use more of it")]
mod played;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dashboard::{Auth, Dashboard, Options};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use model::Principal;
use played::Played;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "it is for a person")]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let source = std::env::args().nth(2).map_or_else(Played::new, |word| Played::saying(&word));
    let beat = source.beat.clone();
    let auth = Auth::Tokens(Arc::new(|token| (token == "cs_local").then(Principal::local)));
    let dashboard = Arc::new(Dashboard::new(source, Options { auth, stop: CancellationToken::new() }));
    let link = dashboard.one_time_link("cs_local").unwrap_or_default();
    println!("http://{}{link}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = second.tick() => beat.send_modify(|beat| *beat += 1),
            Some(_over) = connections.join_next() => {}
            accepted = listener.accept() => {
                let (stream, peer) = accepted?;
                let dashboard = Arc::clone(&dashboard);
                connections.spawn(async move {
                    let service = service_fn(|request| {
                        let dashboard = &dashboard;
                        async move { Ok::<_, Infallible>(dashboard.handle(request, Some(peer.ip())).await) }
                    });
                    let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        }
    }
}
