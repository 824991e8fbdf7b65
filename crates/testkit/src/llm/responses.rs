//! `OpenAI` Responses, streamed: what Codex speaks. Tools of MCP servers come in namespaces.

use serde_json::{Value, json};

use super::conversation::{Conversation, Ids, Say, Style, Tool, event, joined, last_script, list, text};

pub(super) fn read(body: &Value) -> Conversation {
    let input = list(body, "input");
    let user = |item: &Value| (item["role"] == "user").then(|| text(&item["content"]));
    let found = last_script(input, user);
    let since = found.as_ref().map_or(input.len(), |(index, _)| index + 1);
    let calls = input[since..]
        .iter()
        .filter(|item| item["type"] == "function_call")
        .filter_map(|item| item["call_id"].as_str().map(str::to_owned))
        .collect();
    let mut results = input.iter().filter(|item| item["type"] == "function_call_output");
    Conversation {
        script: found.map(|(_, script)| script),
        calls,
        last_result: results.next_back().map(output).unwrap_or_default(),
        tools: list(body, "tools").iter().flat_map(tools).collect(),
        style: Style::Codex,
    }
}

fn output(item: &Value) -> String {
    let text = text(&item["output"]);
    if text.is_empty() { item["output"].to_string() } else { text }
}

fn tools(entry: &Value) -> Vec<Tool> {
    let named = |tool: &Value, namespace: Option<String>| {
        Some(Tool { namespace, name: tool["name"].as_str()?.to_owned() })
    };
    if entry["type"] != "namespace" {
        return named(entry, None).into_iter().collect();
    }
    let namespace = entry["name"].as_str().map(str::to_owned);
    list(entry, "tools").iter().filter_map(|tool| named(tool, namespace.clone())).collect()
}

pub(super) fn write(ids: &Ids, say: &Say) -> String {
    let items: Vec<Value> = match say {
        Say::Text(text) => {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            let id = format!("msg_{}", ids.number);
            vec![
                json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content }),
            ]
        }
        Say::Calls(calls) => calls
            .iter()
            .enumerate()
            .map(|(index, call)| {
                let item = json!({
                    "type": "function_call",
                    "id": ids.call("fc", index),
                    "call_id": ids.call("call", index),
                    "name": call.tool.name,
                    "arguments": call.arguments,
                    "status": "completed",
                });
                match &call.tool.namespace {
                    Some(namespace) => joined(&item, json!({ "namespace": namespace })),
                    None => item,
                }
            })
            .collect(),
    };
    let id = format!("resp_{}", ids.number);
    let mut events = one("response.created", json!({ "response": { "id": id } }));
    for (index, item) in items.iter().enumerate() {
        for kind in ["response.output_item.added", "response.output_item.done"] {
            events += &one(kind, json!({ "output_index": index, "item": item }));
        }
    }
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": null,
        "output_tokens": 1, "output_tokens_details": null, "total_tokens": 2,
    });
    let response = json!({ "id": id, "status": "completed", "output": items, "usage": usage });
    events + &one("response.completed", json!({ "response": response }))
}

fn one(kind: &str, data: Value) -> String {
    event(Some(kind), &joined(&json!({ "type": kind }), data))
}
