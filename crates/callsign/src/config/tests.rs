mod bad;
mod callers;
mod good;
mod hooks;
mod hosts;
mod ledger;
mod looked_up;
mod sessions;
mod telemetry;

use std::path::Path;

use super::*;

fn variable(name: &str) -> Option<String> {
    let value = match name {
        "HOME" => "/home/ann",
        "TRACKER_TOKEN" => "sk-CANARY-7f3a",
        "TWO_LINES" => "sk-CANARY-7f3a\r\nX-Evil: 1",
        _ => return None,
    };
    Some(value.to_owned())
}

fn read(text: &str, purpose: Purpose<'_>) -> Result<Config, ConfigErrors> {
    let source = Source { text, shown: Path::new("callsign.toml"), directory: Path::new("/etc") };
    parse(source, purpose, Environment::new(&variable))
}

/// What is wrong with `text`, without the file's name.
fn mistakes(text: &str, purpose: Purpose<'_>) -> Vec<String> {
    let Err(errors) = read(text, purpose) else {
        return Vec::new();
    };
    assert!(!errors.to_string().contains("CANARY"), "a secret in a message");
    let line = |line: &str| line.strip_prefix("callsign.toml:").unwrap_or(line).to_owned();
    errors.to_string().lines().map(line).collect()
}
