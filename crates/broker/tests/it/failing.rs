//! A provider that is not there, says nothing, or half of it.

use std::net::Ipv4Addr;
use std::time::Duration;

use broker::{Limits, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Provider, Rig, assert_code, assert_status, json, no_roots};

const CHAT: &str = "/v1/chat/completions";

fn impatient() -> Limits {
    Limits { silence: Duration::from_millis(300), ..Limits::default() }
}

/// Reads a request and says this.
async fn said(mut stream: TcpStream, text: &str) -> TcpStream {
    let mut read = vec![0; 64 * 1024];
    let _length = stream.read(&mut read).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_provider_that_is_not_there() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let rig = Rig::to(address);
    let text = rig.post(CHAT, "{}").await;
    assert_code(&text, 502, "provider_unreachable");
    assert_eq!(
        json(&text)["error"]["message"],
        "the provider at 127.0.0.1 cannot be reached: connection refused"
    );
    assert_eq!(rig.outcome().await, Outcome::NoAnswer);
}

#[tokio::test]
async fn a_provider_whose_name_nobody_knows() {
    let rig = Rig::with("http://nowhere.invalid/v1", Limits::default(), no_roots());
    let text = rig.post(CHAT, "{}").await;
    assert_code(&text, 502, "provider_unreachable");
    assert!(text.contains("nowhere.invalid") && text.contains("not known"), "{text}");
}

#[tokio::test]
async fn answers_that_are_none() {
    let headers = "X-A: b\r\n".repeat(10_000);
    for text in [
        "",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{headers}\r\n"),
    ] {
        let text = text.to_owned();
        let address = Provider::raw(move |stream| {
            let text = text.clone();
            async move { drop(said(stream, &text).await) }
        })
        .await;
        let rig = Rig::to(address);
        let back = rig.post(CHAT, "{}").await;
        assert_code(&back, 502, "provider_unreachable");
        assert!(back.contains("127.0.0.1"), "{back}");
        assert_eq!(rig.outcome().await, Outcome::NoAnswer);
    }
}

#[tokio::test]
async fn a_provider_that_wants_to_speak_otherwise() {
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let address = Provider::raw(move |stream| async move {
        let _held = said(stream, head).await;
        std::future::pending::<()>().await;
    })
    .await;
    assert_code(&Rig::to(address).post(CHAT, "{}").await, 424, "provider_odd_answer");
}

#[tokio::test]
async fn half_an_answer_breaks_off() {
    for (head, end) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n",
            "0\r\n\r\n",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"half\":", "}"),
    ] {
        let address = Provider::raw(move |stream| async move { drop(said(stream, head).await) }).await;
        let rig = Rig::to(address);
        let back = rig.post(CHAT, "{}").await;
        assert_status(&back, 200);
        assert!(!back.ends_with(end), "half an answer looks whole: {back:?}");
        assert_eq!(rig.outcome().await, Outcome::Broken);
    }
}

#[tokio::test]
async fn a_provider_that_says_nothing() {
    let address = Provider::raw(|stream| async move {
        let _held = said(stream, "").await;
        std::future::pending::<()>().await;
    })
    .await;
    let rig = Rig::limited(address, impatient());
    let text = rig.post(CHAT, "{}").await;
    assert_code(&text, 424, "provider_silent");
    assert!(text.contains("request_timeout") && text.contains("127.0.0.1"), "{text}");
    assert_eq!(rig.outcome().await, Outcome::NoAnswer);
}

#[tokio::test]
async fn a_provider_that_stops_in_the_middle() {
    let address = Provider::raw(|stream| async move {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n";
        let _held = said(stream, head).await;
        std::future::pending::<()>().await;
    })
    .await;
    let rig = Rig::limited(address, impatient());
    let back = rig.post(CHAT, "{}").await;
    assert_status(&back, 200);
    assert!(back.contains("data:") && !back.ends_with("0\r\n\r\n"), "{back:?}");
    assert_eq!(rig.outcome().await, Outcome::Broken);
}

#[tokio::test]
async fn an_error_without_end_is_cut() {
    let address = Provider::raw(|stream| async move {
        let head = "HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\nContent-Length: 1000000000\r\n\r\n";
        let mut stream = said(stream, head).await;
        let piece = vec![b'x'; 64 * 1024];
        while stream.write_all(&piece).await.is_ok() {}
    })
    .await;
    let back = Rig::to(address).post(CHAT, "{}").await;
    assert_status(&back, 500);
    assert_eq!(back.split_once("\r\n\r\n").unwrap().1.len(), 256 * 1024);
}
