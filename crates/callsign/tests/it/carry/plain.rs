//! Requests and their answers.

use serde_json::{Value, json};
use testkit::client::{Era, text};

use crate::support::{Lane, SOON};

#[tokio::test]
async fn calls_and_lists_come_back_as_the_server_said_them() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        for said in ["", "plain", "ü → 𝄞 \u{200b}", "\u{0}\u{1f}\"\\\n\r\u{2028}", &"x".repeat(100_000)]
        {
            assert_eq!(client.tool_text("echo", json!({ "text": said })).await, said, "{name}");
        }
        let tools = client.request("tools/list", json!({})).await.expect(name);
        assert_eq!(tools["tools"].as_array().map(Vec::len), Some(11), "{name}");
        assert_eq!(tools["tools"][0]["x-vendor"], json!({ "kept": true }), "{name}: vendor fields stay");
        let resources = client.request("resources/list", json!({})).await.expect(name);
        assert_eq!(resources["resources"][0]["uri"], "test://static", "{name}");
        let read = client.request("resources/read", json!({ "uri": "test://static" })).await.expect(name);
        assert_eq!(read["contents"][0]["text"], "test://static", "{name}");
        let prompts = client.request("prompts/list", json!({})).await.expect(name);
        assert_eq!(prompts["prompts"][0]["name"], "greet", "{name}");
        let prompt = client.request("prompts/get", json!({ "name": "greet" })).await.expect(name);
        assert_eq!(prompt["messages"][0]["content"]["text"], "Hello.", "{name}");
        let completion = json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "a", "value": "" } });
        let completion = client.request("completion/complete", completion).await.expect(name);
        assert_eq!(completion["completion"]["values"], json!(["echo"]), "{name}");
        assert_eq!(client.strays(), Vec::<Value>::new(), "{name}");
    }
}

#[tokio::test]
async fn the_server_itself_answers_the_handshake() {
    for lane in Lane::all(&[]).await {
        let name = &lane.name;
        match lane.era() {
            Era::Modern => {
                let discovered = lane.client.request("server/discover", json!({})).await.expect(name);
                let versions = discovered["supportedVersions"].as_array().expect(name);
                assert!(versions.contains(&json!("2026-07-28")), "{name}: {discovered}");
                assert_eq!(discovered["resultType"], "complete", "{name}");
            }
            Era::Legacy => {
                let whoami = lane.client.whoami("X").await;
                let initialize = &whoami["initialize"];
                assert_eq!(
                    initialize["clientInfo"]["name"], "testkit",
                    "{name}: the client's own words: {initialize}"
                );
                assert_eq!(initialize["protocolVersion"], "2025-11-25", "{name}");
                assert_eq!(initialize["capabilities"]["roots"]["listChanged"], true, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn an_older_revision_is_agreed_on_by_both_ends() {
    for version in ["2025-06-18", "2025-03-26", "2024-11-05"] {
        let gateway = crate::support::echo("").serve().await;
        let client = gateway.client("echo", Era::Legacy);
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "old", "version": "1" }, "x-vendor": [1.0] });
        let answer = client.request("initialize", params).await.expect(version);
        assert_eq!(answer["protocolVersion"], version);
        assert_eq!(answer["x-vendor"], json!({ "kept": 1.0 }), "{version}");
        client.notify("notifications/initialized", json!({})).await;
        let whoami = client.whoami("X").await;
        assert_eq!(whoami["initialize"]["x-vendor"], json!([1.0]), "{version}: what a child is told again");
    }
}

#[tokio::test]
async fn errors_of_the_server_are_its_own() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        let unknown = client.request("vendor/unknown", json!({ "a": 1 })).await.expect_err(name);
        assert_eq!(unknown.code(), Some(-32601), "{name}: {unknown:?}");
        assert!(unknown.text().contains("vendor/unknown"), "{name}: {unknown:?}");
        let missing = client.try_tool("no-such-tool", json!({})).await.expect_err(name);
        assert_eq!(missing.code(), Some(-32602), "{name}: {missing:?}");
        let resource =
            client.request("resources/read", json!({ "uri": "nowhere://" })).await.expect_err(name);
        assert_eq!(resource.code(), Some(-32602), "{name}: {resource:?}");
        assert_eq!(client.tool_text("echo", json!({ "text": "after" })).await, "after", "{name}");
    }
}

