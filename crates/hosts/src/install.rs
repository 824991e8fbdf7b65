//! Wrapping what a file lists, and noting down what was done.

use serde_json::Value;

use crate::document::{Broken, Document, Format};
use crate::entry::{Dialect, Left, Verdict, apply, expected, judge};
use crate::hooks;
use crate::journal::{Edit, Journal, Record, changed_lines};
use crate::opencode;
use crate::place::Content;
use crate::uninstall::{Outcome, uninstall};

/// What is written into every entry.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The absolute path of callsign.
    pub command: String,
    /// `--state-dir` and `--config`, where the host's own environment would not lead there.
    pub options: Vec<String>,
    /// Remote servers to wrap although nothing shows that they need no login.
    pub also: Vec<String>,
    /// Whether `wrap --pass-env` takes the variable.
    pub may_pass: fn(&str) -> bool,
    /// Whether `wrap --headers-env` takes the header.
    pub may_send: fn(&str) -> bool,
}

/// What became of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// None: it stays as it is.
    pub bytes: Option<Vec<u8>>,
    /// To be kept until it is uninstalled. None: nothing changed.
    pub record: Option<Record>,
    pub wrapped: Vec<String>,
    pub already: Vec<String>,
    pub left: Vec<Left>,
}

/// `current` is the file as it is, `record` what an earlier install kept of it.
pub fn install(
    content: Content,
    settings: &Settings,
    current: Option<&[u8]>,
    record: Option<&Record>,
) -> Result<Installed, Broken> {
    let mut installed = Installed::default();
    let (bytes, edits) = match content {
        Content::Servers { format, dialect } => {
            // A file that is not there or empty lists no servers.
            let Some(current) = current.filter(|bytes| !bytes.trim_ascii().is_empty()) else {
                return Ok(installed);
            };
            let document = Document::read(format, current)?;
            let (document, edits) = wrap_all(&dialect, settings, document, &mut installed);
            (document.text().as_bytes().to_vec(), edits)
        }
        Content::Hook => {
            let current = current.filter(|bytes| !bytes.trim_ascii().is_empty());
            let document = current.map(|bytes| Document::read(Format::Jsonc, bytes)).transpose()?;
            match hooks::add(document.as_ref(), settings)? {
                None => {
                    installed.already.push(hooks::NAME.to_owned());
                    return Ok(installed);
                }
                Some((text, edit)) => {
                    installed.wrapped.push(hooks::NAME.to_owned());
                    (text.into_bytes(), vec![edit])
                }
            }
        }
        Content::Plugin => {
            let bytes = opencode::plugin(settings).into_bytes();
            if let Some(current) = current
                && !opencode::is_ours(current)
            {
                let message = "another plugin has this name; move it away first".to_owned();
                return Err(Broken { line: 1, column: 1, message });
            }
            if current == Some(&bytes) {
                installed.already.push(opencode::NAME.to_owned());
            } else {
                installed.wrapped.push(opencode::NAME.to_owned());
            }
            (bytes, Vec::new())
        }
    };
    if current == Some(&bytes) {
        return Ok(installed);
    }
    installed.record = Some(note(content, current, record, &bytes, edits));
    installed.bytes = Some(bytes);
    Ok(installed)
}

/// An install on top of another keeps what is needed to undo both.
fn note(
    content: Content,
    current: Option<&[u8]>,
    earlier: Option<&Record>,
    bytes: &[u8],
    edits: Vec<Edit>,
) -> Record {
    let undone = uninstall(content, current, earlier).ok().map(|undone| undone.outcome);
    let original = match (earlier, undone) {
        (Some(_), Some(Outcome::Write(original))) => Some(original),
        (Some(_), Some(Outcome::Remove)) => None,
        (Some(_), Some(Outcome::Keep) | None) | (None, _) => current.map(<[u8]>::to_vec),
    };
    let mut journal = Journal::default();
    let again = |edit: &&Edit| !edits.iter().any(|new| new.path == edit.path);
    journal.edits.extend(earlier.into_iter().flat_map(|record| &record.journal.edits).filter(again).cloned());
    journal.edits.extend(edits);
    Record { original, installed: bytes.to_vec(), journal }
}

/// Every entry of every list in the file.
fn wrap_all(
    dialect: &Dialect,
    settings: &Settings,
    mut document: Document,
    installed: &mut Installed,
) -> (Document, Vec<Edit>) {
    let mut edits = Vec::new();
    for container in (dialect.containers)(&document.value()) {
        let names: Vec<String> = document
            .get(&container)
            .map(|list| list.fields().iter().map(|field| field.name.clone()).collect())
            .unwrap_or_default();
        for name in names {
            let path = [container.as_slice(), std::slice::from_ref(&name)].concat();
            match wrap_one(dialect, settings, &document, &path, &name) {
                Ok(Some((changed, edit))) => {
                    document = changed;
                    edits.push(edit);
                    installed.wrapped.push(name);
                }
                Ok(None) => installed.already.push(name),
                Err(why) if is_part_of_host(&document, &path) => drop(why),
                Err(why) => installed.left.push(Left { name, why }),
            }
        }
    }
    (document, edits)
}

/// None: it is wrapped already.
fn wrap_one(
    dialect: &Dialect,
    settings: &Settings,
    document: &Document,
    path: &[String],
    name: &str,
) -> Result<Option<(Document, Edit)>, String> {
    let value = document.get(path).map(crate::document::Node::to_value).unwrap_or_default();
    let changes = match judge(dialect, settings, name, &value) {
        Verdict::Wrap(changes) => changes,
        Verdict::Already => return Ok(None),
        Verdict::Leave(why) => return Err(why),
    };
    let changed = apply(document, path, &changes)?;
    let written = expected(&value, &changes).unwrap_or_default();
    let (before, after) = changed_lines(document.text(), changed.text());
    let texts = texts(document, path, &value, &written);
    Ok(Some((changed, Edit { path: path.to_vec(), value: Some(value), written, before, after, texts })))
}

fn texts(document: &Document, path: &[String], value: &Value, written: &Value) -> Vec<(String, String)> {
    let fields = value.as_object().into_iter().flatten();
    let changed = fields.filter(|(field, value)| written.get(*field) != Some(*value));
    changed
        .filter_map(|(field, _)| {
            let path = [path, std::slice::from_ref(field)].concat();
            Some((field.clone(), document.raw(&path)?))
        })
        .collect()
}

/// Goose lists its own extensions among the servers; there is nothing to say about them.
fn is_part_of_host(document: &Document, path: &[String]) -> bool {
    let kind = document.get(path).and_then(|entry| entry.field("type")).map(|field| field.value.to_value());
    let own = ["builtin", "platform", "frontend", "inline_python"];
    kind.as_ref().and_then(Value::as_str).is_some_and(|kind| own.contains(&kind))
}
