//! The driver against servers that do not answer as `OpenCode` does.

#![expect(clippy::expect_used, reason = "a surprise ends the test")]

mod hostile;

use std::net::SocketAddr;
use std::time::Duration;

use agent::{OpenCode, Options, Place, Timing};
use model::ports::agent::{
    Agent as _, AgentError, Decision, Failure, Policy, PromptId, PromptIntent, SessionRef, WantedSession,
};
use model::session::{MessageId, Stamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const HEALTHY: &str = r#"{"healthy":true,"version":"1.18.33"}"#;

/// What a fake does with a request, by its number and its first line.
#[derive(Debug)]
enum Does {
    Answer(u16, String),
    /// An answer that says that there is another page.
    Page(usize, String),
    /// A stream of these events, which then is silent.
    Tell(String),
    /// A stream of this event, without an end.
    Repeat(String),
    /// A stream of events that says nothing but that it beats.
    Beat,
    /// Keeps the connection and says nothing.
    Nothing,
    HangUp,
}

/// Runs until the set is dropped.
async fn fake(does: impl Fn(usize, &str) -> Does + Send + 'static) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        let mut number = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some(line) = read_head(&mut stream).await else { continue };
            let does = does(number, &line);
            number += 1;
            connections.spawn(async move {
                match does {
                    Does::Answer(status, body) => {
                        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                        drop(stream.write_all((head + &body).as_bytes()).await);
                        sleep(Duration::from_millis(200)).await;
                    }
                    Does::Page(next, body) => {
                        let head = format!(
                            "HTTP/1.1 200 X\r\nx-next-cursor: {next}\r\ncontent-length: {}\r\n\r\n",
                            body.len()
                        );
                        drop(stream.write_all((head + &body).as_bytes()).await);
                        sleep(Duration::from_millis(200)).await;
                    }
                    Does::Tell(events) => {
                        drop(stream.write_all((EVENTS.to_owned() + &events).as_bytes()).await);
                        std::future::pending::<()>().await;
                    }
                    Does::Repeat(event) => {
                        drop(stream.write_all(EVENTS.as_bytes()).await);
                        while stream.write_all(event.as_bytes()).await.is_ok() {
                            tokio::task::yield_now().await;
                        }
                    }
                    Does::Beat => {
                        drop(stream.write_all(EVENTS.as_bytes()).await);
                        let beat =
                            b"data: {\"id\":\"evt_1\",\"type\":\"server.heartbeat\",\"properties\":{}}\n\n";
                        while stream.write_all(beat).await.is_ok() {
                            sleep(Duration::from_millis(50)).await;
                        }
                    }
                    Does::Nothing => std::future::pending().await,
                    Does::HangUp => {}
                }
            });
        }
    });
    (address, tasks)
}

/// The first line of a request; its body is of no interest.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&bytes).lines().next()?.to_owned())
}

fn driver(address: SocketAddr) -> OpenCode {
    let timing = Timing {
        request: Duration::from_millis(300),
        load: Duration::from_millis(300),
        poll: Duration::from_millis(200),
        gone: Duration::from_millis(500),
        stalled: Duration::from_millis(1500),
        settle: Duration::from_millis(200),
        appear: Duration::from_millis(600),
        ..Timing::default()
    };
    OpenCode::new(Options { place: Place::Tcp(address), password: "p".to_owned(), timing })
}

fn prompt() -> PromptId {
    let session = SessionRef { id: "ses_1".into(), directory: "/w".into() };
    PromptId { session, message: MessageId::new(Stamp { millis: 1, random: [1; 10] }) }
}

