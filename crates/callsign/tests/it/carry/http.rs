//! What is particular to Streamable HTTP: sessions, statuses, mirrored headers, credentials, resuming.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use testkit::client::{Client, Era, Failure, Http, modern_meta, text};
use testkit::harness::HttpServer;

use crate::support::{Lane, SOON, echo, setup};

const LIST: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{}}"#;
const VERSION: (&str, &str) = ("mcp-protocol-version", "2025-11-25");

#[tokio::test]
async fn a_session_that_ended_or_never_was_is_not_found() {
    let gateway = echo("").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let id = client.raw().session().expect("an id");
    assert!(id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_graphic()), "a random id: {id}");
    assert_eq!(client.raw().post(LIST, &[VERSION]).await.status, 200);
    assert_eq!(client.raw().post(LIST, &[VERSION, ("mcp-session-id", "")]).await.status, 400, "no id");
    assert_eq!(client.raw().post(LIST, &[VERSION, ("mcp-session-id", "unknown")]).await.status, 404);
    let ended = client.raw().delete(&[]).await.status;
    assert!(matches!(ended, 200 | 202 | 204), "{ended}");
    assert_eq!(client.raw().post(LIST, &[VERSION]).await.status, 404, "ended");
    assert_eq!(client.raw().get(&[]).await.status, 404, "ended");
    client.raw().set_session(None);
    client.connect().await.expect("a new session");
    assert_ne!(client.raw().session().expect("an id"), id);
    let elsewhere = Http::new(&gateway.mcp("good"), Some(&gateway.token));
    let session = client.raw().session().expect("an id");
    let elsewhere = elsewhere.post(LIST, &[VERSION, ("mcp-session-id", &session)]).await;
    assert_eq!(elsewhere.status, 404, "a session belongs to one server");
}

#[tokio::test]
async fn a_session_lost_behind_us_is_lost_in_front_or_made_anew() {
    let server = HttpServer::start("echo-server", &[]);
    let gateway = setup().url("up", &server.url, "").serve().await;
    let client = gateway.connect("up", Era::Legacy).await;
    let headers = client.whoami("X").await["headers"].clone();
    let behind = header(&headers, "mcp-session-id").expect("the server's own session");
    assert_ne!(Some(behind.clone()), client.raw().session(), "ours is not theirs");
    let direct = Http::new(&server.url, None).delete(&[("mcp-session-id", &behind)]).await;
    assert_eq!(direct.status, 200);
    let answer = client.try_tool("echo", json!({ "text": "x" })).await;
    match answer {
        Ok(answer) => assert_eq!(text(&answer), "x"),
        Err(Failure::Status(status, _)) => assert_eq!(status, 404),
        Err(Failure::Rpc(error)) => {
            let status = client.raw().post(LIST, &[VERSION]).await.status;
            assert_eq!(status, 404, "the client learns that it must initialize again: {error}");
        }
        Err(failure) => panic!("{failure:?}"),
    }
    // Either way the next session works.
    gateway.connect("up", Era::Legacy).await.call_tool("echo", json!({ "text": "x" })).await;
}

fn header(headers: &Value, name: &str) -> Option<String> {
    let pair = headers.as_array()?.iter().find(|pair| pair[0] == name)?;
    pair[1].as_str().map(str::to_owned)
}

/// A status and, where there is one, the code of a JSON-RPC error.
type Status = (u16, Option<i64>);
type Headers<'a> = &'a [(&'a str, &'a str)];

/// The rows that differ, so that one wrong status does not hide the next.
#[track_caller]
fn check(rows: Vec<(&str, Status, Status)>) {
    let wrong: Vec<_> = rows.into_iter().filter(|(_, got, wanted)| got != wanted).collect();
    assert!(wrong.is_empty(), "(what, got, wanted): {wrong:#?}");
}

#[tokio::test]
async fn statuses_are_those_of_the_legacy_era() {
    let gateway = echo("").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let http = client.raw();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/vendor"}"#;
    let nobody = Http::new(&gateway.mcp("nobody"), Some(&gateway.token));
    let invalid = [("mcp-protocol-version", "1999-01-01")];
    let text = [VERSION, ("content-type", "text/plain")];
    check(vec![
        ("a notification", (http.post(note, &[VERSION]).await.status, None), (202, None)),
        ("an invalid version", (http.post(LIST, &invalid).await.status, None), (400, None)),
        ("a body that is text", (http.post(LIST, &text).await.status, None), (415, None)),
        ("PUT", (http.exchange_raw(Method::PUT, &[VERSION], LIST).await.status, None), (405, None)),
        ("no such server", (nobody.post(LIST, &[]).await.status, None), (404, None)),
    ]);
}

