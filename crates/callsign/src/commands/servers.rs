//! `callsign servers [approve NAME]`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use gateway::server::catalogue::{ApproveError, Catalogue};
use model::{Isolation, ServerName, ServerSpec, Transport};
use serde::Serialize;

use crate::app::Global;
use crate::config::{self, Environment, Purpose, Sources};
use crate::daemon::catalogue_file;
use crate::exit::{Code, Failure};
use crate::output;
use crate::state::StateDir;

#[derive(Debug, Args)]
pub struct ServersArgs {
    #[command(subcommand)]
    command: Option<ServersCommand>,
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "CALLSIGN_CONFIG")]
    config: Option<PathBuf>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ServersCommand {
    /// Accept the tools a pinned server lists now.
    Approve { name: String },
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    kind: &'static str,
    target: String,
    isolation: Option<&'static str>,
    pin: bool,
}

pub fn run(global: &Global, arguments: &ServersArgs) -> anyhow::Result<()> {
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let environment = Environment::of_process();
    if let Some(ServersCommand::Approve { name }) = &arguments.command {
        let name = ServerName::new(name).map_err(|error| Failure::new(Code::Usage, error.to_string()))?;
        let directory = StateDir::locate(global.state_dir.as_deref(), environment, &current_dir)?;
        return approve(&name, &catalogue_file(&directory, &name), arguments.json);
    }
    let sources = Sources {
        named: arguments.config.as_deref(),
        current_dir: &current_dir,
        environment,
        purpose: Purpose::Serve,
    };
    for server in &config::load(&sources)?.servers {
        let row = row(server);
        if arguments.json {
            output::json(&row)?;
        } else {
            output::line(&format!("{}\t{}\t{}", row.name, row.kind, row.target))?;
        }
    }
    Ok(())
}

fn row(server: &ServerSpec) -> Row<'_> {
    let (kind, target, isolation) = match &server.transport {
        Transport::Stdio(stdio) => {
            let isolation = match stdio.isolation {
                Isolation::Session => "session",
                Isolation::Shared => "shared",
            };
            // The command only: arguments may hold secrets.
            ("stdio", stdio.command.clone(), Some(isolation))
        }
        Transport::Http(http) => ("http", http.url.clone(), None),
    };
    Row { name: server.name.as_str(), kind, target, isolation, pin: server.pin }
}

fn approve(name: &ServerName, file: &std::path::Path, json: bool) -> anyhow::Result<()> {
    let approved = Catalogue::approve(name.as_str(), file).map_err(|error| match error {
        ApproveError::Nothing(_) => anyhow::Error::from(Failure::new(Code::State, error.to_string())),
        ApproveError::File(..) => anyhow::Error::from(error),
    })?;
    if json {
        output::json(&serde_json::json!({ "server": name.as_str(), "approved": approved }))?;
    } else if approved.is_empty() {
        output::line("nothing was withheld")?;
    } else {
        output::line(&format!("approved: {}", approved.join(", ")))?;
    }
    Ok(())
}
