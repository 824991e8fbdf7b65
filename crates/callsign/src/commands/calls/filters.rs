//! Which calls are wanted, on the command line.

use clap::Args;
use ledger::{Filter, Outcome};

use super::time::When;

#[derive(Debug, Args)]
pub(in crate::commands) struct Filters {
    /// Only calls of this session, its subagents' too.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only calls of this thread: the session itself, or one subagent.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Only calls of this run.
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Only the call with this id.
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// Only calls to this server.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only calls of this tool or prompt, or of this uri.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only calls of this host.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Only calls that ended so. `unknown`: whoever made the call was gone before it ended.
    #[arg(long, value_parser = OUTCOMES)]
    outcome: Option<String>,
    /// Only calls from then on: 2026-11-16T12:00:00Z, a date (both UTC), or an age such as 10m, 2h or 3d.
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    since: Option<When>,
    /// Only calls before then.
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    until: Option<When>,
    /// Only so many, the newest; 0: all. Unless it is given, `calls` shows 50, `--tree` and `export` take all.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
}

/// As a list, so that a wrong one is answered with the right ones and shells complete them.
const OUTCOMES: [&str; 7] = ["ok", "tool_error", "refused", "timeout", "canceled", "failed", "unknown"];

impl Filters {
    /// `limit`: what holds where none is said. `now`: Unix milliseconds.
    pub(in crate::commands) fn at(&self, now: u64, limit: Option<u32>) -> Filter {
        Filter {
            without_texts: true,
            session: self.session.clone(),
            thread: self.thread.clone(),
            run: self.run.clone(),
            call: self.call.clone(),
            server: self.server.clone(),
            tool: self.tool.clone(),
            host: self.host.clone(),
            outcome: self.outcome.as_deref().and_then(Outcome::parse),
            since: self.since.map(|since| since.resolve(now)),
            until: self.until.map(|until| until.resolve(now)),
            limit: self.limit.or(limit).filter(|limit| *limit > 0),
        }
    }

    /// Whether everything is wanted.
    pub(super) fn is_none(&self) -> bool {
        let Self { session, thread, run, call, server, tool, host, outcome, since, until, limit: _ } = self;
        let texts = [session, thread, run, call, server, tool, host, outcome];
        texts.iter().all(|text| text.is_none()) && since.is_none() && until.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_can_be_asked_for() {
        assert_eq!(Outcome::ALL.map(Outcome::as_str), OUTCOMES);
    }
}
