//! Requests to the daemon's socket and to OpenCode: each on a connection of its own, for one that was opened while
//! OpenCode starts stays mute for ever.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::http1;

/// Longer than any wait that a call asks for.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long one `get_status` waits.
const WAIT: u64 = 120;

/// The daemon, as the commands reach it: `tools/call` of the new era.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    socket: PathBuf,
}

impl Daemon {
    pub(super) fn new(state: &Path) -> Self {
        Self { socket: state.join("daemon.sock") }
    }

    /// What the tool answers with.
    pub(super) fn call(&self, tool: &str, arguments: &Value) -> Result<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
            },
        }})
        .to_string();
        let request = format!(
            "POST /mcp/sessions HTTP/1.1\r\nHost: callsign\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let stream = UnixStream::connect(&self.socket).context("the daemon's socket")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (status, answer) = exchange(stream, request.as_bytes())?;
        let result = &answer["result"];
        if !result["structuredContent"].is_object() || result["isError"] == true {
            bail!("{tool} {arguments} was answered {status}: {answer}");
        }
        Ok(result["structuredContent"].clone())
    }

    /// The id of a new session.
    pub(super) fn create(&self) -> Result<String> {
        text(&self.call("create_or_reuse_session", &json!({}))?["session"]["id"])
    }

    /// The id of the run.
    pub(super) fn submit(&self, session: &str, task: &str) -> Result<String> {
        text(&self.call("submit_task", &json!({ "session_id": session, "task": task }))?["run_id"])
    }

    /// The run, as it is now.
    pub(super) fn run(&self, session: &str, run: &str) -> Result<Value> {
        Ok(self.call("get_status", &json!({ "session_id": session, "run_id": run }))?["run"].clone())
    }

    /// Waits until the run has ended, which must be as completed with this answer.
    pub(super) fn completed(&self, session: &str, run: &str, answer: &str) -> Result<()> {
        let wanted = json!({ "session_id": session, "run_id": run, "wait_seconds": WAIT });
        let run = self.call("get_status", &wanted)?["run"].clone();
        if run["status"] != "completed" || run["final_output"] != answer {
            bail!("the run should have completed with {answer:?}: {run}");
        }
        Ok(())
    }

    /// Waits until the session is in this state.
    pub(super) fn until(&self, session: &str, status: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.call("get_status", &json!({ "session_id": session }))?["session"].clone();
            if now["status"] == status {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "the session does not become {status}: {now}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends a session with all that it has, whatever it does.
    pub(super) fn terminate(&self, session: &str) -> Result<()> {
        self.call("terminate_session", &json!({ "session_id": session, "keep": false }))?;
        self.until(session, "terminated")
    }
}

/// An OpenCode that listens on loopback.
#[derive(Clone, Debug)]
pub(super) struct OpenCode {
    address: SocketAddr,
    authorization: String,
}

impl OpenCode {
    pub(super) fn new(port: u16, password: &str) -> Self {
        let authorization = BASE64_STANDARD.encode(format!("opencode:{password}"));
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), authorization }
    }

    fn connect(&self, patience: Duration) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(stream)
    }

    fn head(&self, method: &str, path: &str) -> String {
        let Self { address, authorization } = self;
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {authorization}\r\n")
    }

    pub(super) fn healthy(&self, patience: Duration) -> bool {
        let request = format!("{}Connection: close\r\n\r\n", self.head("GET", "/global/health"));
        let answered = self
            .connect(patience)
            .map_err(Into::into)
            .and_then(|stream| exchange(stream, request.as_bytes()));
        answered.is_ok_and(|(status, answer)| status == 200 && answer["healthy"] == true)
    }

    pub(super) fn get(&self, path: &str) -> Result<Value> {
        self.send(path, &format!("{}Connection: close\r\n\r\n", self.head("GET", path)))
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let request = format!(
            "{}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.head("POST", path),
            body.len()
        );
        self.send(path, &request)
    }

    fn send(&self, path: &str, request: &str) -> Result<Value> {
        let (status, answer) = exchange(self.connect(PATIENCE)?, request.as_bytes())?;
        anyhow::ensure!((200..300).contains(&status), "{path} was answered {status}: {answer}");
        Ok(answer)
    }

    /// What happens from now on; it is open when this returns.
    pub(super) fn events(&self, directory: &str) -> Result<Events> {
        let mut stream = self.connect(PATIENCE)?;
        let path = format!("/event?directory={directory}");
        stream
            .write_all(format!("{}Accept: text/event-stream\r\n\r\n", self.head("GET", &path)).as_bytes())?;
        let mut events = Events { stream, seen: Vec::new() };
        events.wait(&["\"server.connected\""])?;
        Ok(events)
    }
}

