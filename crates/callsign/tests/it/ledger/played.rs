//! Servers that a test plays itself: one on a pipe, one that answers in JSON, one in events, one of HTTP+SSE.
//!
//! What becomes of a call is said by the name of its tool, the same on each of them:
//!
//! | tool | what it does |
//! |---|---|
//! | `tool-error` | a result with `isError` |
//! | `rpc-error` | a JSON-RPC error |
//! | `large` | a result of 2 MiB |
//! | `invalid` | by HTTP: an answer that is cut off |
//! | `status` | HTTP 500 that tells the headers of the request |
//! | `hang-up` | goes away without an answer |
//! | `resumed` | in events: a stream that ends before its answer, which comes on another one |
//! | `silent` | no answer before it is cancelled |
//! | anything else | a result that tells the arguments |

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;

const LARGE: usize = 2 << 20;
const CUT_OFF: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":["#;

/// Passes a pipe on to the test, and ends with either side. Where the test hangs up it says all it knows.
const PIPE: &str = r#"exec 3<>/dev/tcp/127.0.0.1/$1 4<&0
(cat <&4 >&3; kill $$) >/dev/null 2>&1 &
cat <&3 &
trap "kill $!; exit" TERM
wait $!
env >&2
exit 7
"#;

/// A message as it came.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrived {
    pub(super) verb: String,
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Arrived {
    pub(super) fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub(super) fn meta(&self) -> Value {
        self.message()["params"]["_meta"].clone()
    }

    /// Who called, as it was told.
    pub(super) fn told(&self) -> Value {
        self.meta()["dev.callsign/identity"].clone()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The arguments byte by byte.
    pub(super) fn arguments(&self) -> Option<String> {
        let envelope: testkit::jsonrpc::Envelope<'_> = serde_json::from_str(&self.body).ok()?;
        let params = testkit::jsonrpc::Params::of(envelope.params);
        params.arguments.map(|raw| raw.get().to_owned())
    }
}

/// Does something with a call before it is answered, and gives the text of its result.
pub(super) type Look = Arc<dyn Fn(&Arrived) -> String + Send + Sync>;

#[derive(Default)]
struct Shared {
    arrived: Mutex<Vec<Arrived>>,
    /// Calls that wait to be cancelled, by their ids.
    waiting: Mutex<HashMap<String, Arc<Notify>>>,
    /// The streams of HTTP+SSE, by the number in their endpoint.
    streams: Mutex<Vec<broadcast::Sender<Option<String>>>>,
    /// Answers that are to be come back for, by the number in the id of their event.
    left: Mutex<Vec<String>>,
    look: Mutex<Option<Look>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of them. They end with this value.
pub(super) struct Played {
    http: SocketAddr,
    pipe: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Played {
    pub(super) async fn start() -> Self {
        let (by_http, by_pipe) = (listen().await, listen().await);
        let address = |listener: &TcpListener| listener.local_addr().expect("an address");
        let (http, pipe) = (address(&by_http), address(&by_pipe));
        let (shared, mut tasks) = (Arc::new(Shared::default()), JoinSet::new());
        tasks.spawn(accept(by_http, Arc::clone(&shared), |stream, shared| async move {
            requests(stream, &shared).await;
        }));
        tasks.spawn(accept(by_pipe, Arc::clone(&shared), |stream, shared| async move {
            lines(stream, &shared).await;
        }));
        Self { http, pipe, shared, _tasks: tasks }
    }

    /// Where one is: `/json`, `/events` or `/old`.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// The command of the one on a pipe.
    pub(super) fn command(&self) -> [String; 5] {
        ["bash", "-c", PIPE, "played", &self.pipe.port().to_string()].map(str::to_owned)
    }

    pub(super) fn look(&self, look: impl Fn(&Arrived) -> String + Send + Sync + 'static) {
        *lock(&self.shared.look) = Some(Arc::new(look));
    }

    /// What came, in order.
    pub(super) fn arrived(&self) -> Vec<Arrived> {
        lock(&self.shared.arrived).clone()
    }

    /// What came of a call that its client gave this name.
    pub(super) fn of(&self, call: &str) -> Vec<Arrived> {
        let mut arrived = self.arrived();
        arrived.retain(|arrived| arrived.meta()["mine/call"] == call);
        arrived
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

async fn accept<F, Fut>(listener: TcpListener, shared: Arc<Shared>, serve: F)
where
    F: Fn(TcpStream, Arc<Shared>) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&shared)));
    }
}

