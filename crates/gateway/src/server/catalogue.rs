//! What a server offers, over time: the tools it listed, and whether they are still the same.
//!
//! A tool's fingerprint is the SHA-256 of its entry as the server wrote it. The first complete listing is
//! trusted; later changes are recorded with both fingerprints. With `pin`, a changed tool and a look-alike
//! (the same name but for characters nobody sees) are withheld until somebody approves.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::HeaderMap;
use mcp::Message;
use mcp::splice::{Edit, splice};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::respond::CallError;
use crate::server::answer::{self, ShelfLife};

/// Tools one server may list.
pub const MAX_TOOLS: usize = 1000;
/// Tools one server may have listed at all.
const MAX_KNOWN: usize = 10 * MAX_TOOLS;
/// Answers kept to stand in for a lobby that has stopped.
const MAX_ANSWERS: usize = 64;

#[derive(Debug)]
pub struct Catalogue {
    server: String,
    pin: bool,
    /// Arguments that are filled in for a caller who leaves them out.
    ambient: Vec<String>,
    /// Where fingerprints are kept. None: only as long as we run.
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    record: Record,
    read_at: Option<SystemTime>,
    /// With the time until which each holds.
    answers: HashMap<Bytes, (Message, Option<Instant>)>,
    /// Arguments that a tool wants mirrored in `Mcp-Param-*`: argument and header name.
    mirrored: HashMap<String, Vec<(String, String)>>,
    /// Arguments of each tool that are filled in.
    taken: HashMap<String, Vec<String>>,
}

/// The file: fingerprints by tool name.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Whether a whole listing has been seen; until then every tool is new.
    settled: bool,
    approved: BTreeMap<String, String>,
    /// The newest fingerprint of each tool that differs from the approved one.
    changed: BTreeMap<String, String>,
}

/// What became of one tool of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    Same,
    New,
    Changed,
    LookAlike,
}

#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    #[error("nothing is recorded for the server `{0}`; it has not listed its tools yet")]
    Nothing(String),
    #[error("could not read or write {0}")]
    File(PathBuf, #[source] std::io::Error),
}

impl Catalogue {
    pub fn new(server: impl Into<String>, pin: bool, ambient: Vec<String>, file: Option<PathBuf>) -> Self {
        Self { server: server.into(), pin, ambient, file, state: Mutex::default() }
    }

    /// Whether a tool takes an argument that is filled in, as far as its listing has been seen.
    pub fn takes(&self, tool: &str, argument: &str) -> bool {
        self.lock().taken.get(tool).is_some_and(|taken| taken.iter().any(|one| one == argument))
    }

