//! What the broker costs: the first byte and the flow of a streamed answer, through it and without it, in one run.
//!
//! `cargo run --release -p broker --example first_byte [ROUNDS]`
//!
//! The provider is a thread of its own on this machine's loopback, and so are the box and the daemon, as they are in
//! life. Ways take turns, so that what else the machine does falls on both.

#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use broker::{Broker, BrokerOptions, Endpoint, Limits, Meter, Refusal, Spent, Ticket, Upstream};
use model::settings::Secret;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const TOKEN: &str = "box-0123456789abcdef";
/// One event of a stream, about as long as a provider's.
const EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
const FLOW: usize = 128 << 20;

#[derive(Debug)]
struct Free;

impl Meter for Free {
    fn begin(&self, _endpoint: Endpoint) -> Result<Box<dyn Ticket>, Refusal> {
        Ok(Box::new(Self))
    }
}

impl Ticket for Free {
    fn end(self: Box<Self>, _spent: Spent) {}
}

fn main() -> io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2000);
    let provider = provider()?;
    let sockets = daemon(provider)?;
    let small = request("/v1/chat/completions", "small", 2000);
    let long = request("/v1/chat/completions", "long", 200_000);
    let (mut direct, mut brokered) = (TcpStream::connect(provider)?, sockets.dial()?);
    direct.set_nodelay(true)?;
    for (name, asked) in [("request of 2 kB", &small), ("request of 200 kB", &long)] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let (one, other) = (first_byte(&mut direct, asked)?, first_byte(&mut brokered, asked)?);
            if round >= rounds / 10 {
                without.push(one);
                with.push(other);
            }
        }
        report(name, &mut without, &mut with);
    }
    let asked = request("/v1/chat/completions", "flow", 2000);
    for round in 0..3 {
        let without = flow(TcpStream::connect(provider)?, &asked)?;
        let with = flow(sockets.dial()?, &asked)?;
        println!("flow {round}: direct {without:.0} MB/s, brokered {with:.0} MB/s");
    }
    Ok(())
}

fn report(name: &str, without: &mut [Duration], with: &mut [Duration]) {
    without.sort();
    with.sort();
    let at = |times: &[Duration], part: usize| times[times.len() * part / 100].as_micros();
    for part in [50, 99] {
        let (one, other) = (at(without, part), at(with, part));
        println!(
            "{name}, p{part}: direct {one} us, brokered {other} us, over direct {} us",
            other.saturating_sub(one)
        );
    }
}

/// A body of so many bytes whose first word says what is wanted.
fn request(path: &str, wanted: &str, length: usize) -> Vec<u8> {
    let body = format!(
        r#"{{"stream":true,"model":"{wanted}","messages":[{{"content":"{}"}}]}}"#,
        "x".repeat(length)
    );
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Until the first event of the answer is there; then the rest is read.
fn first_byte(stream: &mut (impl io::Read + io::Write), asked: &[u8]) -> io::Result<Duration> {
    let begun = Instant::now();
    stream.write_all(asked)?;
    let (mut read, mut first) = (Vec::new(), None);
    let mut piece = vec![0; 64 * 1024];
    while !read.ends_with(b"0\r\n\r\n") {
        let length = stream.read(&mut piece)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&piece[..length]);
        if first.is_none() && memchr::memmem::find(&read, b"data:").is_some() {
            first = Some(begun.elapsed());
        }
    }
    first.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Megabytes in a second.
fn flow(mut stream: impl io::Read + io::Write, asked: &[u8]) -> io::Result<f64> {
    let begun = Instant::now();
    stream.write_all(asked)?;
    let (mut read, mut piece) = (0_u32, vec![0; 64 * 1024]);
    loop {
        let length = stream.read(&mut piece)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read += u32::try_from(length).unwrap_or_default();
        if piece[..length].ends_with(b"0\r\n\r\n") {
            return Ok(f64::from(read) / 1e6 / begun.elapsed().as_secs_f64());
        }
    }
}

/// Answers with three events, or with very many.
fn provider() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut read, mut piece) = (Vec::new(), vec![0; 256 * 1024]);
    loop {
        let wanted = loop {
            if let Some((wanted, length)) = whole(&read) {
                read.drain(..length);
                break wanted;
            }
            let length = stream.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            read.extend_from_slice(&piece[..length]);
        };
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        let (events, times) = if wanted { (64, FLOW / (64 * EVENT.len())) } else { (1, 3) };
        let data = EVENT.repeat(events);
        let chunk = format!("{:x}\r\n{data}\r\n", data.len());
        for _ in 0..times {
            stream.write_all(chunk.as_bytes())?;
        }
        stream.write_all(b"0\r\n\r\n")?;
    }
}

/// Whether very much is wanted, and how long the request is; None while it is not there.
fn whole(read: &[u8]) -> Option<(bool, usize)> {
    let end = memchr::memmem::find(read, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&read[..end]).ok()?.to_ascii_lowercase();
    let length: usize = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let wanted = memchr::memmem::find(read, b"\"model\":\"flow\"").is_some();
    (read.len() >= end + length).then_some((wanted, end + length))
}

/// Where the box dials.
struct Sockets {
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl Sockets {
    fn dial(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path)
    }
}

fn daemon(provider: SocketAddr) -> io::Result<Sockets> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("model.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::spawn(move || runtime.block_on(serve(listener, provider)));
    Ok(Sockets { path, _directory: directory })
}

async fn serve(listener: std::os::unix::net::UnixListener, provider: SocketAddr) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let tasks = TaskTracker::new();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let broker = Broker::new(BrokerOptions {
        upstream: Upstream::parse(&format!("http://{provider}/v1")).map_err(io::Error::other)?,
        key: Some(Secret::new("sk-0123456789abcdef0123456789abcdef")),
        token: Secret::new(TOKEN),
        limits: Limits::default(),
        meter: Arc::new(Free),
        tls: Arc::new(tls),
        tasks: tasks.clone(),
    });
    let broker = broker.map_err(io::Error::other)?;
    let stop = CancellationToken::new();
    loop {
        let (stream, _) = listener.accept().await?;
        tasks.spawn(Arc::clone(&broker).serve(stream, stop.clone()));
    }
}
