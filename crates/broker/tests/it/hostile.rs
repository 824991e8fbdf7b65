//! A box that lies, smuggles, floods and dawdles. The provider hears nothing of it, and another box feels nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use broker::{Limits, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::harness::{
    Answer, Provider, Rig, Seen, TOKEN, answer, assert_code, assert_status, at_a_halt, endless, exchange,
    head, lock, post,
};

const CHAT: &str = "/v1/chat/completions";
const JSON: &str = "Content-Type: application/json\r\n";

fn fine(_: &Seen) -> Answer {
    answer(200, "application/json", "{}")
}

#[tokio::test]
async fn no_other_token_opens_the_broker() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    let (shorter, longer) = (&TOKEN[..TOKEN.len() - 1], format!("{TOKEN}x"));
    let other = TOKEN.replace('0', "1");
    for shown in [
        String::new(),
        "Authorization:\r\n".to_owned(),
        "Authorization: Bearer\r\n".to_owned(),
        "Authorization: Bearer \r\n".to_owned(),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: Bearer {shorter}\r\n"),
        format!("Authorization: Bearer {longer}\r\n"),
        format!("Authorization: Bearer {other}\r\n"),
        format!("Authorization: Bearer {}\r\n", TOKEN.to_uppercase()),
        format!("Authorization: Bearer  {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n"),
        format!("Authorization: Bearer x\r\nAuthorization: Bearer {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}, Bearer x\r\n"),
        format!("X-Api-Key: {TOKEN}\r\n"),
        format!("Proxy-Authorization: Bearer {TOKEN}\r\n"),
        format!("Cookie: Authorization=Bearer {TOKEN}\r\n"),
    ] {
        let text = format!("GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{shown}\r\n");
        assert_code(&rig.say(text).await, 401, "invalid_api_key");
    }
    let query = format!("GET /v1/models?access_token={TOKEN} HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_code(&rig.say(query).await, 401, "invalid_api_key");
    assert_eq!(provider.seen().len(), 0);
    let text = head("GET /v1/models", "").replace("Bearer", "bearer");
    assert_status(&rig.say(text).await, 200);
}

#[tokio::test]
async fn requests_that_two_parsers_read_differently() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    let line = &format!("POST {CHAT}");
    let smuggled = head("GET /v1/models/smuggled", "");
    let good = head(line, JSON);
    let rows = [
        ("two lengths", head(line, &format!("{JSON}Content-Length: 2\r\nContent-Length: 40\r\n")) + "{}"),
        ("one length twice", head(line, &format!("{JSON}Content-Length: 2\r\nContent-Length: 2\r\n")) + "{}"),
        ("a list of lengths", head(line, &format!("{JSON}Content-Length: 2, 2\r\n")) + "{}"),
        ("a signed length", head(line, &format!("{JSON}Content-Length: +2\r\n")) + "{}"),
        ("a hexadecimal length", head(line, &format!("{JSON}Content-Length: 0x2\r\n")) + "{}"),
        (
            "length, then chunks",
            head(line, &format!("{JSON}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n")) + "0\r\n\r\n",
        ),
        (
            "chunks, then length",
            head(line, &format!("{JSON}Transfer-Encoding: chunked\r\nContent-Length: 6\r\n")) + "0\r\n\r\n",
        ),
        ("chunks that are none", head(line, &format!("{JSON}Transfer-Encoding: xchunked\r\n")) + "0\r\n\r\n"),
        (
            "chunks, and more",
            head(line, &format!("{JSON}Transfer-Encoding: chunked, identity\r\n")) + "0\r\n\r\n",
        ),
        (
            "chunks twice",
            head(line, &format!("{JSON}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"))
                + "0\r\n\r\n",
        ),
        ("a space before the colon", head(line, &format!("{JSON}Content-Length : 2\r\n")) + "{}"),
        ("a folded header", head(line, &format!("{JSON}X-A: b\r\n c\r\n"))),
        ("a folded length", head(line, &format!("{JSON}Content-Length:\r\n 2\r\n")) + "{}"),
        ("bare line feeds", good.replace("\r\n", "\n")),
        ("one bare line feed", head(line, &format!("{JSON}X-A: b\nX-C: d\r\n"))),
        ("a bare carriage return", head(line, &format!("{JSON}X-A: b\rX-C: d\r\n"))),
        ("a zero byte", head(line, &format!("{JSON}X-A: b\0c\r\n"))),
        ("two hosts", head(line, &format!("{JSON}Host: evil.example\r\n"))),
        ("a name with a space", head(line, &format!("{JSON}X A: b\r\n"))),
        ("no name", head(line, &format!("{JSON}: b\r\n"))),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("another version", good.replace("HTTP/1.1", "HTTP/1.2")),
        ("a line with two paths", good.replace(CHAT, &format!("{CHAT} /v1/files"))),
        ("not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned()),
    ];
    for (what, bytes) in rows {
        let text = rig.say(bytes.clone() + &smuggled).await;
        if what == "HTTP/2" {
            assert_eq!(text, "", "the library has no word for it, and ends the connection");
            continue;
        }
        assert!(text.starts_with("HTTP/1.1 400 "), "{what}: {text:?}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{what}: the connection went on: {text}");
        assert_eq!(provider.seen().len(), 0, "{what} was passed on");
    }
    // The same without anything odd does pass.
    assert_status(&rig.say(head(line, &format!("{JSON}Content-Length: 2\r\n")) + "{}").await, 200);
}

