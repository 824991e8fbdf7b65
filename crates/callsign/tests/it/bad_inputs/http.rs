//! Rows 14 to 18: what a client may do to us over HTTP.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::client::{Client, Era, Http, Response, raw_http};
use testkit::harness::{GOOD, Gateway, Standing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::setup;

const LIST: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{}}"#;

#[tokio::test]
async fn row_14_foreign_hosts_and_origins_are_forbidden() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    let session = gateway.connect(GOOD, Era::Legacy).await;
    let http = session.raw();
    let own = gateway.address().to_owned();
    let cases: [&[(&str, &str)]; 6] = [
        &[("host", "evil.example")],
        &[("host", "evil.example:80")],
        &[("host", "127.0.0.1"), ("origin", "http://evil.example")],
        &[("host", &own), ("origin", "http://evil.example")],
        &[("host", &own), ("origin", "null")],
        &[("host", &own), ("origin", "http://127.0.0.1.evil.example")],
    ];
    for headers in cases {
        assert_eq!(http.post(LIST, headers).await.status, 403, "POST {headers:?}");
        assert_eq!(http.get(headers).await.status, 403, "GET {headers:?}");
        assert_eq!(http.delete(headers).await.status, 403, "DELETE {headers:?}");
    }
    assert_eq!(http.post(LIST, &[]).await.status, 200, "the session lives");
    // Checked before the body is read: no body ever comes here.
    let early = format!(
        "POST /mcp/{GOOD} HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    );
    let (answer, _) = raw_http(&own, early.as_bytes(), Duration::from_secs(2)).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer:?}");
    session.end().await;
    drop(session);
    standing.after().await;
}

#[tokio::test]
async fn a_token_is_wanted_everywhere_but_for_health() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    for token in [None, Some("wrong"), Some("")] {
        let client = Client::http(&gateway.mcp(GOOD), token, Era::Legacy);
        assert_eq!(client.raw().post(LIST, &[]).await.status, 401, "{token:?}");
        assert_eq!(client.raw().get(&[]).await.status, 401, "{token:?}");
        assert_eq!(Http::new(&gateway.mcp("no-such"), token).post(LIST, &[]).await.status, 401, "{token:?}");
    }
    assert_eq!(Http::new(&gateway.at("/healthz"), None).get(&[]).await.status, 200);
    standing.after().await;
}

#[tokio::test]
async fn row_15_a_session_belongs_to_its_principal() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    let alice = gateway.connect(GOOD, Era::Legacy).await;
    let id = alice.raw().session().expect("a legacy session has an id");
    let (code, mallory, stderr) = gateway.run(&["token", "create", "mallory"]);
    assert_eq!(code, Some(0), "{stderr}");
    let mallory = Http::new(&gateway.mcp(GOOD), Some(mallory.trim()));
    // A running daemon may take a moment to hear of a new token.
    let start = Instant::now();
    while mallory.post(LIST, &[]).await.status == 401 {
        assert!(start.elapsed() < Duration::from_secs(5), "the new token is not accepted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let unknown = with_session(&mallory, "0123456789abcdef0123456789abcdef").await;
    let stolen = with_session(&mallory, &id).await;
    assert!(matches!(stolen.status, 403 | 404), "{}", stolen.status);
    assert_eq!((stolen.status, stolen.text()), (unknown.status, unknown.text()), "the same answer for both");
    let (stolen, unknown) =
        (median(&mallory, &id).await, median(&mallory, "ffffffffffffffffffffffffffffffff").await);
    assert!(
        stolen.abs_diff(unknown) < Duration::from_millis(2),
        "the same time for both: {stolen:?}, {unknown:?}"
    );

    let session = [("mcp-session-id", id.as_str())];
    assert!(matches!(mallory.get(&session).await.status, 403 | 404), "nor her stream");
    assert!(matches!(mallory.delete(&session).await.status, 403 | 404), "nor its end");
    assert_eq!(alice.tool_text("echo", json!({ "text": "mine" })).await, "mine");
    alice.end().await;
    drop((alice, mallory));
    standing.after().await;
}

async fn with_session(http: &Http, id: &str) -> Response {
    http.post(LIST, &[("mcp-session-id", id), ("mcp-protocol-version", "2025-11-25")]).await
}

async fn median(http: &Http, id: &str) -> Duration {
    let mut times = Vec::new();
    for _ in 0..101 {
        let start = Instant::now();
        with_session(http, id).await;
        times.push(start.elapsed());
    }
    times.sort();
    times[50]
}

#[tokio::test]
async fn row_16_connections_that_never_finish_their_headers_are_closed() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    let start = Instant::now();
    let mut connections = Vec::new();
    for _ in 0..50 {
        let mut stream = tokio::net::TcpStream::connect(gateway.address()).await.expect("it listens");
        let head = format!("POST /mcp/{GOOD} HTTP/1.1\r\nHost: {}\r\nX-a: ", gateway.address());
        stream.write_all(head.as_bytes()).await.expect("sent");
        connections.push(stream);
    }
    standing.during().await;
    for stream in &mut connections {
        let left = Duration::from_secs(15).saturating_sub(start.elapsed()).max(Duration::from_millis(1));
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(left, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "still open after 15 s");
    }
    drop(connections);
    standing.after().await;
}

