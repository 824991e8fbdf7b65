//! What the bridge costs: `cargo run --release -p tether --example cost [series REQUESTS STREAMS]`.
//!
//! The same requests, directly and through the bridge, in turns, so that what else the machine does falls on both. As a
//! `series`, every figure is a line of its own, in milliseconds: `request direct 0.021`. The bench reads these.
//!
//! ```text
//! request      a request and its answer on a connection that is there
//! connection   … on a new one each
//! model        a request on a new connection from the box to the daemon
//! paced        600 events of 200 bytes, one each 2 ms, as a model writes them: how long from the first to the last
//! bulk         64 MB as fast as it goes
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge::{CONTROL, MODEL};
use tether::{Hub, Sockets, install};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Fault = Box<dyn std::error::Error>;

const WITHIN: Duration = Duration::from_secs(5);
const EVENTS: u32 = 600;
const PACE: Duration = Duration::from_millis(2);
const BULK: usize = 64 << 20;

/// How often each is measured.
#[derive(Clone, Copy)]
struct Size {
    requests: usize,
    streams: usize,
}

/// The same thing both ways.
struct Found {
    what: &'static str,
    plain: Vec<Duration>,
    through: Vec<Duration>,
}

#[expect(clippy::print_stdout, reason = "figures are what this is for")]
fn main() -> Result<(), Fault> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, else_: usize| words.get(at).map_or(Ok(else_), |word| word.parse());
    let size = Size { requests: number(1, 2000)?, streams: number(2, 5)? };
    let all = Builder::new_current_thread().enable_all().build()?.block_on(measure(size))?;
    for Found { what, mut plain, mut through } in all {
        if words.is_empty() {
            println!("{what:<11} {}", compare(&mut plain, &mut through));
            continue;
        }
        for (way, times) in [("direct", plain), ("bridged", through)] {
            for time in times {
                println!("{what} {way} {:.6}", time.as_secs_f64() * 1000.0);
            }
        }
    }
    Ok(())
}

async fn measure(size: Size) -> Result<Vec<Found>, Fault> {
    let mut all = Vec::new();
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("sockets");
    let mut sockets = Sockets::make(&path, &[CONTROL, MODEL])?;
    let hub = Arc::new(Hub::new(sockets.take(CONTROL).ok_or("no socket")?)?);
    let mut tasks = JoinSet::new();
    let serves = Arc::clone(&hub);
    tasks.spawn(async move { serves.serve().await });
    let model = UnixListener::from_std(sockets.take(MODEL).ok_or("no socket")?)?;
    let model_path = path.join("model.sock");
    // Servers run on a thread of their own: they cost the same in both ways.
    let agent = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = agent.local_addr()?.port();
    agent.set_nonblocking(true)?;
    std::thread::spawn(move || serve(agent));
    tasks.spawn(async move {
        let mut each = JoinSet::new();
        while let Ok((stream, _)) = model.accept().await {
            while each.try_join_next().is_some() {}
            each.spawn(answer(stream));
        }
    });
    let carried = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let bridge = start(&path, port, carried, directory.path())?;
    let direct = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));

    let (mut one, mut other) = (direct().await?, hub.open(WITHIN).await?);
    one.set_nodelay(true)?;
    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.requests {
        plain.push(ask(&mut one).await?);
        through.push(ask(&mut other).await?);
    }
    all.push(Found { what: "request", plain, through });

    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.requests {
        let began = Instant::now();
        ask(&mut direct().await?).await?;
        plain.push(began.elapsed());
        let began = Instant::now();
        ask(&mut hub.open(WITHIN).await?).await?;
        through.push(began.elapsed());
    }
    all.push(Found { what: "connection", plain, through });

    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.requests {
        let began = Instant::now();
        ask(&mut UnixStream::connect(&model_path).await?).await?;
        plain.push(began.elapsed());
        let began = Instant::now();
        ask(&mut TcpStream::connect((Ipv4Addr::LOCALHOST, carried)).await?).await?;
        through.push(began.elapsed());
    }
    all.push(Found { what: "model", plain, through });

    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.streams {
        plain.push(fetch(&mut direct().await?, b"P", EVENTS as usize * 200).await?);
        through.push(fetch(&mut hub.open(WITHIN).await?, b"P", EVENTS as usize * 200).await?);
    }
    all.push(Found { what: "paced", plain, through });

    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.streams {
        plain.push(fetch(&mut direct().await?, b"B", BULK).await?);
        through.push(fetch(&mut hub.open(WITHIN).await?, b"B", BULK).await?);
    }
    all.push(Found { what: "bulk", plain, through });
    drop(bridge);
    Ok(all)
}

/// Asked to end when dropped, with what it started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Its command reads until this is closed.
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}

fn start(sockets: &Path, agent: u16, carried: u16, directory: &Path) -> Result<Running, Fault> {
    let mut bridge = Command::new(install(&directory.join("bin"))?);
    bridge.arg("--sockets").arg(sockets).arg("--agent").arg(agent.to_string());
    bridge.arg("--carry").arg(format!("{carried}={MODEL}")).args(["--", "cat"]).stdin(Stdio::piped());
    Ok(Running(bridge.spawn()?))
}

fn serve(listener: std::net::TcpListener) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        let mut each = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let _slower = stream.set_nodelay(true);
            while each.try_join_next().is_some() {}
            each.spawn(answer(stream));
        }
    });
}

/// One letter says what is wanted.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut asked = [0; 512];
    loop {
        let written = match stream.read(&mut asked).await {
            Ok(0) | Err(_) => return,
            Ok(_) => match asked[0] {
                b'P' => paced(&mut stream).await,
                b'B' => bulk(&mut stream).await,
                _ => stream.write_all(ANSWER).await,
            },
        };
        if written.is_err() {
            return;
        }
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const REQUEST: &[u8] =
    b"GET /session/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic b3BlbmNvZGU6\r\n\r\n";

async fn paced(stream: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    for _ in 0..EVENTS {
        stream.write_all(&[b'x'; 200]).await?;
        sleep(PACE).await;
    }
    Ok(())
}

async fn bulk(stream: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    let piece = vec![b'x'; 64 << 10];
    for _ in 0..BULK / piece.len() {
        stream.write_all(&piece).await?;
    }
    Ok(())
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<Duration> {
    let began = Instant::now();
    stream.write_all(REQUEST).await?;
    stream.read_exact(&mut [0; ANSWER.len()]).await?;
    Ok(began.elapsed())
}

async fn fetch(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    what: &[u8],
    length: usize,
) -> std::io::Result<Duration> {
    let began = Instant::now();
    stream.write_all(what).await?;
    let mut buffer = vec![0; 64 << 10];
    let mut left = length;
    while left > 0 {
        match stream.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read),
        }
    }
    Ok(began.elapsed())
}

fn compare(plain: &mut [Duration], through: &mut [Duration]) -> String {
    let middle = |times: &mut [Duration]| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let tail = |times: &[Duration]| times[times.len() * 99 / 100];
    let (direct, bridged) = (middle(plain), middle(through));
    let ratio = bridged.as_secs_f64() / direct.as_secs_f64();
    format!(
        "direct {direct:>9.1?} (p99 {:.1?})   bridged {bridged:>9.1?} (p99 {:.1?})   adds {:.1?}, {:+.1} %",
        tail(plain),
        tail(through),
        bridged.saturating_sub(direct),
        (ratio - 1.0) * 100.0
    )
}
