//! `callsign ledger export`: calls for other programs.

mod spans;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use ledger::{Connection, Filter};

use self::spans::Spans;
use crate::app::Global;
use crate::commands::calls::{self, Filters, Whole, json, note};
use crate::identification::now_ms;

const EXAMPLES: &str = "\
Examples:
  callsign ledger export --since 1d --output calls.jsonl
  callsign ledger export --session ses_1 | jq .digest
  callsign ledger export --format otlp | while read -r spans; do
    printf %s \"$spans\" | curl -sS -H 'Content-Type: application/json' --data-binary @- http://127.0.0.1:4318/v1/traces
  done";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    filters: Filters,
    /// How calls are written.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// The file to write, whole or not at all; else the standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object a line, with every column.
    Jsonl,
    /// OpenTelemetry spans: one request to a collector a line, in OTLP's JSON form. Calls under way are left out.
    Otlp,
}

pub(super) fn run(global: &Global, arguments: &ExportArgs) -> anyhow::Result<()> {
    let connection = calls::place(global)?.read()?;
    let filter = Filter { without_texts: false, ..arguments.filters.at(now_ms(), None) };
    let Some(path) = arguments.output.as_deref().filter(|path| *path != Path::new("-")) else {
        let out = BufWriter::new(io::stdout().lock());
        return calls::unless_closed(write(&connection, &filter, arguments.format, out).map(drop));
    };
    let count = to_file(path, |out| write(&connection, &filter, arguments.format, out))?;
    note(&format!("{count} calls in {}", path.display()));
    Ok(())
}

/// How many there were. One row is in memory at a time.
fn write(
    connection: &Connection,
    filter: &Filter,
    format: Format,
    mut out: impl Write,
) -> anyhow::Result<u64> {
    let mut count = 0;
    match format {
        Format::Jsonl => calls::each(connection, filter, |call| {
            count += 1;
            anyhow::Ok(writeln!(out, "{}", json(&Whole::of(call))?)?)
        })?,
        Format::Otlp => {
            let mut spans = Spans::new(&mut out);
            calls::each(connection, filter, |call| anyhow::Ok(spans.add(call)?))?;
            count = spans.finish()?;
        }
    }
    out.flush()?;
    Ok(count)
}

/// Others may not read it: it says who did what.
fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let doing = || format!("could not write {}", path.display());
    // A pipe or a terminal is written to; it must not be replaced by a file.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let file = File::options().write(true).open(path).with_context(doing)?;
        return write(&mut BufWriter::new(file)).with_context(doing);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = tempfile::Builder::new().prefix(".new-").tempfile_in(directory).with_context(doing)?;
    let count = write(&mut BufWriter::new(new.as_file())).with_context(doing)?;
    new.as_file().sync_all().with_context(doing)?;
    new.persist(path).map_err(|error| error.error).with_context(doing)?;
    Ok(count)
}
