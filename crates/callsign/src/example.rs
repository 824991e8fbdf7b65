//! A small MCP server on stdio, so that a newcomer has something to call. Both eras.

use std::io::{self, BufRead as _, Write as _};

use serde_json::{Value, json};

/// Variables worth showing: who calls.
const SHOWN: &str = "CALLSIGN_";

pub fn serve() -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let Some(id) = message.get("id") else { continue };
        let mut answer = match answer(message["method"].as_str().unwrap_or_default(), &message["params"]) {
            Ok(result) => json!({ "jsonrpc": "2.0", "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "error": error }),
        };
        answer["id"] = id.clone();
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn answer(method: &str, params: &Value) -> Result<Value, Value> {
    let info = json!({ "name": "callsign-example", "version": env!("CARGO_PKG_VERSION") });
    let capabilities = json!({ "tools": {} });
    match method {
        "initialize" => Ok(json!({
            "protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info,
        })),
        "server/discover" => Ok(complete(json!({
            "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "ttlMs": 60_000, "cacheScope": "public", "_meta": { "io.modelcontextprotocol/serverInfo": info },
        }))),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(complete(json!({ "tools": tools(), "ttlMs": 60_000, "cacheScope": "public" }))),
        "tools/call" => match params["name"].as_str() {
            Some("whoami") => Ok(text(&whoami(params))),
            Some("echo") => Ok(text(params["arguments"]["text"].as_str().unwrap_or_default())),
            _ => Err(json!({ "code": -32602, "message": "there is no such tool; see tools/list" })),
        },
        _ => Err(json!({ "code": -32601, "message": "method not found" })),
    }
}

fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result
}

fn text(text: &str) -> Value {
    complete(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn whoami(params: &Value) -> String {
    let shown: serde_json::Map<String, Value> = std::env::vars()
        .filter(|(name, _)| name.starts_with(SHOWN))
        .map(|(name, value)| (name, json!(value)))
        .collect();
    let seen = json!({ "pid": std::process::id(), "environment": shown, "_meta": params["_meta"] });
    serde_json::to_string_pretty(&seen).unwrap_or_default()
}

fn tools() -> Value {
    json!([
        {
            "name": "whoami",
            "description": "Shows what this process knows of its caller.",
            "inputSchema": { "type": "object", "properties": {} },
        },
        {
            "name": "echo",
            "description": "Gives back the text.",
            "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
        },
    ])
}
