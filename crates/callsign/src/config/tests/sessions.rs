//! `[sessions]` and the variables over it.

mod file;
mod kept;
mod variables;

use model::settings::{
    ApiKey, BoxIsolation, Budget, Egress, Image, Limits, ModelName, Provider, Runtime, Secret,
    SessionSettings,
};

use super::*;
use crate::config::sessions::{FromFile, Resolved, Variables, resolve};

fn from_file(text: &str) -> Result<FromFile, ConfigErrors> {
    let source = Source { text, shown: Path::new("callsign.toml"), directory: Path::new("/etc") };
    crate::config::sessions::parse(source, Environment::new(&variable))
}

/// The settings of a file without a mistake or a doubt.
#[track_caller]
fn settings(lines: &str) -> SessionSettings {
    let text = format!("[sessions]\n{lines}\n[servers.tracker]\nurl = \"https://tracker.example/mcp\"\n");
    let FromFile { settings, warnings } = from_file(&text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(warnings, [], "for\n{text}");
    settings
}

fn set(variables: &[(&str, &str)]) -> Variables {
    Variables::new(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

/// What comes out, and the warnings as they are shown.
#[track_caller]
fn resolved(base: &SessionSettings, variables: &[(&str, &str)]) -> (Resolved, Vec<String>) {
    let found = resolve(base, &set(variables)).unwrap_or_else(|errors| panic!("{errors}"));
    let warnings: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
    assert!(!warnings.join("").contains("CANARY"), "a secret in a warning");
    (found, warnings)
}

/// Over `base`, without a doubt.
#[track_caller]
fn good(base: &SessionSettings, variables: &[(&str, &str)]) -> SessionSettings {
    let (found, warnings) = resolved(base, variables);
    assert_eq!(warnings, Vec::<String>::new(), "for {variables:?}");
    found.settings
}

#[track_caller]
fn bad(base: &SessionSettings, variables: &[(&str, &str)], expected: &[&str]) {
    let errors = resolve(base, &set(variables)).expect_err("there is a mistake").to_string();
    assert!(!errors.contains("CANARY"), "a secret in a message: {errors}");
    assert_eq!(errors.lines().collect::<Vec<_>>(), expected, "for {variables:?}");
}

fn model_name(provider: Provider, written: &str) -> ModelName {
    ModelName::parse(provider, written).unwrap()
}

fn given(key: &str) -> ApiKey {
    ApiKey::Given(Secret::new(key))
}
