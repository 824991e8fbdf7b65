//! `callsign announce`: what a host's hook says of a call that is about to come.
//!
//! Hosts wait for their hooks, so this is quick, and it never stands in the way of a call: whether one without an
//! announcement is carried is for the server's `require` to say. In particular it never ends with code 2, which
//! Claude Code takes for a refusal.

use std::io::Read as _;

use anyhow::Context as _;
use clap::Args;
use identity::announce::{AnnounceError, Announcements};

use crate::app::Global;
use crate::config::Environment;
use crate::exit::{Code, Failure};
use crate::identification::now_ms;
use crate::state::StateDir;

/// A hook's input has the arguments of the call in it, which may be long.
const MOST: u64 = 64 * 1024 * 1024;
/// One run in so many looks for announcements that no call came for.
const CLEARS: u64 = 64;

#[derive(Debug, Args)]
#[command(
    after_help = "`callsign install claude-code` puts it into the host's settings as a PreToolUse hook."
)]
pub struct AnnounceArgs {}

pub fn run(global: &Global, _: &AnnounceArgs) -> anyhow::Result<()> {
    let mut hook = Vec::new();
    std::io::stdin().lock().take(MOST).read_to_end(&mut hook).context("could not read the hook's input")?;
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let located = StateDir::locate(global.state_dir.as_deref(), Environment::of_process(), &current_dir)?;
    let announcements = Announcements::new(StateDir::open(located)?.path());
    let now = now_ms();
    if now.is_multiple_of(CLEARS) {
        announcements.clear_old(now);
    }
    announcements.record(&hook, now).map_err(|error| match error {
        AnnounceError::NotAHook(_) => {
            let hint = "it is meant for a host's PreToolUse hook; see `callsign install claude-code`";
            Failure::new(Code::Unexpected, error.to_string()).with_hint(hint).into()
        }
        AnnounceError::Write(..) => anyhow::Error::from(error),
    })
}
