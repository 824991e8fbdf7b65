//! Values as text, on one line.

use serde_json::Value;

use super::Format;

pub(crate) fn render(format: Format, value: &Value) -> String {
    match value {
        Value::String(text) => string(format, text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| render(format, item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(name, value)| pair(format, name, &render(format, value)));
            let pairs = pairs.collect::<Vec<_>>().join(", ");
            match format {
                Format::Toml => format!("{{ {pairs} }}"),
                Format::Jsonc | Format::Yaml => format!("{{{pairs}}}"),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A field: its key and the text of its value.
pub(super) fn pair(format: Format, name: &str, raw: &str) -> String {
    match format {
        Format::Toml => format!("{} = {raw}", key(format, name)),
        Format::Jsonc | Format::Yaml => format!("{}: {raw}", key(format, name)),
    }
}

pub(super) fn key(format: Format, name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    // A YAML key of digits or `no` is not a string.
    let word = bare && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic()) && name.len() > 3;
    match format {
        Format::Toml if bare => name.to_owned(),
        Format::Yaml if word && !matches!(name, "true" | "false" | "null") => name.to_owned(),
        Format::Jsonc | Format::Toml | Format::Yaml => string(format, name),
    }
}

fn string(format: Format, text: &str) -> String {
    match format {
        // What JSON escapes, YAML reads the same.
        Format::Jsonc | Format::Yaml => Value::String(text.to_owned()).to_string(),
        Format::Toml => toml_edit::Value::from(text).to_string(),
    }
}
