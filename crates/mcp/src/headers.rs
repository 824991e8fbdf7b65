//! Headers that mirror a body: `Mcp-Method`, `Mcp-Name`, `MCP-Protocol-Version`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Message;

const SENTINEL: &str = "=?base64?";

/// The value as it may stand in a header: as it is, or as `=?base64?…?=`.
pub fn encode_value(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t');
    let edges = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    if plain && !edges && !text.starts_with(SENTINEL) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{SENTINEL}{}?=", STANDARD.encode(text)))
    }
}

/// Undoes [`encode_value`]. None where the encoding is broken.
pub fn decode_value(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix(SENTINEL).and_then(|rest| rest.strip_suffix("?=")) {
        // Without both marks it is text that happens to look like half of them.
        None => Some(Cow::Borrowed(value)),
        Some(encoded) => {
            let bytes = STANDARD.decode(encoded).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

/// What `Mcp-Name` mirrors for this message, if its method has such a header.
pub fn mirrored_name(message: &Message) -> Option<Cow<'_, str>> {
    match message.method() {
        "tools/call" | "prompts/get" | "resources/read" => message.name(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => message.name(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_header_can_hold_are_encoded_and_come_back() {
        for text in ["plain", "with space", " edge", "ümlaut", "a\nb", "=?base64?x?=", ""] {
            let encoded = encode_value(text);
            assert!(encoded.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{encoded}");
            assert_eq!(decode_value(&encoded).as_deref(), Some(text));
        }
        assert_eq!(encode_value("plain"), "plain");
        assert_eq!(decode_value("=?base64?!!?="), None);
    }
}
