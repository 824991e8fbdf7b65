//! What a server asks its client.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use testkit::client::{Era, text};

use crate::support::{Lane, SOON, echo};

const METHODS: [&str; 4] = ["sampling/createMessage", "elicitation/create", "roots/list", "ping"];

#[tokio::test]
async fn a_server_request_reaches_its_caller_and_the_answer_comes_back() {
    for lane in Lane::of(Era::Legacy, &[]).await {
        let Lane { client, name, .. } = lane;
        let client = client.with_responder(|request| {
            Some(json!({ "result": { "to": request["method"], "x-vendor": [1.0, null], "params": request["params"] } }))
        });
        for method in METHODS {
            let params = json!({ "x-vendor": { "kept": 1.0 } });
            let answer = client.tool_text("ask", json!({ "method": method, "params": params })).await;
            let answer: Value = serde_json::from_str(&answer).expect(&name);
            let expected = json!({ "to": method, "x-vendor": [1.0, null], "params": params });
            assert_eq!(answer, expected, "{name}");
        }
        assert_eq!(client.server_requests().len(), METHODS.len(), "{name}: each came once");
    }
}

#[tokio::test]
async fn a_client_that_refuses_is_heard() {
    for lane in Lane::of(Era::Legacy, &[]).await {
        let Lane { client, name, .. } = lane;
        let client = client.with_responder(|_| {
            Some(json!({ "error": { "code": -1, "message": "User rejected", "data": { "x": 1 } } }))
        });
        let answer = client.tool_text("ask", json!({ "method": "sampling/createMessage" })).await;
        let answer: Value = serde_json::from_str(&answer).expect(&name);
        assert_eq!(answer, json!({ "code": -1, "message": "User rejected", "data": { "x": 1 } }), "{name}");
    }
}

#[tokio::test]
async fn questions_of_two_sessions_do_not_meet() {
    let gateway = echo("").serve().await;
    let mut sessions = Vec::new();
    for number in 0..8_u64 {
        let asked = AtomicU64::new(0);
        let client = gateway.client("echo", Era::Legacy).with_responder(move |_| {
            Some(json!({ "result": { "session": number, "asked": asked.fetch_add(1, Ordering::Relaxed) } }))
        });
        client.connect().await.expect("connected");
        sessions.push(client);
    }
    for round in 0..10_u64 {
        let mut calls = Vec::new();
        for client in &sessions {
            let params = json!({ "name": "ask", "arguments": { "method": "roots/list" } });
            calls.push(client.start("tools/call", params).await);
        }
        for (number, call) in calls.into_iter().enumerate() {
            let answer = call.wait(SOON * 2).await.expect("answered");
            let answer: Value = serde_json::from_str(&text(&answer)).expect("JSON");
            assert_eq!(answer, json!({ "session": number, "asked": round }));
        }
    }
    for client in &sessions {
        assert_eq!(client.server_requests().len(), 10, "nobody else's questions");
    }
}

#[tokio::test]
async fn an_answer_to_a_question_nobody_asked_goes_nowhere() {
    let gateway = echo("").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    for id in [json!(0), json!(1), json!("ask-1"), json!("never")] {
        let forged = json!({ "jsonrpc": "2.0", "id": id, "result": { "forged": true } }).to_string();
        let status = client.raw().post(forged, &[("mcp-protocol-version", "2025-11-25")]).await.status;
        assert!(matches!(status, 202 | 400 | 404), "{id}: {status}");
    }
    assert_eq!(client.tool_text("echo", json!({ "text": "after" })).await, "after");
}

#[tokio::test]
async fn input_required_passes_untouched_and_the_retry_finds_its_way() {
    for lane in Lane::of(Era::Modern, &[]).await {
        let (client, name) = (&lane.client, &lane.name);
        let arguments =
            json!({ "method": "elicitation/create", "params": { "message": "?", "x-vendor": 1.0 } });
        let asked = client.call_tool("ask", arguments.clone()).await;
        assert_eq!(asked["resultType"], "input_required", "{name}: {asked}");
        let question =
            json!({ "method": "elicitation/create", "params": { "message": "?", "x-vendor": 1.0 } });
        assert_eq!(asked["inputRequests"]["q"], question, "{name}");
        let state = asked["requestState"].as_str().expect(name);
        assert!(state.starts_with("state of "), "{name}: as the server wrote it: {state}");
        let answers = json!({ "q": { "action": "accept", "content": { "a": 1 } } });
        let retry = json!({ "name": "ask", "arguments": arguments, "inputResponses": answers, "requestState": state });
        let answer = client.request("tools/call", retry).await.expect(name);
        let answer: Value = serde_json::from_str(&text(&answer)).expect(name);
        assert_eq!(answer, answers, "{name}");
        assert_eq!(client.server_requests(), Vec::<Value>::new(), "{name}: no requests in the modern era");
    }
}
