use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::harness::{Agent, Bridge, Daemon, SOON, comes, directory, port, soon};

struct Place {
    _directory: TempDir,
    sockets: PathBuf,
    _bridge: Bridge,
}

fn place(agent: u16) -> Place {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let bridge = start(&sockets, agent);
    Place { _directory: directory, sockets, _bridge: bridge }
}

fn start(sockets: &Path, agent: u16) -> Bridge {
    let agent = agent.to_string();
    Bridge::start(&["--sockets", sockets.to_str().unwrap(), "--agent", &agent], &["sleep", "600"])
}

async fn check_echo(stream: &mut UnixStream, word: &str) {
    stream.write_all(word.as_bytes()).await.unwrap();
    let mut heard = vec![0; word.len()];
    soon(stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, word.as_bytes());
}

#[tokio::test]
async fn the_daemon_reaches_the_agent() {
    let agent = Agent::echo().await;
    let place = place(agent.port);
    let daemon = Daemon::start(&place.sockets);
    let mut stream = daemon.hub.open(SOON).await.unwrap();
    check_echo(&mut stream, "hello").await;
    // Half of it may end here too.
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
    comes(SOON, || (daemon.hub.idle_count() == 2).then_some(())).await;
}

#[tokio::test]
async fn the_directory_may_have_a_long_path() {
    let agent = Agent::echo().await;
    let directory = directory();
    let above = directory.path().join("a".repeat(150));
    std::fs::create_dir(&above).unwrap();
    let sockets = above.join("sockets");
    let daemon = Daemon::start(&sockets);
    let _bridge = start(&sockets, agent.port);
    check_echo(&mut daemon.hub.open(SOON).await.unwrap(), "hello").await;
    // The next daemon's too.
    drop(daemon);
    let daemon = Daemon::start(&sockets);
    check_echo(&mut daemon.hub.open(SOON).await.unwrap(), "hello").await;
}

#[tokio::test]
async fn a_hundred_at_once_and_no_more_than_fit() {
    let agent = Agent::echo().await;
    let place = place(agent.port);
    let daemon = Daemon::start(&place.sockets);
    let mut opens = JoinSet::new();
    for number in 0..100 {
        let hub = Arc::clone(&daemon.hub);
        opens.spawn(async move {
            let mut stream = hub.open(SOON).await.unwrap();
            check_echo(&mut stream, &format!("number {number}")).await;
            stream
        });
    }
    let mut held = opens.join_all().await;
    while held.len() < 128 {
        held.push(daemon.hub.open(SOON).await.unwrap());
    }
    let error = daemon.hub.open(SOON).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains("too many"), "{error}");
    held.pop();
    let until = Instant::now() + SOON;
    while daemon.hub.open(SOON).await.is_err() {
        assert!(Instant::now() < until, "there is still no room");
    }
    for stream in &mut held {
        check_echo(stream, "still here").await;
    }
}

#[tokio::test]
async fn what_is_missing_is_told_apart() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let daemon = Daemon::start(&sockets);
    let began = Instant::now();
    let error = daemon.hub.open(Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    assert!(began.elapsed() >= Duration::from_millis(200));
    // A bridge, and no agent behind it.
    let number = port();
    let _bridge = start(&sockets, number);
    let error = daemon.hub.open(SOON).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains("Connection refused"), "{error}");
    // Until there is one.
    let _agent = Agent::start_at(number, |mut stream| async move {
        stream.write_all(b"here").await.unwrap();
    })
    .await;
    let mut heard = Vec::new();
    let mut stream = daemon.hub.open(SOON).await.unwrap();
    soon(stream.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"here");
}

#[tokio::test]
async fn a_path_that_is_none_is_refused_here() {
    let directory = directory();
    let daemon = Daemon::start(&directory.path().join("sockets"));
    for path in ["", "event", "/event\nAGENT", "/event HTTP/1.1\r\nX: y"] {
        let error = daemon.hub.events(path, SOON).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path:?}");
    }
}

/// Somebody in the box who connects to the daemon in the bridge's place.
async fn lie(sockets: &Path) -> UnixStream {
    UnixStream::connect(sockets.join("control.sock")).await.unwrap()
}

