//! A client that blocks: one connection a request, `tools/call` of the new era.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testkit::client::modern_meta;
use testkit::llm::script;

/// Longer than any wait that a call asks for.
const SILENCE: Duration = Duration::from_secs(90);
/// How long one `get_status` waits.
const WAIT: u64 = 10;

#[derive(Debug, Clone)]
pub(crate) struct Client {
    to: To,
    headers: String,
}

#[derive(Debug, Clone)]
enum To {
    Socket(PathBuf),
    Address(String),
}

/// What came back on one request.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// Every JSON-RPC message, in its order.
    pub(crate) messages: Vec<Value>,
    /// What was no such message.
    pub(crate) text: String,
}

impl Client {
    pub(super) fn socket(state: &Path, variables: &BTreeMap<String, String>) -> Self {
        let settings = BASE64_STANDARD.encode(json!(variables).to_string());
        let headers = format!("Host: callsign\r\nCallsign-Settings: {settings}\r\n");
        Self { to: To::Socket(state.join("daemon.sock")), headers }
    }

    pub(super) fn http(url: &str, token: &str) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let headers = format!("Host: {address}\r\nAuthorization: Bearer {}\r\n", token.trim());
        Self { to: To::Address(address), headers }
    }

    /// As another principal would be named by whoever carries its call to the socket.
    pub(crate) fn principal(mut self, name: &str) -> Self {
        let _infallible = write!(self.headers, "Callsign-Principal: {name}\r\n");
        self
    }

    /// What the tool answers with; anything else ends the test.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        let shown = arguments.to_string();
        self.try_call(tool, arguments).unwrap_or_else(|error| panic!("{tool} {shown} failed: {error}"))
    }

    /// The error is `{code, message}` of the tool, the error of JSON-RPC, or `{status, body}` or `{io}` of HTTP.
    pub(crate) fn try_call(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let mut params = json!({ "name": tool });
        params["arguments"] = arguments;
        let result = self.request("tools/call", params)?;
        let answer = result["structuredContent"].clone();
        if result["isError"] == true {
            let error = &answer["error"];
            return Err(if error.is_object() { error.clone() } else { result });
        }
        // Whoever reads only texts is told the same.
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let same = serde_json::from_str::<Value>(text).is_ok_and(|text| text == answer);
        assert!(same && answer.is_object(), "the text is not the answer: {result}");
        Ok(answer)
    }

    /// One request to its result.
    pub(crate) fn request(&self, method: &str, mut params: Value) -> Result<Value, Value> {
        let mut meta = modern_meta();
        if let (Value::Object(base), Value::Object(more)) = (&mut meta, params["_meta"].take()) {
            base.extend(more);
        }
        params["_meta"] = meta;
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answered = self.post(&message).map_err(|error| json!({ "io": error.to_string() }))?;
        let found = answered.messages.iter().find(|message| message["id"] == 1);
        match found {
            Some(message) if message.get("result").is_some() => Ok(message["result"].clone()),
            Some(message) => Err(message["error"].clone()),
            None => Err(json!({ "status": answered.status, "body": answered.text })),
        }
    }

    /// One POST, and everything that comes back until its answer is there.
    pub(crate) fn post(&self, message: &Value) -> io::Result<Answered> {
        let body = message.to_string();
        let mut request = format!("POST /mcp/sessions HTTP/1.1\r\n{}Connection: close\r\n", self.headers);
        let method = message["method"].as_str().unwrap_or_default();
        request += "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
        let _infallible = write!(
            request,
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nContent-Length: {}\r\n",
            body.len()
        );
        if let Some(name) = message["params"]["name"].as_str().filter(|_| method == "tools/call") {
            let _infallible = write!(request, "Mcp-Name: {name}\r\n");
        }
        request += "\r\n";
        request += &body;
        match &self.to {
            To::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(SILENCE))?;
                exchange(stream, request.as_bytes())
            }
            To::Address(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(SILENCE))?;
                exchange(stream, request.as_bytes())
            }
        }
    }

    /// The session of this key; its id.
    #[track_caller]
    pub(crate) fn create(&self, key: &str) -> String {
        let answer = self.call("create_or_reuse_session", json!({ "reuse_key": key }));
        text(&answer["session"]["id"])
    }

    /// A task for the scripted model; the run's id.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "steps are written where they are submitted")]
    pub(crate) fn submit(&self, session: &str, steps: Value) -> String {
        let task = script(&steps);
        text(&self.call("submit_task", json!({ "session_id": session, "task": task }))["run_id"])
    }

    /// The run, once it has ended. A daemon that is not there at the moment is waited for.
    #[track_caller]
    pub(crate) fn wait(&self, session: &str, run: &str, within: Duration) -> Value {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            let wanted = json!({ "session_id": session, "run_id": run, "wait_seconds": left.min(WAIT) });
            let told = self.try_call("get_status", wanted);
            let ended = |run: &Value| {
                run["status"].as_str().is_some_and(|word| !["queued", "running"].contains(&word))
            };
            match &told {
                Ok(answer) if ended(&answer["run"]) => return answer["run"].clone(),
                Ok(_) => {}
                Err(error) if error.get("io").is_some() => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => panic!("no status of {run}: {error}"),
            }
            assert!(Instant::now() < end, "{run} does not end within {within:?}: {told:?}");
        }
    }

    /// Submits, waits, and expects the run to complete.
    #[track_caller]
    pub(crate) fn complete(&self, session: &str, steps: Value) -> Value {
        let run = self.submit(session, steps);
        let ended = self.wait(session, &run, super::TURN);
        assert_eq!(ended["status"], "completed", "{ended}");
        ended
    }

    /// What `get_status` says of the session.
    #[track_caller]
    pub(crate) fn session(&self, session: &str) -> Value {
        self.call("get_status", json!({ "session_id": session }))["session"].clone()
    }

    #[track_caller]
    pub(crate) fn log(&self, run: &str) -> String {
        text(&self.call("get_run_logs", json!({ "run_id": run, "tail_lines": 10_000 }))["text"])
    }
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Answered> {
    stream.write_all(request)?;
    let mut reader = BufReader::new(stream);
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    };
    let first = line()?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut head = BTreeMap::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        head.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let is = |name: &str, value: &str| head.get(name).is_some_and(|found| found.starts_with(value));
    let body: Box<dyn Read> = if is("transfer-encoding", "chunked") {
        Box::new(Chunks { reader, left: 0, over: false })
    } else if let Some(length) = head.get("content-length").and_then(|length| length.parse().ok()) {
        Box::new(reader.take(length))
    } else {
        Box::new(reader)
    };
    let mut answered = Answered { status, ..Answered::default() };
    if is("content-type", "text/event-stream") {
        for line in BufReader::new(body).lines() {
            let Some(data) = line?.strip_prefix("data:").map(str::to_owned) else { continue };
            let Ok(message) = serde_json::from_str::<Value>(&data) else { continue };
            let is_answer = message.get("id").is_some() && message.get("method").is_none();
            answered.messages.push(message);
            if is_answer {
                break;
            }
        }
    } else {
        let mut body = body;
        body.read_to_string(&mut answered.text)?;
        answered.messages.extend(serde_json::from_str::<Value>(&answered.text));
    }
    Ok(answered)
}

/// A body in chunks.
struct Chunks<R> {
    reader: BufReader<R>,
    left: usize,
    over: bool,
}

impl<R: Read> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            if self.over {
                return Ok(0);
            }
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line.trim().is_empty() && !line.is_empty() {
                // The end of the chunk before.
                continue;
            }
            self.left = usize::from_str_radix(line.trim(), 16)
                .map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, "the body broke off"))?;
            self.over = self.left == 0;
        }
        let most = buffer.len().min(self.left);
        let count = self.reader.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        Ok(count)
    }
}
