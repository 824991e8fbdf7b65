//! What a file says about us, for `doctor`.

use crate::document::{Broken, Document, Format, Node};
use crate::entry::{Left, Verdict, judge, words};
use crate::hooks;
use crate::install::Settings;
use crate::opencode;
use crate::place::Content;

/// What is found in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Entries that run `callsign wrap`, or the hook, or the plugin.
    pub ours: Vec<String>,
    /// Entries that `install` would wrap.
    pub to_wrap: Vec<String>,
    /// Entries that `install` leaves alone.
    pub left: Vec<Left>,
    /// The programs that our entries run: one that was moved or removed breaks them.
    pub programs: Vec<String>,
}

pub fn inspect(content: Content, settings: &Settings, bytes: &[u8]) -> Result<Found, Broken> {
    let mut found = Found::default();
    if bytes.trim_ascii().is_empty() {
        return Ok(found);
    }
    match content {
        Content::Servers { format, dialect } => {
            let document = Document::read(format, bytes)?;
            for container in (dialect.containers)(&document.value()) {
                for field in document.get(&container).map(Node::fields).unwrap_or_default() {
                    let value = field.value.to_value();
                    let name = field.name.clone();
                    match judge(&dialect, settings, &name, &value) {
                        Verdict::Wrap(_) => found.to_wrap.push(name),
                        Verdict::Leave(why) => found.left.push(Left { name, why }),
                        Verdict::Already => {
                            found.ours.push(name);
                            let command = value.get(dialect.command).and_then(|command| command.as_str());
                            found.programs.extend(command.map(str::to_owned));
                        }
                    }
                }
            }
        }
        Content::Hook => {
            if hooks::is_there(&Document::read(Format::Jsonc, bytes)?) {
                found.ours.push(hooks::NAME.to_owned());
            }
        }
        Content::Plugin => {
            if let Some(told) = opencode::plugin_settings(bytes) {
                found.ours.push(opencode::NAME.to_owned());
                found.programs.extend(words(Some(&serde_json::json!([told["command"]]))).unwrap_or_default());
            }
        }
    }
    found.programs.sort();
    found.programs.dedup();
    Ok(found)
}