/// OpenCode's stream of events. Each event comes as one chunk, so that words of it are not torn apart.
#[derive(Debug)]
pub(super) struct Events {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Events {
    /// When the first of these came. What comes before is passed over.
    pub(super) fn wait(&mut self, words: &[&str]) -> Result<Instant> {
        let mut came = Instant::now();
        loop {
            let found = |word: &&str| Some(memchr::memmem::find(&self.seen, word.as_bytes())? + word.len());
            if let Some(end) = words.iter().filter_map(found).min() {
                self.seen.drain(..end);
                return Ok(came);
            }
            let mut buffer = [0; 16 << 10];
            let count = self.stream.read(&mut buffer).context("OpenCode's events")?;
            came = Instant::now();
            anyhow::ensure!(count > 0, "OpenCode's events ended before one of {words:?}");
            self.seen.extend_from_slice(&buffer[..count]);
        }
    }
}

/// One request and its answer: status, and the body or the message that answers in its stream. Null for no body.
pub(super) fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Result<(u16, Value)> {
    stream.write_all(request)?;
    let (mut buffer, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let count = match stream.read(&mut part) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        };
        buffer.extend_from_slice(&part[..count]);
        let Some(head) = http1::head(&buffer)? else {
            anyhow::ensure!(count > 0, "the connection was closed before an answer");
            continue;
        };
        let body = http1::body(&head, &buffer)?;
        if head.events {
            let messages = http1::events(&body.bytes);
            let mut messages = messages.iter().filter_map(|data| serde_json::from_slice::<Value>(data).ok());
            if let Some(answer) = messages.find(|message| message["id"] == 1) {
                return Ok((head.status, answer));
            }
            anyhow::ensure!(count > 0, "the stream ended before the answer");
        } else if body.complete || count == 0 {
            return Ok((head.status, serde_json::from_slice(&body.bytes).unwrap_or_default()));
        }
    }
}

pub(super) fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("{value} is no text"))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Write};

    use serde_json::{Value, json};

    use super::exchange;

    struct Played(Cursor<Vec<u8>>);

    impl Read for Played {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            // In small pieces, as it may come.
            let most = buffer.len().min(7);
            self.0.read(&mut buffer[..most])
        }
    }

    impl Write for Played {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[track_caller]
    fn check(answer: &str, expected: Option<&(u16, Value)>) {
        let played = Played(Cursor::new(answer.as_bytes().to_vec()));
        assert_eq!(exchange(played, b"x").ok().as_ref(), expected);
    }

    #[test]
    fn an_answer_is_read_from_a_body_or_a_stream() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", Some(&(200, json!({ "a": 1 }))));
        check("HTTP/1.1 204 No Content\r\n\r\n", Some(&(204, Value::Null)));
        let events = "data: {\"method\":\"x\"}\n\ndata: {\"id\":1,\"result\":2}\n\n";
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        check(&format!("{head}{events}"), Some(&(200, json!({ "id": 1, "result": 2 }))));
        check(&format!("{head}data: {{\"method\":\"x\"}}\n\n"), None);
        check("HTTP/1.1 200 OK\r\n", None);
    }
}
