//! Two small clients of the 2025-11-25 era, stdio and Streamable HTTP, that answer what a server asks of them.
//!
//! Not testkit's: a client that shares no line with what it tests can find a mistake that both would make.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::fixture::stop_clean;
use crate::http1::{self, Url, body, events, head};
use crate::process::Program;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) trait Client {
    /// The whole answer: `{"result": …}` or `{"error": …}`.
    fn request(&mut self, method: &str, params: Value) -> Result<Value>;
    fn notify(&mut self, method: &str) -> Result<()>;
    /// Notifications since the last call of this.
    fn notifications(&mut self) -> Vec<Value>;
    /// Ends the session.
    fn close(&mut self) -> Result<()>;
}

/// What we answer to a request of the server: the same every time.
fn answer(request: &Value) -> Value {
    let params = &request["params"];
    let result = match request["method"].as_str().unwrap_or_default() {
        "roots/list" => json!({"roots": [{"uri": "file:///srv/project", "name": "project"}]}),
        "sampling/createMessage" => json!({
            "role": "assistant", "model": "fixed", "stopReason": "endTurn",
            "content": {"type": "text", "text": format!("heard {}", params["messages"][0]["content"]["text"])}
        }),
        "elicitation/create" if params["mode"] == "url" => json!({"action": "accept"}),
        "elicitation/create" => {
            json!({"action": "accept", "content": {"name": "Ada", "interpretation": "technical"}})
        }
        "ping" => json!({}),
        other => {
            let error = json!({"code": -32601, "message": format!("{other} is not offered")});
            return json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
        }
    };
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

/// A message, sorted by what it is.
enum Message {
    Answer(Value),
    Request(Value),
    Notification(Value),
}

fn sort(bytes: &[u8]) -> Result<Message> {
    let message: Value = serde_json::from_slice(bytes)
        .with_context(|| format!("not JSON: {}", String::from_utf8_lossy(bytes)))?;
    Ok(match (message.get("method").is_some(), message.get("id").is_some()) {
        (false, _) => Message::Answer(message),
        (true, true) => Message::Request(message),
        (true, false) => Message::Notification(message),
    })
}

/// The answer without what belongs to the envelope.
fn outcome(mut answer: Value) -> Value {
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("jsonrpc");
        fields.remove("id");
    }
    answer
}

pub(super) struct StdioClient {
    program: Program,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    next: u64,
    notifications: Vec<Value>,
}

impl StdioClient {
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let mut program = Program::start(name, command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let stdin = program.child.stdin.take();
        let stdout = program.child.stdout.take().context("no stdout")?;
        let (sender, lines) = sync_channel(1024);
        // Ends with the program, whose stdout it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { program, stdin, lines, next: 1, notifications: Vec::new() })
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let stdin = self.stdin.as_mut().context("closed")?;
        writeln!(stdin, "{message}").context("it does not read its stdin any more")
    }
}

impl Client for StdioClient {
    fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).with_context(|| format!("no answer to {method}"))?;
            match sort(&line)? {
                Message::Answer(message) if message["id"] == id => return Ok(outcome(message)),
                Message::Answer(message) => bail!("an answer to nothing: {message}"),
                Message::Request(message) => self.send(&answer(&message))?,
                Message::Notification(message) => self.notifications.push(message),
            }
        }
    }

    fn notify(&mut self, method: &str) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method}))
    }

    fn notifications(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.notifications)
    }

    fn close(&mut self) -> Result<()> {
        self.stdin = None;
        stop_clean(&mut self.program)
    }
}

pub(super) struct HttpClient {
    url: Url,
    session: Option<String>,
    version: Option<String>,
    next: u64,
    notifications: Arc<Mutex<Vec<Value>>>,
    /// The GET stream, read by a thread of its own, which ends when this is shut down.
    stream: Option<TcpStream>,
}

impl HttpClient {
    pub(super) fn connect(url: &str) -> Result<Self> {
        let url = Url::parse(url)?;
        Ok(Self { url, session: None, version: None, next: 1, notifications: Arc::default(), stream: None })
    }

