//! A daemon's socket without a daemon: the tools behind hyper, a client in front, the engine's part played by the test.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::tools::{Settled, Settler, Tools, service};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use identity::workspace::Roots;
use model::ports::store::{
    AdvanceOutcome, ClaimOutcome, FinishOutcome, ImageChoice, Lease, LeaseOutcome, RunResult,
    StoreForScheduler as _, TakeOver,
};
use model::session::{
    Artifact, ArtifactKind, Ending, MessageId, OwnerId, Phase, Run, RunId, RunUsage, SessionId, Stamp,
    UnixMillis,
};
use model::settings::Secret;
use serde_json::{Value, json};
use sessions::{Desk, Layout, Live, Terms, World};
use store::{Place, SqliteStore};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub(crate) const NOW: u64 = 1_794_830_400_123;
pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
/// Longer than anything here takes; a test that hangs fails.
const DEADLINE: Duration = Duration::from_mins(1);

/// A clock that stands, and dice that count.
#[derive(Debug, Default)]
struct Still(AtomicU64);

impl World for Still {
    fn now(&self) -> UnixMillis {
        UnixMillis(NOW)
    }

    fn stamp(&self) -> Stamp {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut random = [0; 10];
        random[2..].copy_from_slice(&number);
        Stamp { millis: NOW, random }
    }

    fn password(&self) -> String {
        "0".repeat(32)
    }
}

/// Takes what it is given, and remembers it.
#[derive(Debug, Default)]
pub(crate) struct Noting {
    pub(crate) settled: Mutex<Vec<BTreeMap<String, String>>>,
    pub(crate) roots: Mutex<Vec<PathBuf>>,
}

impl Settler for Noting {
    fn settle(&self, variables: BTreeMap<String, String>, image: Option<&str>) -> Result<Settled, String> {
        if variables.contains_key("MCP_WRONG") {
            return Err("MCP_WRONG is no setting".to_owned());
        }
        let warnings = variables.get("MCP_ODD").map(|_| "MCP_ODD is not used".to_owned());
        let key = variables.get("MCP_OPENCODE_API_KEY").map(Secret::new);
        self.settled.lock().unwrap().push(variables);
        let image = image.map_or_else(
            || ImageChoice::Default("boxes:1".to_owned()),
            |image| ImageChoice::Asked(image.to_owned()),
        );
        let settings = json!({ "provider": "ollama" }).to_string();
        Ok(Settled {
            runtime: "local".to_owned(),
            image,
            settings,
            key,
            warnings: warnings.into_iter().collect(),
        })
    }

    fn workspace(&self, explicit: Option<&str>, ambient: Option<&str>) -> Result<PathBuf, String> {
        let roots = Roots::new(self.roots.lock().unwrap().clone());
        let found = identity::workspace::resolve(explicit, ambient, &roots);
        found.map(|found| found.path).map_err(|error| error.to_string())
    }

    fn check_model(&self, settings: &str, model: &str) -> Result<(), String> {
        assert!(settings.contains("ollama"), "{settings}");
        if model.starts_with("ollama/") { Ok(()) } else { Err("it is not of provider ollama".to_owned()) }
    }
}

pub(crate) struct Daemon {
    pub(crate) directory: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) layout: Layout,
    pub(crate) settler: Arc<Noting>,
    pub(crate) tools: Arc<Tools<SqliteStore>>,
    owner: OwnerId,
    /// Why nothing can be run here, if so.
    pub(crate) unable: Arc<Mutex<Option<String>>>,
    stamps: AtomicU64,
    connections: Mutex<JoinSet<()>>,
}

