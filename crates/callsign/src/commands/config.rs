//! `callsign config check`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;

use crate::config::{self, Environment, Purpose, Sources};
use crate::hooking::Hooking;
use crate::output;

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report every mistake at once, with file and line.
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE", env = "CALLSIGN_CONFIG")]
        config: Option<PathBuf>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    file: Option<PathBuf>,
    servers: Vec<String>,
    mistakes: Vec<Place>,
    warnings: Vec<Place>,
}

#[derive(Serialize)]
struct Place {
    file: PathBuf,
    line: usize,
    column: usize,
    message: String,
}

pub fn run(command: &ConfigCommand) -> anyhow::Result<()> {
    let ConfigCommand::Check { config, json } = command;
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let environment = Environment::of_process();
    let sources =
        Sources { named: config.as_deref(), current_dir: &current_dir, environment, purpose: Purpose::Serve };
    // Hooks are a part of it: a daemon does not start with one that cannot be loaded.
    let loaded = config::load(&sources).and_then(|config| Hooking::load(&config.hooks).map(|_| config));
    if *json {
        output::json(&report(&loaded))?;
    }
    let config = loaded?;
    if !json {
        for warning in &config.warnings {
            output::line(&format!("warning: {warning}"))?;
        }
        match &config.path {
            Some(path) => {
                output::line(&format!("{}: {} servers, no mistakes", path.display(), config.servers.len()))?;
            }
            None => output::line("no configuration file was found; the defaults hold")?,
        }
    }
    Ok(())
}

fn report(loaded: &Result<config::Config, config::ConfigErrors>) -> Report {
    let lines = |mistakes: &[config::Mistake]| -> Vec<Place> {
        let line = |mistake: &config::Mistake| Place {
            file: mistake.file.clone(),
            line: mistake.line,
            column: mistake.column,
            message: mistake.message.clone(),
        };
        mistakes.iter().map(line).collect()
    };
    match loaded {
        Ok(config) => Report {
            ok: true,
            file: config.path.clone(),
            servers: config.servers.iter().map(|server| server.name.to_string()).collect(),
            mistakes: Vec::new(),
            warnings: lines(&config.warnings),
        },
        Err(errors) => {
            let file = errors.0.first().map(|mistake| mistake.file.clone());
            Report { ok: false, file, servers: Vec::new(), mistakes: lines(&errors.0), warnings: Vec::new() }
        }
    }
}
