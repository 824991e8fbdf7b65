//! Writes down what arrives, byte by byte, as JSON Lines: the logging server is the echo server with this.
//!
//! ```text
//! {"event":"start","pid":…,"argv":[…],"cwd":…,"env":{…}}
//! {"event":"message","pid":…,"raw":"…"}            stdio: a line without its newline; base64 instead of raw
//!                                                  where it is not UTF-8
//! {"event":"request","pid":…,"method":"POST","path":"/mcp","headers":[["name","value"],…],"raw":"…"}
//! ```

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

#[derive(Debug)]
pub struct Recorder {
    /// Opened for appending: several processes may share one file, each record is one write.
    file: File,
}

impl Recorder {
    /// Opens the file and writes the `start` record.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let recorder = Self { file: OpenOptions::new().create(true).append(true).open(path)? };
        let env: serde_json::Map<String, Value> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into(), value.to_string_lossy().into()))
            .collect();
        let argv: Vec<String> = std::env::args().collect();
        recorder.write(&json!({
            "event": "start",
            "pid": std::process::id(),
            "argv": argv,
            "cwd": std::env::current_dir().ok(),
            "env": env,
        }));
        Ok(recorder)
    }

    pub fn line(&self, bytes: &[u8]) {
        let (field, text) = lossless(bytes);
        self.write(&json!({ "event": "message", "pid": std::process::id(), field: text }));
    }

    pub fn request(&self, method: &str, path: &str, headers: &http::HeaderMap, body: &[u8]) {
        let headers: Vec<(&str, String)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let (field, text) = lossless(body);
        self.write(&json!({
            "event": "request",
            "pid": std::process::id(),
            "method": method,
            "path": path,
            "headers": headers,
            field: text,
        }));
    }

    fn write(&self, record: &Value) {
        let mut line = record.to_string().into_bytes();
        line.push(b'\n');
        (&self.file).write_all(&line).expect("the log can be written");
    }
}

fn lossless(bytes: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(bytes) {
        Ok(text) => ("raw", text.to_owned()),
        Err(_) => ("base64", STANDARD.encode(bytes)),
    }
}

/// Reads a log that may still be written to; a last line without an end is left out.
pub fn read(path: &Path) -> Vec<Value> {
    // The end may be a line, or a character, that is being written right now.
    let bytes = std::fs::read(path).unwrap_or_default();
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..complete]);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The bytes of one record's message.
pub fn bytes(record: &Value) -> Vec<u8> {
    match (record["raw"].as_str(), record["base64"].as_str()) {
        (Some(raw), _) => raw.as_bytes().to_vec(),
        (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}
