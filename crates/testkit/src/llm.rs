//! A model that says what its prompt tells it to say, so that real hosts run without a real model.
//!
//! It speaks `OpenAI` chat completions (`OpenCode`), `OpenAI` Responses (Codex) and Anthropic messages (Claude
//! Code) on one port, and has no memory: where a conversation stands is read from each request. The script
//! is a JSON list between `<<<` and `>>>` in the last user text that has one:
//!
//! ```text
//! Please <<<[{"calls": [{"tool": "std/whoami"}, {"tool": "std/whoami"}]}, {"text": "done"}]>>>
//! ```
//!
//! | step | what the model does |
//! |---|---|
//! | `{"tool": NAME, "args": {…}}` | calls one tool |
//! | `{"calls": [{"tool": …}, …]}` | calls several at once |
//! | `{"spawn": PROMPT}` | starts a subagent; the prompt may hold a script of its own |
//! | `{"text": …}` | says it, which ends the turn |
//! | `{"status": 500, "message": …}` | fails as a provider does |
//! | `{"delay": MS}` | waits, then goes on with the next step; other steps may have a `delay` as well |
//!
//! `std/whoami` is the tool `whoami` of the MCP server `std` in each host's own spelling; a name without `/`
//! is taken as it is. `raw_args` instead of `args` is sent as it is, even where it is no JSON object.
//! After the last step the model ends the turn with what the last tool said. A request that offers no tools
//! (a title, a summary) gets a plain text.
//!
//! **Invariant:** an id of a call is given out once by one model, and holds the step that made it: the next
//! step is found even where a host reorders parallel calls.

mod anthropic;
mod chat;
mod conversation;
pub mod provider;
mod responses;
mod script;

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::conversation::{Ids, Say};
use self::script::Answer as Next;
use crate::sse::Answer;

pub use self::script::script;

/// A running model. Drop ends it.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub number: u64,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Null where the body was no JSON.
    pub body: Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
struct Shared {
    count: AtomicU64,
    asked: Mutex<Vec<Asked>>,
    file: Option<File>,
}

impl ScriptedModel {
    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> Self {
        Self::start_at(0, None).expect("a port for the scripted model")
    }

    /// Listens on this port; every request is also appended to the file as a line of JSON.
    pub fn start_at(port: u16, log: Option<&Path>) -> std::io::Result<Self> {
        let file = log.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        let shared = Arc::new(Shared { file, ..Shared::default() });
        let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // A thread and a runtime of its own: tests block, and some have no runtime at all.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("scripted-model".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, serving) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`, the base of the Anthropic API; the two others have `/v1` after it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, in the order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// What was asked so far is not kept any longer: conversations of many turns add up.
    pub fn forget(&self) {
        lock(&self.shared.asked).clear();
    }

    /// All that hosts have sent to the model so far, as one text to search in.
    pub fn everything(&self) -> String {
        let texts: Vec<String> =
            lock(&self.shared.asked).iter().map(|asked| asked.body.to_string()).collect();
        texts.join("\n")
    }

    /// Waits until the model ends: never, unless its thread fails.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener of this runtime");
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        drop(stream.set_nodelay(true));
        while connections.try_join_next().is_some() {}
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let shared = shared.clone();
            async move { Ok::<_, std::convert::Infallible>(handle(&shared, request).await) }
        });
        // A host that hangs up is its own business; the model goes on.
        connections.spawn(async move {
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// The three APIs.
#[derive(Debug, Clone, Copy)]
enum Wire {
    Chat,
    Responses,
    Anthropic,
}

async fn handle(shared: &Shared, request: Request<Incoming>) -> Response<Answer> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let number = shared.count.fetch_add(1, Ordering::Relaxed) + 1;
    let path = parts.uri.path().to_owned();
    shared.note(Asked {
        number,
        method: parts.method.to_string(),
        path: path.clone(),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        body: body.clone(),
    });
    if parts.method != Method::POST {
        return json_answer(200, &json!({ "object": "list", "data": [], "models": [] }));
    }
    let wire = match path.as_str() {
        path if path.ends_with("/chat/completions") => Wire::Chat,
        path if path.ends_with("/responses") => Wire::Responses,
        path if path.ends_with("/messages") => Wire::Anthropic,
        path if path.ends_with("/count_tokens") => return json_answer(200, &json!({ "input_tokens": 1 })),
        _ => return json_answer(404, &json!({ "error": { "message": "the model has no such path" } })),
    };
    answer(wire, number, &body).await
}

async fn answer(wire: Wire, number: u64, body: &Value) -> Response<Answer> {
    let conversation = match wire {
        Wire::Chat => chat::read(body),
        Wire::Responses => responses::read(body),
        Wire::Anthropic => anthropic::read(body),
    };
    let next = conversation.next();
    tokio::time::sleep(Duration::from_millis(next.delay)).await;
    let say = match next.answer {
        Next::Fail { status, message } => {
            return json_answer(status, &json!({ "error": { "message": message, "type": "scripted" } }));
        }
        Next::Text(text) => Say::Text(text),
        Next::Calls(calls) => conversation.spell(&calls),
    };
    let ids = Ids { number, step: next.step };
    match wire {
        Wire::Chat => stream(chat::write(&ids, body, &say)),
        Wire::Responses => stream(responses::write(&ids, &say)),
        Wire::Anthropic if body["stream"] == true => stream(anthropic::write(&ids, body, &say)),
        Wire::Anthropic => json_answer(200, &anthropic::whole(&ids, body, &say)),
    }
}

impl Shared {
    fn note(&self, asked: Asked) {
        if let Some(mut file) = self.file.as_ref() {
            let Asked { number, method, path, headers, body } = &asked;
            let mut line =
                json!({ "number": number, "method": method, "path": path, "headers": headers, "body": body })
                    .to_string();
            line.push('\n');
            file.write_all(line.as_bytes()).expect("the log can be written");
        }
        lock(&self.asked).push(asked);
    }
}

/// An event stream; the events are there at once, since a script has nothing to think about.
fn stream(events: String) -> Response<Answer> {
    with(200, "text/event-stream", events)
}

fn json_answer(status: u16, body: &Value) -> Response<Answer> {
    with(status, "application/json", body.to_string())
}

fn with(status: u16, kind: &'static str, body: String) -> Response<Answer> {
    let mut response = Response::new(Answer::whole(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::BAD_GATEWAY);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
