//! A small JSON-RPC client of both eras, over a child's pipes or Streamable HTTP.
//!
//! [`Client`] is the comfortable one: requests, tools, notifications, server requests answered by a closure.
//! [`Http`] and [`raw_http`] are for tests that care about statuses, headers and bytes.
//! Every wait has a deadline, so that a gateway that hangs fails a test instead of stopping it.

mod events;
mod http;
mod shared;
mod stdio;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

pub use self::events::{Event, Events};
pub use self::http::{Http, Response, raw_http};
pub use self::shared::{Era, Failure, Responder, default_responder};
use self::shared::{Shared, lock};
use self::stdio::Stdio;

/// How long a request waits unless the test says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Notifications kept for the test; what comes after is counted in [`Client::dropped`].
const INCOMING: usize = 65_536;

enum Wire {
    Stdio(Stdio),
    Http(Http),
}

/// One client connection. Dropping it kills its child or drops its connections without a DELETE.
pub struct Client {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Value>>,
    tasks: Mutex<JoinSet<()>>,
    deadline: Duration,
}

/// A request under way.
#[derive(Debug)]
pub struct Call {
    pub id: Value,
    answer: oneshot::Receiver<Result<Value, Failure>>,
    task: Option<AbortHandle>,
}

impl Call {
    pub async fn wait(self, deadline: Duration) -> Result<Value, Failure> {
        match tokio::time::timeout(deadline, self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::Closed),
            Err(_) => Err(Failure::Deadline),
        }
    }

    /// Closes the stream of the answer: the modern way to cancel over HTTP.
    pub fn abandon(self) {
        if let Some(task) = self.task {
            task.abort();
        }
    }
}

impl Client {
    /// Starts a command and speaks to it over its pipes. Its stderr is kept, the last MiB of it.
    pub fn stdio(command: tokio::process::Command, era: Era) -> Self {
        Self::build(era, |shared, tasks| Wire::Stdio(Stdio::spawn(command, shared, tasks)))
    }

    pub fn http(url: &str, token: Option<&str>, era: Era) -> Self {
        Self::over(Http::new(url, token), era)
    }

    pub fn over(http: Http, era: Era) -> Self {
        Self::build(era, |_, _| Wire::Http(http))
    }

    fn build(era: Era, wire: impl FnOnce(&Arc<Shared>, &mut JoinSet<()>) -> Wire) -> Self {
        let (sender, receiver) = mpsc::channel(INCOMING);
        let shared = Arc::new(Shared {
            era,
            next_id: AtomicU64::new(1),
            pending: Mutex::default(),
            incoming: sender,
            dropped: AtomicU64::new(0),
            strays: Mutex::default(),
            requests: Mutex::default(),
            responder: Mutex::new(default_responder()),
        });
        let mut tasks = JoinSet::new();
        let wire = Arc::new(wire(&shared, &mut tasks));
        Self {
            shared,
            wire,
            incoming: tokio::sync::Mutex::new(receiver),
            tasks: Mutex::new(tasks),
            deadline: DEADLINE,
        }
    }

    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    #[must_use]
    pub fn with_responder(self, responder: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        *lock(&self.shared.responder) = Arc::new(responder);
        self
    }

    pub fn era(&self) -> Era {
        self.shared.era
    }

    /// Legacy: `initialize` and `initialized`. Modern: `server/discover`. Gives the server's answer.
    pub async fn connect(&self) -> Result<Value, Failure> {
        self.connect_with(json!({})).await
    }

    /// As [`Self::connect`], with these fields on top of the `initialize` params.
    pub async fn connect_with(&self, extra: Value) -> Result<Value, Failure> {
        if self.era() == Era::Modern {
            return self.request("server/discover", extra).await;
        }
        let mut params = json!({
            "protocolVersion": self.era().version(),
            "capabilities": { "roots": { "listChanged": true }, "sampling": {}, "elicitation": {} },
            "clientInfo": { "name": "testkit", "version": "0.1.0" },
        });
        merge(&mut params, extra);
        let answer = self.request("initialize", params).await?;
        self.notify("notifications/initialized", json!({})).await;
        Ok(answer)
    }

    pub async fn request(&self, method: &str, params: Value) -> Result<Value, Failure> {
        self.start(method, params).await.wait(self.deadline).await
    }

    /// Sends a request and does not wait for its answer.
    pub async fn start(&self, method: &str, params: Value) -> Call {
        let id = json!(self.shared.next_id.fetch_add(1, Ordering::Relaxed));
        self.start_as(id, method, params).await
    }