    /// Looks at the result of `tools/list`. Some: the result without what is withheld.
    pub fn inspect(&self, result: &[u8]) -> Result<Option<Bytes>, CallError> {
        #[derive(Deserialize)]
        struct Listing<'a> {
            #[serde(borrow)]
            tools: Vec<&'a RawValue>,
            #[serde(borrow, rename = "nextCursor")]
            next: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: String,
        }
        let Ok(listing) = serde_json::from_slice::<Listing<'_>>(result) else { return Ok(None) };
        if listing.tools.len() > MAX_TOOLS {
            let server = self.server.clone();
            return Err(CallError::ListTooLong { server, what: "tools", limit: MAX_TOOLS });
        }
        let mut state = self.lock();
        self.refresh(&mut state);
        let before = state.record.clone();
        let mut withheld = Vec::new();
        let mut optional = Vec::new();
        for raw in &listing.tools {
            let Ok(tool) = serde_json::from_str::<Tool>(raw.get()) else { continue };
            state.note_mirrored(&tool.name, raw);
            if !self.ambient.is_empty() {
                let (taken, edit) = ambient_in(raw, &self.ambient);
                optional.extend(edit.map(|(span, with)| (shifted(result, raw, &span), with)));
                state.taken.insert(tool.name.clone(), taken);
            }
            let judged = self.judge(&mut state.record, &tool.name, fingerprint(raw));
            if self.pin && matches!(judged, Judged::Changed | Judged::LookAlike) {
                withheld.push(mcp::envelope::span_in(result, raw));
            }
        }
        if state.record.approved.len() > MAX_KNOWN {
            let server = self.server.clone();
            return Err(CallError::ListTooLong { server, what: "tools over time", limit: MAX_KNOWN });
        }
        if listing.next.is_none() {
            state.record.settled = true;
        }
        if state.record != before {
            self.keep(&mut state);
        }
        drop(state);
        if optional.is_empty() {
            return Ok((!withheld.is_empty()).then(|| without(result, &withheld)));
        }
        // From the back, so that what is withheld still lies where it was found once it is its turn.
        optional.retain(|(span, _)| !withheld.iter().any(|gone: &mcp::Span| gone.contains(&span.start)));
        let mut edits: Vec<Edit<'_>> =
            optional.iter().map(|(span, with)| Edit { span: span.clone(), with: with.as_bytes() }).collect();
        let shorter = |span: &mcp::Span| -> usize {
            let before = optional.iter().filter(|(edit, _)| edit.end <= span.start);
            before.map(|(edit, with)| edit.len() - with.len()).sum()
        };
        let moved: Vec<mcp::Span> =
            withheld.iter().map(|span| span.start - shorter(span)..span.end - shorter(span)).collect();
        let changed = splice(result, &mut edits);
        Ok(Some(if moved.is_empty() { Bytes::from(changed) } else { without(&changed, &moved) }))
    }

    fn judge(&self, record: &mut Record, name: &str, fingerprint: String) -> Judged {
        let server = &self.server;
        match record.approved.get(name) {
            Some(approved) if *approved == fingerprint => {
                record.changed.remove(name);
                Judged::Same
            }
            Some(approved) => {
                if record.changed.get(name) != Some(&fingerprint) {
                    tracing::warn!(%server, tool = name, was = %approved, is = %fingerprint, "a tool has changed");
                }
                record.changed.insert(name.to_owned(), fingerprint);
                Judged::Changed
            }
            None if record.looks_like_another(name) => {
                if record.changed.get(name) != Some(&fingerprint) {
                    tracing::warn!(%server, tool = ?name, is = %fingerprint, "a tool looks like another one");
                }
                record.changed.insert(name.to_owned(), fingerprint);
                Judged::LookAlike
            }
            None => {
                if record.settled {
                    tracing::info!(%server, tool = name, is = %fingerprint, "a new tool has appeared");
                }
                record.approved.insert(name.to_owned(), fingerprint);
                Judged::New
            }
        }
    }

    /// Refuses a call of a tool that is withheld.
    pub fn check_call(&self, tool: &str) -> Result<(), CallError> {
        if !self.pin {
            return Ok(());
        }
        let mut state = self.lock();
        self.refresh(&mut state);
        let lookalike = !state.record.approved.contains_key(tool) && state.record.looks_like_another(tool);
        if lookalike || state.record.changed.contains_key(tool) {
            return Err(CallError::Withheld { server: self.server.clone(), tool: tool.to_owned() });
        }
        Ok(())
    }

    /// The headers that mirror arguments of this call, for tools whose schema asks for them.
    pub fn parameters(&self, message: &Message) -> Vec<(String, String)> {
        let mut parameters = self.mirrored(message);
        let present = parameters.drain(..).filter_map(|(header, value)| Some((header, value?)));
        present.collect()
    }

    /// Checks them as they came.
    pub fn check_parameters(&self, headers: &HeaderMap, message: &Message) -> Result<(), CallError> {
        for (header, meant) in self.mirrored(message) {
            let said =
                headers.get(&header).map(|value| value.to_str().ok().and_then(mcp::headers::decode_value));
            if said.as_ref().map(|said| said.as_deref()) != meant.as_ref().map(|meant| Some(meant.as_str())) {
                return Err(CallError::BadHeaders(format!(
                    "the {header} header differs from the argument it mirrors"
                )));
            }
        }
        Ok(())
    }

    /// Header names with the value of their argument, None where the call leaves it out.
    fn mirrored(&self, message: &Message) -> Vec<(String, Option<String>)> {
        if message.method() != "tools/call" {
            return Vec::new();
        }
        let tool = message.name().unwrap_or_default();
        let Some(mirrored) = self.lock().mirrored.get(&*tool).cloned() else { return Vec::new() };
        let arguments = message.head().arguments.clone().map(|span| &message.bytes()[span]);
        let arguments: serde_json::Value =
            arguments.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
        let value = |argument: &str| {
            let value = &arguments[argument];
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (!value.is_null()).then_some(text)
        };
        let name = |header: &str| format!("mcp-param-{}", header.to_ascii_lowercase());
        mirrored.iter().map(|(argument, header)| (name(header), value(argument))).collect()
    }

    /// Keeps an answer to stand in when nobody is there to ask.
    pub fn remember(&self, question: Bytes, answer: Message) {
        let mut state = self.lock();
        if state.answers.len() >= MAX_ANSWERS {
            state.answers.clear();
        }
        let holds = match answer::shelf_life(&answer) {
            ShelfLife::Unsaid => None,
            ShelfLife::Until(until) => Some(until),
            ShelfLife::Private => return,
        };
        state.answers.insert(question, (answer, holds));
    }

    pub fn recall(&self, question: &[u8]) -> Option<Message> {
        let mut state = self.lock();
        self.refresh(&mut state);
        let (answer, holds) = state.answers.get(question)?;
        holds.is_none_or(|until| Instant::now() < until).then(|| answer.clone())
    }

    /// Something has changed: no old answer stands in any more.
    pub fn forget(&self) {
        self.lock().answers.clear();
    }

    /// Approves what was listed last.
    pub fn approve(server: &str, file: &Path) -> Result<Vec<String>, ApproveError> {
        let failed = |error| ApproveError::File(file.to_owned(), error);
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ApproveError::Nothing(server.to_owned()));
            }
            Err(error) => return Err(failed(error)),
        };
        let mut record: Record = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        let approved: Vec<String> = record.changed.keys().cloned().collect();
        let changed = std::mem::take(&mut record.changed);
        record.approved.extend(changed);
        write(file, &record).map_err(failed)?;
        Ok(approved)
    }

    /// Reads the file if somebody else wrote it: another process of ours, or `approve`.
    fn refresh(&self, state: &mut State) {
        let Some(file) = &self.file else { return };
        let Ok(modified) = std::fs::metadata(file).and_then(|metadata| metadata.modified()) else { return };
        if state.read_at == Some(modified) {
            return;
        }
        match std::fs::read(file).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(record)) => {
                // Somebody approved something: what was kept may lack it.
                state.answers.clear();
                (state.record, state.read_at) = (record, Some(modified));
            }
            Ok(Err(error)) => {
                tracing::error!(file = %file.display(), %error, "the record of tools cannot be read and is left as it is");
            }
            Err(error) => {
                tracing::error!(file = %file.display(), %error, "could not read the record of tools");
            }
        }
    }

    fn keep(&self, state: &mut State) {
        let Some(file) = &self.file else { return };
        match write(file, &state.record) {
            Ok(()) => state.read_at = std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok(),
            Err(error) => {
                tracing::error!(file = %file.display(), %error, "could not keep the record of tools");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_mirrored(&mut self, tool: &str, raw: &RawValue) {
        #[derive(Deserialize)]
        struct Entry {
            #[serde(rename = "inputSchema")]
            schema: Schema,
        }
        #[derive(Deserialize)]
        struct Schema {
            #[serde(default)]
            properties: BTreeMap<String, serde_json::Value>,
        }
        self.mirrored.remove(tool);
        if memchr::memmem::find(raw.get().as_bytes(), b"x-mcp-header").is_none() {
            return;
        }
        let Ok(entry) = serde_json::from_str::<Entry>(raw.get()) else { return };
        let header = |value: &serde_json::Value| Some(value.get("x-mcp-header")?.as_str()?.to_owned());
        let mirrored: Vec<(String, String)> = (entry.schema.properties.iter())
            .filter_map(|(argument, value)| Some((argument.clone(), header(value)?)))
            .collect();
        if !mirrored.is_empty() {
            self.mirrored.insert(tool.to_owned(), mirrored);
        }
    }
}

/// Which of the ambient arguments a tool takes, and the edit of its entry that makes them optional.
fn ambient_in(raw: &RawValue, ambient: &[String]) -> (Vec<String>, Option<(mcp::Span, String)>) {
    #[derive(Deserialize)]
    struct Entry<'a> {
        #[serde(borrow, rename = "inputSchema")]
        schema: Schema<'a>,
    }
    #[derive(Deserialize)]
    struct Schema<'a> {
        #[serde(borrow, default)]
        properties: BTreeMap<std::borrow::Cow<'a, str>, &'a RawValue>,
        #[serde(borrow)]
        required: Option<&'a RawValue>,
    }
    let Ok(Entry { schema }) = serde_json::from_str::<Entry<'_>>(raw.get()) else {
        return (Vec::new(), None);
    };
    let taken: Vec<String> =
        ambient.iter().filter(|name| schema.properties.contains_key(name.as_str())).cloned().collect();
    let edit = schema.required.and_then(|required| {
        let names: Vec<String> = serde_json::from_str(required.get()).ok()?;
        let left: Vec<&String> = names.iter().filter(|name| !taken.contains(name)).collect();
        let span = mcp::envelope::span_in(raw.get().as_bytes(), required);
        (left.len() < names.len()).then(|| Some((span, serde_json::to_string(&left).ok()?))).flatten()
    });
    // An edit never makes the entry longer: it only takes names out.
    (taken, edit.filter(|(span, with)| with.len() <= span.len()))
}