/// What is to be done about a message.
enum Act {
    Say(String),
    /// Later, to who comes back for it.
    Leave(String),
    /// A notification.
    Nothing,
    Status,
    Invalid,
    HangUp,
    Wait(Arc<Notify>),
}

fn act(shared: &Shared, arrived: &Arrived) -> Act {
    let message = arrived.message();
    lock(&shared.arrived).push(arrived.clone());
    let answer = |result: Value| {
        Act::Say(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string())
    };
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} });
    let info = json!({ "name": "played", "version": "1" });
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let version = if arrived.path.starts_with("/post") { "2024-11-05" } else { "2025-11-25" };
            answer(json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": info }))
        }
        "server/discover" => answer(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "private", "_meta": { "io.modelcontextprotocol/serverInfo": info },
        })),
        "notifications/cancelled" => {
            if let Some(waiting) = lock(&shared.waiting).remove(&message["params"]["requestId"].to_string()) {
                waiting.notify_one();
            }
            Act::Nothing
        }
        "tools/list" => answer(json!({ "tools": tools(), "ttlMs": 0, "cacheScope": "private" })),
        "tools/call" => call(shared, arrived, &message),
        _ if message.get("id").is_none() => Act::Nothing,
        _ => answer(json!({})),
    }
}

fn tools() -> Value {
    let workspace = json!({ "type": "object", "properties": { "workspace": { "type": "string" } }, "required": ["workspace"] });
    json!([
        { "name": "fine", "description": "Tells its arguments.", "inputSchema": { "type": "object" } },
        { "name": "task", "description": "Needs a workspace.", "inputSchema": workspace },
    ])
}

fn call(shared: &Shared, arrived: &Arrived, message: &Value) -> Act {
    let id = &message["id"];
    let whole = |more: Value| {
        let mut whole = json!({ "jsonrpc": "2.0", "id": id });
        whole.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        whole.to_string()
    };
    let result =
        |text: &str| json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] });
    let text = |text: &str| Act::Say(whole(json!({ "result": result(text) })));
    let told = message["params"]["arguments"].to_string();
    match message["params"]["name"].as_str().unwrap_or_default() {
        "tool-error" => {
            let mut result = result(&told);
            result["isError"] = true.into();
            Act::Say(whole(json!({ "result": result })))
        }
        "rpc-error" => {
            Act::Say(whole(json!({ "error": { "code": -32099, "message": "the server says no" } })))
        }
        "large" => text(&"L".repeat(LARGE)),
        "invalid" => Act::Invalid,
        "resumed" if arrived.path == "/events" => Act::Leave(whole(json!({ "result": result(&told) }))),
        "status" => Act::Status,
        "hang-up" => Act::HangUp,
        "silent" => {
            let waiting = Arc::new(Notify::new());
            lock(&shared.waiting).insert(id.to_string(), Arc::clone(&waiting));
            Act::Wait(waiting)
        }
        _ => {
            let look = lock(&shared.look).clone();
            // A look may start a program and wait for it.
            let looked = look.map(|look| tokio::task::block_in_place(|| look(arrived)));
            text(looked.as_deref().unwrap_or(&told))
        }
    }
}

