//! What a logging server was given, as it wrote it down itself.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::record;

/// One message at a server.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// The process that got it.
    pub pid: u64,
    /// What that process was started with: `argv`, `cwd`, `env`.
    pub start: Value,
    /// Empty for a pipe.
    pub headers: Vec<(String, String)>,
    pub message: Value,
    /// The message as it came, byte by byte.
    pub raw: String,
}

impl Arrived {
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// `params._meta`; null where there is none.
    pub fn meta(&self) -> &Value {
        &self.message["params"]["_meta"]
    }

    pub fn arguments(&self) -> &Value {
        &self.message["params"]["arguments"]
    }

    /// A variable of the process that got the message.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.start["env"][name].as_str()
    }

    /// A header of the request that brought it, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// Every message in the log, in the order of arrival. Several processes may have written it.
pub fn arrived(log: &Path) -> Vec<Arrived> {
    let mut starts: HashMap<u64, Value> = HashMap::new();
    let mut all = Vec::new();
    for record in record::read(log) {
        let pid = record["pid"].as_u64().unwrap_or_default();
        if record["event"] == "start" {
            starts.insert(pid, record);
            continue;
        }
        let raw = String::from_utf8_lossy(&record::bytes(&record)).into_owned();
        let Ok(message) = serde_json::from_str(&raw) else { continue };
        let headers = serde_json::from_value(record["headers"].clone()).unwrap_or_default();
        let start = starts.get(&pid).cloned().unwrap_or_else(|| json!({}));
        all.push(Arrived { pid, start, headers, message, raw });
    }
    all
}

/// The processes that were started with this log, in order: their `start` records.
pub fn starts(log: &Path) -> Vec<Value> {
    record::read(log).into_iter().filter(|record| record["event"] == "start").collect()
}
