//! Anthropic messages: what Claude Code speaks.

use serde_json::{Value, json};

use super::conversation::{Conversation, Ids, Say, Style, Tool, event, joined, last_script, list, text};

pub(super) fn read(body: &Value) -> Conversation {
    let messages = list(body, "messages");
    let tools = list(body, "tools")
        .iter()
        .filter_map(|tool| Some(Tool { namespace: None, name: tool["name"].as_str()?.to_owned() }))
        .collect();
    let user = |message: &Value| (message["role"] == "user").then(|| text(&message["content"]));
    let found = last_script(messages, user);
    let since = found.as_ref().map_or(messages.len(), |(index, _)| index + 1);
    let blocks = |kind: &'static str| {
        move |message: &Value| -> Vec<Value> {
            list(message, "content").iter().filter(|block| block["type"] == kind).cloned().collect()
        }
    };
    let calls = messages[since..]
        .iter()
        .flat_map(blocks("tool_use"))
        .filter_map(|block| block["id"].as_str().map(str::to_owned))
        .collect();
    let results = messages.iter().flat_map(blocks("tool_result"));
    Conversation {
        script: found.map(|(_, script)| script),
        calls,
        last_result: results.last().map(|block| text(&block["content"])).unwrap_or_default(),
        tools,
        style: Style::Claude,
    }
}

/// The answer to a request that wants no stream.
pub(super) fn whole(ids: &Ids, body: &Value, say: &Say) -> Value {
    joined(&message(ids, body), json!({ "content": content(ids, say), "stop_reason": stop(say) }))
}

pub(super) fn write(ids: &Ids, body: &Value, say: &Say) -> String {
    let mut events = one("message_start", json!({ "message": message(ids, body) }));
    for (index, block) in content(ids, say).into_iter().enumerate() {
        let (empty, delta) = if block["type"] == "text" {
            let empty = json!({ "type": "text", "text": "" });
            (empty, json!({ "type": "text_delta", "text": block["text"] }))
        } else {
            let input = block["input"].to_string();
            let empty = joined(&block, json!({ "input": {} }));
            (empty, json!({ "type": "input_json_delta", "partial_json": input }))
        };
        events += &one("content_block_start", json!({ "index": index, "content_block": empty }));
        events += &one("content_block_delta", json!({ "index": index, "delta": delta }));
        events += &one("content_block_stop", json!({ "index": index }));
    }
    let delta = json!({ "stop_reason": stop(say), "stop_sequence": null });
    events += &one("message_delta", json!({ "delta": delta, "usage": { "output_tokens": 1 } }));
    events + &one("message_stop", json!({}))
}

fn message(ids: &Ids, body: &Value) -> Value {
    json!({
        "id": format!("msg_{}", ids.number),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    })
}

fn content(ids: &Ids, say: &Say) -> Vec<Value> {
    match say {
        Say::Text(text) => vec![json!({ "type": "text", "text": text })],
        Say::Calls(calls) => calls
            .iter()
            .enumerate()
            .map(|(index, call)| {
                // This API has no way to send arguments that are no JSON.
                let input: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
                let id = ids.call("toolu", index);
                json!({ "type": "tool_use", "id": id, "name": call.tool.name, "input": input })
            })
            .collect(),
    }
}

fn stop(say: &Say) -> &'static str {
    match say {
        Say::Text(_) => "end_turn",
        Say::Calls(_) => "tool_use",
    }
}

fn one(kind: &str, data: Value) -> String {
    event(Some(kind), &joined(&json!({ "type": kind }), data))
}