/// The server on a pipe: lines over a socket.
async fn lines(stream: TcpStream, shared: &Shared) {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input).lines();
    while let Ok(Some(body)) = input.next_line().await {
        let said = match act(shared, &Arrived { path: "pipe".to_owned(), body, ..Arrived::default() }) {
            Act::Say(said) => said,
            Act::HangUp => return,
            Act::Nothing | Act::Wait(_) | Act::Status | Act::Invalid | Act::Leave(_) => continue,
        };
        if output.write_all(format!("{said}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One request and its answer.
async fn requests(stream: TcpStream, shared: &Shared) {
    let mut stream = BufReader::new(stream);
    let Some(arrived) = request(&mut stream).await else { return };
    let mut reply = Reply(stream.into_inner());
    if arrived.verb == "GET" && arrived.path == "/old" {
        return old_stream(shared, reply).await;
    }
    if let Some(number) = arrived.header("last-event-id").and_then(|id| id.strip_prefix("left-")) {
        let left = number.parse::<usize>().ok().and_then(|number| lock(&shared.left).get(number).cloned());
        return reply.events(&format!("id: answer\ndata: {}\n\n", left.unwrap_or_default())).await;
    }
    if arrived.verb != "POST" || arrived.path == "/old" {
        return reply.whole(405, "text/plain", "").await;
    }
    let (done, number) = (act(shared, &arrived), arrived.path.strip_prefix("/post/"));
    if let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) {
        return old_post(shared, reply, &arrived, (done, number)).await;
    }
    let is_events = arrived.path == "/events";
    match done {
        Act::Nothing => reply.whole(202, "text/plain", "").await,
        Act::Status => reply.status(&arrived).await,
        Act::HangUp if !is_events => {}
        Act::Say(said) if !is_events => reply.whole(200, "application/json", &said).await,
        Act::Invalid if !is_events => reply.whole(200, "application/json", CUT_OFF).await,
        Act::Wait(waiting) if !is_events => {
            reply.unless_gone(&waiting).await;
            reply.whole(202, "text/plain", "").await;
        }
        Act::Say(said) => reply.events(&format!("data: {said}\n\n")).await,
        Act::Invalid => reply.events(&format!("data: {CUT_OFF}\n\n")).await,
        Act::Leave(said) => {
            let number = {
                let mut left = lock(&shared.left);
                left.push(said);
                left.len() - 1
            };
            reply.events(&format!("retry: 20\nid: left-{number}\ndata:\n\n")).await;
        }
        Act::HangUp => reply.events(": nothing more\n\n").await,
        Act::Wait(waiting) => {
            reply.events(": wait\n\n").await;
            reply.unless_gone(&waiting).await;
        }
    }
}

/// The stream of HTTP+SSE on which all answers come.
async fn old_stream(shared: &Shared, mut reply: Reply) {
    let (sender, mut messages) = broadcast::channel(64);
    let number = {
        let mut streams = lock(&shared.streams);
        streams.push(sender);
        streams.len() - 1
    };
    reply.events(&format!("event: endpoint\ndata: /post/{number}\n\n")).await;
    while let Ok(Some(message)) = messages.recv().await {
        if !reply.write(&format!("event: message\ndata: {message}\n\n")).await {
            return;
        }
    }
}

async fn old_post(shared: &Shared, mut reply: Reply, arrived: &Arrived, (act, number): (Act, usize)) {
    let stream = lock(&shared.streams).get(number).cloned();
    let Some(stream) = stream else { return reply.whole(404, "text/plain", "").await };
    let tell = |message: Option<String>| drop(stream.send(message));
    match act {
        Act::Status => return reply.status(arrived).await,
        Act::Say(said) => tell(Some(said)),
        Act::HangUp => tell(None),
        Act::Nothing | Act::Wait(_) | Act::Invalid | Act::Leave(_) => {}
    }
    reply.whole(202, "text/plain", "").await;
}

/// The connection of one request.
struct Reply(TcpStream);

impl Reply {
    async fn write(&mut self, text: &str) -> bool {
        self.0.write_all(text.as_bytes()).await.is_ok() && self.0.flush().await.is_ok()
    }

    async fn whole(&mut self, status: u16, kind: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        self.write(&format!("{head}{body}")).await;
    }

    /// Tells the headers, as servers do that are debugged.
    async fn status(&mut self, arrived: &Arrived) {
        let body = format!("something is wrong here: {:?}", arrived.headers);
        self.whole(500, "text/plain", &body).await;
    }

    /// The head of a stream and what comes first on it.
    async fn events(&mut self, first: &str) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        self.write(&format!("{head}{first}")).await;
    }

    /// Waits for a cancel, or for the other side to go.
    async fn unless_gone(&mut self, waiting: &Notify) {
        let mut byte = [0];
        tokio::select! {
            () = waiting.notified() => {}
            _ = self.0.read(&mut byte) => {}
        }
    }
}

/// None where the other side went away.
pub(super) async fn request(stream: &mut BufReader<TcpStream>) -> Option<Arrived> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let mut arrived = Arrived { verb: words.next()?, path: words.next()?, ..Arrived::default() };
    if let Some((path, _)) = arrived.path.split_once('?') {
        arrived.path = path.to_owned();
    }
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        arrived.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = arrived.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    arrived.body = String::from_utf8_lossy(&body).into_owned();
    Some(arrived)
}
