//! Hooks as their authors and their adversaries write them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a surprise ends the test")]

mod behaviour;
mod hostile;
mod recipes;
mod types;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hooks::{Chain, Draft, Fault, FileSpec, Hooks, Input, Limits, Rules, Spec};

/// As strict as the real ones.
fn rules() -> Rules {
    fn plain(name: &str) -> String {
        name.to_ascii_lowercase().replace('_', "-")
    }
    Rules {
        header: |name| {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(token) {
                return Err(format!("{name:?} is not the name of a header"));
            }
            let taken = [
                "accept",
                "connection",
                "content-length",
                "content-type",
                "host",
                "te",
                "transfer-encoding",
                "upgrade",
            ];
            let plain = plain(name);
            if taken.contains(&plain.as_str()) || plain.starts_with("mcp-") || plain.starts_with("callsign-")
            {
                return Err(format!("`{name}` is reserved"));
            }
            Ok(())
        },
        variable: |name| {
            let good =
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty();
            let taken = ["LD_", "NODE_OPTIONS", "BASH_ENV", "CALLSIGN_", "CODEX_"];
            match good {
                true if taken.iter().any(|taken| name.starts_with(taken)) => {
                    Err(format!("`{name}` is reserved"))
                }
                true => Ok(()),
                false => Err(format!("{name:?} is not the name of a variable")),
            }
        },
        meta: |name| {
            let lower = plain(name);
            let taken = lower.starts_with("dev.callsign/") || lower.starts_with("io.modelcontextprotocol/");
            if taken || name == "progressToken" { Err(format!("`{name}` is reserved")) } else { Ok(()) }
        },
        argument: |name| if name == "__callsign" { Err(format!("`{name}` is reserved")) } else { Ok(()) },
        within: |_, _, json| {
            if json.contains("dev.callsign/") { Err("that is reserved".to_owned()) } else { Ok(()) }
        },
    }
}

fn draft() -> Draft {
    Draft {
        headers: vec![("Authorization".into(), "Bearer x".into()), ("X-Static".into(), "1".into())],
        meta: Some(Bytes::from_static(br#"{"progressToken":7,"example.org/a":{"b":1}}"#)),
        arguments: Some(Bytes::from_static(
            br#"{"text":"hello","n":12345678901234567890,"deep":{"a":[1,2]}}"#,
        )),
        ..Draft::default()
    }
}

fn input() -> Input<'static> {
    Input {
        server: "my-server".into(),
        tool: Some("echo".into()),
        method: "tools/call".into(),
        thread: Some("ses_1".into()),
        call: Some("call_1".into()),
        trust: "host".into(),
        takes_arguments: true,
        ..Input::default()
    }
}

/// Files in a directory of their own.
struct Files {
    directory: tempfile::TempDir,
    names: Vec<String>,
}

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        Self { directory, names: files.iter().map(|(name, _)| (*name).to_owned()).collect() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Loads those named, all if none is.
    fn load(&self, names: &[&str]) -> Result<Chain, Vec<Fault>> {
        let all: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let names = if names.is_empty() { &all } else { names };
        let paths: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        let files = paths.iter().zip(names).map(|(path, name)| file(path, name)).collect();
        load(files, Limits::default()).map(|hooks| Chain::new(&hooks, &paths))
    }
}

fn file(path: &Path, name: &str) -> FileSpec {
    FileSpec { path: path.to_owned(), shown: format!("hooks/{name}"), optional: name.starts_with("optional") }
}

fn load(files: Vec<FileSpec>, limits: Limits) -> Result<Arc<Hooks>, Vec<Fault>> {
    let env = vec![("USER_ID".to_owned(), "u1".to_owned())];
    Hooks::load(&Spec { files, env, limits, rules: rules() }).map(Arc::new)
}

fn header<'a>(draft: &'a Draft, name: &str) -> Option<&'a str> {
    draft.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn text(json: Option<&Bytes>) -> &str {
    json.map_or("", |json| std::str::from_utf8(json).unwrap())
}
