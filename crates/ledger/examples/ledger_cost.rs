//! What the ledger costs: `cargo run --release -p ledger --example ledger_cost -- [--rows N]`. One figure a line: name,
//! tab, value. A call is two rows. The file is made in a temporary directory, and removed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::{Begin, End, Filter, Ledger, Options, Outcome, Place, Retention, Seal, Signature};

struct NoKey;

impl Seal for NoKey {
    fn has_key(&self) -> bool {
        false
    }

    fn sign(&self, _: &[u8]) -> Option<Signature> {
        None
    }

    fn verify(&self, _: &[u8], _: &Signature) -> Option<bool> {
        None
    }
}

/// Sessions that call at the same time, in turns, and how often each of them calls.
const SESSIONS: u64 = 1000;
const CALLS: u64 = 500;

fn begin(number: u64) -> Box<Begin> {
    let session = format!("ses_{:08}", number / (SESSIONS * CALLS) * SESSIONS + number % SESSIONS);
    Box::new(Begin {
        at: 1_700_000_000_000 + number,
        host: Some("opencode".into()),
        thread: Some(session.as_str().into()),
        session: Some(session.into()),
        call: format!("call_{number:012}").into(),
        server: "tracker".into(),
        tool: Some("search".into()),
        method: "tools/call".into(),
        trust: "host",
        source: Some("seal"),
        digest: Some([7; 32]),
        size: 100,
        ..Begin::default()
    })
}

fn end() -> End {
    End { at: 0, outcome: Outcome::Ok, reason: None, target: None, micros: 1000, size: 100, result: None }
}

fn failed(error: ledger::LedgerError) -> std::io::Error {
    std::io::Error::other(error)
}

fn main() -> std::io::Result<()> {
    let rows = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Some(2_000_000),
        [name, rows] if name == "--rows" => rows.parse::<u64>().ok(),
        _ => None,
    };
    let rows = rows.ok_or_else(|| std::io::Error::other("usage: ledger_cost [--rows N]"))?;
    let directory = tempfile::tempdir()?;
    let place = Place::of(directory.path());
    let mut out = std::io::stdout().lock();
    write(&place, rows / 2, &mut out)?;
    let query = |name: &str, filter: &Filter, out: &mut dyn std::io::Write| {
        // As a command does it: a process that has read nothing before.
        let connection = place.read().map_err(failed)?;
        let now = Instant::now();
        let found = ledger::calls(&connection, filter).map_err(std::io::Error::other)?.len();
        let took = now.elapsed().as_secs_f64() * 1e3;
        writeln!(out, "the {found} calls of {name} among {rows} rows, ms\t{took:.2}")
    };
    for round in ["at first", "again"] {
        let session = Filter { session: Some("ses_00000042".to_owned()), ..Filter::default() };
        query(&format!("--session, {round}"), &session, &mut out)?;
        let thread = Filter { thread: Some("ses_00000043".to_owned()), ..Filter::default() };
        query(&format!("--thread, {round}"), &thread, &mut out)?;
        let newest = Filter { limit: Some(50), ..Filter::default() };
        query(&format!("--limit 50, {round}"), &newest, &mut out)?;
    }
    Ok(())
}

/// Writes so many calls as fast as it goes.
fn write(place: &Place, calls: u64, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let options =
        Options { place: place.clone(), strict: false, retention: Retention::default(), kind: "serve" };
    let now = Instant::now();
    let ledger = Ledger::open(options, Arc::new(NoKey)).map_err(failed)?;
    writeln!(out, "to start, µs\t{:.0}", now.elapsed().as_secs_f64() * 1e6)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let begun = Instant::now();
    let mut on_path = Duration::ZERO;
    runtime.block_on(async {
        for number in 0..calls {
            let row = begin(number);
            let now = Instant::now();
            let entry = match ledger.begin_at_once(row) {
                Ok(entry) => {
                    on_path += now.elapsed();
                    entry
                }
                Err(row) => ledger.begin(row).await.map_err(failed)?,
            };
            let now = Instant::now();
            ledger.end(entry, end());
            on_path += now.elapsed();
        }
        std::io::Result::Ok(())
    })?;
    if !ledger.close(Duration::from_mins(10)) {
        return Err(std::io::Error::other("not everything was written"));
    }
    let took = begun.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (rows, each) = (2.0 * calls as f64 / took.as_secs_f64(), on_path.as_secs_f64() * 1e6 / calls as f64);
    writeln!(out, "rows a second, sustained over {} rows\t{rows:.0}", 2 * calls)?;
    writeln!(out, "on the call's path, µs\t{each:.2}")?;
    let bytes = std::fs::metadata(&place.file)?.len();
    writeln!(out, "the file, MiB\t{}", bytes >> 20)
}