async fn failure(address: SocketAddr) -> (Failure, Duration) {
    let begun = Instant::now();
    let (driver, prompt, policy) = (driver(address), prompt(), Policy::all(Decision::Allow));
    let mut sink = |_| {};
    let ended = timeout(Duration::from_secs(20), driver.watch(&prompt, &policy, &mut sink)).await;
    (ended.expect("an end in time").expect_err("no turn").failure, begun.elapsed())
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_has_stalled() {
    let (address, _fake) = fake(|_, _| Does::Nothing).await;
    let (failure, took) = failure(address).await;
    assert_eq!(failure, Failure::Stalled { seconds: 1 });
    assert!(took < Duration::from_secs(4), "{took:?}");
    let error = driver(address).ready(Duration::from_secs(1)).await.expect_err("nobody answers");
    assert_eq!(error, AgentError::NoAnswer { seconds: 1 });
}

#[tokio::test]
async fn a_heartbeat_is_not_life() {
    let (address, _fake) =
        fake(|_, line| if line.starts_with("GET /event") { Does::Beat } else { Does::Nothing }).await;
    let (failure, took) = failure(address).await;
    assert_eq!(failure, Failure::Stalled { seconds: 1 });
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn half_an_answer_is_not_life() {
    let (address, _fake) = fake(|_, line| {
        let busy = || Does::Answer(200, r#"{"ses_1":{"type":"busy"}}"#.to_owned());
        if line.contains("/session/status") { busy() } else { Does::Nothing }
    })
    .await;
    let (failure, took) = failure(address).await;
    assert_eq!(failure, Failure::Stalled { seconds: 1 });
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn an_open_turn_of_a_server_that_answers_has_no_deadline() {
    let (address, _fake) = fake(|_, line| {
        let path = line.split(' ').nth(1).unwrap_or_default();
        match path.split('?').next().unwrap_or_default() {
            "/event" => Does::Beat,
            "/session/status" => Does::Answer(200, r#"{"ses_1":{"type":"busy"}}"#.to_owned()),
            path if path.contains("/message/") => {
                Does::Answer(200, r#"{"info":{"id":"msg_1","role":"user"},"parts":[]}"#.to_owned())
            }
            _ => Does::Answer(200, "[]".to_owned()),
        }
    })
    .await;
    let (driver, prompt, policy) = (driver(address), prompt(), Policy::all(Decision::Allow));
    let mut sink = |_| {};
    let watched = timeout(Duration::from_secs(4), driver.watch(&prompt, &policy, &mut sink)).await;
    assert!(watched.is_err(), "it waits: {watched:?}");
}

#[tokio::test]
async fn a_port_that_nobody_listens_at_means_a_crash() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (failure, took) = failure(address).await;
    assert!(matches!(failure, Failure::Crashed { .. }), "{failure:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let error = driver(address).ready(Duration::from_millis(300)).await.expect_err("nobody listens");
    assert_eq!(error.code(), "agent_unreachable");
    let intent =
        PromptIntent { prompt: prompt(), text: "x".into(), model: None, output_schema: None, system: None };
    let error = driver(address).prompt(&intent).await.expect_err("nobody listens");
    assert_eq!(error.code(), "agent_unreachable");
}

#[tokio::test]
async fn a_socket_whose_other_end_is_dead_means_a_crash() {
    let (address, _fake) = fake(|_, _| Does::HangUp).await;
    let (failure, took) = failure(address).await;
    assert!(matches!(failure, Failure::Crashed { .. }), "{failure:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_request_that_came_too_early_is_asked_again() {
    let (address, _fake) =
        fake(|number, _| if number == 0 { Does::Nothing } else { Does::Answer(200, HEALTHY.to_owned()) })
            .await;
    let ready = driver(address).ready(Duration::from_secs(5)).await.expect("it answers the second time");
    assert_eq!(ready.version, "1.18.33");
}

#[tokio::test]
async fn answers_that_make_no_sense_end_with_words() {
    for body in ["", "no JSON", "[]", "{\"ses_1\":7}", &"x".repeat(100_000)] {
        let body = body.to_owned();
        let (address, _fake) = fake(move |_, _| Does::Answer(200, body.clone())).await;
        let (failure, _) = failure(address).await;
        assert!(matches!(failure, Failure::Protocol { .. }), "{failure:?}");
    }
    let (address, _fake) = fake(|_, _| Does::Answer(401, String::new())).await;
    let (failure, _) = failure(address).await;
    assert!(matches!(&failure, Failure::Protocol { what } if what.contains("password")), "{failure:?}");
    let (address, _fake) = fake(|_, _| Does::Answer(200, r#"{"id":"../x"}"#.to_owned())).await;
    let wanted = WantedSession { known: None, title: "t".into(), directory: "/w".into() };
    let error = driver(address).ensure_session(&wanted).await.expect_err("no id");
    assert_eq!(error.code(), "agent_protocol");
}

#[tokio::test]
async fn a_prompt_that_is_not_there_is_lost_after_a_while() {
    let (address, _fake) = fake(|_, line| {
        if line.contains("/session/status") {
            Does::Answer(200, "{}".to_owned())
        } else {
            Does::Answer(
                404,
                r#"{"name":"NotFoundError","data":{"message":"Message not found: x"}}"#.to_owned(),
            )
        }
    })
    .await;
    let (failure, took) = failure(address).await;
    assert!(matches!(&failure, Failure::Lost { what } if what.contains("msg_")), "{failure:?}");
    assert!(took >= Duration::from_millis(600), "{took:?}");
    let (address, _fake) = fake(|_, line| {
        if line.contains("/session/status") {
            Does::Answer(200, "{}".to_owned())
        } else {
            Does::Answer(
                404,
                r#"{"name":"NotFoundError","data":{"message":"Session not found: x"}}"#.to_owned(),
            )
        }
    })
    .await;
    let (failure, took) = self::failure(address).await;
    assert!(matches!(failure, Failure::Lost { .. }), "{failure:?}");
    assert!(took < Duration::from_millis(600), "{took:?}");
}
