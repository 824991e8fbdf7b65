//! `callsign artifacts`: what runs left behind, and what is in it.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::calls::table::{Cell, Column};
use super::calls::{note, plain, unless_closed};
use super::sessions::find::{Among, find};
use super::sessions::shown::{self, field, json_line, rows, time_cell};
use super::sessions::without_nulls;
use crate::app::Global;
use crate::client::{self, Client};
use crate::exit::{Code, Failure};

/// What the tool gives at most.
const MOST: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  callsign artifacts demo                                   of all runs of a session
  callsign artifacts demo --run run_01k…                    of one
  callsign artifacts read sn_01k…/workspace/report.md       print it
  callsign artifacts read sn_01k…/workspace/plot.png --output plot.png

SESSION is the id of a session, its reuse key or its name. PATH is one that the list shows.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_negates_reqs = true)]
pub struct ArtifactsArgs {
    #[command(subcommand)]
    command: Option<ArtifactsCommand>,
    #[arg(required = true)]
    session: Option<String>,
    /// Only those of this run.
    #[arg(long)]
    run: Option<String>,
    /// Print what the daemon answers, as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ArtifactsCommand {
    /// Print what is in an artifact.
    Read(ReadArgs),
}

#[derive(Debug, Args)]
struct ReadArgs {
    path: String,
    /// Write it to a file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
    /// How much of it is read.
    #[arg(long, value_name = "BYTES", default_value_t = MOST, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    max_bytes: u64,
}

const COLUMNS: [Column; 5] = [
    Column::fixed("PATH"),
    Column::number("SIZE"),
    Column::fixed("CHANGED (UTC)"),
    Column::fixed("KIND"),
    Column::fixed("RUN").optional(),
];

pub fn run(global: &Global, arguments: &ArtifactsArgs) -> anyhow::Result<()> {
    let work = client::with(global, async |client| match (&arguments.command, &arguments.session) {
        (Some(ArtifactsCommand::Read(read)), None) => self::read(client, read, arguments.json).await,
        (None, Some(session)) => list(client, session, arguments).await,
        (Some(_), Some(_)) | (None, None) => {
            let message = "say either a session, or `read` and a path";
            Err(Failure::new(Code::Usage, message).into())
        }
    });
    unless_closed(work)
}

async fn list(client: &Client, session: &str, arguments: &ArtifactsArgs) -> anyhow::Result<()> {
    let session = find(client, session, Among::All).await?;
    let wanted = without_nulls(json!({ "session_id": session, "run_id": arguments.run }));
    let answer = client.call("list_artifacts", wanted).await?;
    if arguments.json {
        return Ok(json_line(&answer)?);
    }
    let artifacts = answer["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if artifacts.is_empty() {
        note("no artifacts yet; they are there when a run has ended");
        return Ok(());
    }
    Ok(rows(&COLUMNS, &artifacts.iter().map(cells).collect::<Vec<_>>())?)
}

fn cells(artifact: &Value) -> Vec<Cell> {
    let text = |name: &str| Cell::new(plain(field(artifact, name)).into_owned());
    vec![
        text("path"),
        Cell::new(artifact["size"].as_u64().map(|size| size.to_string()).unwrap_or_default()),
        time_cell(&artifact["modified"]),
        text("kind"),
        text("run_id"),
    ]
}

async fn read(client: &Client, arguments: &ReadArgs, as_json: bool) -> anyhow::Result<()> {
    let ReadArgs { path, output, max_bytes } = arguments;
    let answer = client.call("read_artifact", json!({ "path": path, "max_bytes": max_bytes })).await?;
    if as_json {
        return Ok(json_line(&answer)?);
    }
    let content = Content::of(&answer)?;
    if let Some(file) = output {
        std::fs::write(file, content.bytes())
            .with_context(|| format!("could not write {}", file.display()))?;
    } else {
        content.print()?;
    }
    if answer["truncated"] == true {
        let (read, size) = (content.bytes().len(), &answer["size"]);
        note(&format!("cut: these are the first {read} of {size} bytes"));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Binary(Vec<u8>),
}

impl Content {
    fn of(answer: &Value) -> anyhow::Result<Self> {
        if let Some(text) = answer["text"].as_str() {
            return Ok(Self::Text(text.to_owned()));
        }
        let encoded = answer["base64"].as_str().context("the daemon answered neither text nor base64")?;
        Ok(Self::Binary(BASE64_STANDARD.decode(encoded).context("the daemon's base64 is none")?))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// A program gets the bytes as they are.
    fn print(&self) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        match (self, stdout.is_terminal()) {
            (Self::Binary(_), true) => {
                let message = "it is binary, and stdout is a terminal";
                let hint = "write it to a file with --output FILE";
                return Err(Failure::new(Code::Usage, message).with_hint(hint).into());
            }
            (Self::Text(text), true) => {
                let text = shown::lines(text);
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                write!(stdout, "{text}{end}")?;
            }
            (Self::Text(_) | Self::Binary(_), false) => stdout.write_all(self.bytes())?,
        }
        Ok(stdout.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_text_or_bytes_or_an_error() {
        let of = |answer: Value| Content::of(&answer);
        assert_eq!(of(json!({ "text": "a\n" })).unwrap(), Content::Text("a\n".to_owned()));
        assert_eq!(of(json!({ "text": "" })).unwrap(), Content::Text(String::new()));
        assert_eq!(of(json!({ "base64": "/wA=" })).unwrap(), Content::Binary(vec![255, 0]));
        assert!(of(json!({ "base64": "!" })).is_err());
        assert!(of(json!({ "path": "x" })).is_err());
    }
}
