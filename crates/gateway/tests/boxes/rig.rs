//! A front with one server of our own, a ledger, and boxes at its door.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway::caller::{Identification, Workspaces};
use gateway::environment::HostEnvironment;
use gateway::front::http::{Access, Front, GatewayAuth, Guest};
use gateway::recorded::Sinks;
use gateway::redact::Redactor;
use gateway::server::pool::{Pool, Surroundings};
use gateway::server::{Backend, Server};
use identity::workspace::Roots;
use identity::{Bound, Resolver, Tenant};
use ledger::{Filter, Ledger, Options, Place, Retention, Seal, Signature};
use model::{
    Capture, Id, InheritEnv, Isolation, Principal, ServerName, ServerSpec, StdioSpec, Transport, Trust,
};
use serde_json::{Value, json};
use supervise::Spawner;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) const SERVER: &str = "srv";
/// Not for any box.
pub(crate) const OTHER: &str = "other";

/// Answers everything, but what is called `hold`, and ends when something is called `die`.
const SCRIPT: &str = r#"
while read -r line; do
  case $line in *'"id":'*) ;; *) continue ;; esac
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *'"hold"'*) ;;
    *'"die"'*) exit 1 ;;
    *'"fail"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32602,"message":"no"}}' ;;
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[]}}' ;;
  esac
done
"#;

pub(crate) struct Rig {
    pub(crate) front: Arc<Front>,
    pub(crate) ledger: Arc<Ledger>,
    place: Place,
    pub(crate) tasks: TaskTracker,
    stop: CancellationToken,
    _state: tempfile::TempDir,
}

struct Key;

impl Seal for Key {
    fn sign(&self, _: &[u8]) -> Option<Signature> {
        Some(Signature { kid: "k".to_owned(), bytes: vec![1] })
    }

    fn verify(&self, _: &[u8], _: &Signature) -> Option<bool> {
        Some(true)
    }
}

#[derive(Debug)]
struct Lodger;

impl Tenant for Lodger {
    fn run(&self) -> Option<Id> {
        Id::new("run_1").ok()
    }

    fn owns(&self, thread: &Id) -> bool {
        !thread.as_str().starts_with("other")
    }
}

fn spec(name: &str, max_children: usize) -> ServerSpec {
    ServerSpec {
        name: ServerName::new(name).unwrap(),
        transport: Transport::Stdio(StdioSpec {
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), SCRIPT.to_owned()],
            env: Vec::new(),
            env_vars: Vec::new(),
            isolation: Isolation::Session,
            cwd: None,
            inherit_env: InheritEnv::Safe,
            idle: Duration::from_mins(5),
            max_children,
        }),
        timeout: Some(Duration::from_secs(5)),
        max_message: 1 << 20,
        pin: false,
        require: Trust::None,
        arguments: Vec::new(),
        capture: Capture::Digests,
    }
}

fn clock() -> u64 {
    1_700_000_000_000
}

impl Rig {
    pub(crate) fn new(spawner: Arc<Spawner>, max_children: usize) -> Self {
        let state = tempfile::tempdir().unwrap();
        let place = Place::of(state.path());
        let options =
            Options { place: place.clone(), strict: false, retention: Retention::default(), kind: "serve" };
        let ledger = Arc::new(Ledger::open(options, Arc::new(Key)).unwrap());
        let redactor = Arc::new(Redactor::new(&[]).unwrap());
        let host = Arc::new(HostEnvironment(vec![("PATH".into(), "/usr/bin:/bin".into())]));
        let identification = Arc::new(Identification {
            resolver: Resolver::default(),
            workspaces: Workspaces::new(Roots::new(Vec::new())),
            signer: None,
            jwks_file: None,
            host: Arc::clone(&host),
            clock,
            call_prefix: "cs-".to_owned(),
            exports_spans: false,
        });
        let sinks = Arc::new(Sinks { ledger: Some(Arc::clone(&ledger)), exporter: None, redactor, clock });
        let tasks = TaskTracker::new();
        let around = Surroundings {
            spawner,
            host,
            identification: Arc::clone(&identification),
            tasks: tasks.clone(),
            sinks: Arc::clone(&sinks),
            door: None,
        };
        let servers = [SERVER, OTHER].into_iter().map(|name| {
            let server = Server::new(spec(name, max_children), around.clone(), None);
            (name.to_owned(), Arc::new(server))
        });
        let access = Access {
            listen: ([127, 0, 0, 1], 1).into(),
            allowed_origins: Vec::new(),
            auth: GatewayAuth::None,
        };
        let front = Front::new(servers.collect(), access, identification, sinks, tasks.clone());
        let stop = CancellationToken::new();
        Self { front: Arc::new(front), ledger, place, tasks, stop, _state: state }
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        match &self.front.servers()[SERVER].backend {
            Backend::Pipes(pipes) => Arc::clone(&pipes.pool),
            Backend::Remote(_) => panic!("it is a process"),
        }
    }

