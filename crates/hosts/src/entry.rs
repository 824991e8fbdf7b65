//! One entry of a host's configuration: whether it can be wrapped, and by which changes.

mod address;
mod change;

use model::ServerName;
use model::server::IDENTITY_VARIABLES;
use serde_json::{Map, Value, json};
use sha2::Digest as _;

use crate::install::Settings;
use crate::wrap::{self, HEADERS_VARIABLE};

pub(crate) use change::{Change, apply, expected};

/// How a host writes down its servers.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// What `--host` says.
    pub host: &'static str,
    pub containers: fn(&Value) -> Vec<Vec<String>>,
    pub command: &'static str,
    pub env: &'static str,
    /// The field that holds an address, the one to write first.
    pub urls: &'static [&'static str],
    /// The word in `type` for a server that is started, where the host wants one.
    pub kind: Kinds,
    /// Whether the host hands its whole environment to what it starts.
    pub environment: HostEnvironment,
    /// Names of variables that the host adds by itself.
    pub variables: Variables,
    pub headers: fn(&Map<String, Value>) -> Result<Headers, String>,
    /// The fields that headers came from, where nobody kept a note.
    pub headers_back: HeadersBack,
    /// Fields that only the host can act on, with what to say of them.
    pub its_own: &'static [(&'static str, &'static str)],
}

/// From the fields of an entry to names.
pub(crate) type Variables = fn(&Map<String, Value>) -> Result<Vec<String>, String>;
/// From names and values to fields of an entry.
pub(crate) type HeadersBack = fn(Vec<(String, String)>) -> Vec<(&'static str, Value)>;

#[derive(Debug, Clone, Copy)]
pub struct Kinds {
    /// Absent: no entry needs `type`.
    pub started: Option<&'static str>,
    pub remote: &'static [&'static str],
    /// What to write for one that is given back and of which nobody kept a note.
    pub remote_default: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEnvironment {
    /// All of it is handed on.
    HandedOn,
    /// Cleared, but for a few names.
    Cleared,
}

/// The headers of an entry, wherever it keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// `{env:NAME}` in a value stands for a variable of `wrap`'s.
    pub values: Vec<(String, String)>,
    /// The fields they came from.
    pub fields: Vec<&'static str>,
    /// Variables of the host that `wrap` needs for them.
    pub variables: Vec<String>,
}

/// What to do with an entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    Wrap(Vec<Change>),
    /// It already runs `callsign wrap`, or `callsign mcp`.
    Already,
    Leave(String),
}

/// An entry that stays as it is, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Left {
    pub name: String,
    pub why: String,
}

pub(crate) const NO_OAUTH: &str = "it may need a login by OAuth, which only the host can do";

pub(crate) fn judge(dialect: &Dialect, settings: &Settings, name: &str, entry: &Value) -> Verdict {
    let Value::Object(fields) = entry else {
        return Verdict::Leave("it is not a table".to_owned());
    };
    let outcome = match (fields.get(dialect.command), url(dialect, fields)) {
        (Some(_), Some(_)) => Err("it has both a command and an address".to_owned()),
        (Some(command), None) => started(dialect, settings, name, fields, command),
        (None, Some((field, address))) => remote(dialect, settings, name, fields, (field, address)),
        (None, None) => Err("it has neither a command nor an address".to_owned()),
    };
    outcome.unwrap_or_else(Verdict::Leave)
}

pub(crate) fn url<'a>(
    dialect: &Dialect,
    fields: &'a Map<String, Value>,
) -> Option<(&'static str, &'a Value)> {
    dialect.urls.iter().find_map(|field| Some((*field, fields.get(*field)?)))
}

/// The words of a list of strings.
pub(crate) fn words(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => None,
    }
}

