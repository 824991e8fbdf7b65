//! `callsign serve`: the daemon.

use crate::app::{Global, ServeArgs};
use crate::daemon::{self, Plan};
use crate::logging;

pub fn run(global: &Global, arguments: &ServeArgs) -> anyhow::Result<()> {
    let spawner = daemon::start_spawner()?;
    logging::start(global)?;
    let plan = Plan::load(global, arguments)?;
    for warning in &plan.config.warnings {
        tracing::warn!("{warning}");
    }
    daemon::run(plan, spawner, |running| {
        tracing::info!("listening on {}", running.url);
        Ok(())
    })
}