#[tokio::test]
async fn paths_that_lead_elsewhere() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    let host = provider.address;
    for (line, status) in [
        ("GET /v1/files".to_owned(), 404),
        ("GET /v1/models/../files".to_owned(), 404),
        ("GET /v1/models/%2e%2e/files".to_owned(), 404),
        ("GET /v1/models/a%2F..%2Ffiles".to_owned(), 404),
        ("GET /v1//models".to_owned(), 404),
        ("GET //v1/models".to_owned(), 404),
        ("GET /v1/models?api_key=x".to_owned(), 400),
        ("GET /v1/models?".to_owned(), 400),
        ("GET /v1/models#a".to_owned(), 400),
        (format!("GET http://{host}/v1/models"), 400),
        ("GET http://evil.example/v1/models".to_owned(), 400),
        ("CONNECT evil.example:443".to_owned(), 400),
        ("OPTIONS *".to_owned(), 404),
        ("DELETE /v1/models/a".to_owned(), 405),
        ("TRACE /v1/models".to_owned(), 405),
        ("GET /v1/chat/completions".to_owned(), 405),
        ("BREW /v1/chat/completions".to_owned(), 405),
    ] {
        let text = rig.say(head(&line, "")).await;
        // The library cuts a fragment off: then it is a path like any other.
        let status = if line.contains('#') && text.starts_with("HTTP/1.1 200") { 200 } else { status };
        assert_status(&text, status);
    }
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let text = head("GET /v1/models", upgrade).replace("Connection: close\r\n", "");
    assert_code(&rig.say(text).await, 400, "bad_request");
    assert!(provider.seen().iter().all(|seen| seen.line == "GET /api/v1/models"), "{:?}", provider.seen());
}

#[tokio::test]
async fn what_a_box_says_of_its_host_is_not_used() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    for host in ["evil.example", "", "169.254.169.254", "a@b", "x:99999"] {
        let text = head("GET /v1/models", "").replace("127.0.0.1:4097", host);
        assert_status(&rig.say(text).await, 200);
        let seen = provider.seen().pop().unwrap();
        assert_eq!(seen.headers["host"], provider.address.to_string());
    }
}

#[tokio::test]
async fn heads_without_end() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    for headers in ["a: b\r\n".repeat(10_000), format!("a: {}\r\n", "b".repeat(1 << 20)), "x".repeat(1 << 20)]
    {
        assert_status(&rig.say(head("GET /v1/models", &headers)).await, 431);
    }
    let text = rig.say(head(&format!("GET /v1/models/{}", "a".repeat(1 << 20)), "")).await;
    assert!(text.starts_with("HTTP/1.1 414 ") || text.starts_with("HTTP/1.1 431 "), "{text}");
    assert_eq!(provider.seen().len(), 0);
}

