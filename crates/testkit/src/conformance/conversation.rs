//! Tools that talk to the client while they run: log messages, progress, sampling, elicitation.
//!
//! Asking the client in the middle of a call exists in the legacy era only; `rounds.rs` has the
//! modern form.

#![expect(deprecated, reason = "the suite tests sampling and logging, which the library retires")]

use std::time::Duration;

use rmcp::model::{
    CallToolResult, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, JsonObject,
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServiceError};
use serde_json::{Value, json};

use super::content::{text, text_argument};
use super::{Fixtures, literal};

type Context = RequestContext<RoleServer>;

/// The suite checks that messages arrive one by one while a tool runs.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends three messages at level info, less those below what the client asked for.
pub(super) async fn logging(
    context: &Context,
    least: Option<LoggingLevel>,
) -> Result<CallToolResult, ErrorData> {
    log(context, least, "Tool execution started").await?;
    tokio::time::sleep(PAUSE).await;
    log(context, least, "Tool processing data").await?;
    tokio::time::sleep(PAUSE).await;
    log(context, least, "Tool execution completed").await?;
    Ok(text("Tool with logging executed"))
}

pub(super) async fn log(
    context: &Context,
    least: Option<LoggingLevel>,
    message: &str,
) -> Result<(), ErrorData> {
    if least.is_none_or(|least| least as u8 > LoggingLevel::Info as u8) {
        return Ok(());
    }
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
    context.peer.notify_logging_message(message).await.map_err(failed)
}

pub(super) async fn progress(context: &Context) -> Result<CallToolResult, ErrorData> {
    let token = context.meta.get_progress_token();
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = &token {
            let progress = ProgressNotificationParam::new(token.clone(), done).with_total(100.0);
            context.peer.notify_progress(progress).await.map_err(failed)?;
        }
        if done < 100.0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(text("Tool with progress executed"))
}

/// Whether a tool sends requests of its own to the client.
pub(super) fn asks(tool: &str) -> bool {
    tool == "test_sampling" || tool.starts_with("test_elicitation")
}

pub(super) async fn sampling(context: &Context, arguments: &JsonObject) -> Result<CallToolResult, ErrorData> {
    let prompt = text_argument(arguments, "prompt")?;
    let request: CreateMessageRequestParams = literal(json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": 100
    }))?;
    let answer = context.peer.create_message(request).await.map_err(failed)?;
    Ok(text(format!("LLM response: {}", said(&answer))))
}

/// The text of an answer, whether the client sent one block or a list of them.
fn said(answer: &CreateMessageResult) -> String {
    let content = json!(answer)["content"].take();
    let first = if content.is_array() { &content[0] } else { &content };
    first["text"].as_str().unwrap_or("no text").to_owned()
}

pub(super) async fn elicitation(
    context: &Context,
    arguments: &JsonObject,
) -> Result<CallToolResult, ErrorData> {
    let message = text_argument(arguments, "message")?;
    let schema = json!({
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"}
        },
        "required": ["username", "email"]
    });
    let answer = ask(context, message, &schema).await?;
    Ok(text(format!("User response: {answer}")))
}

pub(super) async fn elicitation_defaults(context: &Context) -> Result<CallToolResult, ErrorData> {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {
                "type": "string",
                "enum": ["active", "inactive", "pending"],
                "default": "active"
            },
            "verified": {"type": "boolean", "default": true}
        },
        "required": []
    });
    let answer = ask(context, "Please review the defaults", &schema).await?;
    Ok(text(format!("Elicitation completed: {answer}")))
}

pub(super) async fn elicitation_enums(context: &Context) -> Result<CallToolResult, ErrorData> {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |word: &str| {
        json!([
            {"const": "value1", "title": format!("First {word}")},
            {"const": "value2", "title": format!("Second {word}")},
            {"const": "value3", "title": format!("Third {word}")}
        ])
    };
    let schema = json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled("Option")},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"]
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}}
        },
        "required": []
    });
    let answer = ask(context, "Please choose", &schema).await?;
    Ok(text(format!("Elicitation completed: {answer}")))
}

async fn ask(context: &Context, message: &str, schema: &Value) -> Result<String, ErrorData> {
    let request: ElicitRequestParams =
        literal(json!({"mode": "form", "message": message, "requestedSchema": schema}))?;
    let answer = context.peer.create_elicitation(request).await.map_err(failed)?;
    let answer = json!(answer);
    let action = answer["action"].as_str().unwrap_or("none");
    Ok(format!("action={action}, content={}", answer["content"]))
}

/// Closes the stream of its own call before it answers, so that the client has to come back.
pub(super) async fn reconnection(fixtures: &Fixtures, context: &Context) -> CallToolResult {
    let session = context
        .extensions
        .get::<http::request::Parts>()
        .and_then(|parts| parts.headers.get("mcp-session-id"))
        .and_then(|value| value.to_str().ok());
    if let Some(session) = session {
        fixtures.streams.close(session, &context.id).await;
        tokio::time::sleep(2 * PAUSE).await;
    }
    text("Reconnection test completed")
}

/// What the client answered with an error is that error; anything else is the server's trouble.
fn failed(error: ServiceError) -> ErrorData {
    if let ServiceError::McpError(error) = error {
        return error;
    }
    ErrorData::internal_error(format!("the client did not answer: {error}"), None)
}
