//! What is kept of a run, beside what the store knows of it.
//!
//! ```text
//! runs/RUN/   no box sees it
//!   context.json               what was asked           answer.rs, before the prompt is sent
//!   run.log                    what happened            log.rs, while it runs ─▶ totals ─▶ summary.rs
//!   metered.json               what it has used         live/metered.rs, while it runs; no artifact
//!   assistant-response.json    what came of it          answer.rs, when it has ended
//!   assistant-response.md      … for people
//! ```
//!
//! **Invariants**
//!
//! - Everything here can be done again by another process and leaves the same: no line twice, no file in halves.
//! - Nothing in a workspace is opened but beneath it, through [`beneath`].
//! - No text of an agent drives a terminal that shows `run.log`, and none makes a line of its own.
//!
//! Everything here blocks: nothing for long, but [`changed_files`] in a large workspace.

mod answer;
mod changed;
mod log;
mod plain;
mod read;
mod summary;
mod tail;

use model::session::{RunId, UnixMillis};

pub use answer::{Answer, Context, Outcome, write_answer, write_context};
pub use changed::{CHANGED_CAPS, changed_files, records};
pub use log::{LogTotals, RunLog};
pub use read::{MOST_READ, ReadError, read};
pub use summary::result_summary;
pub use tail::{Tail, tail};

/// The names of what is kept of a run, in its own directory.
pub const RECORDS: [&str; 4] = [RESPONSE_JSON, RESPONSE_MD, CONTEXT, LOG];

const RESPONSE_JSON: &str = "assistant-response.json";
const RESPONSE_MD: &str = "assistant-response.md";
const CONTEXT: &str = "context.json";
/// What [`RunLog`] writes.
pub(crate) const LOG: &str = "run.log";

/// What a run has used so far.
pub(crate) const TALLY: &str = "metered.json";

/// Where a session's directory has its workspace and its runs, as paths of artifacts begin.
const WORKSPACE: &str = "workspace";
const RUNS: &str = "runs";

/// A moment as it stands in a file: RFC 3339, UTC.
pub fn written(at: UnixMillis) -> String {
    format!("{}T{}Z", plain::date(at), plain::clock(at))
}

/// Whether `path` is one of [`RECORDS`] of a run, beneath `runs/`.
fn is_record(path: &str) -> bool {
    path.split_once('/').is_some_and(|(run, name)| RunId::parse(run).is_ok() && RECORDS.contains(&name))
}