#[tokio::test]
async fn bodies_that_are_too_large_or_odd() {
    let provider = Provider::start(fine).await;
    let rig = Rig::limited(provider.address, Limits { request: 1 << 20, ..Limits::default() });
    let line = &format!("POST {CHAT}");
    let body = "x".repeat((1 << 20) + 1);
    assert_code(&rig.post(CHAT, &body).await, 413, "request_too_large");
    let declared = head(line, &format!("{JSON}Content-Length: 999999999999\r\n"));
    assert_code(&rig.say(declared).await, 413, "request_too_large");
    assert_eq!(provider.seen().len(), 0);
    let chunks = format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(17) + "0\r\n\r\n";
    let text = rig.say(head(line, &format!("{JSON}Transfer-Encoding: chunked\r\n")) + &chunks).await;
    assert_code(&text, 413, "request_too_large");
    assert_eq!(rig.outcome().await, Outcome::NoAnswer);
    for (headers, code) in [
        ("Content-Type: text/plain\r\n", "unsupported_media_type"),
        ("", "unsupported_media_type"),
        ("Content-Type: multipart/form-data; boundary=a\r\n", "unsupported_media_type"),
        ("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "unsupported_media_type"),
    ] {
        let text = rig.say(head(line, &format!("{headers}Content-Length: 2\r\n")) + "{}").await;
        assert_code(&text, 415, code);
    }
    // What broke off in its chunks never was a request.
    let text = rig.say(head(line, &format!("{JSON}Transfer-Encoding: chunked\r\n")) + "zz\r\n").await;
    assert_code(&text, 408, "request_stalled");
}

#[tokio::test(start_paused = true)]
async fn heads_that_never_end_are_not_waited_for() {
    let rig = Rig::to("127.0.0.1:9".parse().unwrap());
    let begun = Instant::now();
    let mut streams = Vec::new();
    for _ in 0..50 {
        let (mut inside, outside) = tokio::io::duplex(4096);
        rig.serve(outside);
        inside.write_all(b"POST /v1/models HTTP/1.1\r\nHost: x\r\nX-a: ").await.unwrap();
        streams.push(inside);
    }
    for mut stream in streams {
        let _closed = stream.read_to_end(&mut Vec::new()).await;
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(9) && took <= Duration::from_secs(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_has_the_same_deadline() {
    let rig = Rig::to("127.0.0.1:9".parse().unwrap());
    let (inside, outside) = tokio::io::duplex(4096);
    rig.serve(outside);
    let (mut reader, mut writer) = tokio::io::split(inside);
    let begun = Instant::now();
    let drip = async {
        while writer.write_all(b"X").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = drip => {}
        _closed = async { reader.read_to_end(&mut Vec::new()).await } => {}
    }
    assert!(begun.elapsed() <= Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn idle_connections_end() {
    let rig = Rig::to("127.0.0.1:9".parse().unwrap());
    let (mut inside, outside) = tokio::io::duplex(4096);
    rig.serve(outside);
    let begun = Instant::now();
    let _closed = inside.read_to_end(&mut Vec::new()).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_mins(4) && took <= Duration::from_mins(6), "{took:?}");
}

#[tokio::test]
async fn a_connection_is_idle_again_after_its_answer() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    let text = post(CHAT, "{}").replace("Connection: close\r\n", "");
    stream.write_all(text.as_bytes()).await.unwrap();
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
    assert_eq!(rig.outcome().await, Outcome::Answered);
    tokio::time::pause(); // From here on only deadlines are waited for.
    let begun = Instant::now();
    let _closed = stream.read_to_end(&mut Vec::new()).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_mins(4) && took <= Duration::from_mins(6), "{took:?}");
}

#[tokio::test]
async fn a_body_that_stops_is_not_waited_for() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    let mut stream = rig.dial();
    let text = head(&format!("POST {CHAT}"), &format!("{JSON}Content-Length: 100\r\n")) + "{";
    stream.write_all(text.as_bytes()).await.unwrap();
    crate::harness::eventually(|| {
        (provider.open.load(std::sync::atomic::Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    tokio::time::pause(); // From here on only deadlines are waited for.
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    assert_code(&back, 408, "request_stalled");
}

#[tokio::test]
async fn an_answer_that_nobody_takes_is_not_held_for_long() {
    let line = &format!("POST {CHAT}");
    let chunked = head(line, &format!("{JSON}Transfer-Encoding: chunked\r\n")) + "2\r\n{}\r\n0\r\n\r\n";
    let tunnel = post(CHAT, "{}").replace("Connection: close\r\n", "") + &head("CONNECT a:1", "");
    for request in [post(CHAT, "{}"), chunked, tunnel] {
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&taken);
        let provider = Provider::start(move |_| endless(&counter)).await;
        let rig = Rig::to(provider.address);
        let mut stream = rig.dial();
        stream.write_all(request.as_bytes()).await.unwrap();
        at_a_halt(&taken).await;
        tokio::time::pause(); // From here on only deadlines are waited for.
        tokio::time::sleep(Duration::from_mins(6)).await;
        let ended = lock(&rig.meter.spent).last().map(|spent| spent.outcome);
        assert_eq!(ended, Some(Outcome::Gone), "{request:?}");
        tokio::time::resume();
        drop(stream);
    }
}

#[tokio::test]
async fn a_flood_of_connections_has_a_bound_and_others_go_on() {
    let provider = Provider::start(fine).await;
    let (rig, other) = (Rig::to(provider.address), Rig::to(provider.address));
    let held: Vec<_> = (0..64).map(|_| rig.dial()).collect();
    crate::harness::eventually(|| (rig.tasks.len() >= 64).then_some(())).await;
    tokio::task::yield_now().await;
    let text = exchange(rig.dial(), b"").await;
    assert_status(&text, 503);
    assert_status(&other.post(CHAT, "{}").await, 200);
    drop(held);
    crate::harness::eventually(|| rig.tasks.is_empty().then_some(())).await;
    assert_status(&rig.post(CHAT, "{}").await, 200);
}

#[tokio::test]
async fn noise_does_no_harm() {
    let provider = Provider::start(fine).await;
    let rig = Rig::to(provider.address);
    let good = post(CHAT, r#"{"stream":true}"#);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..400 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=next() % 3 {
            let at = next() % bytes.len();
            bytes[at] = u8::try_from(next() % 256).unwrap();
        }
        let mut stream = rig.dial();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        let _read = stream.read_to_end(&mut back).await;
        assert!(!String::from_utf8_lossy(&back).contains(crate::harness::KEY));
    }
    assert_status(&rig.say(good).await, 200);
    for seen in provider.seen() {
        assert_eq!(seen.headers["authorization"], format!("Bearer {}", crate::harness::KEY));
        assert!(seen.line.starts_with("POST /api/v1/"), "{}", seen.line);
    }
}
