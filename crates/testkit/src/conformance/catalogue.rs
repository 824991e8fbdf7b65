//! What the server lists: tools, prompts, resources. The order is fixed, because the suite compares
//! lists, and the first tool takes no arguments, because the suite calls that one to try headers.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{JsonObject, Prompt, Resource, ResourceTemplate, Tool};
use serde_json::{Value, json};

use super::literal;

/// Named here because the session layer has to know its calls too.
pub(super) const RECONNECTION_TOOL: &str = "test_reconnection";

/// Tools without arguments: name and description.
const PLAIN_TOOLS: &[(&str, &str)] = &[
    ("test_simple_text", "Answers with one text block"),
    ("test_image_content", "Answers with one image block"),
    ("test_audio_content", "Answers with one audio block"),
    ("test_embedded_resource", "Answers with one embedded resource"),
    ("test_multiple_content_types", "Answers with text, image and resource blocks"),
    ("test_error_handling", "Always fails as a tool"),
    ("test_tool_with_logging", "Sends three log messages while it runs"),
    ("test_logging_tool", "Sends one log message if the request asks for logs"),
    ("test_tool_with_progress", "Reports progress three times while it runs"),
    ("test_elicitation_sep1034_defaults", "Asks the user with a default for each primitive type"),
    ("test_elicitation_sep1330_enums", "Asks the user with each kind of enumeration"),
    (RECONNECTION_TOOL, "Closes its stream and answers on the next one"),
    ("test_missing_capability", "Needs a client that can sample"),
    ("test_streaming_elicitation", "Asks for input in the modern way only"),
    ("test_trigger_tool_change", "Announces a change of the tool list"),
    ("test_trigger_prompt_change", "Announces a change of the prompt list"),
    ("test_input_required_result_elicitation", "Asks for a name, then greets"),
    ("test_input_required_result_sampling", "Asks the model for a capital, then repeats it"),
    ("test_input_required_result_list_roots", "Asks for the roots, then names them"),
    ("test_input_required_result_request_state", "Asks for a confirmation and checks its state"),
    ("test_input_required_result_multiple_inputs", "Asks for three kinds of input at once"),
    ("test_input_required_result_multi_round", "Asks twice, with a new state each time"),
    ("test_input_required_result_tampered_state", "Refuses a state that was changed"),
    ("test_input_required_result_capabilities", "Asks only for what the client can give"),
    ("failing_job", "A task that ends as a tool error"),
    ("protocol_error_job", "A task that ends as a protocol error"),
    ("multi_input", "A task that asks two questions at once"),
    ("test_tool_with_task", "Asks for a name and goes on as a task"),
];

pub(super) fn tools() -> Result<Vec<Tool>, ErrorData> {
    let mut tools = Vec::new();
    for &(name, description) in PLAIN_TOOLS {
        tools.push(tool(name, description, json!({"type": "object", "properties": {}}))?);
    }
    for (name, description, schema) in argument_tools() {
        tools.push(tool(name, description, schema)?);
    }
    Ok(tools)
}

fn argument_tools() -> [(&'static str, &'static str, Value); 7] {
    [
        (
            "test_sampling",
            "Asks the client's model",
            object(&json!({"prompt": {"type": "string"}}), &["prompt"]),
        ),
        (
            "test_elicitation",
            "Asks the user for a name and an address",
            object(&json!({"message": {"type": "string"}}), &["message"]),
        ),
        (
            "test_x_mcp_header",
            "Repeats an argument that is mirrored in a header",
            object(&json!({"region": {"type": "string", "x-mcp-header": "Region"}}), &["region"]),
        ),
        ("greet", "Greets at once", object(&json!({"name": {"type": "string"}}), &["name"])),
        (
            "slow_compute",
            "Sleeps for some seconds, as a task where the client knows tasks",
            object(&json!({"seconds": {"type": "number"}, "label": {"type": "string"}}), &["seconds"]),
        ),
        (
            "confirm_delete",
            "A task that asks before it pretends to delete",
            object(&json!({"filename": {"type": "string"}}), &["filename"]),
        ),
        ("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", json_schema_2020_12()),
    ]
}

/// Every keyword here is one that a server or a gateway in between might drop.
fn json_schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn tool(name: &'static str, description: &'static str, schema: Value) -> Result<Tool, ErrorData> {
    let schema: JsonObject = literal(schema)?;
    Ok(Tool::new(name, description, Arc::new(schema)))
}

pub(super) fn prompts() -> Result<Vec<Prompt>, ErrorData> {
    literal(json!([
        {"name": "test_simple_prompt", "description": "One message without arguments"},
        {
            "name": "test_prompt_with_arguments",
            "description": "One message that repeats its arguments",
            "arguments": [
                {"name": "arg1", "description": "First argument", "required": true},
                {"name": "arg2", "description": "Second argument", "required": true}
            ]
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "A resource and a request to process it",
            "arguments": [
                {"name": "resourceUri", "description": "Resource to embed", "required": true}
            ]
        },
        {"name": "test_prompt_with_image", "description": "An image and a request to look at it"},
        {"name": "test_input_required_result_prompt", "description": "Asks for its context first"}
    ]))
}

pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::new("test://static-text", "static-text")
            .with_description("Text that never changes")
            .with_mime_type("text/plain"),
        Resource::new("test://static-binary", "static-binary")
            .with_description("An image of one pixel")
            .with_mime_type("image/png"),
        Resource::new("test://watched-resource", "watched-resource")
            .with_description("Text that a client may subscribe to")
            .with_mime_type("text/plain"),
    ]
}

pub(super) fn resource_templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("test://template/{id}/data", "template-data")
            .with_description("Data made from the id in its address")
            .with_mime_type("application/json"),
    ]
}
