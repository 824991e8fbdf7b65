//! Every host's configuration, oddly written: installed and given back.

mod broken;
mod fixtures;
mod generated;
mod later_edits;
mod shapes;

use serde_json::Value;

use crate::document::{Document, Format};
use crate::install::{Installed, Settings, install};
use crate::journal::Record;
use crate::place::{Content, Surroundings, targets};
use crate::uninstall::{Outcome, uninstall};
use crate::{Host, Scope};

pub(crate) fn settings() -> Settings {
    Settings {
        command: "/opt/bin/callsign".to_owned(),
        options: vec!["--state-dir".to_owned(), "/var/lib/call sign".to_owned()],
        also: Vec::new(),
        may_pass: |name| name != "PYTHONPATH",
        may_send: |name| !name.eq_ignore_ascii_case("accept"),
    }
}

/// What the host's `which`-th file holds.
pub(crate) fn content(host: Host, which: usize) -> Content {
    let variable = |name: &str| (name == "HOME").then(|| "/h".to_owned());
    let around = Surroundings { variable: &variable, project: std::path::Path::new("/p") };
    targets(host, Scope::User, around).unwrap()[which].content
}

#[track_caller]
pub(crate) fn installed(content: Content, text: &str) -> (Installed, Record) {
    let done = install(content, &settings(), Some(text.as_bytes()), None).unwrap();
    let record = done.record.clone().unwrap_or_else(|| panic!("nothing changed; left: {:?}", done.left));
    (done, record)
}

pub(crate) fn format(content: Content) -> Format {
    match content {
        Content::Servers { format, .. } => format,
        Content::Hook | Content::Plugin => Format::Jsonc,
    }
}

#[track_caller]
pub(crate) fn value(content: Content, text: &str) -> Value {
    Document::parse(format(content), text).unwrap_or_else(|error| panic!("{error}\n{text}")).value()
}

#[track_caller]
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The file after an uninstall.
#[track_caller]
pub(crate) fn given_back(content: Content, current: &str, record: Option<&Record>) -> String {
    let undone = uninstall(content, Some(current.as_bytes()), record).unwrap();
    assert_eq!(undone.left, [], "{current}");
    match undone.outcome {
        Outcome::Keep => current.to_owned(),
        Outcome::Write(bytes) => text(&bytes),
        Outcome::Remove => String::new(),
    }
}
