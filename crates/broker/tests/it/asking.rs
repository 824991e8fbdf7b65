//! What a provider is asked, and what comes back of its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use broker::{Cap, Endpoint, Limits, Outcome, Refusal};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::harness::{
    Answer, KEY, PATIENCE, Provider, Rig, TOKEN, answer, assert_code, assert_status, at_a_halt, endless,
    eventually, head, json, lock, post, streamed,
};

const CHAT: &str = "/v1/chat/completions";

fn chat(_: &crate::harness::Seen) -> Answer {
    answer(200, "application/json", r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#)
}

#[tokio::test]
async fn the_provider_gets_the_key_and_nothing_the_box_says_of_itself() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    let rest = "Content-Type: application/json; charset=utf-8\r\nAccept: */*\r\nUser-Agent: opencode/1\r\n\
        Cookie: a=b\r\nX-Api-Key: mine\r\nApi-Key: mine\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\
        X-Forwarded-Host: evil.example\r\nX-Original-URL: /v1/files\r\nX-HTTP-Method-Override: DELETE\r\n\
        OpenAI-Organization: other\r\nX-Session-Id: ses_1\r\nX-Session-Affinity: ses_1\r\nProxy-Authorization: Basic x\r\n\
        Accept-Encoding: gzip\r\nTE: trailers\r\nContent-Length: 2\r\n";
    let text = rig.say(head(&format!("POST {CHAT}"), rest) + "{}").await;
    assert_status(&text, 200);
    let seen = provider.seen().remove(0);
    assert_eq!(seen.line, "POST /api/v1/chat/completions");
    let mut headers: Vec<String> =
        seen.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let length = seen.body.len();
    assert_eq!(
        headers,
        [
            "accept-encoding: identity".to_owned(),
            "accept: */*".to_owned(),
            format!("authorization: Bearer {KEY}"),
            format!("content-length: {length}"),
            "content-type: application/json; charset=utf-8".to_owned(),
            format!("host: {}", provider.address),
            "user-agent: opencode/1".to_owned(),
        ]
    );
    let spent = rig.spent().await;
    let usage = spent.usage.unwrap();
    assert_eq!((spent.endpoint, spent.outcome), (Endpoint::ChatCompletions, Outcome::Answered));
    assert_eq!((usage.input_tokens, usage.output_tokens, spent.tokens()), (7, 2, 9));
    assert_eq!((spent.sent, spent.received), (length as u64, 64));
    assert!(spent.first_byte.unwrap() <= spent.took);
}

#[tokio::test]
async fn models_are_listed_and_named() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    assert_status(&rig.say(head("GET /v1/models", "")).await, 200);
    assert_status(&rig.say(head("GET /v1/models/openai/gpt-4.1", "")).await, 200);
    let lines: Vec<_> = provider.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["GET /api/v1/models", "GET /api/v1/models/openai/gpt-4.1"]);
    let with_body = rig.say(head("GET /v1/models", "Content-Length: 1\r\n") + "x").await;
    assert_code(&with_body, 400, "bad_request");
}

