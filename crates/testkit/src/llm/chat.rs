//! `OpenAI` chat completions, streamed: what `OpenCode` speaks to a custom provider.

use serde_json::{Value, json};

use super::conversation::{Conversation, Ids, Say, Style, Tool, event, joined, last_script, list, text};

pub(super) fn read(body: &Value) -> Conversation {
    let messages = list(body, "messages");
    let tools = list(body, "tools")
        .iter()
        .filter_map(|tool| {
            Some(Tool { namespace: None, name: tool["function"]["name"].as_str()?.to_owned() })
        })
        .collect();
    let user = |message: &Value| (message["role"] == "user").then(|| text(&message["content"]));
    let found = last_script(messages, user);
    let since = found.as_ref().map_or(messages.len(), |(index, _)| index + 1);
    let calls = messages[since..]
        .iter()
        .flat_map(|message| list(message, "tool_calls"))
        .filter_map(|call| call["id"].as_str().map(str::to_owned))
        .collect();
    let mut results = messages.iter().filter(|message| message["role"] == "tool");
    Conversation {
        script: found.map(|(_, script)| script),
        calls,
        last_result: results.next_back().map(|message| text(&message["content"])).unwrap_or_default(),
        tools,
        style: Style::OpenCode,
    }
}

pub(super) fn write(ids: &Ids, body: &Value, say: &Say) -> String {
    let base = json!({
        "id": format!("chatcmpl-{}", ids.number),
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
    });
    let mut events = String::new();
    let mut choice = |delta: Value, finish: Option<&str>| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        events += &event(None, &joined(&base, json!({ "choices": choices })));
    };
    match say {
        Say::Text(text) => {
            choice(json!({ "role": "assistant", "content": text }), None);
            choice(json!({}), Some("stop"));
        }
        Say::Calls(calls) => {
            for (index, call) in calls.iter().enumerate() {
                let id = ids.call("call", index);
                let function = json!({ "name": call.tool.name, "arguments": "" });
                let first = json!({ "index": index, "id": id, "type": "function", "function": function });
                choice(json!({ "role": "assistant", "tool_calls": [first] }), None);
                let rest = json!({ "index": index, "function": { "arguments": call.arguments } });
                choice(json!({ "tool_calls": [rest] }), None);
            }
            choice(json!({}), Some("tool_calls"));
        }
    }
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    events += &event(None, &joined(&base, json!({ "choices": [], "usage": usage })));
    events + "data: [DONE]\n\n"
}
