//! A daemon whose answers a test writes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::CALLSIGN;

pub(super) const SESSION: &str = "sn_01k00000000000000000000000";
pub(super) const RUN: &str = "run_01k00000000000000000000000";

/// What a command asked for: a tool with its arguments, or a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The tool, or the path and query.
    pub(super) what: String,
    pub(super) arguments: Value,
    /// The variables that came along.
    pub(super) settings: Value,
}

pub(super) enum Reply {
    /// A tool's structured answer, or the body at a path.
    Is(Value),
    /// Told first what happens, then that.
    After(Vec<&'static str>, Value),
    /// An error of the tool.
    Refused(&'static str, &'static str),
    /// The connection breaks.
    Gone,
}

type Answer = dyn Fn(&Asked) -> Reply + Send + Sync;

pub(super) struct Fake {
    directory: TempDir,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub(super) fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let directory = tempfile::Builder::new().prefix("callsign-").tempdir().expect("a directory");
        let state = directory.path().join("state");
        std::fs::DirBuilder::new().mode(0o700).create(&state).expect("a state directory");
        let listener = UnixListener::bind(state.join("daemon.sock")).expect("a socket");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&asked));
        // They end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || serve(stream, &*answer, &log));
            }
        });
        Self { directory, asked }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CALLSIGN);
        command.args(arguments).env_clear().current_dir(self.directory.path());
        command.env("HOME", self.directory.path()).env("PATH", "/usr/bin:/bin");
        command.env("MCP_STATE_DIR", self.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    pub(super) fn run(&self, arguments: &[&str]) -> Printed {
        Printed::of(self.command(arguments).output().expect("callsign runs"))
    }

    #[track_caller]
    pub(super) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Printed {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("callsign runs");
        child.stdin.take().expect("piped").write_all(input).expect("it reads");
        Printed::of(child.wait_with_output().expect("callsign ends"))
    }

    pub(super) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().expect("callsign runs")
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panicked with it").clone()
    }

    /// The arguments of each call of a tool.
    pub(super) fn calls(&self, tool: &str) -> Vec<Value> {
        self.asked().into_iter().filter(|asked| asked.what == tool).map(|asked| asked.arguments).collect()
    }
}

#[derive(Debug)]
pub(super) struct Printed {
    pub(super) code: Option<i32>,
    pub(super) bytes: Vec<u8>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Printed {
    pub(super) fn of(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Self { code: output.status.code(), bytes: output.stdout, stdout, stderr }
    }

    /// What was printed, where all went well.
    #[track_caller]
    pub(super) fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        &self.stdout
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(self.ok()).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    #[track_caller]
    pub(super) fn failed(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{:?} lacks {part:?}", self.stderr);
        }
    }
}

fn serve(mut stream: UnixStream, answer: &Answer, log: &Mutex<Vec<Asked>>) {
    let Some((line, headers, body)) = read(&stream) else { return };
    if line.starts_with("GET /healthz ") {
        return respond(&mut stream, "text/plain", b"ok\n");
    }
    let asked = understood(&line, &headers, &body);
    log.lock().expect("no test panicked with it").push(asked.clone());
    let is_tool = line.starts_with("POST ");
    let result = |result: &Value| json!({ "jsonrpc": "2.0", "id": body["id"], "result": result });
    let complete = |value: &Value| {
        let content = json!([{ "type": "text", "text": value.to_string() }]);
        result(&json!({ "resultType": "complete", "content": content, "structuredContent": value }))
    };
    match answer(&asked) {
        Reply::Gone => {}
        Reply::Is(value) => {
            let value = if is_tool { complete(&value) } else { value };
            respond(&mut stream, "application/json", value.to_string().as_bytes());
        }
        Reply::Refused(code, message) => {
            let structured = json!({ "error": { "code": code, "message": message } });
            let content = json!([{ "type": "text", "text": message }]);
            let error = json!({ "isError": true, "content": content, "structuredContent": structured });
            respond(&mut stream, "application/json", result(&error).to_string().as_bytes());
        }
        Reply::After(said, value) => {
            let token = &body["params"]["_meta"]["progressToken"];
            let mut events = ": a comment\n\n".to_owned();
            for (number, said) in said.iter().enumerate() {
                let params = json!({ "progressToken": token, "progress": number + 1, "message": said });
                let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                events.extend(["data: ", &told.to_string(), "\n\n"]);
            }
            events.extend(["id: 1\ndata: ", &complete(&value).to_string(), "\n\n"]);
            respond(&mut stream, "text/event-stream", events.as_bytes());
        }
    }
}

type Request = (String, BTreeMap<String, String>, Value);

fn read(stream: &UnixStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((line, headers, serde_json::from_slice(&body).unwrap_or_default()))
}

/// What the protocol wants of a request is looked at each time.
fn understood(line: &str, headers: &BTreeMap<String, String>, body: &Value) -> Asked {
    let header = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    let settings = BASE64_STANDARD.decode(header("callsign-settings")).expect("base64");
    let settings = serde_json::from_slice(&settings).unwrap_or_default();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    assert_eq!(header("host"), "callsign");
    if line.starts_with("GET ") {
        return Asked { what: path, arguments: Value::Null, settings };
    }
    let params = &body["params"];
    let meta = |name: &str| &params["_meta"][format!("io.modelcontextprotocol/{name}")];
    assert_eq!((path.as_str(), header("mcp-method")), ("/mcp/sessions", "tools/call"));
    assert_eq!(body["method"], "tools/call");
    assert_eq!(params["name"], header("mcp-name"));
    assert_eq!(meta("protocolVersion"), header("mcp-protocol-version"));
    assert!(meta("clientCapabilities").is_object() && meta("clientInfo")["name"] == "callsign");
    assert!(header("accept").contains("application/json") && header("accept").contains("text/event-stream"));
    Asked { what: header("mcp-name").to_owned(), arguments: params["arguments"].clone(), settings }
}

fn respond(stream: &mut UnixStream, kind: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    // Whoever asked may have gone.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
}
