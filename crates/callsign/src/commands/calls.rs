//! `callsign calls`: who called what, when, and how it ended.

mod filters;
mod follow;
mod list;
mod row;
pub(super) mod table;
mod text;
pub(super) mod time;
mod tree;

use std::io::{self, BufWriter, Write as _};
use std::ops::ControlFlow;

use anyhow::Context as _;
use clap::Args;
use ledger::{Call, Connection, Filter, LedgerError, Place};

pub(super) use self::filters::Filters;
use self::follow::Follow;
use self::list::List;
pub(super) use self::row::Whole;
use self::table::{More, Page};
pub(super) use self::text::{escape, json, plain};
pub(super) use self::time::rfc3339;
use self::tree::Tree;
use crate::app::Global;
use crate::config::Environment;
use crate::identification::now_ms;
use crate::state::StateDir;

/// How many are shown where nobody says.
const SHOWN: u32 = 50;

const EXAMPLES: &str = "\
Examples:
  callsign calls                                      the last 50
  callsign calls --session ses_1                      of one session and its subagents
  callsign calls --outcome refused --since 1h         what was refused in the last hour
  callsign calls --server tracker --follow            as they end, until Ctrl-C
  callsign calls --tree --since 1d                    sessions with their subagents
  callsign calls --json --limit 0 | jq -r .tool | sort | uniq -c

What is recorded, and what the columns mean: docs/ledger.md.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CallsArgs {
    #[command(flatten)]
    filters: Filters,
    /// Go on and show each call when it ends, until Ctrl-C.
    #[arg(long, conflicts_with = "tree")]
    follow: bool,
    /// Show sessions with their subagents, and how much each called; of all calls unless --limit is given.
    #[arg(long)]
    tree: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

pub fn run(global: &Global, arguments: &CallsArgs) -> anyhow::Result<()> {
    unless_closed(show(global, arguments))
}

/// A reader that goes away has seen enough.
pub(super) fn unless_closed(result: anyhow::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn show(global: &Global, arguments: &CallsArgs) -> anyhow::Result<()> {
    let place = place(global)?;
    let now = now_ms();
    let page = (!arguments.json).then(|| Page::of_stdout(Environment::of_process()));
    let out = BufWriter::new(io::stdout().lock());
    let filter = arguments.filters.at(now, (!arguments.tree).then_some(SHOWN));
    if arguments.follow {
        return Follow::new(place, filter, List::new(out, page), now)?.run();
    }
    let shown = match place.read() {
        Ok(connection) if arguments.tree => tree(&connection, &filter, out, page)?,
        Ok(connection) => {
            let mut list = List::new(out, page);
            each(&connection, &filter, |call| anyhow::Ok(list.add(call)?))?;
            list.settle(More::No)?;
            list.count
        }
        Err(LedgerError::Absent(_)) => 0,
        Err(error) => return Err(error.into()),
    };
    if shown == 0 && !arguments.filters.is_none() && place.read().is_ok() {
        note("no call is like that; `callsign calls` without filters shows the last ones");
    } else if shown == 0 {
        note(
            "no calls yet; they are written down when a host calls through `callsign wrap` or `callsign serve`",
        );
    }
    Ok(())
}

fn tree(
    connection: &Connection,
    filter: &Filter,
    mut out: impl io::Write,
    page: Option<Page>,
) -> anyhow::Result<u64> {
    let (mut tree, mut count) = (Tree::default(), 0);
    each(connection, filter, |call| {
        count += 1;
        tree.add(call);
        anyhow::Ok(())
    })?;
    match page {
        Some(page) => tree.text(&mut out, page)?,
        None => tree.json(&mut out)?,
    }
    Ok(count)
}

/// Where the ledger of the state directory is. Nothing is made.
pub(super) fn place(global: &Global) -> anyhow::Result<Place> {
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let state = StateDir::locate(global.state_dir.as_deref(), Environment::of_process(), &current_dir)?;
    Ok(Place::of(&state))
}

/// Shows each call that the filter wants to `visit`, until that fails. They are not all in memory, but where the newest
/// of a limit are wanted.
pub(super) fn each<E: From<LedgerError>>(
    connection: &Connection,
    filter: &Filter,
    mut visit: impl FnMut(&Call) -> Result<(), E>,
) -> Result<(), E> {
    let mut failed = None;
    let walked = ledger::each_call(connection, filter, &mut |call| match visit(&call) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    });
    walked.map_err(|error| ledger::unreadable(connection, &error))?;
    failed.map_or(Ok(()), Err)
}

/// For the person, beside the data.
pub(super) fn note(text: &str) {
    let _nobody_reads = writeln!(io::stderr(), "{text}");
}