    /// As [`Self::start`], with an id of the test's choice.
    pub async fn start_as(&self, id: Value, method: &str, mut params: Value) -> Call {
        if self.era() == Era::Modern {
            let mut meta = modern_meta();
            merge(&mut meta, params["_meta"].take());
            params["_meta"] = meta;
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let (sender, answer) = oneshot::channel();
        drop(lock(&self.shared.pending).insert(id.to_string(), sender));
        let task = match &*self.wire {
            Wire::Stdio(stdio) => {
                if !stdio.send(&message).await {
                    self.shared.fail(&id, Failure::Closed);
                }
                None
            }
            Wire::Http(_) => {
                let (wire, shared, id) = (self.wire.clone(), self.shared.clone(), id.clone());
                Some(self.spawn(async move {
                    let Wire::Http(http) = &*wire else { return };
                    http.exchange(&shared, &message, Some(&id)).await;
                }))
            }
        };
        Call { id, answer, task }
    }

    pub async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// `notifications/cancelled` for a request of this client.
    pub async fn cancel(&self, id: &Value) {
        self.notify("notifications/cancelled", json!({ "requestId": id, "reason": "test" })).await;
    }

    /// Sends a message that wants no answer: a notification or a response.
    pub async fn send(&self, message: &Value) {
        match &*self.wire {
            Wire::Stdio(stdio) => drop(stdio.send(message).await),
            Wire::Http(http) => http.exchange(&self.shared, message, None).await,
        }
    }

    pub async fn try_tool(&self, name: &str, arguments: Value) -> Result<Value, Failure> {
        self.request("tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    /// The result of a tool; a JSON-RPC error fails the test.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> Value {
        match self.try_tool(name, arguments).await {
            Ok(result) => result,
            Err(failure) => panic!("tool {name} failed: {failure:?}\n{}", self.stderr()),
        }
    }

    /// The first text of a tool's result.
    pub async fn tool_text(&self, name: &str, arguments: Value) -> String {
        text(&self.call_tool(name, arguments).await)
    }

    /// What `whoami` of the echo server says.
    pub async fn whoami(&self, prefix: &str) -> Value {
        let text = self.tool_text("whoami", json!({ "prefix": prefix })).await;
        serde_json::from_str(&text).expect("whoami answers with JSON")
    }

    /// The next notification of this method; others before it are thrown away.
    pub async fn notification(&self, method: &str, deadline: Duration) -> Option<Value> {
        let mut incoming = self.incoming.lock().await;
        let find = async {
            loop {
                match incoming.recv().await {
                    Some(message) if message["method"] == method => return Some(message),
                    Some(_) => {}
                    None => return None,
                }
            }
        };
        tokio::time::timeout(deadline, find).await.ok().flatten()
    }

    /// Every notification that is here already.
    pub async fn notifications(&self) -> Vec<Value> {
        let mut incoming = self.incoming.lock().await;
        std::iter::from_fn(|| incoming.try_recv().ok()).collect()
    }

    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Answers that belong to no request of this client.
    pub fn strays(&self) -> Vec<Value> {
        lock(&self.shared.strays).clone()
    }

    /// Server requests that arrived.
    pub fn server_requests(&self) -> Vec<Value> {
        lock(&self.shared.requests).clone()
    }

    /// Opens the legacy GET stream; what comes on it goes where notifications and server requests go.
    pub async fn open_stream(&self) -> u16 {
        let Wire::Http(http) = &*self.wire else { panic!("a pipe has no GET stream") };
        let (status, events) = http.get_stream(&[]).await;
        if status == 200 {
            let (wire, shared) = (self.wire.clone(), self.shared.clone());
            self.spawn(async move {
                let Wire::Http(http) = &*wire else { return };
                http.drain(&shared, events, None).await;
            });
        }
        status
    }

    /// The HTTP side of this client.
    pub fn raw(&self) -> &Http {
        match &*self.wire {
            Wire::Http(http) => http,
            Wire::Stdio(_) => panic!("this client speaks over pipes"),
        }
    }

    /// The child's pid (stdio).
    pub fn pid(&self) -> u32 {
        match &*self.wire {
            Wire::Stdio(stdio) => stdio.pid,
            Wire::Http(_) => panic!("this client has no child"),
        }
    }

    /// The last MiB of the child's stderr (stdio), else nothing.
    pub fn stderr(&self) -> String {
        match &*self.wire {
            Wire::Stdio(stdio) => stdio.stderr(),
            Wire::Http(_) => String::new(),
        }
    }

    /// Sends bytes as they are, newline included by the caller (stdio).
    pub async fn send_bytes(&self, bytes: &[u8]) -> bool {
        match &*self.wire {
            Wire::Stdio(stdio) => stdio.send_bytes(bytes).await,
            Wire::Http(_) => panic!("use raw().post()"),
        }
    }

    /// Ends the session: DELETE (legacy HTTP), or end of input and the child's exit code (stdio).
    pub async fn end(&self) -> Option<i32> {
        match &*self.wire {
            Wire::Stdio(stdio) => stdio.end(DEADLINE).await,
            Wire::Http(http) => {
                if self.era() == Era::Legacy && http.session().is_some() {
                    drop(http.delete(&[]).await);
                }
                None
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("era", &self.shared.era).finish_non_exhaustive()
    }
}

/// The `_meta` that every modern request has.
pub fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": Era::Modern.version(),
        "io.modelcontextprotocol/clientCapabilities": { "sampling": {}, "elicitation": {}, "roots": {} },
        "io.modelcontextprotocol/clientInfo": { "name": "testkit", "version": "0.1.0" },
    })
}

/// The first text content of a tool result.
pub fn text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn merge(base: &mut Value, extra: Value) {
    if let (Value::Object(base), Value::Object(extra)) = (base, extra) {
        base.extend(extra);
    }
}
