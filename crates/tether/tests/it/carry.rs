use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tether::Sockets;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::harness::{Bridge, Daemon, SOON, comes, directory, port, request, soon};

struct Place {
    _directory: TempDir,
    sockets: PathBuf,
    port: u16,
    bridge: Bridge,
}

/// A bridge that carries one port, and no daemon yet.
fn place() -> Place {
    place_of("egress")
}

fn place_of(name: &str) -> Place {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let port = port();
    let carried = format!("{port}={name}");
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", "1", "--carry", &carried];
    let mut bridge = Bridge::start(&args, &["sh", "-c", "echo ready; exec sleep 600"]);
    assert_eq!(bridge.line(), "ready");
    Place { _directory: directory, sockets, port, bridge }
}

async fn connect(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap()
}

/// Bytes that repeat late.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

#[tokio::test]
async fn bytes_pass_both_ways() {
    let place = place();
    let mut daemon = Daemon::start(&place.sockets);
    daemon.echo("egress");
    let mut stream = connect(place.port).await;
    for word in ["one", "two"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut heard = [0; 3];
        soon(stream.read_exact(&mut heard)).await.unwrap();
        assert_eq!(heard, word.as_bytes());
    }
    let large = pattern(8 << 20, 1);
    assert!(soon(request(place.port, &large)).await == large);
}

#[tokio::test]
async fn half_a_connection_may_end() {
    let place = place();
    let mut daemon = Daemon::start(&place.sockets);
    // Answers only when all was said.
    daemon.serve("egress", |mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(format!("{} bytes", all.len()).as_bytes()).await.unwrap();
    });
    assert_eq!(soon(request(place.port, &vec![7; 100_000])).await, b"100000 bytes");
    // Ends before it has heard anything.
    let heard = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&heard);
    daemon.serve("mcp", |_| async {});
    let listener = Sockets::make(&place.sockets, &["egress"]).unwrap().take("egress").unwrap();
    let listener = UnixListener::from_std(listener).unwrap();
    daemon.tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        counts.store(stream.read_to_end(&mut all).await.unwrap(), Ordering::SeqCst);
    });
    let mut stream = connect(place.port).await;
    let mut all = Vec::new();
    soon(stream.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all, b"bye");
    stream.write_all(b"still here").await.unwrap();
    drop(stream);
    comes(SOON, || (heard.load(Ordering::SeqCst) == 10).then_some(())).await;
}

#[tokio::test]
async fn whoever_is_left_is_not_held_up_by_a_daemon_that_is_gone() {
    let place = place();
    let mut daemon = Daemon::start(&place.sockets);
    daemon.serve("egress", |mut stream| async move {
        stream.write_all(b"the end").await.unwrap();
    });
    let mut stream = connect(place.port).await;
    let mut all = Vec::new();
    soon(stream.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all, b"the end");
    // The daemon closed, and did not only end: the bridge lets go although this side has not ended.
    let refused = async {
        while stream.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon(refused).await;
}

#[tokio::test]
async fn a_hundred_at_once_do_not_mix() {
    let place = place();
    let mut daemon = Daemon::start(&place.sockets);
    daemon.echo("egress");
    let before = place.bridge.resident();
    let mut clients = JoinSet::new();
    for seed in 0..100 {
        clients.spawn(async move {
            let said = pattern(200_000, seed);
            request(place.port, &said).await == said
        });
    }
    let all = timeout(Duration::from_mins(1), clients.join_all()).await.unwrap();
    assert_eq!(all, [true; 100]);
    let after = place.bridge.resident();
    println!("resident: {before} kB before, {after} kB after a hundred connections of 200 kB each way");
    assert!(after < 16 << 10, "{after} kB");
}

#[tokio::test]
async fn more_than_a_place_for_wait_their_turn() {
    let place = place();
    let mut daemon = Daemon::start(&place.sockets);
    daemon.echo("egress");
    let mut held = Vec::new();
    for _ in 0..256 {
        let mut stream = connect(place.port).await;
        stream.write_all(b"a").await.unwrap();
        soon(stream.read_u8()).await.unwrap();
        held.push(stream);
    }
    let mut waits = connect(place.port).await;
    waits.write_all(b"b").await.unwrap();
    assert!(timeout(Duration::from_millis(300), waits.read_u8()).await.is_err(), "there was room for it");
    held.pop();
    assert_eq!(soon(waits.read_u8()).await.unwrap(), b'b');
}

#[tokio::test]
async fn a_request_made_before_the_daemon_is_there_is_late() {
    let place = place();
    let asks = request(place.port, b"hello");
    let starts = async {
        sleep(Duration::from_millis(700)).await;
        let mut daemon = Daemon::start(&place.sockets);
        daemon.echo("egress");
        daemon
    };
    let (heard, _daemon) = soon(async { tokio::join!(asks, starts) }).await;
    assert_eq!(heard, b"hello");
}

#[tokio::test]
async fn a_daemon_that_stays_away_is_not_waited_for_for_ever() {
    let place = place();
    let began = Instant::now();
    let heard = timeout(Duration::from_secs(30), request(place.port, b"hello")).await.unwrap();
    assert_eq!(heard, b"");
    let took = began.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(20), "{took:?}");
}