#[tokio::test]
async fn a_liar_who_is_silent_costs_time_and_no_more() {
    let agent = Agent::echo().await;
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let daemon = Daemon::start(&sockets);
    let silent = lie(&sockets).await;
    comes(SOON, || (daemon.hub.idle_count() == 1).then_some(())).await;
    let error = daemon.hub.open(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop(silent);
    // In front of the bridge's: it is given up on, and the next one is asked.
    let _silent = lie(&sockets).await;
    comes(SOON, || (daemon.hub.idle_count() == 1).then_some(())).await;
    let _bridge = start(&sockets, agent.port);
    let mut stream = daemon.hub.open(SOON).await.unwrap();
    check_echo(&mut stream, "hello").await;
}

#[tokio::test]
async fn liars_who_speak_or_die_are_skipped() {
    let agent = Agent::echo().await;
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let mut daemon = Daemon::start(&sockets);
    let mut speaks = lie(&sockets).await;
    speaks.write_all(b"OK\nhello").await.unwrap();
    for _ in 0..10 {
        drop(lie(&sockets).await);
    }
    // Dies when it is asked; talks nonsense; talks without end.
    let endless = vec![b'a'; 100_000];
    for answer in [&b""[..], b"HELLO\n", &endless, b"\xff\xfe\n"] {
        let (mut liar, answer) = (lie(&sockets).await, answer.to_vec());
        daemon.tasks.spawn(async move {
            let _asked = liar.read(&mut [0; 16]).await;
            let _closed = liar.write_all(&answer).await;
        });
    }
    sleep(Duration::from_millis(50)).await;
    let _bridge = start(&sockets, agent.port);
    let mut stream = daemon.hub.open(SOON).await.unwrap();
    check_echo(&mut stream, "hello").await;
}

#[tokio::test]
async fn what_a_liar_gives_as_a_reason_is_plain() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let daemon = Daemon::start(&sockets);
    let mut liar = lie(&sockets).await;
    let lies = async {
        soon(liar.read(&mut [0; 16])).await.unwrap();
        liar.write_all(b"NO \x1b[31mred\x07\n").await.unwrap();
    };
    let (error, ()) = tokio::join!(daemon.hub.open(SOON), lies);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(error.to_string().ends_with("the agent: [31mred"), "{:?}", error.to_string());
}

#[tokio::test]
async fn a_flood_of_connections_is_bounded() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let daemon = Daemon::start(&sockets);
    let mut flood = Vec::new();
    for _ in 0..300 {
        flood.push(lie(&sockets).await);
        assert!(daemon.hub.idle_count() <= 64);
    }
    comes(SOON, || (daemon.hub.idle_count() == 64).then_some(())).await;
    // The oldest were closed.
    assert_eq!(soon(flood[0].read(&mut [0; 1])).await.unwrap(), 0);
    let newest = flood.last_mut().unwrap();
    assert!(timeout(Duration::from_millis(50), newest.read(&mut [0; 1])).await.is_err());
    // Those that are gone make room as soon as another one comes.
    drop(flood);
    sleep(Duration::from_millis(50)).await;
    let _one = lie(&sockets).await;
    comes(SOON, || (daemon.hub.idle_count() == 1).then_some(())).await;
}

#[tokio::test]
async fn the_agent_is_told_that_the_daemon_is_gone() {
    let told = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&told);
    // An agent that answers for ever, and does not end because the other side did.
    let agent = Agent::start(move |mut stream| {
        let tells = Arc::clone(&tells);
        async move {
            while stream.write_all(b"data\n").await.is_ok() {
                sleep(Duration::from_millis(10)).await;
            }
            tells.store(true, Ordering::SeqCst);
        }
    })
    .await;
    let place = place(agent.port);
    let daemon = Daemon::start(&place.sockets);
    let mut stream = daemon.hub.open(SOON).await.unwrap();
    soon(stream.read_u8()).await.unwrap();
    drop((stream, daemon));
    comes(SOON, || told.load(Ordering::SeqCst).then_some(())).await;
}
