//! `OpenCode`: one plugin file. It wraps the entries of `opencode.json` while the host starts, so that file is not
//! edited.

use serde_json::{Value, json};

use crate::document::{Broken, Document, Format};
use crate::entry::NO_OAUTH;
use crate::install::Settings;

/// What the plugin is called where edits are listed.
pub(crate) const NAME: &str = "plugin";

const SOURCE: &str = include_str!("opencode/callsign.js");
const EMPTY: &str = "const SETTINGS = {} // filled in by callsign install";
const START: &str = "const SETTINGS = ";
const END: &str = " // filled in by callsign install";

/// The plugin, told where callsign is.
pub(crate) fn plugin(settings: &Settings) -> String {
    let settings = json!({ "command": settings.command, "args": settings.options });
    SOURCE.replacen(EMPTY, &format!("{START}{settings}{END}"), 1)
}

/// The plugin as a box of ours has it.
pub fn box_plugin() -> String {
    SOURCE.replacen(EMPTY, &format!("{START}{}{END}", json!({ "box": true })), 1)
}

/// What an installed plugin was told; None: it is not ours.
pub fn plugin_settings(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(START)?.strip_suffix(END))?;
    serde_json::from_str(line).ok()
}

pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    plugin_settings(bytes).is_some()
}

/// Whether it is the plugin as we ship it, whatever it was told.
pub(crate) fn is_unchanged(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let plain = |line: &str| {
        if line.starts_with(START) && line.ends_with(END) { EMPTY.to_owned() } else { line.to_owned() }
    };
    text.split('\n').map(plain).eq(SOURCE.split('\n').map(str::to_owned))
}

/// An entry that the plugin does not touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftByPlugin {
    pub name: String,
    pub why: &'static str,
}

/// What the plugin leaves alone in an `opencode.json`.
pub fn left_by_plugin(configuration: &[u8]) -> Result<Vec<LeftByPlugin>, Broken> {
    let value = Document::read(Format::Jsonc, configuration)?.value();
    let entries = value.get("mcp").and_then(Value::as_object).into_iter().flatten();
    let remote = entries.filter(|(_, entry)| entry.get("type").and_then(Value::as_str) == Some("remote"));
    let left = remote.filter_map(|(name, entry)| match entry.get("oauth") {
        Some(Value::Object(_)) => Some(LeftByPlugin { name: name.clone(), why: NO_OAUTH }),
        _ => None,
    });
    Ok(left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_has_a_place_for_its_settings() {
        assert_eq!(SOURCE.matches(EMPTY).count(), 1);
        assert!(is_unchanged(SOURCE.as_bytes()));
    }

    #[test]
    fn entries_with_a_login_are_named() {
        let text = br#"{ // c
            "mcp": {
                "a": { "type": "remote", "url": "https://a.example", "oauth": {} },
                "b": { "type": "remote", "url": "https://b.example", "oauth": false },
                "c": { "type": "local", "command": ["x"] },
            } }"#;
        let left = left_by_plugin(text).unwrap();
        assert_eq!(left.iter().map(|left| left.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(left_by_plugin(b"{").unwrap_err().line, 1);
    }
}