#[tokio::test]
async fn statuses_are_those_of_the_modern_era() {
    let gateway = echo("").serve().await;
    let client = gateway.client("echo", Era::Modern);
    let of = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let call =
        of("tools/call", json!({ "name": "echo", "arguments": { "text": "x" }, "_meta": modern_meta() }));
    let unknown = of("vendor/no", json!({ "_meta": modern_meta() }));
    let mut bare = modern_meta();
    bare.as_object_mut().expect("an object").remove("io.modelcontextprotocol/clientCapabilities");
    let bare = of("tools/call", json!({ "name": "echo", "arguments": {}, "_meta": bare }));
    let version = ("mcp-protocol-version", "2026-07-28");
    let (method, name) = (("mcp-method", "tools/call"), ("mcp-name", "echo"));
    let mismatch = (400, Some(-32020));
    let cases: [(&str, &str, Headers<'_>, Status); 9] = [
        ("all right", &call, &[version, method, name], (200, None)),
        ("another method", &call, &[version, ("mcp-method", "tools/list"), name], mismatch),
        ("another name", &call, &[version, method, ("mcp-name", "whoami")], mismatch),
        ("two names", &call, &[version, method, name, ("mcp-name", "whoami")], mismatch),
        ("no method", &call, &[version, name], mismatch),
        ("no name", &call, &[version, method], mismatch),
        ("another version", &call, &[VERSION, method, name], mismatch),
        ("a method nobody knows", &unknown, &[version, ("mcp-method", "vendor/no")], (404, Some(-32601))),
        ("no capabilities", &bare, &[version, method, name], (400, Some(-32602))),
    ];
    let mut rows = Vec::new();
    for (what, body, headers, wanted) in cases {
        let answer = client.raw().post(body.to_owned(), headers).await;
        rows.push((what, (answer.status, answer.json()["error"]["code"].as_i64()), wanted));
    }
    check(rows);
}

#[tokio::test]
async fn what_belongs_to_the_client_stays_here() {
    let server = HttpServer::start("echo-server", &[]);
    let more = "headers = { Authorization = \"Bearer upstream-token\", X-Static = \"yes\" }";
    let gateway = setup().url("up", &server.url, more).serve().await;
    for era in Era::BOTH {
        let http = Http::new(&gateway.mcp("up"), Some(&gateway.token))
            .with_header("cookie", "a=secret")
            .with_header("x-forwarded-for", "1.2.3.4")
            .with_header("mcp-param-region", "eu");
        let client = Client::over(http, era);
        client.connect().await.expect("connected");
        let headers = client.whoami("X").await["headers"].clone();
        assert!(!headers.to_string().contains(&gateway.token), "{era:?}: our token went on: {headers}");
        assert_eq!(header(&headers, "authorization").as_deref(), Some("Bearer upstream-token"), "{era:?}");
        assert_eq!(header(&headers, "x-static").as_deref(), Some("yes"), "{era:?}");
        assert_eq!(header(&headers, "cookie"), None, "{era:?}");
        if era == Era::Modern {
            assert_eq!(
                header(&headers, "mcp-param-region").as_deref(),
                Some("eu"),
                "unknown ones are passed on"
            );
        }
        client.end().await;
    }
}

#[tokio::test]
async fn a_call_over_http_takes_no_nap() {
    for lane in Lane::all(&[]).await {
        let mut times = Vec::new();
        for _ in 0..101 {
            let start = Instant::now();
            lane.client.call_tool("echo", json!({ "text": "x" })).await;
            times.push(start.elapsed());
        }
        times.sort();
        assert!(times[50] < Duration::from_millis(10), "{}: Nagle's 40 ms? {:?}", lane.name, times[50]);
    }
}

#[tokio::test]
async fn a_broken_stream_goes_on_where_it_ended() {
    let gateway = echo("").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let request = json!({
        "jsonrpc": "2.0", "id": "resumed", "method": "tools/call",
        "params": { "name": "progress", "arguments": { "steps": 10, "ms": 50 }, "_meta": { "progressToken": "t" } },
    });
    let (status, mut events) = client.raw().post_stream(request.to_string(), &[VERSION]).await;
    assert_eq!(status, 200);
    let mut last = None;
    let mut seen = 0;
    while seen < 3 {
        let event = tokio::time::timeout(SOON, events.next()).await.expect("in time").expect("an event");
        seen += u64::from(event.data.contains("notifications/progress"));
        last = event.id.or(last);
    }
    drop(events);
    // Event ids are optional; a server that gives them must honour them.
    let Some(last) = last else { return };
    let (status, mut events) = client.raw().get_stream(&[VERSION, ("last-event-id", &last)]).await;
    assert_eq!(status, 200, "resumes from {last}");
    let mut answered = false;
    while !answered {
        let event =
            tokio::time::timeout(SOON, events.next()).await.expect("in time").expect("the stream goes on");
        let message: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if message["method"] == "notifications/progress" {
            seen += 1;
            assert_eq!(message["params"]["progress"], seen, "none twice, none left out");
        }
        answered = message["id"] == "resumed";
    }
    assert_eq!(seen, 10);
}