fn started(
    dialect: &Dialect,
    settings: &Settings,
    name: &str,
    fields: &Map<String, Value>,
    command: &Value,
) -> Result<Verdict, String> {
    let command =
        command.as_str().filter(|command| !command.is_empty()).ok_or("its command is not a string")?;
    let args = words(fields.get("args")).ok_or("its args are not a list of strings")?;
    if wrap::read(command, &args).is_some() || wrap::is_own_server(command, &args) {
        return Ok(Verdict::Already);
    }
    own_fields(dialect, fields)?;
    check_kind(fields, &["stdio", "local"])?;
    if command.contains(char::is_whitespace) && !command.starts_with('/') && args.is_empty() {
        return Err("its command is a line for a shell; split it into command and args".to_owned());
    }
    let mut words = wrap_options(dialect, settings, name);
    if dialect.environment == HostEnvironment::HandedOn {
        words.extend(["--inherit-env".to_owned(), "host".to_owned()]);
    }
    let passed = passed_variables(dialect, settings, fields)?;
    if !passed.is_empty() {
        words.extend(["--pass-env".to_owned(), passed.join(",")]);
    }
    words.extend(["--".to_owned(), command.to_owned()]);
    words.extend(args);
    Ok(Verdict::Wrap(vec![
        Change::put(&[dialect.command], json!(settings.command)),
        Change::put_after(&["args"], json!(words), dialect.command),
    ]))
}

fn remote(
    dialect: &Dialect,
    settings: &Settings,
    name: &str,
    fields: &Map<String, Value>,
    (field, address): (&'static str, &Value),
) -> Result<Verdict, String> {
    let address = address.as_str().ok_or("its address is not a string")?;
    own_fields(dialect, fields)?;
    check_kind(fields, dialect.kind.remote)?;
    if fields.get("args").is_some() {
        return Err("it has both an address and args".to_owned());
    }
    let headers = (dialect.headers)(fields)?;
    if !settings.also.iter().any(|also| also == name) {
        address::check(address, &headers)?;
    }
    let sent: Map<String, Value> = headers
        .values
        .iter()
        .filter(|(name, _)| (settings.may_send)(name))
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let mut words = wrap_options(dialect, settings, name);
    if !sent.is_empty() {
        words.extend(["--headers-env".to_owned(), HEADERS_VARIABLE.to_owned()]);
    }
    // The address is the host's own entry's: where it may go was decided when that was written.
    words.extend(["--allow-private".to_owned(), "--url".to_owned(), address.to_owned()]);
    let mut changes = vec![
        Change::rename(field, dialect.command),
        Change::put(&[dialect.command], json!(settings.command)),
        Change::put_after(&["args"], json!(words), dialect.command),
    ];
    if !sent.is_empty() {
        let text = json!(Value::Object(sent).to_string());
        changes.push(match fields.get(dialect.env) {
            Some(Value::Object(_)) => Change::put(&[dialect.env, HEADERS_VARIABLE], text),
            Some(Value::Null) | None => {
                Change::put_after(&[dialect.env], json!({ HEADERS_VARIABLE: text }), "args")
            }
            Some(_) => return Err(format!("its {} is not a table", dialect.env)),
        });
    }
    if !headers.variables.is_empty() {
        changes.push(Change::put_after(&["env_vars"], json!(headers.variables), "args"));
    }
    changes.extend(kind_of_started(dialect, fields));
    changes.extend(
        headers
            .fields
            .iter()
            .filter(|field| fields.contains_key(**field))
            .map(|field| Change::drop(&[*field])),
    );
    Ok(Verdict::Wrap(changes))
}

fn kind_of_started(dialect: &Dialect, fields: &Map<String, Value>) -> Option<Change> {
    fields.get("type")?;
    Some(match dialect.kind.started {
        Some(word) => Change::put(&["type"], json!(word)),
        None => Change::drop(&["type"]),
    })
}

fn own_fields(dialect: &Dialect, fields: &Map<String, Value>) -> Result<(), String> {
    for (field, why) in dialect.its_own {
        let off = |value: &Value| {
            matches!(value, Value::Null | Value::Bool(false))
                || value.get("enabled") == Some(&Value::Bool(false))
        };
        if fields.get(*field).is_some_and(|value| !off(value)) {
            return Err((*why).to_owned());
        }
    }
    Ok(())
}

fn check_kind(fields: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match fields.get("type") {
        None => Ok(()),
        Some(Value::String(kind)) if known.contains(&kind.as_str()) => Ok(()),
        Some(kind) => Err(format!("its type is {kind}")),
    }
}

/// `wrap --name N --host H …`, up to what is wrapped.
fn wrap_options(dialect: &Dialect, settings: &Settings, name: &str) -> Vec<String> {
    let server = server_name(name);
    let mut words = vec!["wrap".to_owned(), "--name".to_owned(), server.clone()];
    words.extend(["--host".to_owned(), dialect.host.to_owned()]);
    if server != name {
        words.extend(["--entry".to_owned(), name.to_owned()]);
    }
    words.extend(settings.options.iter().cloned());
    words
}

/// Hosts allow more in a name than we do. One that we do not take, and one that looks like the result of this,
/// gets a digest of itself, so that two entries never share a name. The `OpenCode` plugin does the same.
fn server_name(name: &str) -> String {
    if ServerName::new(name).is_ok() && !has_digest(name) && name != "sessions" {
        return name.to_owned();
    }
    let usual = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let plain: String =
        name.chars().map(|character| if usual(character) { character } else { '_' }).collect();
    let plain = plain.trim_start_matches(['.', '_', '-']);
    let stem = if plain.is_empty() { "server" } else { &plain[..plain.len().min(38)] };
    let digest = sha2::Sha256::digest(name.as_bytes());
    let digits = digest.iter().take(12).flat_map(|byte| [byte >> 4, byte & 15]);
    let digest: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
    format!("{stem}-x{digest}")
}

fn has_digest(name: &str) -> bool {
    let digest =
        name.len().checked_sub(26).and_then(|at| name.get(at..)).and_then(|end| end.strip_prefix("-x"));
    digest.is_some_and(|digest| digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

/// The variables that the entry itself gives the server.
fn passed_variables(
    dialect: &Dialect,
    settings: &Settings,
    fields: &Map<String, Value>,
) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = match fields.get(dialect.env) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(variables)) => variables.keys().cloned().collect(),
        Some(_) => return Err(format!("its {} is not a table", dialect.env)),
    };
    names.extend((dialect.variables)(fields)?);
    names.sort();
    names.dedup();
    // `wrap` gives these itself, from the call; what was inherited may be another session's.
    names.retain(|name| !IDENTITY_VARIABLES.iter().any(|(known, _)| known == name));
    names.retain(|name| !name.starts_with("CALLSIGN_"));
    let refused = names.iter().find(|name| !(settings.may_pass)(name));
    if let (Some(name), HostEnvironment::Cleared) = (refused, dialect.environment) {
        return Err(format!(
            "it sets {name}, which callsign does not hand on; set it in a script that starts the server"
        ));
    }
    // Where everything is inherited, these are as well.
    names.retain(|name| (settings.may_pass)(name));
    Ok(names)
}