/// A range of an entry as a range of the listing.
fn shifted(result: &[u8], raw: &RawValue, span: &mcp::Span) -> mcp::Span {
    let start = mcp::envelope::span_in(result, raw).start;
    start + span.start..start + span.end
}

impl Record {
    fn looks_like_another(&self, name: &str) -> bool {
        let visible = visible(name);
        if visible != name && self.approved.contains_key(&visible) {
            return true;
        }
        // Only a name with characters beyond ASCII can look like another without being it.
        (self.approved.keys().filter(|other| !other.is_ascii()))
            .any(|other| other != name && self::visible(other) == visible)
    }
}

/// What a person sees of a name.
fn visible(name: &str) -> String {
    let seen = |character: &char| {
        let invisible = matches!(*character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}');
        !invisible && !character.is_control() && !character.is_whitespace()
    };
    name.chars().filter(seen).collect()
}

fn fingerprint(raw: &RawValue) -> String {
    let digest = Sha256::digest(raw.get().as_bytes());
    let mut text = String::with_capacity(2 * digest.len());
    for byte in digest {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

/// Cuts list entries out, each with one comma.
fn without(result: &[u8], entries: &[mcp::Span]) -> Bytes {
    let mut edits = Vec::new();
    for span in entries {
        let after = result[span.end..].iter().position(|byte| !byte.is_ascii_whitespace());
        let comma_after = after.filter(|at| result[span.end + at] == b',');
        let span = if let Some(at) = comma_after {
            span.start..span.end + at + 1
        } else {
            // The last entry takes the comma before it, unless that went with the entry before.
            let before = result[..span.start].iter().rposition(|byte| !byte.is_ascii_whitespace());
            let taken =
                edits.last().is_some_and(|edit: &Edit<'_>| Some(edit.span.end) == before.map(|at| at + 1));
            match before.filter(|at| result[*at] == b',' && !taken) {
                Some(at) => at..span.end,
                None => span.clone(),
            }
        };
        edits.push(Edit { span, with: b"" });
    }
    // Everything after the last kept entry may be gone: its comma goes too.
    let mut cut = splice(result, &mut edits);
    if let Some(open) = dangling_comma(&cut) {
        cut.remove(open);
    }
    Bytes::from(cut)
}

/// A comma that stands right before the end of a list. Valid JSON has none, so the first found is ours.
fn dangling_comma(bytes: &[u8]) -> Option<usize> {
    if serde_json::from_slice::<&RawValue>(bytes).is_ok() {
        return None;
    }
    let mut in_string = false;
    let mut escaped = false;
    let mut comma = None;
    for (at, byte) in bytes.iter().enumerate() {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => (in_string, comma) = (true, None),
            b',' => comma = Some(at),
            b']' if comma.is_some() => return comma,
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
    }
    None
}

fn write(file: &Path, record: &Record) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let beside = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut output = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    output.write_all(&serde_json::to_vec_pretty(record)?)?;
    output.sync_all()?;
    std::fs::rename(beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tools: &[(&str, &str)]) -> String {
        let tools: Vec<String> = tools
            .iter()
            .map(|(name, text)| format!(r#"{{"name":"{name}","description":"{text}, ]"}}"#))
            .collect();
        format!(r#"{{"tools":[{}],"x":1}}"#, tools.join(" , "))
    }

    /// Tools with their descriptions, and which of them are still shown.
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

    fn names(result: &[u8]) -> Vec<String> {
        let value: serde_json::Value = serde_json::from_slice(result).unwrap();
        value["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_changed_tool_and_a_look_alike_are_withheld_until_approved() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.json");
        let pinned = Catalogue::new("s", true, Vec::new(), Some(file.clone()));
        assert_eq!(pinned.inspect(list(&[("a", "1"), ("b", "1"), ("c", "1")]).as_bytes()), Ok(None));
        let rows: [Row<'_>; 5] = [
            (&[("a", "2"), ("b", "1"), ("c", "1")], &["b", "c"]),
            (&[("a", "1"), ("b", "1"), ("c", "2")], &["a", "b"]),
            (&[("a", "1"), ("b", "2"), ("c", "2")], &["a"]),
            (&[("a", "2"), ("b", "2"), ("c", "2")], &[]),
            (&[("a", "1"), ("a\u{200b}", "1"), ("b", "1")], &["a", "b"]),
        ];
        for (tools, kept) in rows {
            let shown = pinned.inspect(list(tools).as_bytes()).unwrap().unwrap();
            assert_eq!(names(&shown), kept, "{tools:?}");
        }
        let changed = list(&[("a", "9")]);
        assert!(pinned.inspect(changed.as_bytes()).unwrap().is_some());
        assert!(pinned.check_call("a").is_err());
        assert!(pinned.check_call("b\u{feff}").is_err());
        Catalogue::approve("s", &file).unwrap();
        assert_eq!(pinned.inspect(changed.as_bytes()), Ok(None));
        assert_eq!(pinned.check_call("a"), Ok(()));
    }

    #[test]
    fn without_a_pin_a_change_is_passed_on() {
        let open = Catalogue::new("s", false, Vec::new(), None);
        assert_eq!(open.inspect(list(&[("a", "1")]).as_bytes()), Ok(None));
        assert_eq!(open.inspect(list(&[("a", "2"), ("a\u{200b}", "1")]).as_bytes()), Ok(None));
        assert_eq!(open.check_call("a"), Ok(()));
    }

    #[test]
    fn an_ambient_argument_becomes_optional_and_a_changed_tool_is_withheld_beside_it() {
        let tool = |name: &str, text: &str| {
            format!(
                r#"{{"name":"{name}","description":"{text}","inputSchema":{{"type":"object","properties":{{"workspace":{{}},"a":{{}}}},"required":["a", "workspace"]}}}}"#
            )
        };
        let listing = |second: &str| {
            format!(r#"{{"tools":[{}, {} ,{}]}}"#, tool("x", "1"), tool("y", second), tool("z", "1"))
        };
        let pinned = Catalogue::new("s", true, vec!["workspace".to_owned()], None);
        for (second, expected) in [("1", vec!["x", "y", "z"]), ("2", vec!["x", "z"])] {
            let shown = pinned.inspect(listing(second).as_bytes()).unwrap().unwrap();
            assert_eq!(names(&shown), expected);
            let value: serde_json::Value = serde_json::from_slice(&shown).unwrap();
            for tool in value["tools"].as_array().unwrap() {
                assert_eq!(tool["inputSchema"]["required"], serde_json::json!(["a"]));
            }
        }
        assert!(pinned.takes("x", "workspace") && !pinned.takes("x", "a") && !pinned.takes("w", "workspace"));
    }

    #[test]
    fn a_list_of_too_many_tools_is_refused() {
        let names: Vec<String> = (0..=MAX_TOOLS).map(|n| format!("t{n}")).collect();
        let tools: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        let open = Catalogue::new("s", false, Vec::new(), None);
        assert!(matches!(open.inspect(list(&tools).as_bytes()), Err(CallError::ListTooLong { .. })));
    }
}