    /// One POST on a connection of its own; `each` sees every message, and says when it has seen enough.
    fn post(&self, message: &Value, each: &mut dyn FnMut(Message) -> Result<Go>) -> Result<Option<String>> {
        let mut stream = self.url.connect(TIMEOUT)?;
        let body = message.to_string();
        let mut request = http1::post_head(&self.url, self.session.as_deref(), self.version.as_deref());
        write!(request, "{}\r\n\r\n{body}", body.len())?;
        stream.write_all(&request)?;
        read(&mut stream, each)
    }

    fn send(&self, message: &Value) -> Result<()> {
        self.post(message, &mut |_| Ok(Go::On)).map(drop)
    }

    /// The standalone stream on which the server asks what belongs to no request of ours.
    fn listen(&mut self) -> Result<()> {
        let (Some(session), Some(version)) = (&self.session, &self.version) else { return Ok(()) };
        let mut stream = self.url.connect(Duration::from_mins(10))?;
        stream.write_all(&http1::bare("GET", &self.url, session, version))?;
        self.stream = Some(stream.try_clone()?);
        let answers = Self {
            url: self.url.clone(),
            session: self.session.clone(),
            version: self.version.clone(),
            next: 0,
            notifications: self.notifications.clone(),
            stream: None,
        };
        std::thread::spawn(move || {
            read(&mut stream, &mut |message| {
                answers.handle(message)?;
                Ok(Go::On)
            })
            .ok();
        });
        Ok(())
    }

    fn handle(&self, message: Message) -> Result<()> {
        match message {
            Message::Request(request) => self.send(&answer(&request)),
            Message::Notification(message) => {
                self.notifications.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                Ok(())
            }
            Message::Answer(message) => bail!("an answer to nothing: {message}"),
        }
    }
}

enum Go {
    On,
    Stop,
}

/// Reads an answer, event by event as they come. Gives the session id of its head.
fn read(stream: &mut TcpStream, each: &mut dyn FnMut(Message) -> Result<Go>) -> Result<Option<String>> {
    let mut buffer = Vec::new();
    let mut seen = 0;
    loop {
        let mut chunk = [0; 16 * 1024];
        let length = stream.read(&mut chunk).context("no answer")?;
        buffer.extend_from_slice(&chunk[..length]);
        let Some(head) = head(&buffer)? else {
            anyhow::ensure!(length > 0, "the connection ended before the answer");
            continue;
        };
        let part = body(&head, &buffer)?;
        if head.status >= 300 {
            anyhow::ensure!(
                length > 0 && !part.complete,
                "{}: {}",
                head.status,
                String::from_utf8_lossy(&part.bytes)
            );
            continue;
        }
        if head.events {
            let found = events(&part.bytes);
            for event in found.iter().skip(seen) {
                seen += 1;
                if let Go::Stop = each(sort(event)?)? {
                    return Ok(head.session);
                }
            }
        } else if part.complete && !part.bytes.is_empty() {
            each(sort(&part.bytes)?)?;
        }
        if part.complete || length == 0 {
            return Ok(head.session);
        }
    }
}

impl Client for HttpClient {
    fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.next;
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut found = None;
        let session = self.post(&request, &mut |message| match message {
            Message::Answer(message) if message["id"] == id => {
                found = Some(message);
                Ok(Go::Stop)
            }
            other @ (Message::Answer(_) | Message::Request(_) | Message::Notification(_)) => {
                self.handle(other).map(|()| Go::On)
            }
        });
        let session = session.with_context(|| method.to_owned())?;
        let answer = found.with_context(|| format!("no answer to {method}"))?;
        if method == "initialize" {
            self.session = session;
            self.version = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
        }
        Ok(outcome(answer))
    }

    fn notify(&mut self, method: &str) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method}))?;
        if method == "notifications/initialized" {
            self.listen()?;
        }
        Ok(())
    }

    fn notifications(&mut self) -> Vec<Value> {
        std::mem::take(&mut *self.notifications.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn close(&mut self) -> Result<()> {
        if let (Some(session), Some(version)) = (&self.session, &self.version) {
            let mut stream = self.url.connect(TIMEOUT)?;
            stream.write_all(&http1::bare("DELETE", &self.url, session, version))?;
            read(&mut stream, &mut |_| Ok(Go::On)).context("DELETE")?;
        }
        if let Some(stream) = self.stream.take() {
            stream.shutdown(std::net::Shutdown::Both).ok();
        }
        Ok(())
    }
}
