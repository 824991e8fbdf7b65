//! A box that would rather not be counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use broker::{Limits, Outcome, Spent};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::harness::{
    PATIENCE, Provider, Rig, answer, assert_code, assert_status, at_a_halt, endless, eventually, json, lock,
    post, streamed,
};

const CHAT: &str = "/v1/chat/completions";
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":90}}"#;

/// A provider that says what it is told to, to the first who asks; and `{}` to others.
async fn told() -> (mpsc::Sender<Bytes>, Provider) {
    let (say, pieces) = mpsc::channel(1);
    let pieces = Arc::new(std::sync::Mutex::new(Some(pieces)));
    let provider = Provider::start(move |_| match lock(&pieces).take() {
        Some(pieces) => streamed(pieces),
        None => answer(200, "application/json", "{}"),
    })
    .await;
    (say, provider)
}

/// Asks for a stream, and returns once its first piece is there.
async fn begun(rig: &Rig, say: &mpsc::Sender<Bytes>) -> UnixStream {
    let mut stream = rig.dial();
    stream.write_all(post(CHAT, r#"{"stream":true}"#).as_bytes()).await.unwrap();
    say.send(Bytes::from_static(b"data: {\"a word\":1}\n\n")).await.unwrap();
    let mut read = String::new();
    while !read.contains("a word") {
        let mut piece = vec![0; 4096];
        let length = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(length > 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    stream
}

#[tokio::test]
async fn a_box_that_leaves_before_the_usage_is_told_is_counted_all_the_same() {
    let (say, provider) = told().await;
    let rig = Rig::to(provider.address);
    drop(begun(&rig, &say).await);
    say.send(Bytes::from(format!("data: {USAGE}\n\ndata: [DONE]\n\n"))).await.unwrap();
    drop(say);
    let spent = rig.spent().await;
    assert_eq!((spent.outcome, spent.tokens(), spent.events), (Outcome::Gone, 97, 3));
}

#[tokio::test]
async fn what_a_box_left_is_not_read_for_long() {
    let (say, provider) = told().await;
    let rig = Rig::to(provider.address);
    drop(begun(&rig, &say).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lock(&rig.meter.spent).len(), 0, "nobody waited for the usage");
    tokio::time::pause(); // From here on only deadlines are waited for.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let spent = lock(&rig.meter.spent).last().copied();
    tokio::time::resume();
    assert_eq!(spent.map(|spent| (spent.outcome, spent.usage)), Some((Outcome::Gone, None)));
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
}

#[tokio::test]
async fn what_is_still_read_takes_a_place_of_the_box() {
    let (say, provider) = told().await;
    let rig = Rig::limited(provider.address, Limits { connections: 1, ..Limits::default() });
    drop(begun(&rig, &say).await);
    // By then it is noticed that it left.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_status(&rig.post(CHAT, "{}").await, 503);
    let begun_at = tokio::time::Instant::now();
    drop(say);
    assert_eq!(rig.outcome().await, Outcome::Gone);
    while !rig.post(CHAT, "{}").await.starts_with("HTTP/1.1 200 ") {
        assert!(begun_at.elapsed() < PATIENCE, "the place was not given back");
    }
}

#[tokio::test]
async fn usage_is_asked_for_whatever_the_box_says_of_it() {
    let provider = Provider::start(|_| answer(200, "application/json", "{}")).await;
    let rig = Rig::to(provider.address);
    for options in [r#"{"include_usage":false}"#, "{}", "null", r#"{"include_usage":true}"#] {
        assert_status(
            &rig.post(CHAT, &format!(r#"{{"stream":true,"stream_options":{options}}}"#)).await,
            200,
        );
        let asked: serde_json::Value = serde_json::from_slice(&provider.seen().pop().unwrap().body).unwrap();
        assert_eq!(asked["stream_options"]["include_usage"], true, "{options}");
    }
}

#[tokio::test]
async fn a_request_that_two_may_read_differently_is_refused() {
    let provider = Provider::start(|_| answer(200, "application/json", "{}")).await;
    let rig = Rig::to(provider.address);
    let long = format!(r#"{{"messages":"{}","stream":1}}"#, "x".repeat(1 << 20));
    for body in [r#"{"stream":1}"#, r#"{"stream":"true"}"#, r#"{"stream":false,"stream":true}"#, &long] {
        let text = rig.post(CHAT, body).await;
        assert_code(&text, 400, "bad_request");
        assert!(json(&text)["error"]["message"].as_str().unwrap().contains("`stream`"), "{text}");
        assert_eq!(rig.spent().await.tokens(), 0);
    }
    for body in ["[]", "{'stream':true}", "{"] {
        let text = rig.post(CHAT, body).await;
        assert_code(&text, 400, "bad_request");
        assert!(json(&text)["error"]["message"].as_str().unwrap().contains("JSON"), "{text}");
    }
    // A body that broke off is seen as none.
    assert!(provider.seen().iter().all(|seen| seen.body.is_empty()), "{:?}", provider.seen());
}

#[tokio::test]
async fn ways_to_ask_that_cannot_be_counted_are_not_there() {
    let provider = Provider::start(|_| answer(200, "application/json", "{}")).await;
    let rig = Rig::to(provider.address);
    for path in ["/v1/responses", "/v1/completions", "/v1/embeddings"] {
        let text = rig.post(path, r#"{"background":true,"store":true}"#).await;
        assert_code(&text, 404, "unknown_path");
        assert!(text.contains("chat/completions and models"), "{text}");
    }
    assert_eq!(provider.seen().len(), 0);
}

#[tokio::test]
async fn a_request_that_was_not_answered_is_estimated_if_it_went_out() {
    let silent = Provider::raw(|mut stream| async move {
        let _read = stream.read(&mut vec![0; 64 * 1024]).await;
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let body = format!(r#"{{"messages":"{}"}}"#, "x".repeat(4000));
    let rig = Rig::limited(silent, Limits { silence: Duration::from_millis(300), ..Limits::default() });
    assert_code(&rig.post(CHAT, &body).await, 424, "provider_silent");
    let spent = rig.spent().await;
    assert_eq!((spent.outcome, spent.tokens()), (Outcome::NoAnswer, spent.sent / 4));
    assert!(spent.tokens() >= 1000, "{spent:?}");
    // The same in chunks, of which it is not told before how long they are.
    let head = post(CHAT, "").replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let chunks = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    assert_code(&rig.say(chunks).await, 424, "provider_silent");
    assert!(rig.spent().await.tokens() >= 1000, "{:?}", rig.spent().await);
    // What did not go out whole was worked on by nobody.
    let half = post(CHAT, &body);
    let mut stream = rig.dial();
    stream.write_all(&half.as_bytes()[..half.len() - 1]).await.unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    assert_code(&back, 424, "provider_silent");
    assert_eq!(rig.spent().await.tokens(), 0, "{:?}", rig.spent().await);
}

/// Ends the run, and returns what its last request used, which is told at once.
async fn run_ends(rig: &Rig) -> Spent {
    assert_eq!(lock(&rig.meter.spent).len(), 0);
    let begun = tokio::time::Instant::now();
    lock(&rig.meter.over).cancel();
    let spent = rig.spent().await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    spent
}

#[tokio::test]
async fn no_request_outlives_its_run() {
    // Before the head of an answer.
    let provider = Provider::start_with(|_, _| Box::pin(std::future::pending())).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    stream.write_all(post(CHAT, r#"{"a":"b"}"#).as_bytes()).await.unwrap();
    eventually(|| (provider.open.load(Ordering::SeqCst) == 1).then_some(())).await;
    assert_eq!(run_ends(&rig).await.outcome, Outcome::Gone);
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
    // Within it.
    let (say, provider) = told().await;
    let rig = Rig::to(provider.address);
    let mut stream = begun(&rig, &say).await;
    let spent = run_ends(&rig).await;
    assert_eq!((spent.outcome, spent.events), (Outcome::Gone, 1));
    assert!(spent.tokens() > 0, "{spent:?}");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "half an answer looks whole");
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
    // While the rest of it is read for its usage.
    let (say, provider) = told().await;
    let rig = Rig::to(provider.address);
    drop(begun(&rig, &say).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(run_ends(&rig).await.outcome, Outcome::Gone);
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
    // While the box does not take it.
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let provider = Provider::start(move |_| endless(&counter)).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    stream.write_all(post(CHAT, "{}").as_bytes()).await.unwrap();
    at_a_halt(&taken).await;
    assert_eq!(run_ends(&rig).await.outcome, Outcome::Gone);
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
    drop(stream);
}

#[tokio::test]
async fn a_connection_goes_on_in_the_next_run() {
    let provider = Provider::start(|_| answer(200, "application/json", "{}")).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    let request = post(CHAT, "{}").replace("Connection: close\r\n", "");
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.ends_with("{}") {
            let mut piece = [0; 1024];
            let length = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
            assert!(length > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
        assert_status(&text, 200);
        std::mem::take(&mut *lock(&rig.meter.over)).cancel();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
