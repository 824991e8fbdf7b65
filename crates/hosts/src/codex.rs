//! Codex: `[mcp_servers.NAME]` in `config.toml`.

use serde_json::{Map, Value, json};

use crate::entry::{Dialect, Headers, HostEnvironment, Kinds, NO_OAUTH, header_table};

pub(crate) const DIALECT: Dialect = Dialect {
    host: "codex",
    containers: |_| vec![vec!["mcp_servers".to_owned()]],
    command: "command",
    env: "env",
    urls: &["url"],
    kind: Kinds { started: None, remote: &[], remote_default: None },
    environment: HostEnvironment::Cleared,
    variables,
    headers,
    headers_back,
    its_own: &[
        ("oauth", NO_OAUTH),
        ("oauth_resource", NO_OAUTH),
        ("scopes", NO_OAUTH),
        ("bearer_token", "it has a bearer_token, which Codex itself refuses; use bearer_token_env_var"),
        ("experimental_environment", "Codex starts it somewhere else"),
    ],
};

const BEARER: &str = "bearer_token_env_var";
const STATIC: &str = "http_headers";
const FROM_ENVIRONMENT: &str = "env_http_headers";

/// `env_vars`: names that Codex copies from its own environment.
fn variables(fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    let items = match fields.get("env_vars") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("its env_vars are not a list".to_owned()),
    };
    let mut names = Vec::new();
    for item in items {
        let source = item.get("source").and_then(Value::as_str).unwrap_or("local");
        if source != "local" {
            return Err(format!("one of its env_vars has the source `{source}`"));
        }
        let name = item.as_str().or_else(|| item.get("name").and_then(Value::as_str));
        names.push(name.ok_or("one of its env_vars has no name")?.to_owned());
    }
    Ok(names)
}

fn headers(fields: &Map<String, Value>) -> Result<Headers, String> {
    let mut headers = Headers {
        values: header_table(fields, STATIC)?,
        fields: vec![BEARER, STATIC, FROM_ENVIRONMENT],
        variables: Vec::new(),
    };
    let mut add = |name: String, before: &str, variable: &str| {
        // In Codex's own environment this is the thread that Codex was started from, if any, and never the one
        // that calls. `wrap` sends that one by itself.
        if model::server::IDENTITY_VARIABLES.iter().any(|(known, _)| *known == variable) {
            return;
        }
        headers.values.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
        headers.values.push((name, format!("{before}{{env:{variable}}}")));
        if !headers.variables.iter().any(|known| known == variable) {
            headers.variables.push(variable.to_owned());
        }
    };
    for (name, variable) in header_table(fields, FROM_ENVIRONMENT)? {
        add(name, "", &variable);
    }
    if let Some(variable) = fields.get(BEARER) {
        let variable = variable.as_str().ok_or("its bearer_token_env_var is not a string")?;
        add("Authorization".to_owned(), "Bearer ", variable);
    }
    Ok(headers)
}

fn headers_back(headers: Vec<(String, String)>) -> Vec<(&'static str, Value)> {
    let (mut fixed, mut from_environment, mut back) = (Map::new(), Map::new(), Vec::new());
    for (name, value) in headers {
        let variable = |text: &str| Some(text.strip_prefix("{env:")?.strip_suffix('}')?.to_owned());
        if let Some(variable) = value.strip_prefix("Bearer ").and_then(variable) {
            back.push((BEARER, json!(variable)));
        } else if let Some(variable) = variable(&value) {
            from_environment.insert(name, json!(variable));
        } else {
            fixed.insert(name, json!(value));
        }
    }
    let tables = [(STATIC, fixed), (FROM_ENVIRONMENT, from_environment)];
    back.extend(
        tables.into_iter().filter(|(_, table)| !table.is_empty()).map(|(name, table)| (name, json!(table))),
    );
    back
}
