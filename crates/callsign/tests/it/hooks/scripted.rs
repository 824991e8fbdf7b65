//! A server by HTTP whose every byte the test decides, where the servers of `testkit` are too well-behaved.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request as it came. Names of headers are in lower case.
#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    pub(super) verb: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Request {
    pub(super) fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub(super) fn method(&self) -> String {
        self.message()["method"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn header(&self, name: &str) -> Vec<&str> {
        let own = self.headers.iter().filter(|(other, _)| other == name);
        own.map(|(_, value)| value.as_str()).collect()
    }

    /// The answer to it with this result.
    pub(super) fn answer(&self, result: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": self.message()["id"], "result": result }).to_string()
    }

    /// The answer with one text.
    pub(super) fn text(&self, text: &str) -> String {
        self.answer(&json!({ "content": [{ "type": "text", "text": text }] }))
    }

    /// A notification of progress for it.
    pub(super) fn progress(&self, step: u64) -> String {
        let token = &self.message()["params"]["_meta"]["progressToken"];
        let params = json!({ "progressToken": token, "progress": step });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }).to_string()
    }
}

/// The connection that a request came on. It is good for one answer.
#[derive(Debug)]
pub(super) struct Reply(TcpStream);

impl Reply {
    pub(super) async fn json(self, status: u16, body: &str) {
        self.whole(status, "content-type: application/json\r\n", body).await;
    }

    /// A whole answer with these lines of headers.
    pub(super) async fn whole(mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Status\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        self.write(&format!("{head}{body}")).await;
    }

    /// The head of a stream of events, which ends with this value.
    pub(super) async fn stream(mut self) -> Self {
        self.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").await;
        self
    }

    pub(super) async fn event(&mut self, data: &str) {
        self.write(&format!("data: {data}\n\n")).await;
    }

    pub(super) async fn event_as(&mut self, id: &str, data: &str) {
        self.write(&format!("id: {id}\ndata: {data}\n\n")).await;
    }

    /// Who does not listen any more is no matter of the server's.
    pub(super) async fn write(&mut self, text: &str) {
        drop(self.0.write_all(text.as_bytes()).await);
        drop(self.0.flush().await);
    }
}

/// The server. It ends with this value.
#[derive(Debug)]
pub(super) struct Scripted {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    _accepting: JoinSet<()>,
}

impl Scripted {
    /// Answers each request as `script` says.
    pub(super) async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Request, Reply) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&seen), Arc::new(script)));
        Self { address, seen, _accepting: accepting }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// What came, in order.
    pub(super) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What came of this method.
    pub(super) fn calls(&self, method: &str) -> Vec<Request> {
        let mut seen = self.seen();
        seen.retain(|request| request.method() == method);
        seen
    }
}

async fn accept<F, Fut>(listener: TcpListener, seen: Arc<Mutex<Vec<Request>>>, script: Arc<F>)
where
    F: Fn(Request, Reply) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
        connections.spawn(async move {
            let mut stream = stream;
            let Some(request) = read(&mut stream).await else { return };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            script(request, Reply(stream)).await;
        });
    }
}

/// None where the other side went away.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        more(stream, &mut bytes).await?;
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ');
    let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.filter_map(pair).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while bytes.len() < head + 4 + length {
        more(stream, &mut bytes).await?;
    }
    let body = String::from_utf8_lossy(&bytes[head + 4..head + 4 + length]).into_owned();
    Some(Request { verb, path, headers, body })
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let count = stream.read_buf(bytes).await.ok()?;
    (count > 0).then_some(())
}

/// What a well-behaved server answers to what every client says first, and to what nobody asked it for: status and
/// body. None: the test's own business.
pub(super) fn usual(request: &Request) -> Option<(u16, String)> {
    if request.verb != "POST" {
        return Some((if request.verb == "DELETE" { 200 } else { 405 }, String::new()));
    }
    let info = json!({ "name": "scripted", "version": "1" });
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    Some(match request.method().as_str() {
        "initialize" => {
            let version = "2025-11-25";
            let result =
                json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": info });
            (200, request.answer(&result))
        }
        "server/discover" => {
            let result = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
                "ttlMs": 0, "cacheScope": "private", "_meta": { "io.modelcontextprotocol/serverInfo": info },
            });
            (200, request.answer(&result))
        }
        method if method.starts_with("notifications/") => (202, String::new()),
        _ => return None,
    })
}

/// Answers the usual as usual; gives back what is left to answer.
pub(super) async fn greet(request: Request, reply: Reply) -> Option<(Request, Reply)> {
    match usual(&request) {
        None => Some((request, reply)),
        Some((status, body)) => {
            reply.json(status, &body).await;
            None
        }
    }
}