#[tokio::test]
async fn methods_nobody_knows_pass_with_every_field() {
    for lane in Lane::all(&[]).await {
        let (client, name) = (&lane.client, &lane.name);
        let odd = json!({
            "number": 1.0, "big": 9_007_199_254_740_993_i64, "exponent": 1e21, "null": null, "nested": [[[{}]]],
            "x-vendor/field": { "ü": "\u{0}" }, "task": { "ttl": 60000 },
        });
        let mut answer = client.request("vendor/echo", odd.clone()).await.expect(name);
        // What the modern client itself adds comes back with the rest.
        answer.as_object_mut().expect(name).remove("_meta");
        assert_eq!(answer, odd, "{name}");
    }
}

#[tokio::test]
async fn metadata_of_the_caller_arrives_at_the_server() {
    for lane in Lane::all(&[]).await {
        let name = &lane.name;
        let meta = json!({ "com.example/tenant": { "a": [1, 2.50] }, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
        let params = json!({ "name": "whoami", "arguments": {}, "_meta": meta });
        let answer = lane.client.request("tools/call", params).await.expect(name);
        let whoami: Value = serde_json::from_str(&text(&answer)).expect(name);
        for (key, value) in meta.as_object().expect(name) {
            assert_eq!(&whoami["meta"][key], value, "{name}: {whoami}");
        }
    }
}

#[tokio::test]
async fn pages_are_walked_on_the_child_that_gave_the_cursor() {
    for lane in Lane::all(&["--page-size", "3"]).await {
        let (client, name) = (&lane.client, &lane.name);
        let mut names: Vec<String> = Vec::new();
        let mut cursor = Value::Null;
        for page in 0..4 {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let answer = client.request("tools/list", params).await.expect(name);
            let tools = answer["tools"].as_array().expect(name);
            names.extend(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
            cursor = answer["nextCursor"].clone();
            assert_eq!(cursor.is_null(), page == 3, "{name}: page {page}: {answer}");
            // A call in between starts another child; the cursor still belongs to the first.
            client.tool_text("echo", json!({ "text": "between" })).await;
        }
        names.dedup();
        assert_eq!(names.len(), 11, "{name}: {names:?}");
        let forged = client.request("tools/list", json!({ "cursor": "1.3" })).await.expect_err(name);
        assert_eq!(forged.code(), Some(-32602), "{name}: {forged:?}");
    }
}

#[tokio::test]
async fn many_calls_at_once_do_not_mix_their_answers() {
    for lane in Lane::all(&[]).await {
        let name = &lane.name;
        let mut calls = Vec::new();
        for number in 0..200_u64 {
            let params = json!({ "name": "echo", "arguments": { "text": format!("call {number}") } });
            calls.push(lane.client.start("tools/call", params).await);
        }
        for (number, call) in calls.into_iter().enumerate() {
            let answer = call.wait(SOON * 4).await.expect(name);
            assert_eq!(text(&answer), format!("call {number}"), "{name}");
        }
    }
}

#[tokio::test]
async fn ids_come_back_as_they_were_sent() {
    for lane in Lane::all(&[]).await {
        let name = &lane.name;
        for id in [
            json!(0),
            json!(-7),
            json!(9_007_199_254_740_991_i64),
            json!(""),
            json!("ü\"\\\u{0}"),
            json!("1"),
        ] {
            let params = json!({ "name": "echo", "arguments": { "text": "id" } });
            let call = lane.client.start_as(id.clone(), "tools/call", params).await;
            let answer = call.wait(SOON).await;
            assert!(answer.is_ok(), "{name}: id {id}: {answer:?}");
        }
        assert_eq!(lane.client.strays(), Vec::<Value>::new(), "{name}");
    }
}
