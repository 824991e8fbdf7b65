//! The settings that go along with a request: the `MCP_*` variables of whoever makes it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::HeaderValue;

use crate::config::sessions::VARIABLES;
use crate::exit::{Code, Failure};

const PREFIX: &str = "MCP_";

/// What a setting may weigh: all of them travel in one header.
const LONGEST: usize = 8 * 1024;
/// Of strangers so many are named at most, and none with a longer name.
const MOST_STRANGERS: usize = 64;
const LONGEST_NAME: usize = 100;

/// A JSON object in base64. None: there is no such variable.
///
/// Of variables that are none of ours only the names go along, so that a name with a slip in it is found: other programs
/// keep secrets under names that begin alike.
pub fn header(all: impl IntoIterator<Item = (OsString, OsString)>) -> anyhow::Result<Option<HeaderValue>> {
    let mut variables = BTreeMap::new();
    let mut strangers = 0;
    for (name, value) in all {
        let Some(name) = name.into_string().ok().filter(|name| is_meant(name)) else { continue };
        if VARIABLES.contains(&name.as_str()) {
            if value.len() > LONGEST {
                let message = format!("{name} is longer than {LONGEST} bytes");
                return Err(Failure::new(Code::Usage, message).into());
            }
            // What is no text is no value of any setting, and is told to be wrong like any other.
            variables.insert(name, value.to_string_lossy().into_owned());
        } else if name.len() <= LONGEST_NAME && strangers < MOST_STRANGERS {
            strangers += 1;
            variables.insert(name, String::new());
        }
    }
    if variables.is_empty() {
        return Ok(None);
    }
    let json = serde_json::json!(variables).to_string();
    let mut value = HeaderValue::try_from(BASE64_STANDARD.encode(json))?;
    // There may be a key in it.
    value.set_sensitive(true);
    Ok(Some(value))
}

fn is_meant(name: &str) -> bool {
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: Option<&str>) {
        let all = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let header = header(all).unwrap();
        let text = header.map(|header| {
            assert!(header.is_sensitive());
            String::from_utf8(BASE64_STANDARD.decode(header.as_bytes()).unwrap()).unwrap()
        });
        assert_eq!(text.as_deref(), expected);
    }

    #[test]
    fn only_settings_go_along_and_of_strangers_only_the_name() {
        check(&[("HOME", "/home/a"), ("OPENAI_API_KEY", "sk-1"), ("MCPX", "1")], None);
        check(
            &[("PATH", "/bin"), ("MCP_OPENCODE_MODEL", "ollama/żółw"), ("MCP_TRACKER_TOKEN", "secret")],
            Some(r#"{"MCP_OPENCODE_MODEL":"ollama/żółw","MCP_TRACKER_TOKEN":""}"#),
        );
        check(&[("mcp_opencode_model", "x")], Some(r#"{"mcp_opencode_model":""}"#));
        check(&[("MCP_OPENCODE_API_KEY", "sk-1")], Some(r#"{"MCP_OPENCODE_API_KEY":"sk-1"}"#));
    }
    #[test]
    fn what_no_header_holds_is_refused_by_name() {
        let long = ("MCP_OPENCODE_MODEL".into(), "x".repeat(LONGEST + 1).into());
        let error = header([long]).unwrap_err().to_string();
        assert!(error.contains("MCP_OPENCODE_MODEL") && !error.contains("xxx"), "{error}");
        let strangers = (0..1000).map(|number| (format!("MCP_{number}").into(), "".into()));
        assert!(header(strangers).unwrap().unwrap().len() < 4096);
    }
}
