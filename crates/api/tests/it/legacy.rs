//! The old era: sessions of the protocol, each its principal's own.

use http::{Method, StatusCode};
use model::ports::store::Store as _;
use serde_json::{Value, json};

use crate::harness::{Answer, Client, Daemon, Events, LEGACY, read};

struct Legacy<'a> {
    client: Client<'a>,
    session: String,
}

async fn send(client: &Client<'_>, session: Option<&str>, method: Method, body: &Value) -> Answer {
    let mut extra = vec![("mcp-protocol-version", LEGACY)];
    extra.extend(session.map(|session| ("mcp-session-id", session)));
    read(client.daemon.send(method, client.headers(&extra), body.to_string()).await).await
}

fn request(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

impl<'a> Legacy<'a> {
    async fn open(client: Client<'a>) -> Self {
        let params = json!({
            "protocolVersion": LEGACY,
            "capabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
            "clientInfo": { "name": "old", "version": "3" },
            "_meta": { "orbit": { "workspace": "/w" } },
        });
        let answer = send(&client, None, Method::POST, &request("initialize", &params)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.last()["result"]["protocolVersion"], json!(LEGACY));
        assert!(answer.last()["result"]["instructions"].as_str().unwrap().contains("submit_task"));
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let accepted = send(&client, Some(&session), Method::POST, &told).await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED);
        Self { client, session }
    }

    async fn request(&self, method: &str, params: Value) -> Answer {
        send(&self.client, Some(&self.session), Method::POST, &request(method, &params)).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let result = &answer.last()["result"];
        assert_eq!(result["isError"], json!(false), "{answer:?}");
        result["structuredContent"].clone()
    }
}

#[tokio::test]
async fn the_old_era_has_the_same_tools() {
    let daemon = Daemon::start().await;
    let settings = json!({ "MCP_OPENCODE_API_KEY": "hush" });
    let old = Legacy::open(daemon.client("ann").with_settings(settings)).await;
    let listed = old.request("tools/list", json!({})).await;
    assert_eq!(listed.last()["result"]["tools"], json!(daemon.client("ann").tools().await));

    let session = old.call("create_or_reuse_session", json!({})).await["session"]["id"].clone();
    let submitted = old.call("submit_task", json!({ "session_id": session, "task": "x" })).await;
    assert_eq!(submitted["status"], json!("queued"), "tasks are the new era's, whatever is declared");
    assert_eq!(daemon.settler.settled.lock().unwrap()[0]["MCP_OPENCODE_API_KEY"], "hush");
    let status = old.call("get_status", json!({ "session_id": session })).await;
    assert_eq!(status["run"], submitted["run"]);
    assert_eq!(status, daemon.client("ann").call("get_status", json!({ "session_id": session })).await);

    let principal = model::Principal::new("ann").unwrap();
    let id = model::session::SessionId::parse(session.as_str().unwrap()).unwrap();
    let kept = daemon.store.session(&principal, &id).await.unwrap().unwrap();
    let expected = json!({
        "client": { "name": "old", "version": "3" },
        "initialize": { "orbit": { "workspace": "/w" } },
    });
    assert_eq!(serde_json::from_str::<Value>(&kept.made_by.unwrap()).unwrap(), expected);
}

#[tokio::test]
async fn progress_comes_in_the_old_era_too_and_a_cancel_ends_the_wait() {
    let daemon = Daemon::start().await;
    let old = Legacy::open(daemon.client("ann")).await;
    let session = old.call("create_or_reuse_session", json!({})).await["session"]["id"].clone();
    old.call("submit_task", json!({ "session_id": session, "task": "x" })).await;
    let params = json!({
        "name": "get_status",
        "arguments": { "session_id": session, "wait_seconds": 600 },
        "_meta": { "progressToken": 9 },
    });
    let headers = old.client.headers(&[("mcp-protocol-version", LEGACY), ("mcp-session-id", &old.session)]);
    let body = request("tools/call", &params).to_string();
    let mut events = Events::of(daemon.send(Method::POST, headers, body).await);
    let told = events.next().await.unwrap();
    assert_eq!(told["params"]["progressToken"], json!(9), "{told}");
    assert_eq!(told["params"]["message"], json!("queued"));
    let canceled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    let accepted = send(&old.client, Some(&old.session), Method::POST, &canceled).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    assert_eq!(events.next().await, None, "who canceled wants no answer");
    // The session is as usable as before.
    old.call("list_sessions", json!({})).await;
}

#[tokio::test]
async fn a_session_is_of_the_principal_who_opened_it() {
    let daemon = Daemon::start().await;
    let old = Legacy::open(daemon.client("ann")).await;
    let eve = daemon.client("eve");
    let list = request("tools/list", &json!({}));
    for id in [old.session.as_str(), "0123"] {
        let posted = send(&eve, Some(id), Method::POST, &list).await;
        assert_eq!(posted.status, StatusCode::NOT_FOUND, "{posted:?}");
        assert_eq!(send(&eve, Some(id), Method::GET, &json!(null)).await.status, StatusCode::NOT_FOUND);
        // As for one that is not there, which is as good as ended.
        assert_eq!(send(&eve, Some(id), Method::DELETE, &json!(null)).await.status, StatusCode::ACCEPTED);
    }
    // Two names on one request are nobody's.
    let mut headers = old.client.headers(&[("mcp-protocol-version", LEGACY)]);
    headers.append("mcp-session-id", "x".parse().unwrap());
    headers.append("mcp-session-id", old.session.parse().unwrap());
    let answer = read(daemon.send(Method::POST, headers, list.to_string()).await).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);

    assert_eq!(old.request("tools/list", json!({})).await.status, StatusCode::OK, "eve has ended nothing");
    let ended = send(&old.client, Some(&old.session), Method::DELETE, &json!(null)).await;
    assert_eq!(ended.status, StatusCode::ACCEPTED);
    assert_eq!(old.request("tools/list", json!({})).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn each_of_many_sessions_stays_its_owners() {
    let daemon = Daemon::start().await;
    let mut opened = Vec::new();
    for number in 0..150 {
        let old = Legacy::open(daemon.client(&format!("p{number}"))).await;
        if number % 3 == 0 {
            send(&old.client, Some(&old.session), Method::DELETE, &json!(null)).await;
        } else {
            opened.push(old);
        }
    }
    for (place, old) in opened.iter().enumerate() {
        assert_eq!(old.request("tools/list", json!({})).await.status, StatusCode::OK, "{place}");
    }
}