impl Daemon {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), 0).await
    }

    /// The same state, and nothing that was only in memory.
    pub(crate) async fn restart(self) -> Self {
        let stamp = self.stamps.load(Ordering::Relaxed) + 1000;
        self.store.close().await;
        let Self { directory, .. } = self;
        Self::start_in(directory, stamp).await
    }

    async fn start_in(directory: TempDir, stamp: u64) -> Self {
        let store = Arc::new(SqliteStore::open(&Place::of(directory.path())).await.unwrap());
        let layout = Layout::new(directory.path().join("sessions"));
        let unable = Arc::new(Mutex::new(None::<String>));
        let asked = Arc::clone(&unable);
        let desk = Desk::new(
            Arc::clone(&store),
            Arc::new(Live::default()),
            (layout.clone(), Terms::default()),
            Arc::new(Still(AtomicU64::new(stamp << 20))),
            Arc::new(move || {
                let unable = asked.lock().unwrap().clone();
                Box::pin(async move { unable.map_or(Ok(()), Err) })
            }),
        );
        let settler = Arc::new(Noting::default());
        let tools = Arc::new(service(desk, Arc::clone(&settler) as Arc<dyn Settler>));
        let stamps = AtomicU64::new(stamp);
        let owner = OwnerId::new(stamped(stamp, 1));
        store.enroll(&owner, TakeOver::Everybody, UnixMillis(NOW + 3_600_000)).await.unwrap();
        let connections = Mutex::default();
        Self { directory, store, layout, settler, tools, owner, unable, stamps, connections }
    }

    pub(crate) fn client(&self, principal: &str) -> Client<'_> {
        Client { daemon: self, principal: principal.to_owned(), settings: None, tasks: false }
    }

    pub(crate) async fn lease(&self, session: &str) -> Lease {
        let session = SessionId::parse(session).unwrap();
        let outcome = self.store.lease(&session, &self.owner, UnixMillis(NOW)).await.unwrap();
        let LeaseOutcome::Leased(lease) = outcome else { panic!("{outcome:?}") };
        lease
    }

    /// How many hold the store: one more for every request of the new era that is under way.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.store)
    }

    pub(crate) async fn until(&self, what: &str, reached: impl Fn(usize) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !reached(self.holders()) {
            assert!(Instant::now() < deadline, "{what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Takes the next task of a session and sends its prompt.
    pub(crate) async fn begin(&self, session: &str) -> (Lease, Run) {
        let lease = self.lease(session).await;
        let message = MessageId::new(stamped(self.stamps.fetch_add(1, Ordering::Relaxed), 2));
        let outcome = self.store.claim(&lease, message, UnixMillis(NOW + 1000)).await.unwrap();
        let ClaimOutcome::Next(run) = outcome else { panic!("{outcome:?}") };
        let advanced = self.store.advance(&lease, &run.id, Phase::Prompting).await.unwrap();
        assert!(matches!(advanced, AdvanceOutcome::Advanced(_)), "{advanced:?}");
        (lease, run)
    }

    pub(crate) async fn finish(&self, lease: &Lease, run: &RunId, ending: Ending) {
        let usage = Some(RunUsage { input_tokens: 12, output_tokens: 3, ..RunUsage::default() });
        let result = RunResult { ending, usage };
        let outcome = self.store.finish(lease, run, result, UnixMillis(NOW + 2000)).await.unwrap();
        assert!(matches!(outcome, FinishOutcome::Finished(_)), "{outcome:?}");
    }

    /// Runs the next task of a session to this end.
    pub(crate) async fn run(&self, session: &str, ending: Ending) -> RunId {
        let (lease, run) = self.begin(session).await;
        self.finish(&lease, &run.id, ending).await;
        run.id
    }

    /// Files that a run left.
    pub(crate) async fn leave(&self, lease: &Lease, files: &[(&str, ArtifactKind, &[u8])], run: &RunId) {
        let root = self.layout.of(&lease.session).root().to_owned();
        let mut artifacts = Vec::new();
        for (path, kind, bytes) in files {
            let file = root.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, bytes).unwrap();
            let size = u64::try_from(bytes.len()).unwrap();
            let path = (*path).to_owned();
            artifacts.push(Artifact { path, kind: *kind, size, modified: UnixMillis(NOW) });
        }
        self.store.record_artifacts(lease, run, artifacts).await.unwrap();
    }

    fn keep(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connections.lock().unwrap().spawn(connection);
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: String,
    ) -> http::Response<Incoming> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let tools = Arc::clone(&self.tools);
        let respond = service_fn(move |request: Request<Incoming>| {
            let tools = Arc::clone(&tools);
            async move { Ok::<_, Infallible>(tools.handle(request).await) }
        });
        let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), respond);
        let (mut sender, client) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
        self.keep(async move { drop(server.await) });
        self.keep(async move { drop(client.await) });
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = "/mcp/sessions".parse().unwrap();
        *request.headers_mut() = headers;
        sender.send_request(request).await.unwrap()
    }
}

