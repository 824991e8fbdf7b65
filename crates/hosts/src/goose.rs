//! Goose: `extensions` in `config.yaml`. Extensions that are part of Goose itself are none of ours.

use serde_json::{Map, Value};

use crate::entry::{Dialect, Headers, HostEnvironment, Kinds, plain_headers, plain_headers_back, words};

pub(crate) const DIALECT: Dialect = Dialect {
    host: "goose",
    containers: |_| vec![vec!["extensions".to_owned()]],
    command: "cmd",
    env: "envs",
    urls: &["uri"],
    kind: Kinds {
        started: Some("stdio"),
        remote: &["streamable_http", "sse"],
        remote_default: Some("streamable_http"),
    },
    environment: HostEnvironment::HandedOn,
    variables,
    headers,
    headers_back: plain_headers_back,
    its_own: &[],
};

/// `env_keys`: names whose values Goose keeps in its keyring.
fn variables(fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    words(fields.get("env_keys")).ok_or_else(|| "its env_keys are not a list of strings".to_owned())
}

/// Goose fills `$NAME` and `${NAME}` in headers from `envs` and `env_keys`. Where it starts a program it gives
/// both to that, so `wrap` can do the same.
fn headers(fields: &Map<String, Value>) -> Result<Headers, String> {
    let mut headers = plain_headers(fields)?;
    let mut names = variables(fields)?;
    if let Some(Value::Object(envs)) = fields.get("envs") {
        names.extend(envs.keys().cloned());
    }
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for (_, value) in &mut headers.values {
        for name in &names {
            let placeholder = format!("{{env:{name}}}");
            *value = value
                .replace(&format!("${{{name}}}"), &placeholder)
                .replace(&format!("${name}"), &placeholder);
        }
    }
    Ok(headers)
}
