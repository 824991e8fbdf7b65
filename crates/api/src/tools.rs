//! The sessions tools as an MCP server, both eras on one endpoint.

mod arguments;
mod asker;
mod cancel_run;
mod catalogue;
mod create_or_reuse_session;
mod export_changes;
mod get_run_logs;
mod get_status;
mod import_workspace;
mod list_artifacts;
mod list_sessions;
mod listed;
mod owners;
mod read_artifact;
mod refusal;
mod render;
mod schema;
mod server;
mod settle;
mod submit_task;
mod tasks;
mod terminate_session;
mod time;
mod wait;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use model::ports::store::Store;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sessions::Desk;

use self::asker::Asker;
use self::owners::Owners;
use self::server::Server;

pub use self::render::run as run_json;
pub use self::settle::{Settled, Settler};

pub type Body = BoxBody<Bytes, Infallible>;

/// What the socket is called. There is no other Host: the socket is nobody's but ours.
const HOSTS: [&str; 2] = ["callsign", "localhost"];

/// How long a session of the old era lives without a word. Longer than the longest wait, or an answer would be lost.
const SILENCE: Duration = Duration::from_hours(1);

/// The tools, for requests that come in on the daemon's own socket.
pub struct Tools<S> {
    endpoint: StreamableHttpService<Server<S>, LocalSessionManager>,
    owners: Owners,
}

impl<S> fmt::Debug for Tools<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").finish_non_exhaustive()
    }
}

pub fn service<S: Store + 'static>(desk: Desk<S>, settler: Arc<dyn Settler>) -> Tools<S> {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SILENCE);
    let sessions = Arc::new(sessions);
    // No page has any business here, so whatever names an origin is refused.
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(HOSTS)
        .enforce_origin_validation()
        .with_json_response(true);
    let owners = Owners::new(Arc::clone(&sessions));
    let server = move || Ok(Server::new(desk.clone(), Arc::clone(&settler)));
    Tools { endpoint: StreamableHttpService::new(server, sessions, config), owners }
}

impl<S: Store + 'static> Tools<S> {
    /// Whoever sends the request is trusted to say for whom; see `asker.rs` for the headers. Never fails: what is wrong
    /// is in the response.
    pub async fn handle<B>(&self, mut request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Error: fmt::Display,
    {
        let asker = match Asker::take(request.headers_mut()) {
            Ok(asker) => asker,
            Err(problem) => return refused(problem),
        };
        let principal = asker.principal.clone();
        self.owners.hide_others(request.headers_mut(), &principal);
        request.extensions_mut().insert(asker);
        let response = self.endpoint.handle(request).await;
        self.owners.note(response.headers(), principal);
        response
    }

    /// Ends every wait and every stream. Runs go on.
    pub fn stop(&self) {
        self.endpoint.config.cancellation_token.cancel();
    }
}

fn refused(problem: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(problem.as_bytes())).boxed());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}