#[tokio::test]
async fn usage_of_a_stream_is_asked_for_where_the_box_does_not() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    for (path, body, expected) in
        [(CHAT, r#"{"stream":true,"model":"m"}"#, true), (CHAT, r#"{"model":"m"}"#, false)]
    {
        assert_status(&rig.post(path, body).await, 200);
        let asked: serde_json::Value = serde_json::from_slice(&provider.seen().pop().unwrap().body).unwrap();
        assert_eq!(asked["stream_options"]["include_usage"] == true, expected, "{path} {body}");
    }
    // The same without a length, in chunks.
    let chunks = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let text =
        rig.say(head(&format!("POST {CHAT}"), chunks) + "9\r\n{\"stream\"\r\n6\r\n:true}\r\n0\r\n\r\n").await;
    assert_status(&text, 200);
    let body = provider.seen().pop().unwrap().body;
    assert_eq!(body, r#"{"stream":true,"stream_options":{"include_usage":true}}"#);
}

#[tokio::test]
async fn a_stream_comes_as_it_is_said() {
    let (say, pieces) = mpsc::channel(1);
    let pieces = Arc::new(std::sync::Mutex::new(Some(pieces)));
    let provider = Provider::start(move |_| streamed(lock(&pieces).take().unwrap())).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    stream.write_all(post(CHAT, r#"{"stream":true}"#).as_bytes()).await.unwrap();
    let mut read = String::new();
    for word in ["one", "two", "sk-"] {
        say.send(Bytes::from(format!("data: {{\"{word}\":1}}\n\n"))).await.unwrap();
        // Nothing else is said until this has come.
        while !read.contains(word) {
            let mut piece = vec![0; 4096];
            let length = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
            assert!(length > 0, "{read}");
            read.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
    }
    say.send(Bytes::from_static(
        b"data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
    ))
    .await
    .unwrap();
    drop(say);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
    let spent = rig.spent().await;
    assert_eq!((spent.outcome, spent.tokens(), spent.events), (Outcome::Answered, 7, 5));
}

#[tokio::test]
async fn a_box_that_does_not_read_holds_the_provider_back() {
    let said = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&said);
    let provider = Provider::start(move |_| endless(&counter)).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    stream.write_all(post(CHAT, "{}").as_bytes()).await.unwrap();
    let held = at_a_halt(&said).await;
    assert!(held < 16 << 20, "{held} bytes were taken that nobody reads");
    drop(stream);
    assert_eq!(rig.outcome().await, Outcome::Gone);
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
}

#[tokio::test]
async fn a_box_that_leaves_ends_the_providers_work() {
    // Before a head.
    let provider = Provider::start_with(|_, _| Box::pin(std::future::pending())).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    stream.write_all(post(CHAT, "{}").as_bytes()).await.unwrap();
    eventually(|| (provider.open.load(Ordering::SeqCst) == 1).then_some(())).await;
    drop(stream);
    eventually(|| (provider.open.load(Ordering::SeqCst) == 0).then_some(())).await;
    assert_eq!(rig.outcome().await, Outcome::Gone);
}

#[tokio::test]
async fn connections_to_the_provider_are_used_again() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    for _ in 0..5 {
        assert_status(&rig.post(CHAT, "{}").await, 200);
    }
    assert_eq!((provider.seen().len(), provider.connections.load(Ordering::SeqCst)), (5, 1));
}

#[tokio::test]
async fn several_requests_come_on_one_connection_of_the_box() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    let once = post(CHAT, "{}").replace("Connection: close\r\n", "");
    let text = rig.say(once.clone() + &once + &post(CHAT, "{}")).await;
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
}

#[tokio::test]
async fn a_run_without_budget_asks_nobody() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    for cap in [Cap::Requests, Cap::Tokens] {
        *lock(&rig.meter.refusal) = Some(Refusal::Cap(cap));
        let text = rig.post(CHAT, "{}").await;
        assert_code(&text, 402, "run_budget_exceeded");
        assert!(json(&text)["error"]["message"].as_str().unwrap().contains(cap.setting()), "{text}");
    }
    assert_eq!(provider.seen().len(), 0);
    *lock(&rig.meter.refusal) = None;
    assert_status(&rig.post(CHAT, "{}").await, 200);
}

#[tokio::test]
async fn a_provider_s_own_error_is_passed_on() {
    let said = r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
    let provider = Provider::start(move |_| {
        let mut answer = answer(429, "application/json", said);
        let headers = answer.headers_mut();
        for (name, value) in [
            ("retry-after", "7"),
            ("x-request-id", "req_1"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("set-cookie", "a=b"),
            ("location", "http://evil.example/"),
            ("www-authenticate", "Basic"),
            ("server", "x"),
            ("alt-svc", "h3"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        answer
    })
    .await;
    let rig = Rig::to(provider.address);
    let text = rig.post(CHAT, "{}").await;
    assert_status(&text, 429);
    assert!(text.ends_with(said), "{text}");
    for name in [
        "retry-after: 7",
        "x-request-id: req_1",
        "x-ratelimit-remaining-tokens: 0",
        "content-type: application/json",
    ] {
        assert!(text.contains(name), "{text}");
    }
    for name in ["set-cookie", "location", "www-authenticate", "server:", "alt-svc"] {
        assert!(!text.contains(name), "{text}");
    }
    assert_eq!(rig.outcome().await, Outcome::Rejected(http::StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(rig.spent().await.tokens(), 0);
}

#[tokio::test]
async fn a_provider_that_shows_the_key_shows_it_to_nobody() {
    // `say` itself looks for the key in everything that comes back.
    for (status, content_type) in
        [(401, "application/json"), (200, "application/json"), (200, "text/event-stream")]
    {
        let provider = Provider::start(move |seen| {
            let shown = seen.headers["authorization"].to_str().unwrap();
            let mut answer = answer(status, content_type, format!("{{\"you sent\":\"{shown}\"}}{shown}"));
            answer.headers_mut().insert("x-request-id", shown.parse().unwrap());
            answer
        })
        .await;
        let rig = Rig::to(provider.address);
        let text = rig.post(CHAT, "{}").await;
        assert_status(&text, status);
        let stars = "*".repeat(KEY.len());
        assert!(text.contains(&format!("{{\"you sent\":\"Bearer {stars}\"}}Bearer {stars}")), "{text}");
        assert!(!text.contains("x-request-id"), "{text}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Provider::start(chat).await;
    let target = format!("http://{}/api/v1/chat/completions", elsewhere.address);
    for status in [301, 302, 303, 307, 308] {
        let target = target.clone();
        let provider = Provider::start(move |_| {
            let mut answer = answer(status, "text/plain", "moved");
            answer.headers_mut().insert("location", target.parse().unwrap());
            answer
        })
        .await;
        let text = Rig::to(provider.address).post(CHAT, "{}").await;
        assert_code(&text, 424, "provider_redirects");
        assert!(!text.contains("location") && text.contains("base_url"), "{text}");
    }
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn a_packed_answer_is_not_passed_on() {
    let provider = Provider::start(|_| {
        let mut answer = answer(200, "application/json", "x");
        answer.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        answer
    })
    .await;
    assert_code(&Rig::to(provider.address).post(CHAT, "{}").await, 424, "provider_odd_answer");
}

#[tokio::test]
async fn a_large_request_passes_whole() {
    let provider = Provider::start(chat).await;
    let rig = Rig::to(provider.address);
    let body = format!(r#"{{"stream":true,"messages":"{}"}}"#, "x".repeat(20 << 20));
    assert_status(&rig.post(CHAT, &body).await, 200);
    let seen = provider.seen().remove(0);
    assert!(seen.body.starts_with(&body.as_bytes()[..body.len() - 1]));
    assert!(seen.body.ends_with(br#"xx","stream_options":{"include_usage":true}}"#));
}

#[tokio::test]
async fn what_is_under_way_ends_before_the_broker_stops() {
    let provider = Provider::start_with(|_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            answer(200, "application/json", "{}")
        })
    })
    .await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    let mut idle = rig.dial();
    stream.write_all(post(CHAT, "{}").replace("Connection: close\r\n", "").as_bytes()).await.unwrap();
    eventually(|| (provider.open.load(Ordering::SeqCst) == 1).then_some(())).await;
    rig.stop.cancel();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_status(&text, 200);
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn nothing_shows_the_key_or_the_token() {
    let provider = Provider::start(chat).await;
    let rig = Rig::limited(provider.address, Limits { connections: 1, ..Limits::default() });
    let shown = format!("{:?} {:#?}", rig.broker, rig.broker);
    assert!(!shown.contains("CANARY") && !shown.contains(TOKEN), "{shown}");
}
