//! A provider between a host and the scripted model: it notes what was asked for the first time, can be waited for, and
//! misbehaves when it is told to.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::conversation::{list, text};
use super::lock;

/// What the provider does with every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It says nothing for so long, then what the model says.
    Slow(Duration),
    /// It fails with this status and message.
    Status(u16, &'static str),
    /// A stream of events that are no JSON.
    Garbage,
    /// A stream that ends in the middle of an event.
    Half,
    /// The connection ends without a word.
    HangUp,
}

/// Something that happens to a turn, which a test can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Asked,
    Answered,
}

/// A running provider. Drop ends it.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    model: SocketAddr,
    shared: Arc<Shared>,
    listening: Mutex<Option<Listening>>,
}

#[derive(Debug)]
struct Listening {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    fault: Mutex<Option<Fault>>,
    seen: Mutex<Seen>,
    happened: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    asked: u64,
    answered: u64,
    first: Vec<FirstStep>,
}

/// A request that opens a turn: behind its last user text the model has said nothing yet.
#[derive(Debug, Clone)]
pub struct FirstStep {
    pub at: Instant,
    pub text: String,
    /// All that users have said in its conversation.
    pub prompts: Vec<String>,
}

impl Provider {
    /// In front of the model at this address, on a free port of 127.0.0.1.
    pub fn start(model: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for the provider");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared::default());
        let listening = Mutex::new(Some(Listening::start(listener, &shared, model)));
        Self { address, model, shared, listening }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// None: it does what the model does.
    pub fn fault(&self, fault: Option<Fault>) {
        *lock(&self.shared.fault) = fault;
    }

    /// Nobody listens on its port any more.
    pub fn down(&self) {
        if let Some(Listening { stop, thread }) = lock(&self.listening).take() {
            stop.store(true, Ordering::SeqCst);
            // It waits for a connection: this is the last one.
            drop(TcpStream::connect(self.address));
            drop(thread.join());
        }
    }

    /// It listens again, on the same port.
    pub fn up(&self) {
        let mut listening = lock(&self.listening);
        if listening.is_none() {
            let listener = TcpListener::bind(self.address).expect("the port it had");
            *listening = Some(Listening::start(listener, &self.shared, self.model));
        }
    }

    /// Every turn that was opened so far, in the order of arrival.
    pub fn first_steps(&self) -> Vec<FirstStep> {
        lock(&self.shared.seen).first.clone()
    }

    /// Waits for the next such moment. False when there was none in time.
    pub fn wait_for(&self, moment: Moment, within: Duration) -> bool {
        let count = |seen: &Seen| match moment {
            Moment::Asked => seen.asked,
            Moment::Answered => seen.answered,
        };
        let seen = lock(&self.shared.seen);
        let before = count(&seen);
        let waited = self.shared.happened.wait_timeout_while(seen, within, |seen| count(seen) == before);
        waited.is_ok_and(|(_, waited)| !waited.timed_out())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.down();
    }
}

impl Listening {
    fn start(listener: TcpListener, shared: &Arc<Shared>, model: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, shared) = (Arc::clone(&stop), Arc::clone(shared));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                // A host that hangs up is its own business.
                std::thread::spawn(move || drop(serve(stream, &shared, model)));
            }
        });
        Self { stop, thread }
    }
}

fn serve(mut stream: TcpStream, shared: &Shared, model: SocketAddr) -> io::Result<()> {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.set_nodelay(true)?;
    let Some(Whole { bytes, body }) = read_request(&mut stream)? else { return Ok(()) };
    let is_turn = !list(&body, "tools").is_empty();
    if is_turn {
        shared.note(|seen| {
            seen.asked += 1;
            seen.first.extend(first_step(&body));
        });
    }
    let fault = lock(&shared.fault).clone();
    match fault {
        None => pass(&mut stream, &bytes, model)?,
        Some(Fault::Slow(pause)) => {
            std::thread::sleep(pause);
            pass(&mut stream, &bytes, model)?;
        }
        Some(Fault::Status(status, message)) => {
            let said = serde_json::json!({ "error": { "message": message, "type": "faulty" } }).to_string();
            let length = said.len();
            let kind = "content-type: application/json\r\nconnection: close";
            write!(stream, "HTTP/1.1 {status} Fault\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{said}")?;
        }
        Some(Fault::Garbage) => {
            stream
                .write_all(format!("{HEAD}data: {{\"id\": nonsense\n\ndata: \u{fffd}\u{0}\n\n").as_bytes())?;
        }
        Some(Fault::Half) => {
            let head = HEAD.replace("connection: close", "transfer-encoding: chunked");
            stream.write_all(format!("{head}40\r\ndata: {{\"id\":").as_bytes())?;
        }
        Some(Fault::HangUp) => {}
    }
    stream.shutdown(Shutdown::Both)?;
    if is_turn {
        shared.note(|seen| seen.answered += 1);
    }
    Ok(())
}

fn pass(stream: &mut TcpStream, request: &[u8], model: SocketAddr) -> io::Result<()> {
    let mut behind = TcpStream::connect(model)?;
    behind.set_nodelay(true)?;
    behind.write_all(request)?;
    io::copy(&mut behind, stream)?;
    Ok(())
}

impl Shared {
    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut lock(&self.seen));
        self.happened.notify_all();
    }
}

fn first_step(body: &Value) -> Option<FirstStep> {
    let messages = list(body, "messages");
    let last = messages.iter().rposition(|message| message["role"] == "user")?;
    let answered = messages[last..].iter().any(|message| message["role"] == "assistant");
    let said = |message: &Value| text(&message["content"]);
    let users = messages.iter().filter(|message| message["role"] == "user");
    (!answered).then(|| FirstStep {
        at: Instant::now(),
        text: said(&messages[last]),
        prompts: users.map(said).collect(),
    })
}

struct Whole {
    /// Head and body, saying that it is the last one of its connection.
    bytes: Vec<u8>,
    body: Value,
}

fn read_request(stream: &mut TcpStream) -> io::Result<Option<Whole>> {
    let mut bytes = Vec::new();
    let mut more = [0; 16 << 10];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut more)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&more[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut length = 0;
    let mut kept = Vec::new();
    for line in head.trim_end().lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
            "connection" => continue,
            _ => {}
        }
        kept.push(line);
    }
    while bytes.len() < end + length {
        match stream.read(&mut more)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&more[..count]),
        }
    }
    let body = &bytes[end..end + length];
    let mut whole = format!("{}\r\nconnection: close\r\n\r\n", kept.join("\r\n")).into_bytes();
    whole.extend_from_slice(body);
    Ok(Some(Whole { body: serde_json::from_slice(body).unwrap_or_default(), bytes: whole }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_is_opened_by_a_user_text_that_nobody_answered() {
        let user = |text: &str| json!({ "role": "user", "content": text });
        let said = json!({ "role": "assistant", "content": "x" });
        let opened = |messages: Value| first_step(&json!({ "messages": messages }));
        assert_eq!(opened(json!([user("a"), said, user("b")])).expect("opened").text, "b");
        assert!(opened(json!([user("a"), said])).is_none());
        assert!(opened(json!([said])).is_none());
    }

    #[test]
    fn it_goes_down_and_comes_back_on_its_port() {
        let model = super::super::ScriptedModel::start();
        let provider = Provider::start(model.address());
        provider.down();
        assert!(TcpStream::connect(provider.address()).is_err());
        provider.up();
        let mut stream = TcpStream::connect(provider.address()).expect("it listens");
        write!(stream, "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
