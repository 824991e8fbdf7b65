//! Answers that depend on nothing but the request: content tools, resources, prompts, completion.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CompletionInfo, ContentBlock, GetPromptResult, JsonObject, PromptMessage, Reference,
    ResourceContents, Role,
};
use serde_json::json;

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A header and no samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// None for a tool whose answer is not fixed.
pub(super) fn tool(name: &str) -> Option<CallToolResult> {
    let blocks = match name {
        "test_simple_text" => {
            vec![ContentBlock::text("This is a simple text response for testing.")]
        }
        "test_image_content" => vec![ContentBlock::image(PNG, "image/png")],
        "test_audio_content" => vec![ContentBlock::audio(WAV, "audio/wav")],
        "test_embedded_resource" => vec![ContentBlock::resource(ResourceContents::text(
            "This is an embedded resource content.",
            "test://embedded-resource",
        ))],
        "test_multiple_content_types" => vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            ContentBlock::resource(
                ResourceContents::text(
                    json!({"test": "data", "value": 123}).to_string(),
                    "test://mixed-content-resource",
                )
                .with_mime_type("application/json"),
            ),
        ],
        "test_error_handling" => {
            return Some(CallToolResult::error(vec![ContentBlock::text(
                "This tool intentionally returns an error for testing",
            )]));
        }
        _ => return None,
    };
    Some(CallToolResult::success(blocks))
}

/// Tools that only repeat an argument. None for any other tool.
pub(super) fn echo(name: &str, arguments: &JsonObject) -> Option<Result<CallToolResult, ErrorData>> {
    let answer = match name {
        "greet" => text_argument(arguments, "name").map(|name| format!("Hello, {name}!")),
        "test_x_mcp_header" => text_argument(arguments, "region").map(|region| format!("region: {region}")),
        "json_schema_2020_12_tool" => Ok(format!("arguments: {}", json!(arguments))),
        _ => return None,
    };
    Some(answer.map(text))
}

pub(super) fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

pub(super) fn text_argument<'a>(arguments: &'a JsonObject, name: &str) -> Result<&'a str, ErrorData> {
    arguments
        .get(name)
        .and_then(|value| value.as_str())
        .ok_or_else(|| ErrorData::invalid_params(format!("argument `{name}` must be a string"), None))
}

/// Never an empty list: a resource that is not there is an error which names it.
pub(super) fn resource(uri: &str) -> Result<ResourceContents, ErrorData> {
    match uri {
        "test://static-text" => {
            Ok(ResourceContents::text("This is the content of the static text resource.", uri))
        }
        "test://static-binary" => Ok(ResourceContents::blob(PNG, uri).with_mime_type("image/png")),
        "test://watched-resource" => Ok(ResourceContents::text("Nothing has changed yet.", uri)),
        _ => templated(uri),
    }
}

fn templated(uri: &str) -> Result<ResourceContents, ErrorData> {
    let id = uri
        .strip_prefix("test://template/")
        .and_then(|rest| rest.strip_suffix("/data"))
        .filter(|id| !id.is_empty() && !id.contains('/'))
        .ok_or_else(|| ErrorData::resource_not_found("resource not found", Some(json!({"uri": uri}))))?;
    let body = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
    Ok(ResourceContents::text(body.to_string(), uri).with_mime_type("application/json"))
}

/// The prompts whose messages are known at once.
pub(super) fn prompt(name: &str, arguments: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let messages = match name {
        "test_simple_prompt" => {
            vec![user(ContentBlock::text("This is a simple prompt for testing."))]
        }
        "test_prompt_with_arguments" => {
            let first = text_argument(arguments, "arg1")?;
            let second = text_argument(arguments, "arg2")?;
            vec![user(ContentBlock::text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'")))]
        }
        "test_prompt_with_embedded_resource" => vec![
            user(ContentBlock::resource(ResourceContents::text(
                "Embedded resource content for testing.",
                text_argument(arguments, "resourceUri")?,
            ))),
            user(ContentBlock::text("Please process the embedded resource above.")),
        ],
        "test_prompt_with_image" => vec![
            user(ContentBlock::image(PNG, "image/png")),
            user(ContentBlock::text("Please analyze the image above.")),
        ],
        _ => return Err(ErrorData::invalid_params(format!("unknown prompt `{name}`"), None)),
    };
    Ok(GetPromptResult::new(messages))
}

pub(super) fn user(content: ContentBlock) -> PromptMessage {
    PromptMessage::new(Role::User, content)
}

/// Suggestions that begin with what was typed.
pub(super) fn completion(reference: &Reference, typed: &str) -> Result<CompletionInfo, ErrorData> {
    let known: &[&str] = if let Reference::Prompt(prompt) = reference
        && prompt.name == "test_prompt_with_arguments"
    {
        &["paris", "park", "party", "test-value"]
    } else if let Reference::Resource(template) = reference
        && template.uri == "test://template/{id}/data"
    {
        &["123", "124"]
    } else {
        return Err(ErrorData::invalid_params("nothing to complete here", None));
    };
    let values =
        known.iter().filter(|value| value.starts_with(typed)).map(|&value| value.to_owned()).collect();
    CompletionInfo::with_all_values(values).map_err(|error| ErrorData::internal_error(error, None))
}
