//! The fixtures at `/mcp` over Streamable HTTP, both eras on the one endpoint.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Fixtures;
use super::server::Server;
use super::streams::Streams;

type Endpoint = StreamableHttpService<Server, Streams>;
type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// Serves until the process ends. Prints the address once it accepts connections, so that a caller
/// who gave port 0 learns which port it is.
pub async fn serve(fixtures: Fixtures, address: SocketAddr) -> io::Result<()> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the fixture server has no authentication and listens on loopback only",
        ));
    }
    let listener = TcpListener::bind(address).await?;
    writeln!(io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    io::stdout().flush()?;

    let endpoint = endpoint(&fixtures);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                // Several small writes make one event; with Nagle's algorithm each call costs 40 ms.
                socket.set_nodelay(true)?;
                connections.spawn(connection(socket, endpoint.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

fn endpoint(fixtures: &Fixtures) -> Endpoint {
    // The library checks Host by itself but Origin only when told to.
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])
        .enforce_origin_validation();
    let streams = fixtures.streams.clone();
    let fixtures = fixtures.clone();
    StreamableHttpService::new(move || Ok(Server::new(fixtures.clone())), streams, config)
}

async fn connection(socket: TcpStream, endpoint: Endpoint) {
    let service = service_fn(move |request: Request<Incoming>| {
        let endpoint = endpoint.clone();
        async move { Ok::<Response<Body>, Infallible>(respond(&endpoint, request).await) }
    });
    // A client that goes away in the middle of an exchange is no event for a fixture.
    drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await);
}

async fn respond(endpoint: &Endpoint, request: Request<Incoming>) -> Response<Body> {
    if request.uri().path() == "/mcp" {
        return endpoint.handle(request).await;
    }
    let mut response = Response::new(Empty::new().boxed());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
