//! `callsign sessions`: which agent sessions there are, and how one is made and ended.

pub(super) mod find;
pub(super) mod shown;

use std::io;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::find::{Among, all_pages, find};
use self::shown::{field, json_line, rows, status_cell, time_cell};
use super::calls::table::{Cell, Column};
use super::calls::{note, plain};
use crate::app::Global;
use crate::client::{self, Client};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  callsign sessions                                  those that are live
  callsign sessions create --reuse-key demo          one session, however often this is run
  callsign submit demo \"Say what is in this repository.\" --wait
  callsign sessions terminate demo                   its files stay

SESSION is the id of a session, its reuse key or its name.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    /// Also those that were terminated.
    #[arg(long)]
    all: bool,
    /// Print what the daemon answers, as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// Make a session, or find the one with this reuse key. Prints its id.
    ///
    /// The MCP_* variables of the environment are its settings, as they are of `callsign mcp`.
    Create {
        /// What people call it.
        #[arg(long)]
        name: Option<String>,
        /// What it is found again by: where a live session has this key, that one is used.
        #[arg(long, value_name = "KEY")]
        reuse_key: Option<String>,
        /// The image of its box, for the docker runtime.
        #[arg(long)]
        image: Option<String>,
    },
    /// End a session and what runs in it.
    Terminate {
        session: String,
        /// Remove its files as well.
        #[arg(long)]
        remove: bool,
    },
}

const COLUMNS: [Column; 7] = [
    Column::fixed("SESSION"),
    Column::id("NAME", 8).optional(),
    Column::id("REUSE KEY", 9).optional(),
    Column::fixed("STATUS"),
    Column::number("RUNS"),
    Column::fixed("USED (UTC)").optional(),
    Column::rest("WORKSPACE", 12),
];

pub fn run(global: &Global, arguments: &SessionsArgs) -> anyhow::Result<()> {
    let as_json = arguments.json;
    client::with(global, async |client| match &arguments.command {
        None => list(client, arguments).await,
        Some(SessionsCommand::Create { name, reuse_key, image }) => {
            let wanted = json!({ "name": name, "reuse_key": reuse_key, "image": image });
            create(client, wanted, as_json).await
        }
        Some(SessionsCommand::Terminate { session, remove }) => {
            let session = find(client, session, Among::Live).await?;
            let wanted = json!({ "session_id": session, "keep": !remove });
            terminate(client, wanted, as_json).await
        }
    })
}

async fn list(client: &Client, arguments: &SessionsArgs) -> anyhow::Result<()> {
    let among = if arguments.all { Among::All } else { Among::Live };
    let sessions = all_pages(client, among).await?;
    if arguments.json {
        return Ok(json_line(&json!({ "sessions": sessions }))?);
    }
    if sessions.is_empty() {
        note("no sessions; `callsign sessions create` makes one");
        return Ok(());
    }
    Ok(rows(&COLUMNS, &sessions.iter().map(cells).collect::<Vec<_>>())?)
}

fn cells(session: &Value) -> Vec<Cell> {
    let text = |name: &str| Cell::new(plain(field(session, name)).into_owned());
    let unfinished = session["unfinished_runs"].as_u64().unwrap_or_default();
    let used = [&session["used_at"], &session["created_at"]].into_iter().find(|at| at.is_string());
    vec![
        text("id"),
        text("name"),
        text("reuse_key"),
        status_cell(field(session, "status")),
        Cell::new(unfinished.to_string()),
        used.map(time_cell).unwrap_or_default(),
        text("workspace"),
    ]
}

async fn create(client: &Client, wanted: Value, as_json: bool) -> anyhow::Result<()> {
    let answer = client.call("create_or_reuse_session", without_nulls(wanted)).await?;
    if as_json {
        return Ok(json_line(&answer)?);
    }
    for warning in answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        note(&format!("warning: {}", plain(warning)));
    }
    let session = &answer["session"];
    let how = if session["reused"] == true { "it was there" } else { "it is new" };
    let workspace = plain(field(session, "workspace"));
    note(&format!("{how}; what you put into {workspace} it finds in /workspace"));
    Ok(output::line(&plain(field(session, "id")))?)
}

async fn terminate(client: &Client, wanted: Value, as_json: bool) -> anyhow::Result<()> {
    let keeps = wanted["keep"] == true;
    let answer = client.call("terminate_session", wanted).await?;
    if as_json {
        return Ok(json_line(&answer)?);
    }
    let session = &answer["session"];
    if keeps {
        note(&format!("its files stay in {}", plain(field(session, "workspace"))));
    }
    Ok(told(field(session, "id"), field(session, "status"))?)
}

/// One line of what became of something.
pub(super) fn told(id: &str, status: &str) -> io::Result<()> {
    output::line(&format!("{} {}", plain(id), plain(status)))
}

/// A tool's own defaults hold for what nobody said.
pub(super) fn without_nulls(mut arguments: Value) -> Value {
    if let Some(members) = arguments.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_said_is_left_out() {
        let wanted = json!({ "name": null, "reuse_key": "demo", "keep": false });
        assert_eq!(without_nulls(wanted), json!({ "reuse_key": "demo", "keep": false }));
    }
}
