//! `callsign keys list|rotate|jwks|verify`.

use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use identity::Trust;
use identity::assertion::{Reject, Verifier};
use identity::keys::{KeyInfo, Keyring};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::token::now;
use crate::app::Global;
use crate::config::Environment;
use crate::exit::{Code, Failure};
use crate::output;
use crate::state::StateDir;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys that sign assertions, oldest first.
    List {
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Make a new key that signs from now on. The old one stays published for a quarter of an hour.
    Rotate {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Print the public keys as a JWK set.
    Jwks {
        /// A JWK set is JSON anyway.
        #[arg(long, hide = true)]
        json: bool,
    },
    /// Check assertions: reads lines of {token, audience, arguments} and answers each with {ok, reason}.
    Verify {
        /// The least trust to take: none, declared, host or bound.
        #[arg(long, value_name = "TRUST", default_value = "none", value_parser = parse_trust)]
        require: Trust,
        /// A JWK set to verify with, in place of the keys of the state directory.
        #[arg(long, value_name = "FILE")]
        jwks: Option<PathBuf>,
        /// The answers are JSON anyway.
        #[arg(long, hide = true)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Row<'a> {
    kid: &'a str,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at: Option<u64>,
    signs: bool,
}

/// A line that `verify` reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    token: String,
    audience: String,
    /// `null` is a value that was sent; only absent arguments are none.
    #[serde(default, deserialize_with = "present")]
    arguments: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Answer {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

pub fn run(global: &Global, command: KeysCommand) -> anyhow::Result<()> {
    match command {
        KeysCommand::List { json } => {
            for key in open(global)?.list() {
                print(&key, json)?;
            }
        }
        KeysCommand::Rotate { json } => {
            let keys = use_keys(Keyring::rotate(state_dir(global)?.path(), now()))?;
            if let Some(key) = keys.list().iter().find(|key| key.retired_at.is_none()) {
                print(key, json)?;
            }
        }
        KeysCommand::Jwks { json: _ } => output::line(open(global)?.jwks().trim_end())?,
        KeysCommand::Verify { require, jwks, json: _ } => {
            let file = match jwks {
                Some(file) => file,
                None => open(global)?.jwks_file(),
            };
            verify(&file, require)?;
        }
    }
    Ok(())
}

fn verify(file: &Path, require: Trust) -> anyhow::Result<()> {
    let verifier = Verifier::from_file(file).map_err(|error| {
        let message = format!("could not use {}: {:#}", file.display(), anyhow::Error::new(error));
        Failure::new(Code::Usage, message)
    })?;
    let verifier = verifier.require(require);
    for line in io::stdin().lock().lines() {
        let line = line.context("could not read the standard input")?;
        if line.trim().is_empty() {
            continue;
        }
        let result = check(&verifier, &line);
        output::json(&Answer { ok: result.is_ok(), reason: result.err().map(Reject::as_str) })?;
    }
    Ok(())
}

/// A line that is none of ours is answered too, so that answers stay in step with questions.
fn check(verifier: &Verifier, line: &str) -> Result<(), Reject> {
    let question: Question = serde_json::from_str(line).map_err(|_| Reject::Malformed)?;
    let Question { token, audience, arguments } = question;
    let arguments = arguments.as_ref().map(|arguments| arguments.get().as_bytes());
    verifier.verify_for(&audience, &token, arguments, now()).map(drop)
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

fn print(key: &KeyInfo, json: bool) -> io::Result<()> {
    let KeyInfo { kid, created_at, retired_at } = key;
    let signs = retired_at.is_none();
    if json {
        output::json(&Row { kid, created_at: *created_at, retired_at: *retired_at, signs })
    } else {
        output::line(&format!("{kid} {}", if signs { "signs" } else { "retired" }))
    }
}

fn open(global: &Global) -> anyhow::Result<Keyring> {
    use_keys(Keyring::open(state_dir(global)?.path(), now()))
}

fn use_keys(result: Result<Keyring, identity::keys::KeyError>) -> anyhow::Result<Keyring> {
    result.map_err(|error| {
        let message = format!("could not use the keys: {:#}", anyhow::Error::new(error));
        Failure::new(Code::State, message).into()
    })
}

fn state_dir(global: &Global) -> anyhow::Result<StateDir> {
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let path = StateDir::locate(global.state_dir.as_deref(), Environment::of_process(), &current_dir)?;
    Ok(StateDir::open(path)?)
}

fn parse_trust(text: &str) -> Result<Trust, String> {
    Trust::parse(text).ok_or_else(|| "trust is none, declared, host or bound".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_arguments_and_null_are_two_things() {
        let read = |rest: &str| {
            let line = format!(r#"{{"token":"t","audience":"a"{rest}}}"#);
            let question: Question = serde_json::from_str(&line).unwrap();
            question.arguments.map(|arguments| arguments.get().to_owned())
        };
        assert_eq!(read(""), None);
        assert_eq!(read(r#","arguments":null"#).as_deref(), Some("null"));
        assert_eq!(read(r#","arguments":{"b": 1,"a":2}"#).as_deref(), Some(r#"{"b": 1,"a":2}"#));
    }

    #[test]
    fn answers_have_the_shape_of_the_contract() {
        let json = |ok, reason| serde_json::to_string(&Answer { ok, reason }).unwrap();
        assert_eq!(json(true, None), r#"{"ok":true}"#);
        assert_eq!(json(false, Some("replay")), r#"{"ok":false,"reason":"replay"}"#);
    }
}