/// The usual way: a table of headers.
pub(crate) fn plain_headers(fields: &Map<String, Value>) -> Result<Headers, String> {
    let values = header_table(fields, "headers")?;
    Ok(Headers { values, fields: vec!["headers"], variables: Vec::new() })
}

pub(crate) fn plain_headers_back(headers: Vec<(String, String)>) -> Vec<(&'static str, Value)> {
    let table: Map<String, Value> = headers.into_iter().map(|(name, value)| (name, json!(value))).collect();
    if table.is_empty() { Vec::new() } else { vec![("headers", Value::Object(table))] }
}

pub(crate) fn header_table(
    fields: &Map<String, Value>,
    field: &str,
) -> Result<Vec<(String, String)>, String> {
    let table = match fields.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(table)) => table,
        Some(_) => return Err(format!("its {field} are not a table")),
    };
    let mut headers = Vec::new();
    for (name, value) in table {
        let value = value.as_str().ok_or_else(|| format!("its header {name} is not a string"))?;
        if value.contains("{env:") {
            return Err(format!("its header {name} says `{{env:`, which means something to callsign"));
        }
        headers.push((name.clone(), value.to_owned()));
    }
    Ok(headers)
}

/// The usual case: the host adds none.
#[expect(clippy::unnecessary_wraps, reason = "others can fail, and all have one type")]
pub(crate) fn no_variables(_fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_one_that_wrap_takes_and_no_other_entry_has() {
        for given in ["tracker", "a.b_c-1"] {
            assert_eq!(server_name(given), given);
        }
        let long = "x".repeat(80);
        let odd = [
            "my server",
            "my_server",
            "@scope/pkg",
            "sessions",
            "—",
            "",
            "a-x0123456789abcdef01234567",
            &long,
        ];
        let mut seen = std::collections::BTreeSet::new();
        for given in odd {
            let name = server_name(given);
            assert!(ServerName::new(&name).is_ok(), "{given:?} → {name}");
            assert!(seen.insert(name), "{given:?}");
        }
    }
}