#[tokio::test]
async fn row_17_a_body_that_is_too_large_is_refused() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    let session = gateway.connect(GOOD, Era::Legacy).await;
    let message = |bytes: usize| {
        let pad = "x".repeat(bytes);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"vendor/echo","params":{{"pad":"{pad}"}}}}"#)
    };
    assert_eq!(session.raw().post(message(3 << 20), &[]).await.status, 200, "3 MiB are fine");
    // Status 0: closed before the answer could be read. A client must learn why.
    assert_eq!(session.raw().post(message(5 << 20), &[]).await.status, 413, "5 MiB");
    session.end().await;
    drop(session);
    standing.after().await;
}

#[tokio::test]
async fn row_17_a_body_that_is_huge_or_packed_is_refused_unread() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    let session = gateway.connect(GOOD, Era::Legacy).await;
    for encoding in ["gzip", "deflate", "br"] {
        let packed =
            session.raw().post(vec![0x1f, 0x8b, 8, 0, 0, 0], &[("content-encoding", encoding)]).await;
        assert_eq!(packed.status, 415, "{encoding}");
    }
    let announced = head(&gateway, "Content-Length: 100000000");
    let (answer, _) = raw_http(gateway.address(), announced.as_bytes(), Duration::from_secs(5)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "100 MB announced: {answer:?}");
    let status = chunked(&gateway, 100).await;
    assert!(status.is_empty() || status.starts_with("HTTP/1.1 413"), "100 MB in chunks: {status:?}");
    session.end().await;
    drop(session);
    standing.after_with(16 * 1024 * 1024).await;
}

fn head(gateway: &Gateway, length: &str) -> String {
    format!(
        "POST /mcp/{GOOD} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{length}\r\n\r\n",
        gateway.address(),
        gateway.token,
    )
}

/// Sends that many MB in chunks, until the other side has enough; gives its answer if it can be read.
async fn chunked(gateway: &Gateway, megabytes: usize) -> String {
    let mut stream = tokio::net::TcpStream::connect(gateway.address()).await.expect("it listens");
    let mut sent = stream.write_all(head(gateway, "Transfer-Encoding: chunked").as_bytes()).await;
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..megabytes {
        if sent.is_err() {
            break;
        }
        let write = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&chunk)).await;
        sent = write.unwrap_or(Ok(())); // Not read any more: as good as closed.
    }
    let mut answer = vec![0; 64];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
    let count = read.ok().and_then(Result::ok).unwrap_or(0);
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

#[tokio::test]
async fn row_18_requests_that_two_readers_could_read_differently_are_refused() {
    let gateway = setup().serve().await;
    let standing = Standing::before(&gateway).await;
    let address = gateway.address();
    let token = &gateway.token;
    let start = format!(
        "POST /mcp/{GOOD} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    );
    let smuggled = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let cases = [
        format!("{start}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{start}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{start}Content-Length: 5\r\nContent-Length: 6\r\n\r\n{{}}    {smuggled}"),
        format!("{start}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{start}X-Folded: one\r\n two\r\nContent-Length: 2\r\n\r\n{{}}{smuggled}"),
        format!("{start}Content-Length: 2\r\n\r\n{{}}{smuggled}").replace("\r\n", "\n"),
        format!("{start}Content-Length : 2\r\n\r\n{{}}{smuggled}"),
    ];
    for case in cases {
        let (answer, closed) = raw_http(address, case.as_bytes(), Duration::from_secs(5)).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{case:?} → {answer:?}");
        assert!(closed, "the connection is closed after {case:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "one answer, then the end: {answer:?}");
    }
    standing.after().await;
}
