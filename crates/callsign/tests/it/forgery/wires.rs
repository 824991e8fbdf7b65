//! Bytes on a pipe and on a socket, as they are: a client library would tidy them up.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// `callsign wrap`.
pub(super) struct Pipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pipe {
    pub(super) fn open(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("callsign starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    pub(super) fn send(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).expect("it reads");
    }

    /// The next message that comes back.
    pub(super) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes");
        assert!(!line.is_empty(), "the pipe ended");
        serde_json::from_str(&line).expect("a message")
    }

    /// Waits for this many answers.
    pub(super) fn answers(&mut self, mut count: usize) {
        while count > 0 {
            let message = self.receive();
            count -= usize::from(message.get("method").is_none());
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One connection to `callsign serve`.
pub(super) struct Socket {
    address: String,
    path: String,
    token: String,
    pub(super) session: Option<String>,
    stream: BufReader<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) session: Option<String>,
    pub(super) body: String,
}

fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    BufReader::new(stream)
}

impl Socket {
    pub(super) fn open(address: &str, path: &str, token: &str) -> Self {
        let (address, path, token) = (address.to_owned(), path.to_owned(), token.to_owned());
        let stream = connect(&address);
        Self { address, path, token, session: None, stream }
    }

    /// Sends the headers as they are spelled.
    pub(super) fn post(&mut self, body: &str, headers: &[(String, String)]) -> Answer {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.path,
            self.address,
            self.token,
            body.len()
        );
        if let Some(session) = &self.session {
            head.extend(["Mcp-Session-Id: ", session, "\r\n"]);
        }
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        self.stream.get_mut().write_all(format!("{head}\r\n{body}").as_bytes()).expect("it reads");
        let (answer, is_last) = self.answer();
        if is_last {
            self.stream = connect(&self.address);
        }
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("it answers");
        assert!(line.ends_with('\n'), "the connection ended");
        line.trim_end().to_owned()
    }

    fn answer(&mut self) -> (Answer, bool) {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut answer = Answer { status, session: None, body: String::new() };
        let (mut length, mut is_chunked, mut is_last) = (0, false, false);
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a length"),
                "transfer-encoding" => is_chunked = true,
                "connection" => is_last = value == "close",
                "mcp-session-id" => answer.session = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = Vec::new();
        while is_chunked {
            let size = usize::from_str_radix(&self.line(), 16).expect("a chunk");
            let mut chunk = vec![0; size];
            self.stream.read_exact(&mut chunk).expect("a chunk");
            self.line();
            body.extend(chunk);
            is_chunked = size > 0;
        }
        let start = body.len();
        body.resize(start + length, 0);
        self.stream.read_exact(&mut body[start..]).expect("a body");
        answer.body = String::from_utf8_lossy(&body).into_owned();
        (answer, is_last)
    }
}
