//! `callsign token create|list|revoke`.

use std::time::SystemTime;

use anyhow::Context as _;
use clap::Subcommand;
use model::Principal;
use serde::Serialize;

use crate::app::Global;
use crate::config::Environment;
use crate::exit::{Code, Failure};
use crate::output;
use crate::state::StateDir;
use crate::tokens::Tokens;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for a new principal and print it, once.
    Create {
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// List the principals that have one.
    List {
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Make a principal's token worthless.
    Revoke { name: String },
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    created_at: u64,
}

pub fn run(global: &Global, command: TokenCommand) -> anyhow::Result<()> {
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let path = StateDir::locate(global.state_dir.as_deref(), Environment::of_process(), &current_dir)?;
    let tokens = Tokens::open(&StateDir::open(path)?)?;
    match command {
        TokenCommand::Create { name, json } => {
            let now = now();
            let secret = tokens.create(&principal(&name)?, now)?;
            if json {
                output::json(&Row { name: &name, token: Some(secret.expose()), created_at: now })?;
            } else {
                output::line(secret.expose())?;
            }
        }
        TokenCommand::List { json } => {
            for token in tokens.list()? {
                let row = Row { name: token.name.as_str(), token: None, created_at: token.created_at };
                if json { output::json(&row)? } else { output::line(row.name)? }
            }
        }
        TokenCommand::Revoke { name } => tokens.revoke(&principal(&name)?)?,
    }
    Ok(())
}

fn principal(name: &str) -> anyhow::Result<Principal> {
    Ok(Principal::new(name).map_err(|error| Failure::new(Code::Usage, format!("{name:?}: {error}")))?)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    now_millis() / 1000
}

pub fn now_millis() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the edge: everything beneath takes the time as a parameter"
    )]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
