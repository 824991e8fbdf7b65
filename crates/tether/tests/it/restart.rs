use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::harness::{Agent, Bridge, Daemon, SOON, comes, directory, port, request};

/// What daemons have read to the end, and which of that they have answered.
#[derive(Default)]
struct Seen {
    read: Vec<u32>,
    answered: BTreeSet<u32>,
}

#[tokio::test]
async fn requests_are_late_and_never_lost_or_doubled_while_daemons_die() {
    const REQUESTS: u32 = 800;
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let port = port();
    let carried = format!("{port}=egress");
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", "1", "--carry", &carried];
    let mut bridge = Bridge::start(&args, &["sh", "-c", "echo ready; exec sleep 600"]);
    assert_eq!(bridge.line(), "ready");
    let seen = Arc::<Mutex<Seen>>::default();

    let mut clients = JoinSet::new();
    for client in 0..8 {
        clients.spawn(async move {
            let mut answered = BTreeSet::new();
            for number in (client..REQUESTS).step_by(8) {
                // Some fit into one piece and some do not.
                let dots = ".".repeat((number as usize % 5) * 30_000);
                let said = format!("{number}{dots}\n");
                if request(port, said.as_bytes()).await == number.to_string().as_bytes() {
                    answered.insert(number);
                }
            }
            answered
        });
    }
    let (mut restarts, mut heard) = (0, BTreeSet::new());
    while !clients.is_empty() {
        assert!(restarts < 500, "the clients do not come to an end");
        let mut daemon = Daemon::start(&sockets);
        let seen = Arc::clone(&seen);
        daemon.serve("egress", move |mut stream| {
            let seen = Arc::clone(&seen);
            async move {
                let mut all = Vec::new();
                // Between the last byte and the note nobody can be killed.
                while !all.ends_with(b"\n") {
                    if !matches!(stream.read_buf(&mut all).await, Ok(1..)) {
                        return;
                    }
                }
                let number = String::from_utf8(all).unwrap().trim_end().trim_end_matches('.').to_owned();
                seen.lock().unwrap().read.push(number.parse().unwrap());
                sleep(Duration::from_millis(2)).await;
                if stream.write_all(number.as_bytes()).await.is_ok() {
                    seen.lock().unwrap().answered.insert(number.parse().unwrap());
                }
            }
        });
        sleep(Duration::from_millis(60)).await;
        // Killed, whatever it is doing.
        drop(daemon);
        restarts += 1;
        sleep(Duration::from_millis(20)).await;
        while let Some(ended) = clients.try_join_next() {
            heard.extend(ended.unwrap());
        }
    }
    let seen = seen.lock().unwrap();
    let read: BTreeSet<u32> = seen.read.iter().copied().collect();
    println!(
        "{restarts} restarts, {} answered, {} died with their daemon",
        heard.len(),
        read.len() - heard.len()
    );
    assert!(restarts > 5);
    assert_eq!(read.len(), seen.read.len(), "one was sent again although a daemon had read it");
    assert_eq!(read, (0..REQUESTS).collect(), "one never arrived");
    assert!(heard.is_subset(&read) && seen.answered.is_superset(&heard));
}

#[tokio::test]
async fn a_daemon_that_comes_back_finds_the_agent_again() {
    let agent = Agent::echo().await;
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", &agent.port.to_string()];
    let bridge = Bridge::start(&args, &["sleep", "600"]);
    for _ in 0..10 {
        let daemon = Daemon::start(&sockets);
        let mut stream = daemon.hub.open(SOON).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(daemon.hub.open(SOON).await.unwrap());
        }
        drop((daemon, stream, open));
    }
    // Nothing is left of those that were open: its own, two tries at most, and what every process has.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", bridge.pid())).unwrap().count();
    comes(SOON, || (open() <= 12).then_some(())).await;
}
