use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::broadcast;
use tokio::time::sleep;

use crate::harness::{Agent, Bridge, Daemon, SOON, comes, directory, soon};

/// An agent whose events are told to it, and what it was asked.
struct Source {
    agent: Agent,
    said: broadcast::Sender<Arc<str>>,
    asked: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
}

impl Source {
    async fn start() -> Self {
        let (said, _) = broadcast::channel::<Arc<str>>(1 << 16);
        let (asked, open) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (says, asks, opens) = (said.clone(), Arc::clone(&asked), Arc::clone(&open));
        let agent = Agent::start(move |mut stream| {
            let (mut says, asks, opens) = (says.subscribe(), Arc::clone(&asks), Arc::clone(&opens));
            async move {
                let head = head(&mut stream).await;
                asks.lock().unwrap().push(head);
                let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
                opens.fetch_add(1, Ordering::SeqCst);
                while let Ok(said) = says.recv().await {
                    if said.is_empty() {
                        // Breaks off.
                        return;
                    }
                    let chunk = format!("{:x}\r\n{said}\r\n", said.len());
                    if stream.write_all(chunk.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        Self { agent, said, asked, open }
    }

    fn say(&self, said: impl Into<Arc<str>>) {
        self.said.send(said.into()).unwrap();
    }

    async fn opened(&self, times: usize) {
        comes(SOON, || (self.open.load(Ordering::SeqCst) == times).then_some(())).await;
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

struct Place {
    _directory: TempDir,
    sockets: PathBuf,
    bridge: Bridge,
}

fn place(source: &Source) -> Place {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let agent = source.agent.port.to_string();
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", &agent];
    let bridge = Bridge::start_with(&args, &["sleep", "600"], |command| {
        command.env("OPENCODE_SERVER_PASSWORD", "secret");
    });
    Place { _directory: directory, sockets, bridge }
}

async fn hears(taker: &mut UnixStream, expected: &str) {
    let mut heard = vec![0; expected.len()];
    soon(taker.read_exact(&mut heard)).await.unwrap();
    assert_eq!(String::from_utf8(heard).unwrap(), expected);
}

/// Takes what is there, until `last`.
async fn until(taker: &mut UnixStream, last: &str) -> String {
    let mut all = Vec::new();
    while !all.ends_with(last.as_bytes()) {
        assert_ne!(soon(taker.read_buf(&mut all)).await.unwrap(), 0, "it has ended");
    }
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn events_are_asked_for_as_the_agent_wants_it_and_come_whole() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event?directory=%2Fworkspace", SOON).await.unwrap();
    source.opened(1).await;
    let asked = source.asked.lock().unwrap()[0].clone();
    assert!(asked.starts_with("GET /event?directory=%2Fworkspace HTTP/1.1\r\n"), "{asked}");
    for header in [
        format!("Host: 127.0.0.1:{}", source.agent.port),
        "Accept: text/event-stream".into(),
        "Authorization: Basic b3BlbmNvZGU6c2VjcmV0".into(),
    ] {
        assert!(asked.contains(&format!("\r\n{header}\r\n")), "{asked} lacks {header}");
    }
    // Torn as it likes.
    source.say("data: 1");
    sleep(Duration::from_millis(100)).await;
    let mut early = [0; 1];
    assert!(taker.try_read(&mut early).is_err(), "half an event was passed on");
    source.say("23\n");
    source.say("\ndata: 4\n\nda");
    hears(&mut taker, "data: 123\n\ndata: 4\n\n").await;
    source.say("ta: 5\n\n");
    hears(&mut taker, "data: 5\n\n").await;
}

#[tokio::test]
async fn what_happens_while_no_daemon_is_there_is_told_to_the_next() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    source.opened(1).await;
    source.say("data: before\n\n");
    hears(&mut taker, "data: before\n\n").await;
    drop((taker, daemon));
    for number in 0..50 {
        source.say(format!("data: {number}\n\n"));
    }
    sleep(Duration::from_millis(200)).await;
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    let expected: Vec<String> = (0..50).map(|number| format!("data: {number}\n\n")).collect();
    hears(&mut taker, &expected.concat()).await;
    source.say("data: after\n\n");
    hears(&mut taker, "data: after\n\n").await;
    // It was one stream all the time.
    assert_eq!(source.open.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_a_killed_daemon_had_not_read_is_told_as_lost() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let taker = daemon.hub.events("/event", SOON).await.unwrap();
    source.opened(1).await;
    source.say("data: 1\n\n");
    comes(SOON, || (rustix::io::ioctl_fionread(&taker).unwrap() > 0).then_some(())).await;
    drop((taker, daemon));
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    source.say("data: 2\n\n");
    hears(&mut taker, ": lost\n\ndata: 2\n\n").await;
}

/// Adds up what was heard and what was said to be dropped.
#[track_caller]
fn check_complete(heard: &str, total: u64) -> u64 {
    let (mut events, mut dropped) = (0, 0);
    let mut next = 0;
    for piece in heard.split_terminator("\n\n") {
        if let Some(number) = piece.strip_prefix(": dropped ") {
            let number: u64 = number.parse().unwrap();
            dropped += number;
            next += number;
        } else {
            let (number, rest) = piece.strip_prefix("data: ").unwrap().split_once(' ').unwrap();
            assert_eq!(number.parse::<u64>().unwrap(), next, "in order, and what is missing is told before");
            assert_eq!(rest, "x".repeat(rest.len()), "whole");
            events += 1;
            next += 1;
        }
    }
    assert_eq!(events + dropped, total);
    dropped
}

#[tokio::test]
async fn the_newest_are_kept() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    drop(daemon.hub.events("/event", SOON).await.unwrap());
    source.opened(1).await;
    sleep(Duration::from_millis(100)).await;
    for number in 0..2000 {
        source.say(format!("data: {number} {}\n\n", "x".repeat(1000)));
    }
    source.say("data: 2000 \n\n");
    sleep(Duration::from_millis(500)).await;
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    let heard = until(&mut taker, "data: 2000 \n\n").await;
    let dropped = check_complete(&heard, 2001);
    assert!(heard.starts_with(&format!(": dropped {dropped}\n\n")), "{}", &heard[..40]);
    assert!(heard.len() < 256 << 10 && heard.len() > 200 << 10, "{}", heard.len());
}

#[tokio::test]
async fn a_slow_taker_costs_no_more() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    source.opened(1).await;
    let before = place.bridge.resident();
    for number in 0..20_000 {
        source.say(format!("data: {number} {}\n\n", "x".repeat(1000)));
        if number % 100 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    source.say("data: 20000 \n\n");
    sleep(Duration::from_millis(500)).await;
    let after = place.bridge.resident();
    println!("resident: {before} kB before, {after} kB behind a taker that does not read 20 MB");
    assert!(after < before + 1024, "{before} kB, then {after} kB");
    let heard = until(&mut taker, "data: 20000 \n\n").await;
    assert!(check_complete(&heard, 20_001) > 10_000);
}

#[tokio::test]
async fn an_event_that_is_too_large_is_told_as_dropped() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    source.opened(1).await;
    source.say(format!("data: 0 {}\n\ndata: 1 \n\n", "x".repeat(300 << 10)));
    hears(&mut taker, ": dropped 1\n\ndata: 1 \n\n").await;
    let large = format!("data: 2 {}\n\n", "x".repeat(200 << 10));
    source.say(large.as_str());
    hears(&mut taker, &large).await;
}

#[tokio::test]
async fn a_new_taker_takes_the_place_of_the_old_one() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let mut old = daemon.hub.events("/event", SOON).await.unwrap();
    source.opened(1).await;
    source.say("data: 1\n\n");
    hears(&mut old, "data: 1\n\n").await;
    let mut new = daemon.hub.events("/event", SOON).await.unwrap();
    assert_eq!(soon(old.read(&mut [0; 16])).await.unwrap(), 0);
    source.say("data: 2\n\n");
    hears(&mut new, "data: 2\n\n").await;
    // Also one that hangs in the middle of what it is told. What it has is lost with it, whole events all of them.
    for number in 0..3000 {
        source.say(format!("data: {number} {}\n\n", "x".repeat(1000)));
    }
    source.say("data: end\n\n");
    sleep(Duration::from_millis(300)).await;
    let mut third = daemon.hub.events("/event", SOON).await.unwrap();
    let heard = until(&mut third, "data: end\n\n").await;
    assert!(heard.starts_with("data: ") || heard.starts_with(": dropped"), "{}", &heard[..40]);
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again() {
    let source = Source::start().await;
    let place = place(&source);
    let daemon = Daemon::start(&place.sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    source.opened(1).await;
    source.say("data: 1\n\ndata: torn");
    hears(&mut taker, "data: 1\n\n").await;
    source.say("");
    source.opened(2).await;
    source.say("data: 2\n\n");
    // What was told in between nobody knows.
    hears(&mut taker, ": lost\n\ndata: 2\n\n").await;
    // Another path is another stream.
    let mut taker = daemon.hub.events("/global/event", SOON).await.unwrap();
    source.opened(3).await;
    assert!(source.asked.lock().unwrap()[2].starts_with("GET /global/event HTTP/1.1\r\n"));
    source.say("data: 3\n\n");
    hears(&mut taker, ": lost\n\ndata: 3\n\n").await;
}

#[tokio::test]
async fn an_agent_that_is_not_ready_is_asked_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&tries);
    let agent = Agent::start(move |mut stream| {
        let number = counts.fetch_add(1, Ordering::SeqCst);
        async move {
            head(&mut stream).await;
            let answer = match number {
                0 => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
                1 => "garbage\r\n\r\n",
                // Without chunks, until it closes.
                _ => "HTTP/1.1 200 OK\r\n\r\ndata: ready\n\n",
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
            if number > 1 {
                sleep(Duration::from_mins(1)).await;
            }
        }
    })
    .await;
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", &agent.port.to_string()];
    let _bridge = Bridge::start(&args, &["sleep", "600"]);
    let daemon = Daemon::start(&sockets);
    let mut taker = daemon.hub.events("/event", SOON).await.unwrap();
    hears(&mut taker, "data: ready\n\n").await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    agent.end().await;
}