fn stamped(number: u64, kind: u8) -> Stamp {
    let mut random = [kind; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    Stamp { millis: NOW, random }
}

pub(crate) fn completed(text: &str) -> Ending {
    Ending::Completed {
        final_output: text.to_owned(),
        structured_output: Some(r#"{"a":1}"#.to_owned()),
        result_summary: "1 step".to_owned(),
    }
}

/// What came back: the status, the headers, and every message in the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) messages: Vec<Value>,
}

impl Answer {
    pub(crate) fn last(&self) -> &Value {
        self.messages.last().unwrap_or_else(|| panic!("no message: {self:?}"))
    }
}

/// The messages of a stream, one by one.
pub(crate) struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    pub(crate) fn of(response: http::Response<Incoming>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        Self { body: response.into_body(), text: String::new() }
    }

    /// None at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.text.find('\n') {
                let rest = self.text.split_off(end + 1);
                let line = std::mem::replace(&mut self.text, rest);
                let message =
                    line.strip_prefix("data:").and_then(|data| serde_json::from_str(data.trim()).ok());
                if message.is_some() {
                    return message;
                }
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await.expect("more, or an end")?;
            let data = frame.ok()?.into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }
}

pub(crate) async fn read(response: http::Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = tokio::time::timeout(DEADLINE, body.collect()).await.expect("an end").unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let mut messages: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
    if messages.is_empty() {
        messages.extend(serde_json::from_str(&text));
    }
    Answer { status: parts.status, headers: parts.headers, messages }
}

/// A client of the new era. `tasks`: it declares the extension.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    pub(crate) daemon: &'a Daemon,
    pub(crate) principal: String,
    pub(crate) settings: Option<Value>,
    pub(crate) tasks: bool,
}

impl Client<'_> {
    pub(crate) fn with_settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    pub(crate) fn with_tasks(mut self) -> Self {
        self.tasks = true;
        self
    }

    pub(crate) fn headers(&self, extra: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let settings = self.settings.as_ref().map(|settings| STANDARD.encode(settings.to_string()));
        let usual = [
            ("host", "callsign"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("callsign-principal", &self.principal),
        ];
        for (name, value) in usual.iter().chain(extra) {
            headers.insert(*name, value.parse().unwrap());
        }
        if let Some(settings) = settings {
            headers.insert("callsign-settings", settings.parse().unwrap());
        }
        headers
    }

    /// The request on its way; its body is still to come.
    pub(crate) async fn start(&self, method: &str, params: Value) -> http::Response<Incoming> {
        let mut params = params;
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "harness", "version": "1" },
        });
        if self.tasks {
            meta["io.modelcontextprotocol/clientCapabilities"] =
                json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        }
        if let Some(given) = params.get("_meta").and_then(Value::as_object) {
            meta.as_object_mut().unwrap().extend(given.clone());
        }
        params["_meta"] = meta;
        let mut extra = vec![("mcp-protocol-version", MODERN), ("mcp-method", method)];
        let name = params.get("name").or_else(|| params.get("taskId")).and_then(Value::as_str);
        let name = name.map(str::to_owned);
        if let Some(name) = &name {
            extra.push(("mcp-name", name));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let sent = self.daemon.send(Method::POST, self.headers(&extra), body.to_string());
        tokio::time::timeout(DEADLINE, sent).await.expect("an answer")
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> Answer {
        read(self.start(method, params).await).await
    }

    /// The result of a call, its two forms compared and its shape held against the tool's own schema.
    pub(crate) async fn result(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let result = answer.last()["result"].clone();
        assert!(result.is_object(), "{answer:?}");
        crate::schema::check_result(self, tool, &result).await;
        result
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], json!(false), "{result}");
        result["structuredContent"].clone()
    }

    /// Code and message of a refusal.
    pub(crate) async fn refusal(&self, tool: &str, arguments: Value) -> (String, String) {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], json!(true), "{result}");
        let error = &result["structuredContent"]["error"];
        let text = |name: &str| error[name].as_str().unwrap().to_owned();
        assert_eq!(result["content"][0]["text"], error["message"]);
        (text("code"), text("message"))
    }

    pub(crate) async fn session(&self, arguments: Value) -> String {
        let made = self.call("create_or_reuse_session", arguments).await;
        made["session"]["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn submit(&self, session: &str, task: &str) -> String {
        let answer = self.call("submit_task", json!({ "session_id": session, "task": task })).await;
        answer["run_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn tools(&self) -> Vec<Value> {
        let answer = self.request("tools/list", json!({})).await;
        answer.last()["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer:?}")).clone()
    }
}