    /// Sends one request from a box. None: nothing came within `wait`.
    pub(crate) async fn ask(&self, guest: &Arc<Guest>, request: Request, wait: Duration) -> Option<Answer> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let served = Arc::clone(&self.front).serve_box(theirs, Arc::clone(guest), self.stop.clone());
        let asked = async {
            ours.write_all(&request.bytes(&guest.token)).await.unwrap();
            let mut bytes = Vec::new();
            ours.read_to_end(&mut bytes).await.unwrap();
            Answer::parse(&bytes)
        };
        let both = async { tokio::join!(served, asked).1 };
        tokio::time::timeout(wait, both).await.ok()
    }

    pub(crate) async fn answer(&self, guest: &Arc<Guest>, request: Request) -> Answer {
        self.ask(guest, request, Duration::from_secs(20)).await.expect("an answer in time")
    }

    /// Opens a session of the old era.
    pub(crate) async fn open(&self, guest: &Arc<Guest>, client: &str) -> Option<String> {
        self.answer(guest, initialize(client)).await.session
    }

    /// What is in the ledger of one session, oldest first, once all is written.
    pub(crate) fn calls(&self, session: &str) -> Vec<ledger::Call> {
        assert!(self.ledger.close(Duration::from_secs(10)), "the ledger is written");
        let filter = Filter { session: Some(session.to_owned()), ..Filter::default() };
        let mut calls = ledger::calls(&self.place.read().unwrap(), &filter).unwrap();
        calls.sort_by_key(|call| call.seq);
        calls
    }

    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.front.close();
        self.tasks.close();
        tokio::time::timeout(Duration::from_secs(20), self.tasks.wait()).await.expect("all has ended");
    }
}

pub(crate) fn guest(session: &str) -> Arc<Guest> {
    let id = Id::new(session).unwrap();
    let bound =
        Bound { session: id.clone(), workspace: "/tmp".into(), seals: None, tenant: Box::new(Lodger) };
    Arc::new(Guest {
        principal: Principal::local(),
        session: id,
        token: format!("token-of-{session}"),
        servers: HashMap::from([(SERVER.to_owned(), Arc::new(bound))]),
    })
}

#[derive(Default)]
pub(crate) struct Request {
    pub(crate) server: Option<&'static str>,
    pub(crate) token: Option<String>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    fn bytes(&self, token: &str) -> Vec<u8> {
        let server = self.server.unwrap_or(SERVER);
        let token = self.token.as_deref().unwrap_or(token);
        let more = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = [
            format!("POST /mcp/{server} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"),
            format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"),
            more.collect(),
            format!("Content-Length: {}\r\n\r\n", self.body.len()),
        ]
        .concat();
        [head.as_bytes(), &self.body].concat()
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) body: Value,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        Self {
            status,
            session: session.map(str::to_owned),
            body: serde_json::from_str(body).unwrap_or_default(),
        }
    }

    /// The name of the error, or `ok`.
    pub(crate) fn said(&self) -> &str {
        self.body["error"]["data"]["code"].as_str().unwrap_or("ok")
    }
}

pub(crate) fn initialize(client: &str) -> Request {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"},
    }});
    Request { body: body.to_string().into_bytes(), ..Request::default() }
}

/// A call of the new era, made by one conversation of the box.
pub(crate) fn call(thread: &str, tool: &str) -> Request {
    call_with(thread, tool, &json!({}))
}

pub(crate) fn call_with(thread: &str, tool: &str, arguments: &Value) -> Request {
    let version = mcp::meta::FIRST_MODERN;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": tool, "arguments": arguments, "_meta": {
            "sessionID": thread, mcp::meta::PROTOCOL_VERSION: version, mcp::meta::CLIENT_CAPABILITIES: {},
        },
    }});
    let headers = vec![
        ("MCP-Protocol-Version", version.to_owned()),
        ("Mcp-Method", "tools/call".to_owned()),
        ("Mcp-Name", tool.to_owned()),
    ];
    Request { headers, body: body.to_string().into_bytes(), ..Request::default() }
}
