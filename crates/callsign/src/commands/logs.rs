//! `callsign logs RUN`: what a run did, and what it does.

mod news;

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use clap::Args;
use model::session::RunId;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use self::news::News;
use super::calls::{note, plain, unless_closed};
use super::runs::has_ended;
use super::sessions::shown::{self, field};
use crate::app::Global;
use crate::client::{self, Client, is_lost};
use crate::exit::{Code, Failure};

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(300);
/// How many lines are asked for at a look. More in so short a time are asked for again.
const LOOKED_AT: u64 = 500;
/// What the tool gives at most.
const MOST: u64 = 10_000;
/// How long a daemon that went away may take to come back.
const TRIES: u32 = 30;

#[derive(Debug, Args)]
pub struct LogsArgs {
    run: String,
    /// How many lines from the end are shown.
    #[arg(long, value_name = "LINES", default_value_t = 200, value_parser = clap::value_parser!(u64).range(0..=MOST))]
    tail: u64,
    /// Go on and show each line as it comes, until the run ends or Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Print what the daemon answers, as JSON; with --follow an object for whatever is new.
    #[arg(long)]
    json: bool,
}

pub fn run(global: &Global, arguments: &LogsArgs) -> anyhow::Result<()> {
    let work = client::with(global, async |client| {
        if !arguments.follow {
            let answer = logs(client, &arguments.run, arguments.tail).await?;
            return Ok(show(&answer, arguments.json)?);
        }
        tokio::select! {
            ended = follow(client, arguments) => ended,
            interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        }
    });
    unless_closed(work)
}

async fn logs(client: &Client, run: &str, lines: u64) -> anyhow::Result<Value> {
    client.call("get_run_logs", json!({ "run_id": run, "tail_lines": lines })).await
}

async fn follow(client: &Client, arguments: &LogsArgs) -> anyhow::Result<()> {
    let run = RunId::parse(&arguments.run).map_err(|_| {
        let message = format!("`{}` is not the id of a run", plain(&arguments.run));
        Failure::new(Code::Usage, message).with_hint("callsign runs SESSION")
    })?;
    let mut following = Following { client, run, news: News::default(), as_json: arguments.json };
    following.begin(arguments.tail).await?;
    let mut lost = 0;
    loop {
        match following.look().await {
            Ok(true) => return Ok(()),
            Ok(false) => lost = 0,
            // A daemon that was killed is started again by the next request.
            Err(error) if is_lost(&error) && lost < TRIES => lost += 1,
            Err(error) => return Err(error),
        }
        if nobody_reads()? {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

struct Following<'a> {
    client: &'a Client,
    run: RunId,
    news: News,
    as_json: bool,
}

impl Following<'_> {
    /// Shows the last lines of what is there.
    async fn begin(&mut self, tail: u64) -> anyhow::Result<()> {
        let answer = logs(self.client, self.run.as_str(), tail.max(LOOKED_AT)).await?;
        let lines = self.news.begin(whole_lines(field(&answer, "text"))).to_vec();
        let left_out = lines.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX));
        let truncated = left_out > 0 || answer["truncated"] == true;
        self.show(&lines[left_out..], truncated)
    }

    /// Shows what is new. True: the run has ended, and this was the rest.
    async fn look(&mut self) -> anyhow::Result<bool> {
        // Asked first: what it writes until its end is then there to be read.
        let state = self.client.get(&format!("/v1/runs/{}", self.run)).await?;
        let ended = has_ended(&state["run"]);
        let shown = |text: &'_ str| if ended { text.to_owned() } else { whole_lines(text).to_owned() };
        let answer = logs(self.client, self.run.as_str(), LOOKED_AT).await?;
        let mut text = shown(field(&answer, "text"));
        let mut fresh = self.news.since(&text);
        if fresh.has_gap {
            let answer = logs(self.client, self.run.as_str(), MOST).await?;
            text = shown(field(&answer, "text"));
            fresh = self.news.since(&text);
        }
        if fresh.has_gap {
            note("some lines were written too fast and are not shown");
        }
        self.news.begin(&text);
        if !fresh.lines.is_empty() {
            self.show(&fresh.lines, fresh.has_gap)?;
        }
        Ok(ended)
    }

    fn show(&self, lines: &[String], truncated: bool) -> anyhow::Result<()> {
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let run = self.run.as_str();
        let part = json!({ "run_id": run, "text": text, "lines": lines.len(), "truncated": truncated });
        Ok(show(&part, self.as_json)?)
    }
}

/// The last line may be in the making.
fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

/// Unlike elsewhere, a reader that went away is an error here: there is no other end.
fn show(answer: &Value, as_json: bool) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if as_json {
        writeln!(stdout, "{}", super::calls::json(answer)?)?;
    } else {
        let text = field(answer, "text");
        let text = if stdout.is_terminal() { shown::lines(text) } else { text.to_owned() };
        stdout.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
    }
    stdout.flush()
}

/// Asked for nothing, a pipe still tells that nobody reads it.
fn nobody_reads() -> anyhow::Result<bool> {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    Ok(poll(&mut watched, PollTimeout::ZERO)? > 0)
}
