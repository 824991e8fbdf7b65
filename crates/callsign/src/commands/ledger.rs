//! `callsign ledger verify|export`.

mod export;
mod verify;

use clap::Subcommand;

use crate::app::Global;

#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Check that every call is as it was written down, and print a value that finds an older copy later.
    Verify(verify::VerifyArgs),
    /// Write calls with everything that is known of them, one JSON object a line or as OpenTelemetry spans.
    Export(Box<export::ExportArgs>),
}

pub fn run(global: &Global, command: &LedgerCommand) -> anyhow::Result<()> {
    match command {
        LedgerCommand::Verify(arguments) => verify::run(global, arguments),
        LedgerCommand::Export(arguments) => export::run(global, arguments),
    }
}