/// The daemon was killed before it accepted, or before it had read all.
async fn check_killed(length: usize, accepted: bool, read: usize) {
    let place = place();
    let said = pattern(length, 3);
    let killed = Sockets::make(&place.sockets, &["egress"]).unwrap().take("egress").unwrap();
    let killed = UnixListener::from_std(killed).unwrap();
    let asks = request(place.port, &said);
    let restarts = async {
        if accepted {
            let (mut stream, _) = killed.accept().await.unwrap();
            stream.read_exact(&mut vec![0; read]).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        } else {
            sleep(Duration::from_millis(300)).await;
        }
        drop(killed);
        let mut daemon = Daemon::start(&place.sockets);
        daemon.echo("egress");
        daemon
    };
    let (heard, _daemon) = soon(async { tokio::join!(asks, restarts) }).await;
    assert!(heard == said, "{} of {length} bytes (accepted: {accepted}, read: {read})", heard.len());
}

#[tokio::test]
async fn a_request_that_a_killed_daemon_had_not_read_is_late() {
    check_killed(5, false, 0).await;
    check_killed(150_000, false, 0).await;
    check_killed(5, true, 3).await;
    check_killed(200_000, true, 50_000).await;
}

#[tokio::test]
async fn a_request_that_a_killed_daemon_had_read_is_not_repeated() {
    let place = place();
    let killed = Sockets::make(&place.sockets, &["egress"]).unwrap().take("egress").unwrap();
    let killed = UnixListener::from_std(killed).unwrap();
    let mut asks = connect(place.port).await;
    asks.write_all(b"pay").await.unwrap();
    let (mut stream, _) = soon(killed.accept()).await.unwrap();
    soon(stream.read_exact(&mut [0; 3])).await.unwrap();
    drop((stream, killed));
    let next = Sockets::make(&place.sockets, &["egress"]).unwrap().take("egress").unwrap();
    let next = UnixListener::from_std(next).unwrap();
    let mut all = Vec::new();
    soon(asks.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all, b"");
    let again = timeout(Duration::from_millis(500), next.accept()).await;
    assert!(again.is_err(), "it was sent again");
}

#[tokio::test]
async fn a_model_is_asked_again_where_no_answer_had_begun_and_only_there() {
    let place = place_of("model");
    for begins in [false, true] {
        let killed = Sockets::make(&place.sockets, &["model"]).unwrap().take("model").unwrap();
        let killed = UnixListener::from_std(killed).unwrap();
        let mut asks = connect(place.port).await;
        asks.write_all(b"why").await.unwrap();
        let (mut stream, _) = soon(killed.accept()).await.unwrap();
        soon(stream.read_exact(&mut [0; 3])).await.unwrap();
        if begins {
            stream.write_all(b"be").await.unwrap();
            soon(asks.read_exact(&mut [0; 2])).await.unwrap();
        }
        drop((stream, killed));
        let mut daemon = Daemon::start(&place.sockets);
        daemon.serve("model", |mut stream| async move {
            let mut heard = [0; 3];
            stream.read_exact(&mut heard).await.unwrap();
            stream.write_all(&heard).await.unwrap();
        });
        let mut all = Vec::new();
        soon(asks.read_to_end(&mut all)).await.unwrap();
        let expected: &[u8] = if begins { b"" } else { b"why" };
        assert_eq!(all, expected, "an answer had begun: {begins}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_early_is_heard() {
    let place = place();
    let mut daemon = Daemon::start(&place.sockets);
    // Refuses without reading.
    daemon.serve("egress", |mut stream| async move {
        stream.write_all(b"too large").await.unwrap();
        stream.shutdown().await.unwrap();
        sleep(Duration::from_mins(1)).await;
    });
    let mut asks = connect(place.port).await;
    let (mut from, mut to) = asks.split();
    let mut all = Vec::new();
    let zeros = vec![0; 65536];
    let says = async { while to.write_all(&zeros).await.is_ok() {} };
    let hears = from.read_to_end(&mut all);
    tokio::select! {
        () = says => panic!("it was closed"),
        heard = soon(hears) => assert_eq!(heard.unwrap(), 9),
    }
    assert_eq!(all, b"too large");
}
