//! How the commands speak to the daemon: tools of the sessions server, called over its socket.
//!
//! ```text
//! call ─▶ connect (a daemon is started if none answers) ─▶ one POST, one connection ─▶ answer.rs: JSON, or events until it is there
//! ```
//!
//! A connection serves one request. A daemon that was killed meanwhile is no more than a request that is made again.

mod answer;
pub mod settings;

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use gateway::server::remote::door;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mcp::sse::Decoder;
use model::settings::ApiKey;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

use crate::app::Global;
use crate::config::{self, Environment, Purpose, Sources};
use crate::daemon::socket;
use crate::daemon::start::{self, Start};
use crate::exit::{Code, Failure};
use crate::state::StateDir;

use self::answer::{Heard, hear};

const REVISION: &str = "2026-07-28";
/// Where the tools are. The host is whoever listens on the socket.
const TOOLS: &str = "/mcp/sessions";
/// The only request of a connection.
pub(crate) const ID: u64 = 1;
/// What is read of one answer: the longest artifact twice over, in base64, with room.
const LONGEST: usize = 64 << 20;
/// How long an answer may take that nobody waits for on purpose.
const PATIENCE: Duration = Duration::from_mins(1);

/// Called with what is said while an answer is on its way.
pub type Told<'a> = &'a mut (dyn FnMut(&str) + 'a);

#[derive(Debug)]
pub struct Client {
    start: Start,
    settings: Option<HeaderValue>,
    tasks: TaskTracker,
}

/// The connection broke before the answer was there. Whether the request was carried out is not known.
#[derive(Debug, thiserror::Error)]
#[error("the daemon went away before it answered")]
pub struct Lost(#[source] hyper::Error);

/// Runs `work` with a client, in a runtime of its own.
pub fn with<T>(global: &Global, work: impl AsyncFnOnce(&Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { work(&Client::connect(global).await?).await })
}

impl Client {
    /// Finds the daemon of the state directory, or starts one.
    pub async fn connect(global: &Global) -> anyhow::Result<Self> {
        let current_dir = std::env::current_dir().context("could not find the current directory")?;
        let environment = Environment::of_process();
        let state = StateDir::locate_for_sessions(global.state_dir.as_deref(), environment, &current_dir)?;
        // One with mistakes is the daemon's to report: it may be running already.
        let sources =
            Sources { named: None, current_dir: &current_dir, environment, purpose: Purpose::Background };
        let config = config::load(&sources).ok();
        let key = config.as_ref().and_then(|config| match config.sessions.api_key.as_ref()? {
            ApiKey::Variable(name) => Some(name.as_str()),
            ApiKey::Given(_) => None,
        });
        let path = config.as_ref().and_then(|config| config.path.clone());
        let start = Start::new(StateDir::open(state)?, path, key);
        start::ensure(&start).await?;
        let settings = settings::header(std::env::vars_os())?;
        Ok(Self { start, settings, tasks: TaskTracker::new() })
    }

    /// Calls a tool. What comes back is its structured answer; an error of the tool is a [`Failure`] in its words.
    pub async fn call(&self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let body = request(tool, &arguments, None);
        self.post(tool, body, PATIENCE, &mut |_| ()).await
    }

    /// The same for a call that waits up to `wait` on purpose.
    pub async fn call_told(
        &self,
        tool: &str,
        arguments: Value,
        wait: Duration,
        told: Told<'_>,
    ) -> anyhow::Result<Value> {
        let body = request(tool, &arguments, Some(ID));
        self.post(tool, body, PATIENCE + wait, told).await
    }

    /// What the daemon says at a path, where no tool says it.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let asked = async {
            let request = Request::builder().method(Method::GET).uri(path).header(HOST, "callsign");
            let request = request.header(ACCEPT, "application/json").body(Full::default())?;
            let response = self.send(request).await?;
            let status = response.status();
            let body = whole(response).await?;
            answer::plain(status, &body)
        };
        in_time(PATIENCE, asked).await
    }

    async fn post(
        &self,
        tool: &str,
        body: Vec<u8>,
        patience: Duration,
        told: Told<'_>,
    ) -> anyhow::Result<Value> {
        let asked = async {
            let mut request = Request::builder()
                .method(Method::POST)
                .uri(TOOLS)
                .header(HOST, "callsign")
                .header(ACCEPT, "application/json, text/event-stream")
                .header(CONTENT_TYPE, "application/json")
                .header("mcp-protocol-version", REVISION)
                .header("mcp-method", "tools/call")
                .header("mcp-name", tool);
            if let Some(settings) = &self.settings {
                request = request.header(door::SETTINGS, settings);
            }
            let response = self.send(request.body(Full::new(Bytes::from(body)))?).await?;
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
                events(response, told).await
            } else {
                let status = response.status();
                answer::message(status, &whole(response).await?)
            }
        };
        in_time(patience, asked).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        let stream = TokioIo::new(self.stream().await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(Lost)?;
        // It ends with the answer. What goes wrong in it is seen by whoever reads that.
        self.tasks.spawn(connection);
        Ok(sender.send_request(request).await.map_err(Lost)?)
    }

    async fn stream(&self) -> anyhow::Result<UnixStream> {
        let path = socket::path(&self.start.state);
        let connected = match socket::connect(&path).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                start::ensure(&self.start).await?;
                socket::connect(&path).await
            }
            other => other,
        };
        connected.map_err(|error| {
            let message = format!("could not reach the daemon on {}: {error}", path.display());
            Failure::new(Code::Server, message).into()
        })
    }
}

fn request(tool: &str, arguments: &Value, token: Option<u64>) -> Vec<u8> {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "callsign", "version": env!("CARGO_PKG_VERSION") },
    });
    if let Some(token) = token {
        meta["progressToken"] = token.into();
    }
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params }).to_string().into_bytes()
}

async fn in_time<T>(patience: Duration, asked: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let late = || Failure::new(Code::Server, format!("the daemon did not answer within {patience:?}"));
    tokio::time::timeout(patience, asked).await.map_err(|_| late())?
}

async fn whole(response: Response<Incoming>) -> anyhow::Result<Vec<u8>> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(Lost)?.data_ref() {
            bytes.extend_from_slice(data);
        }
        anyhow::ensure!(bytes.len() <= LONGEST, "the daemon's answer is longer than 64 MiB");
    }
    Ok(bytes)
}

/// Reads events until the answer is among them.
async fn events(response: Response<Incoming>, told: Told<'_>) -> anyhow::Result<Value> {
    let mut body = response.into_body();
    let mut decoder = Decoder::new(LONGEST);
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(Lost)?.data_ref() {
            decoder.push(data)?;
        }
        while let Some(event) = decoder.event() {
            match hear(&event.data)? {
                Heard::Nothing => {}
                Heard::Progress(message) => told(&message),
                Heard::Answer(answer) => return answer::result(answer),
            }
        }
    }
    Err(answer::Unanswered.into())
}

/// Whether a request that only looks may be made again.
pub fn is_lost(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Lost>() || cause.is::<answer::Unanswered>())
}
